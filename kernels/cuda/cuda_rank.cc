#include "kernels/cuda/cuda_rank.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/rank_barrier_launch.h"
#include "kernels/device/copy.h"
#include "kernels/device/cuda_status.h"
#include "kernels/layout/walk.h"

namespace perigee {
namespace {

constexpr size_t kVectorBytes = 16;

// The parts of a rank's private memory, by one walk.
struct RankMemory {
  size_t shards = 0;
  size_t state = 0;
  size_t grid = 0;
  size_t own_sums = 0;
  size_t bad_slots = 0;
  size_t sources = 0;
  size_t origins = 0;
  size_t pulls = 0;
  size_t pull_count = 0;
  size_t scratch = 0;
  size_t size_bytes = 0;

  static RankMemory Of(const Geometry& geometry, int32_t blocks, bool own_beside, bool has_source,
                       int32_t ring_slots) {
    size_t scratch_bytes = 0;
    PlacePlanningScratch(geometry, blocks, nullptr, &scratch_bytes);
    LayoutWalk walk;
    RankMemory memory;
    memory.shards = walk.Place<ShardView>(int64_t{geometry.ranks} * (1 + ring_slots));
    memory.state = walk.Place<PathState>(1);
    memory.grid = walk.Place<GridWords>(1);
    memory.own_sums = walk.Place<uint64_t>(own_beside ? geometry.tokens : 0);
    memory.bad_slots = walk.Place<uint32_t>(geometry.slots + 1);
    const int64_t rows = has_source ? geometry.logical_rows() : 0;
    memory.sources = walk.Place<SourceShardView>(has_source ? geometry.ranks : 0);
    memory.origins = walk.Place<int32_t>(rows);
    memory.pulls = walk.Place<SourcePull>(rows);
    memory.pull_count = walk.Place<int32_t>(has_source ? 1 : 0);
    memory.scratch = walk.Place<std::byte>(static_cast<int64_t>(scratch_bytes), 256);
    memory.size_bytes = walk.size_bytes(256);
    return memory;
  }
};

absl::Status CopyObjects(int device, std::byte* to, const void* from, size_t bytes) {
  const auto* first = static_cast<const std::byte*>(from);
  return CopyToDevice(device, to, absl::MakeConstSpan(first, bytes));
}

absl::Status CheckFresh(const CudaRank& rank) {
  uint64_t arrival = 0;
  const auto* word = &rank.own().control->peers[rank.rank.value].arrival;
  const absl::Status status = CopyFromDevice(
      rank.device, absl::MakeSpan(reinterpret_cast<std::byte*>(&arrival), sizeof(arrival)),
      reinterpret_cast<const std::byte*>(word));
  return status.ok() ? CheckFreshShard(rank, arrival) : status;
}

absl::Status PlaceSource(CudaRank& rank, const RankMemory& parts) {
  if (rank.sources.empty()) return absl::OkStatus();
  std::byte* base = rank.memory->data();
  rank.source_lists = {reinterpret_cast<const SourceShardView*>(base + parts.sources),
                       reinterpret_cast<int32_t*>(base + parts.origins),
                       reinterpret_cast<SourcePull*>(base + parts.pulls),
                       reinterpret_cast<int32_t*>(base + parts.pull_count)};
  return CopyObjects(rank.device, base + parts.sources, rank.sources.data(),
                     rank.sources.size() * sizeof(SourceShardView));
}

absl::Status AllocateRank(CudaRank& rank, StreamPriority priority) {
  const RankMemory parts = RankMemory::Of(rank.geometry, rank.sms->sms(), rank.sums_beside,
                                          !rank.sources.empty(), rank.layout.ring_slots);
  auto memory = PrivateDeviceMemory::Allocate(rank.device, parts.size_bytes);
  if (!memory.ok()) return memory.status();
  auto page = PinnedObject<HostPage>::Create(rank.device);
  if (!page.ok()) return page.status();
  auto stream = PooledStream::Take(rank.device, priority);
  if (!stream.ok()) return stream.status();
  rank.memory = *std::move(memory);
  rank.page = std::make_unique<PinnedObject<HostPage>>(*std::move(page));
  rank.stream = *std::move(stream);

  std::byte* base = rank.memory->data();
  size_t scratch_bytes = 0;
  rank.scratch =
      PlacePlanningScratch(rank.geometry, rank.sms->sms(), base + parts.scratch, &scratch_bytes);
  rank.bad_slots = reinterpret_cast<uint32_t*>(base + parts.bad_slots);
  rank.view.geometry = rank.geometry;
  rank.view.hidden = rank.hidden;
  rank.view.rank = rank.rank.value;
  rank.view.logical_rows = rank.logical_rows();
  rank.view.shards = reinterpret_cast<const ShardView*>(base + parts.shards);
  rank.view.state = reinterpret_cast<PathState*>(base + parts.state);
  rank.view.grid = reinterpret_cast<GridWords*>(base + parts.grid);
  if (rank.sums_beside) rank.view.own_sums = reinterpret_cast<uint64_t*>(base + parts.own_sums);
  rank.view.page = rank.page->device_address();
  const size_t zeroed_bytes = parts.sources - parts.own_sums;
  absl::Status status = FillDevice(rank.device, base + parts.own_sums, 0, zeroed_bytes);
  if (!status.ok()) return status;
  const PathState state;
  const GridWords grid;
  status = CopyObjects(rank.device, base + parts.grid, &grid, sizeof(grid));
  if (!status.ok()) return status;
  status = CopyObjects(rank.device, base + parts.state, &state, sizeof(state));
  if (!status.ok()) return status;
  if (status = PlaceSource(rank, parts); !status.ok()) return status;
  const size_t views_bytes = rank.shards.size() * sizeof(ShardView);
  std::byte* views = base + parts.shards;
  status = CopyObjects(rank.device, views, rank.shards.data(), views_bytes);
  for (const std::vector<ShardView>& slot : rank.slot_shards) {
    if (!status.ok()) return status;
    views += views_bytes;
    status = CopyObjects(rank.device, views, slot.data(), views_bytes);
  }
  return status;
}

absl::Status AllocateRings(CudaRank& rank, const RingOptions& rings) {
  if (rings.dispatch_slots > 0) {
    auto words = PinnedMemory::Allocate(rank.device, rings.dispatch_slots * sizeof(uint64_t));
    if (!words.ok()) return words.status();
    rank.slot_words = *std::move(words);
    std::fill_n(rank.WordOf(0), rings.dispatch_slots, 1);
  }
  if (rings.expert_slots == 0) return absl::OkStatus();
  auto slots = PrivateDeviceMemory::Allocate(
      rank.device, rings.expert_slots * rank.row_bytes(rank.logical_rows()));
  if (!slots.ok()) return slots.status();
  rank.expert_slots = *std::move(slots);
  return absl::OkStatus();
}

EntryArguments EntryOf(const CudaRank& rank, const OperationDescriptor& descriptor,
                       uint32_t flags) {
  EntryArguments entry;
  entry.statement.tag = rank.TagOf(rank.progress->sequence());
  entry.statement.descriptor = descriptor;
  entry.statement_hash = HashStatement(entry.statement);
  entry.timeout_ns = static_cast<uint64_t>(absl::ToInt64Nanoseconds(rank.progress->timeout()));
  entry.flags = flags;
  if (rank.slot < 0) return entry;
  entry.slot = static_cast<uint32_t>(rank.slot) + 1;
  entry.credit = rank.DeviceWordOf(rank.slot);
  return entry;
}

}  // namespace

absl::StatusOr<CudaRank> CreateCudaRank(int device, const DataPathOptions& options,
                                        std::unique_ptr<SmBudget::Share> sms) {
  CudaRank rank;
  static_cast<RankShape&>(rank) = MakeRankShape(options);
  rank.device = device;
  rank.sms = std::move(sms);
  rank.local_sms = options.local_sms;
  if (options.own_rows_beside) rank.keep_sms = std::max(rank.local_sms - rank.sms->sms(), 0);
  rank.sums_beside = rank.keep_sms > 0 && rank.geometry.tokens >= options.sums_beside_from_tokens;
  rank.programmatic_launch = options.programmatic_launch;
  if (absl::Status status = CheckFresh(rank); !status.ok()) return status;
  const auto priority =
      options.high_priority_stream ? StreamPriority::kHigh : StreamPriority::kNormal;
  if (absl::Status status = AllocateRank(rank, priority); !status.ok()) return status;
  if (absl::Status status = AllocateRings(rank, options.rings); !status.ok()) return status;
  rank.plans = std::make_shared<PlanPool>(device, rank.geometry);
  // Ahead: an allocation may have to wait for the device, which may wait for this rank.
  auto first = rank.plans->Take();
  if (!first.ok()) return first.status();
  rank.plans->GiveBack(*std::move(first));
  rank.progress = std::make_unique<Progress>(ProgressOptions{
      options.rank, options.generation, options.operation_timeout, options.warmup_timeout});
  return rank;
}

void UseSlot(CudaRank& rank, int32_t slot) {
  rank.view.shards += rank.geometry.ranks * (slot - rank.slot);
  rank.UseSlot(slot);
}

absl::Status QueueFreeSlot(CudaRank& rank, int32_t slot) {
  const int error = LaunchFreeSlot(rank.target(), rank.view, rank.DeviceWordOf(slot));
  return LaunchStatus(rank, error, "freeing of a slot");
}

OperationMark MarkOf(const CudaRank& rank, Operation operation) {
  return {rank.progress->sequence().value, static_cast<uint32_t>(operation),
          rank.told + static_cast<uint32_t>(rank.queued.size())};
}

absl::Status BeginCollective(CudaRank& rank, Sequence sequence, Operation operation) {
  absl::Status status = rank.progress->Begin(sequence, operation);
  if (!status.ok() || !rank.progress->skips()) return status;
  OperationDescriptor descriptor;
  descriptor.operation = static_cast<uint32_t>(operation);
  const int error = LaunchArrival(rank.target(), rank.view, MarkOf(rank, operation),
                                  EntryOf(rank, descriptor, 0));
  if (status = LaunchStatus(rank, error, "arrival"); !status.ok()) return status;
  return rank.progress->Skipped();
}

EntryArguments NoteEntry(CudaRank& rank, const OperationDescriptor& descriptor, uint32_t flags,
                         QueuedOperation queued) {
  rank.progress->ReachEntry();
  queued.live_before = rank.shard_live();
  queued.source_before = rank.source.sequence();
  rank.queued.push_back(std::move(queued));
  return EntryOf(rank, descriptor, flags);
}

void NoteExit(CudaRank& rank) { rank.progress->ReachExit(); }

absl::Status QueueEntry(CudaRank& rank, const OperationDescriptor& descriptor, uint32_t flags,
                        QueuedOperation queued) {
  const EntryArguments entry = NoteEntry(rank, descriptor, flags, std::move(queued));
  const OperationMark& mark = rank.queued.back().mark;
  return LaunchStatus(rank, LaunchEntryBarrier(rank.target(), rank.view, mark, entry),
                      "entry barrier");
}

absl::Status QueueExit(CudaRank& rank) {
  NoteExit(rank);
  const OperationMark& mark = rank.queued.back().mark;
  return LaunchStatus(rank, LaunchExitBarrier(rank.target(), rank.view, mark), "exit barrier");
}

absl::StatusOr<LaneBeside> MakeLane(int device, StreamPriority priority) {
  auto stream = PooledStream::Take(device, priority);
  if (!stream.ok()) return stream.status();
  auto begin = Event::Create(device);
  if (!begin.ok()) return begin.status();
  auto end = Event::Create(device);
  if (!end.ok()) return end.status();
  return LaneBeside{*std::move(stream), *std::move(begin), *std::move(end)};
}

absl::Status WaitForBeside(CudaRank& rank) {
  if (!rank.beside) return absl::OkStatus();
  return rank.lane.end->MakeWait((*rank.stream)->get());
}

absl::Status WaitForPreparation(CudaRank& rank) {
  if (!std::exchange(rank.prepares_beside, false)) return absl::OkStatus();
  return rank.preparation.end->MakeWait((*rank.stream)->get());
}

absl::StatusOr<std::unique_ptr<Event>> RecordEvent(CudaRank& rank) {
  std::unique_ptr<Event> event;
  if (!rank.spare_events.empty()) {
    event = std::move(rank.spare_events.back());
    rank.spare_events.pop_back();
  } else {
    auto created = Event::Create(rank.device, EventTiming::kOn);
    if (!created.ok()) return created.status();
    event = *std::move(created);
  }
  absl::Status status = event->Record((*rank.stream)->get());
  if (!status.ok()) return status;
  return event;
}

absl::Status LaunchStatus(CudaRank& rank, int error, const char* what) {
  if (error == 0) return absl::OkStatus();
  absl::Status status = CudaStatus(error, absl::StrCat("launching ", what));
  rank.progress->Abort(-1, std::string(status.message()));
  return status;
}

absl::Status CheckAligned(const char* what, const void* address) {
  if (reinterpret_cast<uintptr_t>(address) % kVectorBytes == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(what, " does not begin at a multiple of ",
                                                 kVectorBytes, " bytes, as backend cuda needs it"));
}

}  // namespace perigee
