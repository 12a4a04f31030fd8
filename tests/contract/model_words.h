// How commands on slots and gradients end in the model of lifetimes (rank_model.h): parts of what
// is said.
#ifndef PERIGEE_TESTS_CONTRACT_MODEL_WORDS_H_
#define PERIGEE_TESTS_CONTRACT_MODEL_WORDS_H_

#include <cstddef>

#include "kernels/buffer_rings.h"
#include "tests/contract/model_group.h"

namespace perigee {

inline constexpr RingKind kDispatch = RingKind::kDispatchOutput;
inline constexpr RingKind kExpert = RingKind::kExpertOutput;

inline constexpr char kOver[] = "which is over";
inline constexpr char kForeign[] = "expected one of the ";
inline constexpr char kReleasedAlready[] = "is released already";
inline constexpr char kNotReleased[] = "is next and not released";
inline constexpr char kNotADispatch[] = "expected a dispatch-output slot";
inline constexpr char kNotAnExpert[] = "expected an expert-output slot";
inline constexpr char kPlan[] = "plan is ";
inline constexpr char kSomePlan[] = "plan";
inline constexpr char kOtherPlan[] = "expected the plan of sequence";
inline constexpr char kPrepared[] = "is prepared: until it is published";
inline constexpr char kCancel[] = "cancel";
inline constexpr char kDeclined[] = "declined";
inline constexpr char kItself[] = "is the slot that they read";
inline constexpr char kInShard[] = "in the shard";
inline constexpr char kStale[] = "version";
inline constexpr char kOtherBuffer[] = "buffer 4, ";
inline constexpr char kFewSlots[] = "expected at least E/R";
inline constexpr char kSums[] = "sums";  // said by nobody: some were not empty
inline constexpr char kNoStreams[] = "has no streams";

// Of one slot.
inline size_t SlotElements() {
  return static_cast<size_t>(kModelGeometry.logical_rows()) * kModelShape.hidden;
}

}  // namespace perigee

#endif  // PERIGEE_TESTS_CONTRACT_MODEL_WORDS_H_
