#include "kernels/host/run_experts.h"

#include <algorithm>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/algo/rows.h"
#include "kernels/host/expert_rows.h"
#include "kernels/host/weight_access.h"
#include "kernels/rank/weights_errors.h"

namespace perigee {
namespace {

// Up to kExpertRows rows of one group.
struct Chunk {
  ExpertMatrices matrices;
  int32_t begin = 0;
  int32_t count = 0;
};

struct Work {
  std::vector<Chunk> chunks;
  std::set<int32_t> homes;  // ranks whose home blocks are read in place
};

absl::Status CheckSlot(const WeightAccess& access, int32_t slot, int32_t expert) {
  const SlotTag held = access.tag(slot);
  const SlotTag wanted = access.WantedTag(expert);
  return held == wanted ? absl::OkStatus() : SlotRefused(slot, held, wanted);
}

WantedWeights Wanted(const ExpertWeights& weights) { return {weights.layer, weights.version}; }

// What each non-empty group computes with: a slot where the plan has put its expert there, else the
// expert's home block.
absl::StatusOr<Work> PlanWork(const HostRank& rank, const HostPlan& plan,
                              const WeightAccess& access, const ExpertWeights& weights) {
  Work work;
  for (int32_t group = 0; group < plan.group_count(); ++group) {
    const GroupRows rows = plan.group_rows(group);
    if (rows.count == 0) continue;
    const int32_t slot = group - rank.geometry.experts;
    ExpertMatrices matrices;
    if (slot >= 0) {
      absl::Status status = CheckSlot(access, slot, plan.expert_in_slot(slot));
      if (!status.ok()) return status;
      matrices = access.slot(slot);
    } else {
      work.homes.insert(rank.geometry.home_rank(group));
      matrices = access.home(group);
    }
    for (int32_t done = 0; done < rows.count; done += kExpertRows) {
      work.chunks.push_back(
          {matrices, rows.begin + done, std::min(kExpertRows, rows.count - done)});
    }
  }
  for (int32_t home : work.homes) {
    const HomeHeader held = access.home_header(home);
    if (access.HomeHolds(held)) continue;
    return absl::FailedPreconditionError(DescribeStaleHome(home, held, Wanted(weights)));
  }
  return work;
}

void RunChunks(const HostRank& rank, const Work& work, const WeightsShape& shape,
               const RunExpertsInput& input) {
  const auto run = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      if (rank.collective->aborted()) return;
      const Chunk& chunk = work.chunks[i];
      ExpertRows rows;
      rows.rows = RowAt(input.rows, chunk.begin, rank.hidden);
      rows.row_weights = input.row_weights ? input.row_weights + chunk.begin : nullptr;
      rows.output = RowAt(input.output, chunk.begin, rank.hidden);
      rows.count = chunk.count;
      RunExpertRows(shape, chunk.matrices, rows);
    }
  };
  rank.pool->ParallelFor(static_cast<int64_t>(work.chunks.size()), 1, run);
}

void ZeroOutputPadding(const HostRank& rank, const HostPlan& plan, BFloat16* output) {
  for (int32_t group = 0; group < plan.group_count(); ++group) {
    const GroupRows rows = plan.group_rows(group);
    const int32_t first = rows.begin + rows.count;
    ZeroRows(RowAt(output, first, rank.hidden), rows.end - first, rank.hidden);
  }
}

absl::Status CheckHomesAfterwards(HostRank& rank, const WeightAccess& access, const Work& work,
                                  const ExpertWeights& weights) {
  for (int32_t home : work.homes) {
    const HomeHeader held = access.home_header(home);
    if (access.HomeHolds(held)) continue;
    return rank.collective->Fail(StaleHomeRecord(home, held, Wanted(weights)),
                                 absl::StrCat(DescribeStaleHome(home, held, Wanted(weights)),
                                              "; it changed while it was read"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status HostRunExperts(HostRank& rank, const PlanPtr& handle, const ExpertWeights& weights,
                            const RunExpertsInput& input) {
  absl::Status status = rank.collective->BeginLocal(Operation::kRunExperts);
  if (!status.ok()) return status;
  const absl::StatusOr<std::shared_ptr<const HostPlan>> plan = HostPlanOf(rank, handle);
  if (!plan.ok()) return plan.status();
  if (status = CheckRunExperts(rank, (*plan)->facts(), weights, input); !status.ok()) return status;
  const WeightAccess access(rank.geometry, weights);
  const absl::StatusOr<Work> work = PlanWork(rank, **plan, access, weights);
  if (!work.ok()) return work.status();

  const bool in_shard = input.output == rank.shard_rows();
  LiveRows& live = rank.shard_live();
  if (in_shard) live.rows = live.target = Sequence(0);
  RunChunks(rank, *work, weights.shape, input);
  ZeroOutputPadding(rank, **plan, input.output);
  if (status = rank.collective->CheckNotAborted(); !status.ok()) return status;
  status = CheckHomesAfterwards(rank, access, *work, weights);
  if (!status.ok()) return status;
  // In place what was dispatched has become expert output of the same plan.
  if (in_shard) live.rows = (*plan)->tag().sequence;
  return absl::OkStatus();
}

}  // namespace perigee
