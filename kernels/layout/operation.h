// What ranks tell each other about an operation, and what a rank records when one fails. Plain
// structs: they lie in shared memory and, on a GPU, in pinned host memory.
#ifndef PERIGEE_KERNELS_LAYOUT_OPERATION_H_
#define PERIGEE_KERNELS_LAYOUT_OPERATION_H_

#include <cstdint>

#include "kernels/common/host_device.h"
#include "kernels/common/ids.h"

namespace perigee {

enum class Operation : uint32_t {
  kNone = 0,
  kDispatch = 1,
  kDispatchWithPlan = 2,
  kPrefetchWeights = 3,
  kRunExperts = 4,
  kCombine = 5,
  kBarrier = 6,
  kProbeCopy = 7,  // local, for measuring
  kReduceGradients = 8,
  kPrepareDispatch = 9,
  kPreparePublication = 10,  // local
  kStoreRows = 11,           // local
  kPublish = 12,
  kPrepareSource = 13,
  kMaterialise = 14,
  kProduce = 15,  // local
};

// What all ranks must agree on before a collective operation touches a peer's memory. Token counts
// and local flags are left out: they may differ. Fixed width and without padding, so that equal
// descriptors have equal bytes.
struct OperationDescriptor {
  uint32_t operation = 0;      // Operation
  int32_t tokens = 0;          // S
  int32_t hidden = 0;          // H
  int32_t topk = 0;            // K
  int32_t experts = 0;         // E
  int32_t slots = 0;           // B
  int32_t token_padding = 0;   // P
  int32_t intermediate = 0;    // H', 0 where neither weights nor gradients take part
  uint32_t dtype = 0;          // Dtype of the rows, weights or gradients that travel
  int32_t layer = -1;          // -1 where neither take part
  uint64_t plan_sequence = 0;  // sequence of the plan's making, 0 where one is made
  uint64_t weights_version = 0;

  friend constexpr bool operator==(const OperationDescriptor&,
                                   const OperationDescriptor&) = default;
};
static_assert(sizeof(OperationDescriptor) == 56);

enum class Dtype : uint32_t { kNone = 0, kBFloat16 = 1, kFloat32 = 2, k8Bit = 3, kMxfp4 = 4 };

// Why an operation ended early. An operation that all ranks leave at the same sequence lets the
// generation go on; after the others the generation must be fenced.
enum class AbortReason : uint32_t {
  kNone = 0,
  kBadRoute = 1,      // a rank's expert id is out of range; all ranks leave together
  kDisagreement = 2,  // descriptors differ; all ranks leave together
  kCancelled = 3,     // a rank was asked to cancel; all ranks leave together
  kAborted = 4,       // the abort word of the generation was raised: a rank was lost or fenced
  kDeadline = 5,      // a rank did not arrive in time
  kOutOfStep = 6,     // a rank is at another sequence
  kStaleWeights = 7,  // a home rank holds other weights than asked for; found by this rank alone
  kDeclined = 8,      // a rank refused the operation before its launch; all ranks leave together
};

PERIGEE_HOST_DEVICE constexpr bool AllRanksLeave(AbortReason reason) {
  return reason == AbortReason::kBadRoute || reason == AbortReason::kDisagreement ||
         reason == AbortReason::kCancelled || reason == AbortReason::kDeclined;
}

// Where inside an operation a wait ended.
enum class Phase : uint32_t { kNone = 0, kEntry = 1, kExit = 2 };

// What a rank knows when it leaves an operation early. `expected` and `seen` hold, by reason:
// kDeadline and kOutOfStep the awaited and the present barrier position (sequence * 4 + phase);
// kDisagreement the two descriptor hashes; kBadRoute expected = E, seen = the id, with token and k;
// kStaleWeights the two weights versions.
struct ErrorRecord {
  uint64_t generation = 0;
  uint64_t sequence = 0;
  uint32_t operation = 0;  // Operation
  uint32_t phase = 0;      // Phase
  uint32_t reason = 0;     // AbortReason
  int32_t rank = -1;       // that recorded this
  int32_t awaited_rank = -1;
  int32_t token = -1;
  int32_t k = -1;
  uint32_t reserved = 0;
  int64_t expected = 0;
  int64_t seen = 0;
};
static_assert(sizeof(ErrorRecord) == 64);

}  // namespace perigee

#endif  // PERIGEE_KERNELS_LAYOUT_OPERATION_H_
