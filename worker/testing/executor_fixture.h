// Tests of what executes a local client's commands: one rank, on a data path that does as it is
// told.
#ifndef PERIGEE_WORKER_TESTING_EXECUTOR_FIXTURE_H_
#define PERIGEE_WORKER_TESTING_EXECUTOR_FIXTURE_H_

#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "gtest/gtest.h"
#include "proto/local/command_page.h"
#include "proto/local/stream_words.h"
#include "tests/testing/fake_clock.h"
#include "worker/attach/local_executor.h"
#include "worker/publication/token_ledger.h"
#include "worker/testing/fake_backend.h"

namespace perigee {

class LocalExecutorTest : public ::testing::Test {
 protected:
  LocalExecutorTest() {
    shape_.geometry = Geometry{1, 2, 4, 2, 1, 1};
    shape_.hidden = 8;
    shape_.intermediate = 8;
    shape_.layers = 2;
    shape_.gradients = true;
    shape_.source_storage = true;
    shape_.dispatch_output_slots = 2;
    shape_.expert_output_slots = 1;
    memory_ = *BufferMemory::Allocate(backend_, shape_, RankId(0));
    DataPathOptions options;
    options.geometry = shape_.geometry;
    options.hidden = shape_.hidden;
    options.buffer = BufferId(3);
    options.generation = Generation(7);
    options.rings = {shape_.dispatch_output_slots, shape_.expert_output_slots};
    path_ = std::make_unique<FakeDataPath>(options);
    const auto layout = ClientArenaLayout::Create(shape_.geometry, shape_.hidden, 4096);
    arena_memory_.resize(layout.size_bytes);
    arena_ = layout.View(arena_memory_.data());
    executor_ = std::make_unique<LocalExecutor>(
        group_, site(), arena_, Sequence(5), clock_, [this](const LocalReleaseSlot& release) {
          return release.read == SlotRead::kByGraph ? TakeReplayed(page_, release.slot.index)
                                                    : IsRead(page_, release);
        });
  }

  ProgramSite site() { return {shape_, *path_, *memory_, objects_, tensors_, &tokens_}; }
  // The operation, with the sequence that is next if it takes one.
  LocalCompletion Do(const LocalOperation& operation) {
    Begin(operation);
    return TakeOnlyOne();
  }
  LocalCompletion Execute(const CommandEntry& entry) {
    executor_->Begin(entry);
    return TakeOnlyOne();
  }
  LocalCompletion TakeOnlyOne() {
    const absl::optional<LocalCompletion> ended = executor_->TakeEnded();
    EXPECT_TRUE(ended.has_value());
    EXPECT_TRUE(executor_->idle());
    return ended.value_or(LocalCompletion());
  }
  void ExpectOk(const LocalOperation& operation) {
    const LocalCompletion done = Do(operation);
    EXPECT_TRUE(done.status.ok()) << done.status;
    EXPECT_EQ(done.reason, "");
    EXPECT_EQ(done.kind, static_cast<uint32_t>(KindOf(operation)));
  }
  // Its end is to be taken apart.
  void Begin(const LocalOperation& operation) {
    const Sequence next = executor_->last_sequence().Next();
    const auto* prepare = std::get_if<LocalPreparePublication>(&operation);
    executor_->Begin(EncodeCommand({next, operation}, Generation(7)),
                     prepare == nullptr ? absl::nullopt : prepare->token);
  }
  // The reason of the next that has ended; "OK", or "running" where there is none.
  std::string NextReason() {
    const absl::optional<LocalCompletion> ended = executor_->TakeEnded();
    if (!ended) return "running";
    return ended->status.ok() ? "OK" : ended->reason;
  }
  void Fail(const std::string& name, FakeDataPath::Outcome outcome) {
    path_->set_behaviour([=](const std::string& operation, Sequence) {
      return operation == name ? outcome : FakeDataPath::Outcome();
    });
  }

  const GroupView group_{"tenants/t/groups/g", Generation(7), RankId(0), {"workers/a"}};
  BufferShape shape_;
  FakeBackend backend_;
  ByteBudget budget_{1 << 20};
  std::unique_ptr<BufferMemory> memory_;
  std::unique_ptr<FakeDataPath> path_;
  BufferObjects objects_{"tenants/t/groups/g/buffers/b", BufferId(3), Generation(7)};
  TensorStore tensors_{backend_, budget_};
  FakeClock clock_;
  TokenLedger tokens_{MakeTokenScope(group_.group, Generation(7), RankId(0)), TokenKey(), clock_,
                      nullptr};  // with no serials yet
  std::vector<std::byte> arena_memory_;
  ClientArenaView arena_;
  CommandPage page_;  // of which only the words about last reads are used
  std::unique_ptr<LocalExecutor> executor_;
};

}  // namespace perigee

#endif  // PERIGEE_WORKER_TESTING_EXECUTOR_FIXTURE_H_
