// What the operations of the CUDA backend share: one rank's shape, its device memory and stream,
// and the operations that it has queued. Operations queue kernels and return; what became of them
// is told by Settle (settle.h).
#ifndef PERIGEE_KERNELS_CUDA_CUDA_RANK_H_
#define PERIGEE_KERNELS_CUDA_CUDA_RANK_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "kernels/backend.h"
#include "kernels/cuda/cuda_plan.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/path_view.h"
#include "kernels/cuda/planning_scratch.h"
#include "kernels/cuda/rank_barrier_arguments.h"
#include "kernels/cuda/sm_budget.h"
#include "kernels/cuda/source_lists.h"
#include "kernels/device/event.h"
#include "kernels/device/pinned.h"
#include "kernels/device/private_device_memory.h"
#include "kernels/device/stream_pool.h"
#include "kernels/rank/progress.h"
#include "kernels/rank/rank_shape.h"
#include "kernels/rank/weights_errors.h"

namespace perigee {

// What is needed to tell what became of a queued operation.
struct QueuedOperation {
  OperationMark mark = {};
  bool consumes_rows = false;   // changes the caller's rows in the shard
  bool spoils_shard = false;    // changes the shard before all have agreed on the operation
  LiveRows live_before = {};    // what the shard held when it was queued
  Sequence source_before = {};  // and which source view lived
  std::unique_ptr<Event> begin = nullptr;  // on the stream, for its duration
  std::unique_ptr<Event> end = nullptr;
  WantedWeights weights = {};                // of prefetch and run_experts
  int32_t sums_gradients_of = -1;            // layer, of reduce_gradients
  std::shared_ptr<CudaPlan> plan = nullptr;  // that a dispatch makes
};

// A mark in the stream, between operations.
struct QueuedMark {
  std::unique_ptr<Event> event;
  size_t operations = 0;  // that are queued before it
};

// A prefetch whose copies run beside what is queued after it.
struct PrefetchBeside {
  Sequence sequence;
  std::shared_ptr<const CudaPlan> plan;  // which the copies read: its memory is not used again
  WantedWeights weights;
};

// Where such work runs, and the marks by which the rank's own stream and they wait for each other.
struct LaneBeside {
  std::unique_ptr<PooledStream> stream;
  std::unique_ptr<Event> begin;  // in the rank's stream
  std::unique_ptr<Event> end;    // in this one
};

// Freed in reverse order: kernels are at an end by then (the data path's destructor waits).
struct CudaRank : RankShape {
  int device = 0;
  std::unique_ptr<SmBudget::Share> sms;
  int32_t local_sms = 1;
  int32_t keep_sms =
      0;  // of the kernel that writes own rows beside the one that sends; 0: none does
  bool sums_beside = false;  // the same SMs sum own rows beside a combine
  bool programmatic_launch = true;
  // Shard views, state, planning scratch, slot marks; lists of a source.
  std::unique_ptr<PrivateDeviceMemory> memory;
  std::unique_ptr<PinnedObject<HostPage>> page;
  // Of dispatch-output slots, where there are some: a word each (kernels/rank/path_rings.h).
  std::unique_ptr<PinnedMemory> slot_words;
  std::unique_ptr<PrivateDeviceMemory> expert_slots;  // [slots, NvS, H], where there are some
  std::unique_ptr<PooledStream> stream;
  LaneBeside lane;                        // null before the first copies beside
  absl::optional<PrefetchBeside> beside;  // not joined yet
  LaneBeside preparation;        // where publications are prepared beside; null before the first
  bool prepares_beside = false;  // and the rank's stream does not wait for it yet
  std::unique_ptr<PrivateDeviceMemory> expert_scratch;  // grows with the largest H' seen
  std::shared_ptr<PlanPool> plans;
  std::unique_ptr<Progress> progress;
  PathView view;
  PlanningScratch scratch;
  uint32_t* bad_slots = nullptr;  // [B + 1] in `memory`, of prefetches
  SourceLists source_lists;       // likewise, where there is a source
  std::deque<QueuedOperation> queued;
  uint32_t told = 0;  // operations that are not queued any more, modulo 2^32
  std::vector<std::unique_ptr<Event>> spare_events;
  std::vector<QueuedMark> queued_marks;
  // Of what was settled last, up to the first failure.
  std::vector<absl::Duration> durations;
  size_t operations_ended = 0;

  uint64_t* WordOf(int32_t slot) const {  // as the host sees it
    return reinterpret_cast<uint64_t*>(slot_words->host()) + slot;
  }
  uint64_t* DeviceWordOf(int32_t slot) const {
    return reinterpret_cast<uint64_t*>(slot_words->device_address()) + slot;
  }

  // Of kernels that reach into peers' memory, and of those that stay in this rank's.
  LaunchTarget target() const { return {(*stream)->get(), sms->sms(), programmatic_launch}; }
  LaunchTarget local_target() const { return {(*stream)->get(), local_sms, programmatic_launch}; }
  LaunchTarget keep_target() const { return {(*stream)->get(), keep_sms, programmatic_launch}; }
};

// Fills in everything. INVALID_ARGUMENT where this rank's shard has been used before.
absl::StatusOr<CudaRank> CreateCudaRank(int device, const DataPathOptions& options,
                                        std::unique_ptr<SmBudget::Share> sms);

// As RankShape::UseSlot, for what is launched from here on.
void UseSlot(CudaRank& rank, int32_t slot);
// Behind what is queued: the slot's word says that its last read has ended.
absl::Status QueueFreeSlot(CudaRank& rank, int32_t slot);

// Whether a collective operation may be queued at `sequence`. As Progress::Begin; where it skips a
// sequence, the others are told where this rank is.
absl::Status BeginCollective(CudaRank& rank, Sequence sequence, Operation operation);
// Notes the operation begun; what it brings to its entry barrier. To be launched right after.
EntryArguments NoteEntry(CudaRank& rank, const OperationDescriptor& descriptor, uint32_t flags,
                         QueuedOperation queued);
// Notes that all up to its exit barrier has been launched.
void NoteExit(CudaRank& rank);
// The same with barriers in kernels of their own.
absl::Status QueueEntry(CudaRank& rank, const OperationDescriptor& descriptor, uint32_t flags,
                        QueuedOperation queued);
absl::Status QueueExit(CudaRank& rank);
// The mark of the operation begun, before it is noted as queued.
OperationMark MarkOf(const CudaRank& rank, Operation operation);

absl::StatusOr<LaneBeside> MakeLane(int device, StreamPriority priority);
// Makes the rank's stream wait for the prefetch that runs beside it.
absl::Status WaitForBeside(CudaRank& rank);
// The same for a publication that is prepared beside it.
absl::Status WaitForPreparation(CudaRank& rank);

// A mark in the rank's stream, with timing.
absl::StatusOr<std::unique_ptr<Event>> RecordEvent(CudaRank& rank);

// Of a launch: INTERNAL, or DATA_LOSS where the context is lost; the path can do nothing after it.
absl::Status LaunchStatus(CudaRank& rank, int error, const char* what);

// INVALID_ARGUMENT, naming `what`, unless the address is a multiple of 16 bytes: rows are moved in
// vectors.
absl::Status CheckAligned(const char* what, const void* address);

}  // namespace perigee

#endif  // PERIGEE_KERNELS_CUDA_CUDA_RANK_H_
