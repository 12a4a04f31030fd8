// A group of ranks for tests: a thread each, in one process, with memory exchanged by descriptors
// as between processes.
#ifndef PERIGEE_TESTS_CONTRACT_RANK_GROUP_H_
#define PERIGEE_TESTS_CONTRACT_RANK_GROUP_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "kernels/backend.h"
#include "kernels/layout/geometry.h"
#include "tests/contract/rank_backends.h"

namespace perigee {

struct RankGroupOptions {
  Geometry geometry;
  int32_t hidden = 16;
  bool own_mappings = true;
  // Long enough for a loaded machine: no test waits for it to pass.
  absl::Duration operation_timeout = absl::Seconds(120);
  absl::Duration warmup_timeout = absl::ZeroDuration();  // of the first operation; zero: the same
  int threads = 1;
  int32_t intermediate = 0;  // H', where a test computes while other ranks wait
  Generation generation = Generation(7);
  bool sources = false;  // whether there is an owner-sharded source
  RingOptions rings = {};
};

// One rank's tokens, all S rows of them; the first token_count are valid.
struct RankInput {
  std::vector<BFloat16> hidden;       // [S, H]
  std::vector<int32_t> topk_experts;  // [S, K]
  std::vector<float> route_weights;   // [S, K], or empty: none are passed
  int32_t token_count = 0;
};

struct DispatchResult {
  absl::Status status;
  PlanPtr plan;
  PlanTensors tensors;
  std::vector<BFloat16> rows;      // [NvS, H]
  std::vector<float> row_weights;  // [NvS]
};

struct CombineResult {
  absl::Status status;
  std::vector<BFloat16> hidden;      // [S, H]
  std::vector<float> route_weights;  // [S, K]; empty where no weights were asked for
};

// How rows and weights get in and out.
enum class Copy {
  kCopied,   // by other memory
  kInPlace,  // the shard itself
};

class RankGroup {
 public:
  // A rank's shard is memory of its own backend, as is what its operations read and write.
  RankGroup(const RankBackends& backends, const RankGroupOptions& options);

  const Geometry& geometry() const { return options_.geometry; }
  int32_t ranks() const { return options_.geometry.ranks; }
  int32_t hidden() const { return options_.hidden; }
  Backend& backend(int32_t rank) const { return backends_.of(rank); }
  DataPath& path(int32_t rank) { return *paths_[rank]; }
  std::byte* shard(int32_t rank) { return shards_[rank]->data(); }  // as its owner maps it
  // Of the next collective operation of all ranks.
  Sequence NextSequence() { return sequence_ = sequence_.Next(); }

  // Calls body(rank) for every rank at once, each on its own thread; [R] what they returned.
  std::vector<absl::Status> OnAll(const std::function<absl::Status(int32_t rank)>& body);

  // inputs [R]. The rows are poisoned before, where they lie and where they are copied to.
  std::vector<DispatchResult> Dispatch(const std::vector<RankInput>& inputs, Copy copy);
  std::vector<DispatchResult> DispatchWithPlan(const std::vector<DispatchResult>& made,
                                               const std::vector<RankInput>& inputs, Copy copy);
  // rows [R][NvS, H] and row_weights [R][NvS] are what is combined; kInPlace puts them into the
  // shard first, as in-place expert computation would. row_weights empty: none are gathered.
  std::vector<CombineResult> Combine(const std::vector<DispatchResult>& made,
                                     const std::vector<std::vector<BFloat16>>& rows,
                                     const std::vector<std::vector<float>>& row_weights, Copy copy);

  // Writes the poison over a rank's rows and row weights in its shard.
  void Poison(int32_t rank);
  std::vector<BFloat16> ReadRows(int32_t rank);
  std::vector<float> ReadRowWeights(int32_t rank);

 private:
  void AllocateSources();
  void MapShards();
  std::vector<std::byte*> MapSources(int32_t rank);
  DispatchResult RunDispatch(int32_t rank, Sequence sequence, const PlanPtr& plan,
                             const RankInput& input, Copy copy);
  CombineResult RunCombine(int32_t rank, Sequence sequence, const PlanPtr& plan,
                           const std::vector<BFloat16>& rows, const std::vector<float>* row_weights,
                           Copy copy);
  size_t row_elements() const;

  const RankBackends backends_;
  const RankGroupOptions options_;
  std::vector<std::unique_ptr<Memory>> shards_;  // [R] whole; with mappings of their own, the words
  std::vector<std::unique_ptr<Memory>> shard_rows_;  // [R] with mappings of their own
  std::vector<std::unique_ptr<Memory>> sources_;     // [R] or none
  std::vector<std::unique_ptr<Memory>> mappings_;    // of peers' shards and sources
  std::vector<std::unique_ptr<DataPath>> paths_;     // [R]
  Sequence sequence_;
};

// All OK; a failure names the rank.
void ExpectOk(const std::vector<absl::Status>& statuses);

}  // namespace perigee

#endif  // PERIGEE_TESTS_CONTRACT_RANK_GROUP_H_
