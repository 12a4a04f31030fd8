#include "client/lib/rank_client.h"

#include "absl/strings/str_cat.h"
#include "kernels/layout/shard_layout.h"
#include "kernels/layout/source_layout.h"

namespace perigee {
namespace {

absl::Status NoDeviceHasIt() {
  return absl::FailedPreconditionError("the rank's memory is the host's: no stream uses it");
}

}  // namespace

absl::StatusOr<std::vector<BFloat16*>> RankMemory::TakePeerRows(AccessSet needed) const {
  if (peer_rows.empty()) {
    return absl::FailedPreconditionError(
        "the rows of other ranks are not mapped here: the buffer has no peer_store, or the rank is "
        "remote");
  }
  const absl::Status status =
      CheckAccess("the rows", std::vector<AccessSet>(peer_rows.size(), peer_access), needed);
  if (!status.ok()) return status;
  return peer_rows;
}

absl::StatusOr<LocalCompletion> RankClient::Run(const LocalOperation& operation,
                                                absl::Duration timeout) {
  const absl::StatusOr<uint64_t> command = Submit(operation);
  if (!command.ok()) return command.status();
  return Wait(*command, timeout);
}

absl::StatusOr<uint64_t> RankClient::SubmitProgramBehind(CUstream_st*,
                                                         absl::Span<const LocalOperation>) {
  return NoDeviceHasIt();
}

absl::Status RankClient::MakeWait(CUstream_st*, uint64_t) { return NoDeviceHasIt(); }

absl::StatusOr<uint64_t> RankClient::ReleaseSlotBehind(CUstream_st*, const LocalSlot&) {
  return NoDeviceHasIt();
}

absl::Status RankClient::CaptureSlotRead(CUstream_st*, int32_t) { return NoDeviceHasIt(); }

absl::StatusOr<RankSource> RankClient::TakeSource(AccessSet needed) const {
  const RankSource source = memory().source;
  if (source.access == AccessSet()) {
    return absl::FailedPreconditionError(
        "no source shard is mapped here: the buffer has none, or the rank is a remote one");
  }
  if (source.access.HasAll(needed)) return source;
  return absl::InvalidArgumentError(absl::StrCat("the mapping of the source shard of rank ",
                                                 rank().value, " allows ", source.access.ToString(),
                                                 ", the consumer needs ", needed.ToString()));
}

RankSource SourceAt(const Geometry& geometry, int32_t hidden, std::byte* block, AccessSet access) {
  const SourceShardView view = SourceLayout::Create(geometry, hidden).View(block);
  return {{view.hidden, static_cast<size_t>(geometry.tokens) * hidden},
          {view.route_weights, static_cast<size_t>(geometry.routes())},
          access};
}

std::vector<RankOutputSlot> OutputSlotsAt(const Geometry& geometry, int32_t hidden, int32_t slots,
                                          BFloat16* rows) {
  const ShardLayout layout = ShardLayout::Create(geometry, hidden, slots);
  const size_t count = static_cast<size_t>(geometry.logical_rows());
  std::vector<RankOutputSlot> found;
  for (int32_t slot = 0; slot < slots; ++slot) {
    std::byte* const area = reinterpret_cast<std::byte*>(rows) + layout.area_bytes * (1 + slot);
    auto* const row_weights = reinterpret_cast<float*>(area + layout.row_weights_in_part());
    found.push_back({{reinterpret_cast<BFloat16*>(area), count * hidden}, {row_weights, count}});
  }
  return found;
}

absl::Status CheckOutputSlot(size_t slots, int32_t index) {
  if (index >= 0 && static_cast<size_t>(index) < slots) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("dispatch-output slot is ", index,
                                                 ", the buffer has ", slots, ", numbered from 0"));
}

absl::Status NoStreamBefore() {
  return absl::FailedPreconditionError(
      "no stream has been used with this client, expected one that it submits behind, or that "
      "waits for a command, before one is captured");
}

RankMemory ArenaMemory(const Geometry& geometry, int32_t hidden, const ClientArenaView& arena) {
  const size_t elements = static_cast<size_t>(geometry.tokens) * hidden;
  const size_t routes = static_cast<size_t>(geometry.routes());
  RankMemory memory;
  memory.hidden = {arena.hidden, elements};
  memory.topk_experts = {arena.topk_experts, routes};
  memory.route_weights = {arena.route_weights, routes};
  memory.output = {arena.output, elements};
  memory.gathered_weights = {arena.gathered_weights, routes};
  memory.plan = arena.plan;
  return memory;
}

}  // namespace perigee
