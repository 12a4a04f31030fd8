// Two ranks that send each other messages, as sessions of workers, through an exchange within the
// process: when one of them fails or refuses, the other hears of it at once. Operations wait for
// ten minutes, so a test in which it waits for its deadline does not end in time.
#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "kernels/common/bfloat16.h"
#include "server/groups/fatal_status.h"
#include "tests/contract/failing_backend.h"
#include "tests/contract/staged_host_backend.h"
#include "worker/testing/session_group.h"

namespace perigee {
namespace {

using ::testing::HasSubstr;

constexpr int32_t kRanks = 2;
constexpr int32_t kTokens = 3;
constexpr int32_t kHidden = 16;
constexpr int32_t kInner = 8;
constexpr int64_t kNever = -1;

constexpr char kDispatch[] =
    R"(operations { dispatch { hidden: "hidden" topk_experts: "topk" plan: "p" } })";
constexpr char kExperts[] =
    R"(operations { run_experts { plan: "p" layer: 0 weights_version: 9 } })";
constexpr char kCopy[] = "operations { probe_copy { to_next_rank: true } }";

// One buffer of two ranks; a token's one expert is its own rank's, so no weights are fetched.
class TwoRanks {
 public:
  TwoRanks()
      : group_(
            kRanks,
            [this](int32_t rank) {
              return MakeStagedHostBackend(std::make_unique<FailingBackend>(&copies_left_[rank]));
            },
            "nccl") {
    v1::BufferShape shape;
    shape.set_tokens(kTokens);
    shape.set_hidden(kHidden);
    shape.set_topk(1);
    shape.set_experts(kRanks);
    shape.set_slots(1);
    shape.set_token_padding(1);
    shape.set_intermediate(kInner);
    shape.set_layers(1);
    for (int32_t rank = 0; rank < kRanks; ++rank) {
      v1::AllocateBufferCommand command = group_.AllocateCommand(rank, shape);
      command.mutable_buffer()->set_operation_timeout_ms(600000);
      EXPECT_TRUE(group_.session(rank).AllocateBuffer(command).ok());
    }
    const auto rendezvous = group_.session(0).NewRendezvous();
    EXPECT_TRUE(rendezvous.ok()) << rendezvous.status();
    for (int32_t rank = 0; rank < kRanks; ++rank) {
      v1::ConnectBufferCommand command = group_.ConnectCommand(rank);
      command.set_rendezvous(*rendezvous);
      const absl::Status status = group_.session(rank).ConnectBuffer(command);
      EXPECT_TRUE(status.ok()) << status;
      Write(rank, NamedTarget("hidden"), v1::TENSOR_DTYPE_BFLOAT16, {kTokens, kHidden});
      Write(rank, NamedTarget("topk"), v1::TENSOR_DTYPE_INT32, {kTokens, 1}, rank);
    }
  }

  void LoadWeights(int32_t rank) {
    using Kind = v1::WeightTarget;
    for (const Kind::Kind kind : {Kind::GATE, Kind::UP}) {
      Write(rank, WeightsTarget(0, 9, kind), v1::TENSOR_DTYPE_BFLOAT16, {1, kHidden, kInner});
    }
    Write(rank, WeightsTarget(0, 9, Kind::DOWN), v1::TENSOR_DTYPE_BFLOAT16, {1, kInner, kHidden});
  }
  v1::TransportCounts Counts(int32_t rank) { return group_.session(rank).transport_counts(); }
  // The next copy but so many that this rank makes in its own memory fails.
  void FailCopy(int32_t rank, int64_t after) { copies_left_[rank] = after; }
  bool has_failed(int32_t rank) const { return copies_left_[rank] < 0; }

  void Start(const std::string& program) {
    v1::ExecuteProgramCommand command;
    command.set_buffer(kTestBuffer);
    command.set_program_id(++program_id_);
    command.set_first_sequence(last_sequence_ + 1);
    ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(program, command.mutable_program()));
    for (int32_t rank = 0; rank < kRanks; ++rank) {
      const absl::Status status =
          group_.session(rank).Execute(command, nullptr, [this, rank](const auto& outcome) {
            std::lock_guard<std::mutex> lock(mutex_);
            outcomes_[rank] = outcome;
            changed_.notify_all();
          });
      ASSERT_TRUE(status.ok()) << status;
    }
  }
  // Of a program that was started; each once.
  ProgramOutcome Await(int32_t rank) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return outcomes_.count(rank) > 0; });
    const ProgramOutcome outcome = outcomes_.at(rank);
    outcomes_.erase(rank);
    last_sequence_ = std::max<uint64_t>(last_sequence_, outcome.progress.last_sequence());
    return outcome;
  }
  // What the coordinator does with a report that ends the generation.
  void Abort(int32_t rank, const v1::RankStatus& report) {
    group_.session(rank).Abort({}, report.message());
  }

 private:
  // A tensor whose elements, of int32, are all `value`.
  void Write(int32_t rank, const v1::TensorTarget& target, v1::TensorDtype dtype,
             const std::vector<int64_t>& shape, int32_t value = 0) {
    const size_t size = dtype == v1::TENSOR_DTYPE_INT32 ? sizeof(int32_t) : sizeof(BFloat16);
    v1::TensorHeader header;
    header.set_dtype(dtype);
    size_t count = 1;
    for (const int64_t extent : shape) {
      header.add_shape(extent);
      count *= static_cast<size_t>(extent);
    }
    header.set_size_bytes(count * size);
    std::vector<std::byte> bytes(count * size);
    for (size_t at = 0; value != 0 && at < bytes.size(); at += sizeof(value)) {
      std::memcpy(bytes.data() + at, &value, sizeof(value));
    }
    const absl::Status status = group_.Write(rank, target, header, bytes);
    EXPECT_TRUE(status.ok()) << status;
  }

  CopiesLeft copies_left_[kRanks] = {kNever, kNever};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<int32_t, ProgramOutcome> outcomes_;  // guarded by mutex_
  uint64_t program_id_ = 0;
  uint64_t last_sequence_ = 0;
  SessionGroup group_;  // last: its threads use what is above
};

// Rank 1 has no weights, so it does not come to the copy, of whose rows rank 0 waits for some.
TEST(StagedSession, ACopyToTheNextRankThatARankDoesNotComeToIsDeclined) {
  TwoRanks ranks;
  ranks.LoadWeights(0);
  ranks.Start(absl::StrCat(kDispatch, kExperts, kCopy));
  EXPECT_EQ(ranks.Await(1).status.reason(), "STALE_WEIGHTS");
  const ProgramOutcome told = ranks.Await(0);
  EXPECT_EQ(told.status.reason(), "DECLINED") << told.status.message();
  EXPECT_THAT(told.status.message(), HasSubstr("rank 1 (workers/w1)"));
  EXPECT_FALSE(EndsGeneration(told.status));

  ranks.LoadWeights(1);
  ranks.Start(absl::StrCat(kDispatch, kExperts, kCopy, kCopy));
  for (int32_t rank = 0; rank < kRanks; ++rank) {
    const ProgramOutcome outcome = ranks.Await(rank);
    EXPECT_EQ(outcome.status.code(), 0) << outcome.status.message();
    EXPECT_EQ(outcome.progress.last_sequence(), 2u + 3u) << "both copies have one";
  }
}

// At every copy that a dispatch makes in rank 1's own memory: either that is refused before anybody
// waits for it, and both leave; or its report ends the generation, which takes rank 0 out of its
// wait.
TEST(StagedSession, AFailureOfOneRankTakesTheOtherOutOfItsWait) {
  int declined = 0, recorded = 0;
  for (int64_t at = 0;; ++at) {
    SCOPED_TRACE(at);
    ASSERT_LT(at, 1000) << "it never ends well";
    TwoRanks ranks;
    ranks.FailCopy(1, at);
    ranks.Start(kDispatch);
    const v1::RankStatus failed = ranks.Await(1).status;
    if (!ranks.has_failed(1)) {
      EXPECT_EQ(failed.code(), 0) << failed.message();
      EXPECT_EQ(ranks.Await(0).status.code(), 0);
      break;
    }
    EXPECT_THAT(failed.message(), HasSubstr("the device is not well"));
    if (!EndsGeneration(failed)) {
      EXPECT_FALSE(failed.has_operation_error());
      const v1::RankStatus told = ranks.Await(0).status;
      EXPECT_EQ(told.reason(), "DECLINED") << told.message();
      ++declined;
      continue;
    }
    EXPECT_EQ(failed.operation_error().sequence(), 1u);
    EXPECT_EQ(failed.operation_error().operation(), "dispatch");
    ranks.Abort(0, failed);
    const v1::RankStatus told = ranks.Await(0).status;
    // It may have had all that it needed before.
    if (told.code() != 0) {
      EXPECT_EQ(told.reason(), "GENERATION_ABORTED") << told.message();
      EXPECT_THAT(told.message(), HasSubstr("the device is not well"));
      ++recorded;
    }
  }
  EXPECT_GT(declined, 0);
  EXPECT_GT(recorded, 0);
}

TEST(StagedSession, WhatIsSentIsCountedByPeerAndWhatFailsByWhy) {
  TwoRanks ranks;
  EXPECT_EQ(ranks.Counts(0).transport(), "nccl");
  EXPECT_EQ(ranks.Counts(0).failures_size(), 0);
  ranks.Start("operations { barrier {} }");
  for (int32_t rank = 0; rank < kRanks; ++rank) EXPECT_EQ(ranks.Await(rank).status.code(), 0);
  const v1::TransportCounts words = ranks.Counts(0);
  ASSERT_EQ(words.bytes_sent_size(), kRanks);
  EXPECT_EQ(words.bytes_sent(0), 0u);
  EXPECT_GT(words.bytes_sent(1), 0u);
  ranks.Start(absl::StrCat(kDispatch, kCopy));
  for (int32_t rank = 0; rank < kRanks; ++rank) EXPECT_EQ(ranks.Await(rank).status.code(), 0);
  // Half of the rows that a rank has room for, at the least.
  const uint64_t copied = kTokens / 2 * kHidden * sizeof(BFloat16);
  EXPECT_GE(ranks.Counts(0).bytes_sent(1), words.bytes_sent(1) + copied);

  ranks.LoadWeights(0);
  ranks.Start(absl::StrCat(kDispatch, kExperts, kCopy));
  for (int32_t rank = 0; rank < kRanks; ++rank) ranks.Await(rank);
  const v1::TransportCounts failed = ranks.Counts(0);
  ASSERT_EQ(failed.failures_size(), 1);
  EXPECT_EQ(failed.failures(0).reason(), "DECLINED");
  EXPECT_EQ(failed.failures(0).count(), 1u);
}

}  // namespace
}  // namespace perigee
