// The host backend with a process for each rank, as workers run it: shared memory across address
// spaces, and a rank that is killed.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "kernels/host/host_backend.h"
#include "kernels/layout/shard_layout.h"
#include "tests/contract/test_data.h"
#include "tests/testing/moe_reference.h"

namespace perigee {
namespace {

constexpr int32_t kRanks = 3;
constexpr int32_t kHidden = 40;
constexpr Geometry kGeometry = {
    .ranks = kRanks, .experts = 6, .tokens = 20, .topk = 3, .slots = 2, .token_padding = 8};
constexpr unsigned kLimitSeconds = 120;  // ends a child that hangs

// One end of the test's talk with a child.
struct Channel {
  int read_end = -1;
  int write_end = -1;

  void Tell(char word) const { EXPECT_EQ(write(write_end, &word, 1), 1); }
  // Blocks; 0 when the other side has ended.
  char Hear() const {
    char word = 0;
    return read(read_end, &word, 1) == 1 ? word : '\0';
  }
};

// What runs in a rank's process: returns what went wrong, "" if nothing did.
using RankBody = std::function<std::string(DataPath& path, const Channel& parent)>;

class ProcessTest : public testing::Test {
 protected:
  ProcessTest() : backend_(CreateHostBackend()) {
    std::mt19937_64 random(TestSeed());
    input_ = PlainGroup(random, kGeometry);
    inputs_ = NamedInputs(input_, kHidden, 1);
    shard_bytes_ = ShardLayout::Create(kGeometry, kHidden).size_bytes;
    for (int32_t rank = 0; rank < kRanks; ++rank) {
      auto shard = backend_->AllocateShared(shard_bytes_, PeerAccess::kReadWrite);
      EXPECT_TRUE(shard.ok()) << shard.status();
      shards_.push_back(*std::move(shard));
    }
  }

  // Before any thread is started.
  void Fork(int32_t rank, const RankBody& body) {
    std::array<int, 2> down;
    std::array<int, 2> up;
    ASSERT_EQ(pipe(down.data()), 0);
    ASSERT_EQ(pipe(up.data()), 0);
    const pid_t pid = fork();
    ASSERT_GE(pid, 0);
    if (pid == 0) {
      alarm(kLimitSeconds);
      close(down[1]);
      close(up[0]);
      RunChild(rank, body, Channel{down[0], up[1]});
    }
    close(down[0]);
    close(up[1]);
    pids_.push_back(pid);
    channels_.push_back({up[0], down[1]});
  }

  [[noreturn]] void RunChild(int32_t rank, const RankBody& body, const Channel& parent) {
    DataPathOptions options;
    options.geometry = kGeometry;
    options.hidden = kHidden;
    options.rank = RankId(rank);
    options.buffer = BufferId(1);
    options.generation = Generation(1);
    options.operation_timeout = absl::Seconds(kLimitSeconds);
    std::vector<std::unique_ptr<Memory>> mappings;
    for (const auto& shard : shards_) {
      auto mapping =
          backend_->Import(dup(shard->descriptor()), shard_bytes_, PeerAccess::kReadWrite);
      if (!mapping.ok()) Exit(rank, mapping.status().ToString());
      options.shards.push_back((*mapping)->data());
      mappings.push_back(*std::move(mapping));
    }
    auto path = backend_->CreateDataPath(options);
    if (!path.ok()) Exit(rank, path.status().ToString());
    Exit(rank, body(**path, parent));
  }
  [[noreturn]] static void Exit(int32_t rank, const std::string& error) {
    if (!error.empty()) fprintf(stderr, "rank %d: %s\n", rank, error.c_str());
    _exit(error.empty() ? 0 : 1);
  }

  int Reap(int32_t rank) {
    int status = -1;
    EXPECT_EQ(waitpid(pids_[rank], &status, 0), pids_[rank]);
    close(channels_[rank].read_end);
    close(channels_[rank].write_end);
    return status;
  }
  void ExpectSuccess(int32_t rank) {
    const int status = Reap(rank);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0)
        << "rank " << rank << " ended with status " << status;
  }

  DispatchInput InputOf(int32_t rank) const {
    const RankInput& input = inputs_[rank];
    return {input.hidden.data(), input.topk_experts.data(), input.route_weights.data(),
            input.token_count};
  }
  // Dispatches at `sequence` and combines at the next.
  absl::Status RoundTrip(DataPath& path, int32_t rank, uint64_t sequence,
                         std::vector<BFloat16>& hidden) const {
    const absl::StatusOr<PlanPtr> plan = path.Dispatch(Sequence(sequence), InputOf(rank), {});
    if (!plan.ok()) return plan.status();
    hidden.resize(size_t{kGeometry.tokens} * kHidden);
    return path.Combine(Sequence(sequence + 1), *plan, {path.rows(), nullptr},
                        {hidden.data(), nullptr});
  }

  std::unique_ptr<Backend> backend_;
  GroupInput input_;
  std::vector<RankInput> inputs_;
  size_t shard_bytes_ = 0;
  std::vector<std::unique_ptr<Memory>> shards_;
  std::vector<pid_t> pids_;
  std::vector<Channel> channels_;
};

TEST_F(ProcessTest, RowsCrossAddressSpaces) {
  const ReferencePlan plan = PlanByTheRules(input_);
  for (int32_t rank = 0; rank < kRanks; ++rank) {
    Fork(rank, [&, rank](DataPath& path, const Channel&) -> std::string {
      const absl::StatusOr<PlanPtr> made = path.Dispatch(Sequence(1), InputOf(rank), {});
      if (!made.ok()) return made.status().ToString();
      const std::vector<RowSource> sources = RowSourcesOf(kGeometry, plan, rank);
      for (size_t row = 0; row < sources.size(); ++row) {
        const RowSource& source = sources[row];
        if (source.kind != RowSource::Kind::kRoute) continue;
        const std::vector<BFloat16> expected = NamedRow(source.rank, source.token, kHidden, 1);
        if (!std::equal(expected.begin(), expected.end(), path.rows() + row * kHidden)) {
          return "row " + std::to_string(row) + " is not its token's";
        }
        if (path.row_weights()[row] != NamedWeight(source.rank, source.token, source.k, 1)) {
          return "weight of row " + std::to_string(row) + " is not its route's";
        }
      }
      // The others read this shard until they are done with it.
      return path.Barrier(Sequence(2)).ok() ? "" : "barrier failed";
    });
  }
  for (int32_t rank = 0; rank < kRanks; ++rank) ExpectSuccess(rank);
}

TEST_F(ProcessTest, ManyOperationsGiveTheSameBitsEachTime) {
  // Numbers instead of named bits: sums of NaN would compare with nothing.
  std::mt19937_64 random(TestSeed());
  for (RankInput& input : inputs_) input.hidden = RandomNumbers(random, input.hidden.size());
  for (int32_t rank = 0; rank < kRanks; ++rank) {
    Fork(rank, [&, rank](DataPath& path, const Channel&) -> std::string {
      std::vector<BFloat16> first;
      for (uint64_t sequence = 1; sequence < 400; sequence += 2) {
        std::vector<BFloat16> hidden;
        const absl::Status status = RoundTrip(path, rank, sequence, hidden);
        if (!status.ok()) return status.ToString();
        if (first.empty()) first = hidden;
        if (hidden != first) return "other bits at sequence " + std::to_string(sequence);
      }
      return "";
    });
  }
  for (int32_t rank = 0; rank < kRanks; ++rank) ExpectSuccess(rank);
}

// A rank is killed at any point of its operations. The others wait for it, are told, and leave with
// an error that names it.
TEST_F(ProcessTest, SurvivorsOfAKilledRankLeaveWhenTold) {
  constexpr int32_t kVictim = 2;
  for (int32_t rank = 0; rank < kRanks; ++rank) {
    Fork(rank, [&, rank](DataPath& path, const Channel& parent) -> std::string {
      std::thread listener([&] {
        if (parent.Hear() == 'a') path.Abort(kVictim, "its process was killed");
      });
      absl::Status status;
      std::vector<BFloat16> hidden;
      for (uint64_t sequence = 1; status.ok(); sequence += 2) {
        status = RoundTrip(path, rank, sequence, hidden);
        if (sequence == 21) parent.Tell('r');
      }
      listener.join();
      if (status.code() != absl::StatusCode::kUnavailable) return status.ToString();
      const bool named = std::string(status.message()).find("rank 2 is lost") != std::string::npos;
      const bool recorded = path.last_error()->awaited_rank == kVictim;
      return named && recorded ? "" : "does not name rank 2: " + status.ToString();
    });
  }
  for (const Channel& channel : channels_) EXPECT_EQ(channel.Hear(), 'r');
  ASSERT_EQ(kill(pids_[kVictim], SIGKILL), 0);
  const int status = Reap(kVictim);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  for (int32_t rank = 0; rank < kRanks; ++rank) {
    if (rank != kVictim) channels_[rank].Tell('a');
  }
  for (int32_t rank = 0; rank < kRanks; ++rank) {
    if (rank != kVictim) ExpectSuccess(rank);
  }
}

}  // namespace
}  // namespace perigee
