// Output slots of clients that go: two ranks on the host backend, whose clients come and go without
// a word while they hold slots.
#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/host/host_backend.h"
#include "proto/local/stream_words.h"
#include "worker/attach/attach_server.h"
#include "worker/testing/session_group.h"
#include "worker/testing/small_layer.h"
#include "worker/testing/test_attachment.h"
#include "worker/testing/test_client.h"

namespace perigee {
namespace {

using ::testing::HasSubstr;

constexpr int32_t kRanks = 2;
constexpr int32_t kSlots = 2;
constexpr LocalPlanId kPlan(1);

class SlotsLeaseTest : public ::testing::Test {
 protected:
  SlotsLeaseTest() : group_(kRanks, [](int32_t) { return CreateHostBackend(); }) {
    v1::BufferShape shape = SmallLayer(kRanks, 1).shape();
    shape.set_dispatch_output_slots(kSlots);
    v1::Buffer options;
    options.set_operation_timeout_ms(8000);  // half of it is waited for a reader
    group_.MakeBuffer(shape, options);
    for (int32_t rank = 0; rank < kRanks; ++rank) {
      servers_.push_back(*AttachServer::Start(absl::StrCat(directory_.path(), "/a", rank),
                                              ClientUsers(geteuid(), {}),
                                              group_.environment(rank)));
      clients_.push_back(Attach(rank));
    }
  }
  ~SlotsLeaseTest() override {
    clients_.clear();
    for (int32_t rank = 0; rank < kRanks; ++rank) {
      group_.session(rank).Abort({}, "the test ends");
      EXPECT_TRUE(group_.session(rank).Close().ok());
    }
    servers_.clear();
  }

  TestClient Attach(int32_t rank) {
    Ticket ticket;
    ticket.fill(static_cast<uint8_t>(++attachments_));
    EXPECT_TRUE(servers_[rank]
                    ->Serve(group_.session(rank),
                            TestServeCommand(kTestBuffer, attachments_, ticket, last_sequence_ + 1),
                            {[](const v1::ClientReport&) {},
                             [this](const AttachmentEnd& end) { NoteEnd(end); }})
                    .ok());
    return *TestClient::Attach(
        servers_[rank]->path(),
        TestAttachRequest(kTestGroup, group_.environment(rank).incarnation, rank, ticket));
  }
  // The client's process is killed, as its worker sees it; another one comes.
  void Replace(int32_t rank) {
    clients_[rank].reset();
    std::unique_lock<std::mutex> lock(mutex_);
    ASSERT_TRUE(changed_.wait_for(lock, std::chrono::seconds(60), [this] { return ends_ > 0; }));
    --ends_;
    EXPECT_FALSE(orderly_);
    lock.unlock();
    clients_[rank] = Attach(rank);
  }

  LocalCompletion Run(int32_t rank, const LocalOperation& operation) {
    const auto done = clients_[rank]->Run(operation);
    EXPECT_TRUE(done.ok()) << done.status();
    return done.value_or(LocalCompletion());
  }
  // On both ranks.
  std::vector<LocalCompletion> DispatchAll() {
    std::vector<LocalCompletion> done(kRanks);
    std::thread other([&] { done[1] = Run(1, LocalDispatch{kPlan, 1, false, kAnySlot}); });
    done[0] = Run(0, LocalDispatch{kPlan, 1, false, kAnySlot});
    other.join();
    ++last_sequence_;
    return done;
  }
  std::vector<LocalSlot> TakeAll() {
    std::vector<LocalSlot> slots;
    for (int32_t i = 0; i < kSlots; ++i) {
      const std::vector<LocalCompletion> done = DispatchAll();
      for (const LocalCompletion& rank : done) EXPECT_TRUE(rank.status.ok()) << rank.status;
      EXPECT_EQ(done[0].slot, done[1].slot);
      slots.push_back(done[0].slot);
    }
    return slots;
  }
  CommandPage& PageOf(int32_t rank) { return **OpenCommandPage(clients_[rank]->page.memory()); }

  ScratchDirectory directory_;
  SessionGroup group_;
  std::vector<std::unique_ptr<AttachServer>> servers_;
  std::vector<absl::optional<TestClient>> clients_;
  uint64_t last_sequence_ = 0;

 private:
  void NoteEnd(const AttachmentEnd& end) {
    std::lock_guard<std::mutex> lock(mutex_);
    ++ends_;
    orderly_ = end.end.orderly();
    changed_.notify_all();
  }

  uint64_t attachments_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  int ends_ = 0;  // guarded by mutex_, as the next
  bool orderly_ = false;
};

TEST_F(SlotsLeaseTest, TheSlotsOfOneThatWasKilledAreFreeAgain) {
  for (int round = 0; round < 3; ++round) {
    for (const LocalSlot& slot : TakeAll()) {
      EXPECT_TRUE(Run(1, LocalReleaseSlot{slot}).status.ok());
    }
    Replace(0);
  }
  const std::vector<LocalSlot> slots = TakeAll();
  // Those of the one before it are over for the next.
  Replace(0);
  EXPECT_THAT(std::string(Run(0, LocalReleaseSlot{slots[0]}).status.message()),
              HasSubstr("is released already"));
}

// The other rank's client holds its own on; whose turn it is, is the same on both.
TEST_F(SlotsLeaseTest, RanksOfWhichOneHoldsSlotsLeaveTogether) {
  const std::vector<LocalSlot> slots = TakeAll();
  Replace(0);
  const std::vector<LocalCompletion> refused = DispatchAll();
  EXPECT_EQ(refused[0].reason, "DECLINED");
  EXPECT_EQ(refused[1].reason, "SLOTS_IN_USE");
  for (const LocalSlot& slot : slots) EXPECT_TRUE(Run(1, LocalReleaseSlot{slot}).status.ok());
  EXPECT_EQ(TakeAll()[0].index, slots[0].index);
}

TEST_F(SlotsLeaseTest, AReaderThatIsKilledIsNotWaitedFor) {
  for (const LocalSlot& slot : TakeAll()) {
    EXPECT_TRUE(Run(1, LocalReleaseSlot{slot}).status.ok());
    EXPECT_TRUE(Run(0, LocalReleaseSlot{slot, LocalRing::kDispatchOutput, SlotRead::kByStream})
                    .status.ok());
  }
  Replace(0);
  TakeAll();
}

// As a stream stores it. It is waited for no longer than half an operation's timeout, and by nobody
// but the dispatch that takes the slot again.
TEST_F(SlotsLeaseTest, ASlotIsTakenAgainOnceItsReaderSaysSo) {
  const std::vector<LocalSlot> slots = TakeAll();
  for (size_t i = 0; i < slots.size(); ++i) {
    EXPECT_TRUE(Run(1, LocalReleaseSlot{slots[i]}).status.ok());
    EXPECT_TRUE(Run(0, LocalReleaseSlot{slots[i], LocalRing::kDispatchOutput, SlotRead::kByStream,
                                        static_cast<int32_t>(i)})
                    .status.ok());
  }
  const std::vector<LocalCompletion> late = DispatchAll();
  for (const LocalCompletion& rank : late) {
    EXPECT_EQ(rank.reason, "DECLINED") << rank.status;
    EXPECT_THAT(std::string(rank.status.message()), HasSubstr("slot last has not ended"));
  }
  for (size_t i = 0; i < slots.size(); ++i) {
    std::atomic_ref<uint64_t>(ReadWord(PageOf(0), static_cast<int32_t>(i)))
        .store(slots[i].identity);
  }
  EXPECT_EQ(TakeAll()[0].index, slots[0].index);
}

}  // namespace
}  // namespace perigee
