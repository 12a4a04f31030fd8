// The attachment part of client/lib/perigee.h.
#include "client/lib/c_attachment.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/lib/c_cluster.h"
#include "client/lib/c_error.h"

namespace perigee {
namespace {

constexpr size_t kMemoryBytesOfVersion1 = offsetof(perigee_memory, kind);

// The number that it will have: nothing else is submitted in between.
int AddToProgram(perigee_attachment& attachment, const LocalOperation& operation, uint64_t* command,
                 perigee_error* error) {
  std::vector<LocalOperation>& program = *attachment.program;
  if (program.size() == kCommandSlots) {
    return TellStatus(absl::ResourceExhaustedError(absl::StrCat(
                          "the program has ", kCommandSlots, " commands, as many as there can be")),
                      error);
  }
  *command = attachment.client->next_command() + program.size();
  program.push_back(operation);
  return TellStatus(absl::OkStatus(), error);
}

perigee_memory MemoryOf(const perigee_attachment& attachment) {
  const LocalClient& client = *attachment.client;
  const Geometry& geometry = client.geometry();
  static_assert(sizeof(BFloat16) == sizeof(uint16_t));
  const auto bits = [](BFloat16* rows) { return reinterpret_cast<uint16_t*>(rows); };
  perigee_memory memory{};
  memory.rank = client.rank().value;
  memory.ranks = geometry.ranks;
  memory.tokens = geometry.tokens;
  memory.hidden = client.hidden_size();
  memory.topk = geometry.topk;
  memory.experts = geometry.experts;
  memory.slots = geometry.slots;
  memory.token_padding = geometry.token_padding;
  memory.intermediate = attachment.intermediate;
  memory.layers = attachment.layers;
  memory.generation = client.generation().value;
  memory.rows = geometry.logical_rows();
  memory.input_tokens = bits(client.hidden().data());
  memory.input_routes = client.topk_experts().data();
  memory.input_route_weights = client.route_weights().data();
  memory.output_tokens = reinterpret_cast<const uint16_t*>(client.output().data());
  memory.output_route_weights = client.gathered_weights().data();
  memory.shard_rows = bits(client.rows().data());
  memory.shard_route_weights = client.row_weights().data();
  memory.plan_dst = client.plan().dst;
  memory.plan_cu_seqlens = client.plan().cu_seqlens;
  memory.plan_zero_fill_ranges = client.plan().zero_fill_ranges;
  memory.plan_experts_to_copy = client.plan().experts_to_copy;
  memory.plan_load = client.plan().load;
  memory.plan_home_load = client.plan().home_load;
  memory.kind = client.device() ? PERIGEE_MEMORY_CUDA : PERIGEE_MEMORY_HOST;
  memory.device = client.device() ? client.device()->index : -1;
  if (client.device()) {
    client.device()->uuid.copy(memory.device_uuid, PERIGEE_DEVICE_UUID_BYTES - 1);
  }
  return memory;
}

absl::Status CheckGradients(const perigee_attachment& attachment, int32_t layer,
                            uint32_t struct_bytes) {
  if (struct_bytes < sizeof(perigee_gradients)) {
    return absl::InvalidArgumentError(absl::StrCat("gradients have struct_bytes ", struct_bytes,
                                                   ", expected at least ",
                                                   sizeof(perigee_gradients)));
  }
  if (!attachment.gradients) {
    return absl::FailedPreconditionError("the buffer keeps no gradients");
  }
  if (layer >= 0 && layer < attachment.layers) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("layer is ", layer, ", expected 0 to ", attachment.layers - 1));
}

perigee_gradients GradientsOf(const LocalClient& client, int32_t layer) {
  perigee_gradients gradients{};
  gradients.home_experts = client.geometry().experts_per_rank();
  const RankGradients found = client.gradients();
  gradients.home_gate = found.home(layer, &GradientsLayout::gate);
  gradients.home_up = found.home(layer, &GradientsLayout::up);
  gradients.home_down = found.home(layer, &GradientsLayout::down);
  gradients.slot_gate = found.slots(&GradientsLayout::gate);
  gradients.slot_up = found.slots(&GradientsLayout::up);
  gradients.slot_down = found.slots(&GradientsLayout::down);
  return gradients;
}

perigee_slots SlotsOf(const LocalClient& client) {
  const RankSlots found = client.slots();
  perigee_slots slots{};
  slots.slots = client.geometry().slots;
  slots.format = static_cast<int32_t>(found.shape.format);
  slots.scales = found.shape.scales ? 1 : 0;
  slots.gate = found.part(0);
  slots.up = found.part(1);
  slots.down = found.part(2);
  slots.gate_scales = found.part(3);
  slots.up_scales = found.part(4);
  slots.down_scales = found.part(5);
  return slots;
}

absl::Status GetSource(const LocalClient& client, const char* needed, perigee_source& source) {
  if (source.struct_bytes < sizeof(perigee_source)) {
    return absl::InvalidArgumentError(absl::StrCat("source has struct_bytes ", source.struct_bytes,
                                                   ", expected at least ", sizeof(perigee_source)));
  }
  absl::StatusOr<AccessSet> access = AccessSet();
  if (needed != nullptr) access = AccessSet::Parse(needed);
  if (!access.ok()) return access.status();
  const absl::StatusOr<RankSource> found = client.TakeSource(*access);
  if (!found.ok()) return found.status();
  const uint32_t struct_bytes = source.struct_bytes;
  source = perigee_source{};
  source.struct_bytes = struct_bytes;
  found->access.ToString().copy(source.access, PERIGEE_ACCESS_BYTES - 1);
  source.tokens = reinterpret_cast<uint16_t*>(found->hidden.data());
  source.route_weights = found->route_weights.data();
  return absl::OkStatus();
}

absl::Status Attach(Client& cluster, const char* buffer, RankId rank,
                    perigee_attachment& attachment) {
  const absl::StatusOr<v1::AttachTicket> ticket =
      cluster.IssueAttachTicket(buffer, Generation(), rank);
  if (!ticket.ok()) return ticket.status();
  absl::StatusOr<std::unique_ptr<LocalClient>> client = LocalClient::Attach(*ticket);
  if (!client.ok()) return client.status();
  attachment.client = *std::move(client);
  attachment.intermediate = ticket->shape().intermediate();
  attachment.layers = ticket->shape().layers();
  attachment.gradients = ticket->shape().gradients();
  return absl::OkStatus();
}

}  // namespace

int GiveCommand(perigee_attachment* attachment, const LocalOperation& operation, uint64_t* command,
                perigee_error* error) {
  if (attachment == nullptr) return TellNull("attachment", error);
  if (command == nullptr) return TellNull("command", error);
  if (attachment->program) return AddToProgram(*attachment, operation, command, error);
  const absl::StatusOr<uint64_t> submitted =
      HandOver(*attachment, absl::MakeConstSpan(&operation, 1));
  if (!submitted.ok()) return TellLost(*attachment->client, submitted.status(), error);
  *command = *submitted;
  return TellStatus(absl::OkStatus(), error);
}

int AwaitCommand(perigee_attachment& attachment, uint64_t command, absl::Duration timeout,
                 absl::optional<LocalCompletion>& completion, perigee_error* error) {
  absl::StatusOr<LocalCompletion> ended = attachment.client->Wait(command, timeout);
  if (ended.ok()) {
    completion = *std::move(ended);
    return TellCompletion(*completion, error);
  }
  if (absl::IsDeadlineExceeded(ended.status())) {
    return TellStatus(ended.status(), "UNDER_WAY", error);
  }
  if (absl::IsOutOfRange(ended.status())) {
    return TellStatus(ended.status(), "UNKNOWN_COMMAND", error);
  }
  return TellLost(*attachment.client, ended.status(), error);
}

int TellLost(LocalClient& client, const absl::Status& status, perigee_error* error) {
  if (absl::IsResourceExhausted(status) || absl::IsDataLoss(status)) {
    return TellStatus(status, error);
  }
  const absl::optional<LocalCompletion> end = client.End();
  return end.has_value() ? TellCompletion(*end, error) : TellStatus(status, error);
}

absl::StatusOr<uint64_t> HandOver(perigee_attachment& attachment,
                                  absl::Span<const LocalOperation> operations) {
  LocalClient& client = *attachment.client;
  absl::StatusOr<uint64_t> first =
      attachment.followed ? client.SubmitProgramBehind(*attachment.followed, operations)
                          : client.SubmitProgram(operations);
  // What was not handed over leaves the stream to be followed by what is handed over next.
  if (first.ok()) attachment.followed.reset();
  return first;
}

}  // namespace perigee

using perigee::GiveCommand;
using perigee::LocalPlanId;
using perigee::TellNull;
using perigee::TellStatus;

int perigee_attach(perigee_cluster* cluster, const char* buffer, int32_t rank,
                   perigee_attachment** attachment, perigee_error* error) {
  if (cluster == nullptr) return TellNull("cluster", error);
  if (buffer == nullptr) return TellNull("buffer", error);
  if (attachment == nullptr) return TellNull("attachment", error);
  *attachment = nullptr;
  auto made = std::make_unique<perigee_attachment>();
  const absl::Status status =
      perigee::Attach(*cluster->client, buffer, perigee::RankId(rank), *made);
  if (status.ok()) *attachment = made.release();
  return TellStatus(status, error);
}

int perigee_leave(perigee_attachment* attachment, perigee_error* error) {
  if (attachment == nullptr) return TellNull("attachment", error);
  return TellStatus(attachment->client->Detach(), error);
}

void perigee_detach(perigee_attachment* attachment) { delete attachment; }

int perigee_get_memory(perigee_attachment* attachment, perigee_memory* memory,
                       perigee_error* error) {
  if (attachment == nullptr) return TellNull("attachment", error);
  if (memory == nullptr) return TellNull("memory", error);
  const uint32_t struct_bytes = memory->struct_bytes;
  if (struct_bytes < perigee::kMemoryBytesOfVersion1) {
    return TellStatus(absl::InvalidArgumentError(absl::StrCat("memory has struct_bytes ",
                                                              struct_bytes, ", expected at least ",
                                                              perigee::kMemoryBytesOfVersion1)),
                      error);
  }
  perigee_memory found = perigee::MemoryOf(*attachment);
  if (found.kind != PERIGEE_MEMORY_HOST && struct_bytes < sizeof(perigee_memory)) {
    return TellStatus(
        absl::FailedPreconditionError(absl::StrCat(
            "the memory is on ", found.device_uuid, ", and struct_bytes ", struct_bytes,
            " has no room to say so: the caller was built with an older "
            "perigee.h")),
        error);
  }
  found.struct_bytes = struct_bytes;
  std::memcpy(memory, &found, std::min<size_t>(struct_bytes, sizeof(found)));
  return TellStatus(absl::OkStatus(), error);
}

int perigee_get_gradients(perigee_attachment* attachment, int32_t layer,
                          perigee_gradients* gradients, perigee_error* error) {
  if (attachment == nullptr) return TellNull("attachment", error);
  if (gradients == nullptr) return TellNull("gradients", error);
  const absl::Status status = perigee::CheckGradients(*attachment, layer, gradients->struct_bytes);
  if (!status.ok()) return TellStatus(status, error);
  const uint32_t struct_bytes = gradients->struct_bytes;
  *gradients = perigee::GradientsOf(*attachment->client, layer);
  gradients->struct_bytes = struct_bytes;
  return TellStatus(absl::OkStatus(), error);
}

int perigee_get_slots(perigee_attachment* attachment, perigee_slots* slots, perigee_error* error) {
  if (attachment == nullptr) return TellNull("attachment", error);
  if (slots == nullptr) return TellNull("slots", error);
  const uint32_t struct_bytes = slots->struct_bytes;
  if (struct_bytes < sizeof(perigee_slots)) {
    return TellStatus(
        absl::InvalidArgumentError(absl::StrCat("slots have struct_bytes ", struct_bytes,
                                                ", expected at least ", sizeof(perigee_slots))),
        error);
  }
  if (attachment->client->slots().block == nullptr) {
    return TellStatus(absl::FailedPreconditionError("the buffer has no weights in slots"), error);
  }
  *slots = perigee::SlotsOf(*attachment->client);
  slots->struct_bytes = struct_bytes;
  return TellStatus(absl::OkStatus(), error);
}

int perigee_get_source(perigee_attachment* attachment, const char* needed, perigee_source* source,
                       perigee_error* error) {
  if (attachment == nullptr) return TellNull("attachment", error);
  if (source == nullptr) return TellNull("source", error);
  return TellStatus(perigee::GetSource(*attachment->client, needed, *source), error);
}

int perigee_empty(perigee_attachment* attachment, uint64_t* command, perigee_error* error) {
  return GiveCommand(attachment, perigee::LocalEmpty{}, command, error);
}

int perigee_dispatch(perigee_attachment* attachment, uint64_t plan, int32_t token_count,
                     int32_t use_weights, uint64_t* command, perigee_error* error) {
  return GiveCommand(attachment,
                     perigee::LocalDispatch{LocalPlanId(plan), token_count, use_weights != 0},
                     command, error);
}

int perigee_dispatch_with_plan(perigee_attachment* attachment, uint64_t plan, int32_t token_count,
                               int32_t use_weights, uint64_t* command, perigee_error* error) {
  return GiveCommand(
      attachment, perigee::LocalDispatchWithPlan{LocalPlanId(plan), token_count, use_weights != 0},
      command, error);
}

int perigee_prefetch_weights(perigee_attachment* attachment, uint64_t plan, int32_t layer,
                             uint64_t version, uint64_t* command, perigee_error* error) {
  return GiveCommand(attachment, perigee::LocalPrefetchWeights{LocalPlanId(plan), layer, version},
                     command, error);
}

int perigee_run_experts(perigee_attachment* attachment, uint64_t plan, int32_t layer,
                        uint64_t version, int32_t use_weights, uint64_t* command,
                        perigee_error* error) {
  return GiveCommand(attachment,
                     perigee::LocalRunExperts{LocalPlanId(plan), layer, version, use_weights != 0},
                     command, error);
}

int perigee_combine(perigee_attachment* attachment, uint64_t plan, int32_t use_weights,
                    uint64_t* command, perigee_error* error) {
  const perigee::LocalCombine combine{LocalPlanId(plan), use_weights != 0,
                                      use_weights == PERIGEE_OWN_WEIGHTS};
  return GiveCommand(attachment, combine, command, error);
}

int perigee_reduce_gradients(perigee_attachment* attachment, uint64_t plan, int32_t layer,
                             uint64_t* command, perigee_error* error) {
  return GiveCommand(attachment, perigee::LocalReduceGradients{LocalPlanId(plan), layer}, command,
                     error);
}

int perigee_barrier(perigee_attachment* attachment, uint64_t* command, perigee_error* error) {
  return GiveCommand(attachment, perigee::LocalBarrier{}, command, error);
}

int perigee_release_plan(perigee_attachment* attachment, uint64_t plan, uint64_t* command,
                         perigee_error* error) {
  return GiveCommand(attachment, perigee::LocalReleasePlan{LocalPlanId(plan)}, command, error);
}

int perigee_clone_plan(perigee_attachment* attachment, uint64_t plan, uint64_t source,
                       uint64_t* command, perigee_error* error) {
  return GiveCommand(attachment, perigee::LocalClonePlan{LocalPlanId(plan), LocalPlanId(source)},
                     command, error);
}

int perigee_prepare_dispatch(perigee_attachment* attachment, uint64_t plan, int32_t token_count,
                             uint64_t* command, perigee_error* error) {
  return GiveCommand(attachment, perigee::LocalPrepareDispatch{LocalPlanId(plan), token_count},
                     command, error);
}

int perigee_prepare_publication(perigee_attachment* attachment, uint64_t plan, int32_t use_weights,
                                const uint8_t* token, uint64_t* command, perigee_error* error) {
  perigee::LocalPreparePublication prepare{LocalPlanId(plan), use_weights != 0, {}};
  if (token != nullptr) {
    static_assert(PERIGEE_TOKEN_BYTES == perigee::kPublicationTokenBytes);
    std::memcpy(prepare.token.emplace().data(), token, PERIGEE_TOKEN_BYTES);
  }
  return GiveCommand(attachment, prepare, command, error);
}

int perigee_store_rows(perigee_attachment* attachment, uint64_t plan, uint64_t* command,
                       perigee_error* error) {
  return GiveCommand(attachment, perigee::LocalStoreRows{LocalPlanId(plan)}, command, error);
}

int perigee_publish(perigee_attachment* attachment, uint64_t plan, uint64_t* command,
                    perigee_error* error) {
  return GiveCommand(attachment, perigee::LocalPublish{LocalPlanId(plan)}, command, error);
}

int perigee_prepare_source(perigee_attachment* attachment, uint64_t plan, int32_t token_count,
                           int32_t copy_tokens, int32_t copy_weights, uint64_t* command,
                           perigee_error* error) {
  const perigee::LocalPrepareSource prepare{LocalPlanId(plan), token_count, copy_tokens != 0,
                                            copy_weights != 0};
  return GiveCommand(attachment, prepare, command, error);
}

int perigee_materialise(perigee_attachment* attachment, uint64_t plan, uint64_t* command,
                        perigee_error* error) {
  return GiveCommand(attachment, perigee::LocalMaterialise{LocalPlanId(plan)}, command, error);
}

int perigee_wait(perigee_attachment* attachment, uint64_t command, int64_t timeout_ns,
                 int64_t* duration_ns, perigee_error* error) {
  if (attachment == nullptr) return TellNull("attachment", error);
  absl::optional<perigee::LocalCompletion> ended;
  const int code =
      perigee::AwaitCommand(*attachment, command, absl::Nanoseconds(timeout_ns), ended, error);
  if (ended && duration_ns != nullptr) *duration_ns = absl::ToInt64Nanoseconds(ended->duration);
  return code;
}
