#include "kernels/cuda/operations.h"
#include "kernels/cuda/probe_copy_launch.h"

namespace perigee {

absl::Status QueueProbeCopy(CudaRank& rank, CopyProbe probe, int64_t rows) {
  absl::Status status = rank.progress->BeginLocal(Operation::kProbeCopy);
  if (!status.ok()) return status;
  if (status = CheckProbedRows(rank, rows); !status.ok()) return status;
  if (rows == 0) {
    rank.queued.push_back({.mark = MarkOf(rank, Operation::kProbeCopy)});
    return absl::OkStatus();
  }
  const int64_t half = rank.logical_rows() / 2;
  const int32_t next = (rank.rank.value + 1) % rank.geometry.ranks;
  const bool local = probe == CopyProbe::kOwnShard;
  const ShardView& to = local ? rank.own() : rank.shards[next];
  rank.queued.push_back({.mark = MarkOf(rank, Operation::kProbeCopy),
                         .spoils_shard = true,
                         .live_before = rank.live,
                         .source_before = rank.source.sequence()});
  const int error = LaunchProbeCopy(local ? rank.local_target() : rank.target(), rank.view,
                                    to.rows + half * rank.hidden, rank.own().rows, rows);
  if (status = LaunchStatus(rank, error, "copy probe"); !status.ok()) return status;
  rank.live = LiveRows();
  return absl::OkStatus();
}

}  // namespace perigee
