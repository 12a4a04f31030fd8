// client/lib/perigee_rings.h.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/lib/c_attachment.h"
#include "client/lib/c_error.h"

namespace perigee {
namespace {

LocalSlot SlotOf(const perigee_slot& slot) { return {slot.index, slot.identity}; }

// Of the next collective operation that is given.
Sequence NextSequence(const perigee_attachment& attachment) {
  Sequence next = attachment.client->next_sequence();
  if (!attachment.program) return next;
  for (const LocalOperation& operation : *attachment.program) {
    if (IsCollective(KindOf(operation))) next = next.Next();
  }
  return next;
}

template <typename Dispatch>
int DispatchIntoSlot(perigee_attachment* attachment, Dispatch dispatch, int32_t index,
                     perigee_slot* slot, uint64_t* command, perigee_error* error) {
  if (attachment == nullptr) return TellNull("attachment", error);
  if (slot == nullptr) return TellNull("slot", error);
  dispatch.slot = index;
  *slot = {NextSequence(*attachment).value, index, 0};
  return GiveCommand(attachment, dispatch, command, error);
}

absl::Status FindSlot(const LocalClient& client, int32_t index, perigee_output_slot& slot) {
  if (slot.struct_bytes < sizeof(perigee_output_slot)) {
    return absl::InvalidArgumentError(absl::StrCat("output slot has struct_bytes ",
                                                   slot.struct_bytes, ", expected at least ",
                                                   sizeof(perigee_output_slot)));
  }
  const std::vector<RankOutputSlot> slots = client.output_slots();
  if (slots.empty()) {
    return absl::FailedPreconditionError("the buffer has no dispatch-output slots");
  }
  if (absl::Status status = CheckOutputSlot(slots.size(), index); !status.ok()) return status;
  slot.slots = static_cast<int32_t>(slots.size());
  slot.rows = reinterpret_cast<uint16_t*>(slots[index].rows.data());
  slot.route_weights = slots[index].row_weights.data();
  return absl::OkStatus();
}

}  // namespace
}  // namespace perigee

using perigee::GiveCommand;
using perigee::LocalPlanId;
using perigee::SlotOf;
using perigee::TellNull;
using perigee::TellStatus;

int perigee_get_output_slot(perigee_attachment* attachment, int32_t index,
                            perigee_output_slot* slot, perigee_error* error) {
  if (attachment == nullptr) return TellNull("attachment", error);
  if (slot == nullptr) return TellNull("slot", error);
  return TellStatus(perigee::FindSlot(*attachment->client, index, *slot), error);
}

int perigee_dispatch_into_slot(perigee_attachment* attachment, uint64_t plan, int32_t token_count,
                               int32_t use_weights, int32_t index, perigee_slot* slot,
                               uint64_t* command, perigee_error* error) {
  const perigee::LocalDispatch dispatch{LocalPlanId(plan), token_count, use_weights != 0};
  return perigee::DispatchIntoSlot(attachment, dispatch, index, slot, command, error);
}

int perigee_dispatch_with_plan_into_slot(perigee_attachment* attachment, uint64_t plan,
                                         int32_t token_count, int32_t use_weights, int32_t index,
                                         perigee_slot* slot, uint64_t* command,
                                         perigee_error* error) {
  const perigee::LocalDispatchWithPlan dispatch{LocalPlanId(plan), token_count, use_weights != 0};
  return perigee::DispatchIntoSlot(attachment, dispatch, index, slot, command, error);
}

int perigee_run_experts_of_slot(perigee_attachment* attachment, uint64_t plan, int32_t layer,
                                uint64_t version, int32_t use_weights, const perigee_slot* slot,
                                int32_t into_slot, uint64_t* command, perigee_error* error) {
  if (attachment == nullptr) return TellNull("attachment", error);
  if (slot == nullptr) return TellNull("slot", error);
  const perigee::LocalRunExperts run{LocalPlanId(plan), layer,         version,
                                     use_weights != 0,  SlotOf(*slot), into_slot != 0};
  return GiveCommand(attachment, run, command, error);
}

int perigee_combine_slot(perigee_attachment* attachment, uint64_t plan, const perigee_slot* slot,
                         uint64_t* command, perigee_error* error) {
  if (attachment == nullptr) return TellNull("attachment", error);
  if (slot == nullptr) return TellNull("slot", error);
  const perigee::LocalCombine combine{.plan = LocalPlanId(plan), .slot = SlotOf(*slot)};
  return GiveCommand(attachment, combine, command, error);
}

int perigee_combine_own_rows(perigee_attachment* attachment, uint64_t plan, int32_t use_weights,
                             uint64_t* command, perigee_error* error) {
  const perigee::LocalCombine combine{.plan = LocalPlanId(plan),
                                      .route_weights = use_weights != 0,
                                      .own_weights = use_weights == PERIGEE_OWN_WEIGHTS,
                                      .own_rows = true};
  return GiveCommand(attachment, combine, command, error);
}

int perigee_release_slot(perigee_attachment* attachment, int32_t ring, const perigee_slot* slot,
                         uint64_t* command, perigee_error* error) {
  if (attachment == nullptr) return TellNull("attachment", error);
  if (slot == nullptr) return TellNull("slot", error);
  if (ring != PERIGEE_DISPATCH_OUTPUT && ring != PERIGEE_EXPERT_OUTPUT) {
    return TellStatus(absl::InvalidArgumentError(absl::StrCat("ring is ", ring,
                                                              ", expected dispatch output, 0, or "
                                                              "expert output, 1")),
                      error);
  }
  const perigee::LocalReleaseSlot release{SlotOf(*slot), ring == PERIGEE_EXPERT_OUTPUT
                                                             ? perigee::LocalRing::kExpertOutput
                                                             : perigee::LocalRing::kDispatchOutput};
  return GiveCommand(attachment, release, command, error);
}

int perigee_release_slot_behind(perigee_attachment* attachment, void* stream,
                                const perigee_slot* slot, uint64_t* command, perigee_error* error) {
  if (attachment == nullptr) return TellNull("attachment", error);
  if (slot == nullptr) return TellNull("slot", error);
  if (command == nullptr) return TellNull("command", error);
  // A mark cannot be taken back where the program is dropped.
  if (attachment->program) {
    return TellStatus(absl::FailedPreconditionError(
                          "a program has begun, expected a release behind a stream after it"),
                      error);
  }
  const absl::StatusOr<uint64_t> released =
      attachment->client->ReleaseSlotBehind(static_cast<CUstream_st*>(stream), SlotOf(*slot));
  if (!released.ok()) return perigee::TellLost(*attachment->client, released.status(), error);
  *command = *released;
  return TellStatus(absl::OkStatus(), error);
}

int perigee_capture_slot_read(perigee_attachment* attachment, void* stream, int32_t index,
                              perigee_error* error) {
  if (attachment == nullptr) return TellNull("attachment", error);
  return TellStatus(attachment->client->CaptureSlotRead(static_cast<CUstream_st*>(stream), index),
                    error);
}

int perigee_release_slot_replayed(perigee_attachment* attachment, const perigee_slot* slot,
                                  uint64_t* command, perigee_error* error) {
  if (attachment == nullptr) return TellNull("attachment", error);
  if (slot == nullptr) return TellNull("slot", error);
  const perigee::LocalReleaseSlot release{SlotOf(*slot), perigee::LocalRing::kDispatchOutput,
                                          perigee::SlotRead::kByGraph};
  return GiveCommand(attachment, release, command, error);
}

int perigee_taken_slot(perigee_attachment* attachment, uint64_t command, perigee_slot* slot,
                       perigee_error* error) {
  if (attachment == nullptr) return TellNull("attachment", error);
  if (slot == nullptr) return TellNull("slot", error);
  absl::optional<perigee::LocalCompletion> ended;
  const int code = perigee::AwaitCommand(*attachment, command, absl::ZeroDuration(), ended, error);
  *slot = {0, -1, 0};
  if (ended) *slot = {ended->slot.identity, ended->slot.index, 0};
  return code;
}
