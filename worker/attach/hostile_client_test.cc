// A client that writes at random into all that it shares with its worker, while both ranks run a
// layer on the host backend. Whatever comes of the operations: the workers live, every wait ends,
// and everything is given back.
#include <atomic>
#include <cstdlib>
#include <iostream>
#include <random>
#include <thread>
#include <variant>

#include "absl/strings/numbers.h"
#include "gtest/gtest.h"
#include "kernels/host/host_backend.h"
#include "worker/attach/attach_server.h"
#include "worker/testing/session_group.h"
#include "worker/testing/small_layer.h"
#include "worker/testing/test_attachment.h"
#include "worker/testing/test_client.h"

namespace perigee {
namespace {

constexpr int32_t kRanks = 2;
constexpr Ticket kTicket = {'x'};

uint64_t FromEnvironment(const char* name, uint64_t otherwise) {
  uint64_t value = 0;
  const char* given = std::getenv(name);
  return given != nullptr && absl::SimpleAtoi(given, &value) ? value : otherwise;
}

// Words at random places of `memory`; some of them small, as counts and indices are.
void Scribble(absl::Span<std::byte> memory, std::mt19937_64& random) {
  const size_t at = random() % (memory.size() / 4) * 4;
  const uint32_t word = random() % 2 == 0 ? static_cast<uint32_t>(random())
                                          : static_cast<uint32_t>(random() % 64) - 8;
  std::atomic_ref<uint32_t>(*reinterpret_cast<uint32_t*>(memory.data() + at))
      .store(word, std::memory_order_relaxed);
}

class Round {
 public:
  explicit Round(uint64_t seed)
      : random_(seed),
        layer_(kRanks, seed),
        group_(kRanks, [](int32_t) { return CreateHostBackend(); }) {
    v1::Buffer options;
    options.set_operation_timeout_ms(100);  // ranks out of step are found out soon
    v1::BufferShape shape = layer_.shape();
    shape.set_dispatch_output_slots(2);
    shape.set_expert_output_slots(1);
    group_.MakeBuffer(shape, options);
    for (int32_t rank = 0; rank < kRanks; ++rank) {
      for (const LayerTensor& tensor : layer_.Weights(rank)) {
        EXPECT_TRUE(
            group_
                .Write(rank, tensor.target, tensor.header,
                       absl::MakeConstSpan(reinterpret_cast<const std::byte*>(tensor.bytes.data()),
                                           tensor.bytes.size()))
                .ok());
      }
      EXPECT_TRUE(group_.session(rank)
                      .tokens()
                      .Grant(TokenHolder::kWorker, {1, 1000}, absl::Minutes(60))
                      .ok());
      StartServer(rank);
    }
  }

  void Run() {
    std::vector<TestClient> clients;
    for (int32_t rank = 0; rank < kRanks; ++rank) clients.push_back(Attach(rank));
    std::atomic<bool> over = false;
    std::thread scribbler([&] {
      const absl::Span<std::byte> parts[] = {clients[0].page.memory(), clients[0].arena.memory(),
                                             clients[0].shard.memory()};
      // In some rounds one part only: a broken page would end each round at once.
      const size_t only = random_() % 8;
      while (!over) Scribble(parts[only < 3 ? only : random_() % 3], random_);
    });
    std::thread other([&] { Work(clients[1]); });
    Work(clients[0]);
    other.join();
    over = true;
    scribbler.join();
    clients.clear();
    for (int32_t rank = 0; rank < kRanks; ++rank) {
      group_.session(rank).Abort({}, "the round ends");
      EXPECT_TRUE(group_.session(rank).Close().ok());
      EXPECT_EQ(group_.environment(rank).tensor_budget.used_bytes(), 0u);
    }
    servers_.clear();
  }

 private:
  void StartServer(int32_t rank) {
    servers_.push_back(*AttachServer::Start(absl::StrCat(directory_.path(), "/a", rank),
                                            ClientUsers(geteuid(), {}), group_.environment(rank)));
    EXPECT_TRUE(servers_.back()
                    ->Serve(group_.session(rank), TestServeCommand(kTestBuffer, 1, kTicket, 1),
                            {[](const v1::ClientReport&) {}, [](const AttachmentEnd&) {}})
                    .ok());
  }
  TestClient Attach(int32_t rank) {
    return *TestClient::Attach(
        servers_[rank]->path(),
        TestAttachRequest(kTestGroup, group_.environment(rank).incarnation, rank, kTicket));
  }
  // A layer, a layer in slots and a publication, again and again, until something is over.
  void Work(TestClient& client) const {
    const LocalPlanId plan(1);
    const PublicationTokenBytes forged = {'x'};
    constexpr LocalSlot last_taken{1, 0};
    LocalSlot last;
    const LocalOperation steps[] = {
        LocalDispatch{plan, 2, true},
        LocalPrefetchWeights{plan, 0, 9},
        LocalRunExperts{plan, 0, 9, true},
        LocalCombine{plan, true},
        LocalDispatchWithPlan{plan, 2, true, kAnySlot},
        LocalRunExperts{plan, 0, 9, true, last_taken, true},
        LocalCombine{.plan = plan, .slot = last_taken},
        LocalDispatch{plan, 2, true, kAnySlot},
        LocalReleaseSlot{last_taken},
        LocalDispatch{plan, 2, true, kAnySlot},
        LocalReleaseSlot{last_taken, LocalRing::kDispatchOutput, SlotRead::kByStream},
        LocalReleaseSlot{{-1, 0}, LocalRing::kExpertOutput},
        LocalBarrier{},
        LocalPrepareDispatch{plan, 2},
        LocalPreparePublication{plan, true, {}},
        LocalStoreRows{plan},
        LocalPublish{plan},
        LocalPrepareDispatch{plan, 2},
        LocalPreparePublication{plan, true, forged}};
    for (int step = 0; step < 90; ++step) {
      LocalOperation operation = steps[step % std::size(steps)];
      if (auto* run = std::get_if<LocalRunExperts>(&operation); run != nullptr && run->slot) {
        run->slot = last;
      } else if (auto* sum = std::get_if<LocalCombine>(&operation); sum != nullptr && sum->slot) {
        sum->slot = last;
      } else if (auto* release = std::get_if<LocalReleaseSlot>(&operation);
                 release != nullptr && release->slot == last_taken) {
        release->slot = last;
      }
      const absl::StatusOr<uint64_t> command = client.commands->Submit(operation);
      if (!command.ok()) return;
      // A damaged page may hide the end.
      const auto done = client.commands->Wait(*command, absl::Milliseconds(300));
      if (!done.ok()) return;
      if (done->slot.identity != 0) last = done->slot;
    }
  }

  std::mt19937_64 random_;
  const SmallLayer layer_;
  ScratchDirectory directory_;
  SessionGroup group_;
  std::vector<std::unique_ptr<AttachServer>> servers_;
};

TEST(HostileClient, NeitherCrashesNorHoldsAWorker) {
  const uint64_t seed = FromEnvironment("PERIGEE_SEED", std::random_device()());
  const uint64_t rounds = FromEnvironment("PERIGEE_HOSTILE_ROUNDS", 12);
  std::cout << "PERIGEE_SEED=" << seed << std::endl;
  for (uint64_t round = 0; round < rounds && !::testing::Test::HasFailure(); ++round) {
    Round(seed + round).Run();
  }
}

}  // namespace
}  // namespace perigee
