#include "client/cli/run/layer_session.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cli/run/layer_program.h"
#include "client/lib/group_error.h"
#include "client/lib/group_loss.h"
#include "client/lib/rank_tensors.h"
#include "proto/support/defaults.h"
#include "proto/support/resource_name.h"

namespace perigee {
namespace {

constexpr int32_t kLayer = 0;
constexpr uint64_t kWeightsVersion = 1;
// A run that loses ranks this often without an iteration in between is given up.
constexpr int32_t kMaxFruitlessRecoveries = 5;
// By then the coordinator has seen every loss that a client can see.
const absl::Duration kLossVisible = kLeaseDuration + absl::Seconds(1);

bool MayBeLoss(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsAborted(status) ||
         absl::IsFailedPrecondition(status) || absl::IsNotFound(status);
}

// "rank 5 now workers/w5" for every rank whose worker is another process than before.
std::string DescribeReplacements(const v1::Group& before, const v1::Group& after) {
  std::vector<std::string> replaced;
  for (int i = 0; i < std::min(before.members_size(), after.members_size()); ++i) {
    if (before.members(i).incarnation() == after.members(i).incarnation()) continue;
    replaced.push_back(
        absl::StrCat("rank ", after.members(i).rank(), " now ", after.members(i).worker()));
  }
  return absl::StrJoin(replaced, ", ");
}

}  // namespace

RunLayerSession::RunLayerSession(Client& client, const LayerInput& input,
                                 const RunLayerOptions& options, RunLayerEvents events,
                                 std::stop_token stop)
    : client_(client),
      input_(input),
      options_(options),
      events_(std::move(events)),
      stop_(std::move(stop)),
      monitor_(options.ranks) {}

absl::Status RunLayerSession::Run() {
  absl::Status status = Create();
  if (!status.ok()) return status;
  while (true) {
    const int32_t done_before = monitor_.iterations_done();
    status = Attempt();
    if (status.ok() || absl::IsCancelled(status)) return status;
    if (!GenerationHasEnded(status) || !options_.wait_on_loss) return status;
    fruitless_recoveries_ =
        monitor_.iterations_done() > done_before ? 0 : fruitless_recoveries_ + 1;
    if (fruitless_recoveries_ > kMaxFruitlessRecoveries) return status;
    const absl::Status recovered = Recover();
    if (!recovered.ok()) return recovered;
  }
}

absl::Status RunLayerSession::Create() {
  const auto group = client_.CreateGroup(
      {.ranks = options_.ranks, .backend = options_.backend, .transport = options_.transport});
  if (!group.ok()) return group.status();
  group_ = *group;
  const auto machine = MachineOf(client_, group_);
  if (!machine.ok()) return machine.status();
  path_ = ChooseLayerPath(options_.path, *machine, input_,
                          {options_.ranks, options_.token_padding, options_.slots});
  BufferOptions buffer;
  buffer.shape.set_tokens(static_cast<int32_t>(input_.tokens() / options_.ranks));
  buffer.shape.set_hidden(input_.hidden());
  buffer.shape.set_topk(input_.topk());
  buffer.shape.set_experts(input_.experts());
  buffer.shape.set_slots(options_.slots);
  buffer.shape.set_token_padding(options_.token_padding);
  buffer.shape.set_intermediate(input_.intermediate());
  buffer.shape.set_layers(kLayer + 1);
  buffer.shape.set_source_storage(path_.path == DispatchPath::kPull);
  const auto created = client_.CreateBuffer(group_.name(), buffer);
  if (!created.ok()) {
    TellRanks(created.status());
    return created.status();
  }
  buffer_ = created->name();
  return absl::OkStatus();
}

absl::Status RunLayerSession::Delete() {
  if (group_.name().empty()) return absl::OkStatus();
  const absl::Status status = client_.DeleteGroup(group_.name());
  return absl::IsNotFound(status) ? absl::OkStatus() : status;
}

absl::Status RunLayerSession::Attempt() {
  generations_.push_back(group_.generation());
  RankTensors tensors(group_, buffer_, stop_);
  absl::Status status = tensors.LoadLayer(kLayer, kWeightsVersion, input_.weights());
  if (status.ok()) status = WriteInputs(tensors);
  if (status.ok()) status = Execute();
  if (status.ok()) status = ReadOutputs(tensors);
  return status;
}

absl::Status RunLayerSession::WriteInputs(RankTensors& tensors) const {
  return tensors.ForEachRank([&](RankId rank) {
    const RankInput input = input_.ForRank(rank.value, options_.ranks);
    absl::Status status = tensors.Write(rank, kHiddenTensor, input.hidden);
    if (status.ok()) status = tensors.Write(rank, kTopkExpertsTensor, input.topk_experts);
    if (status.ok()) status = tensors.Write(rank, kRouteWeightsTensor, input.route_weights);
    return status;
  });
}

// At least one: outputs of a generation that has ended must be made again.
int32_t RunLayerSession::IterationsLeft() const {
  return std::max(1, options_.iterations - monitor_.iterations_done());
}

absl::Status RunLayerSession::Execute() {
  const v1::Program program = LayerProgram(kLayer, kWeightsVersion, IterationsLeft(), path_.path);
  const v1::PathChoice choice = ToWire(path_);
  return client_.ExecuteProgram(
      buffer_, Generation(group_.generation()), program,
      [this](const v1::ExecuteProgramResponse& message) {
        monitor_.Update(message);
        events_.progress(monitor_.iterations_done());
      },
      &choice);
}

absl::Status RunLayerSession::ReadOutputs(RankTensors& tensors) {
  outputs_.assign(options_.ranks, Tensor());
  return tensors.ForEachRank([&](RankId rank) -> absl::Status {
    auto output = tensors.Read(rank, kOutputTensor);
    if (!output.ok()) return output.status();
    const std::vector<int64_t> expected = {input_.tokens() / options_.ranks, input_.hidden()};
    if (output->dtype != v1::TENSOR_DTYPE_BFLOAT16 || output->shape != expected) {
      return absl::InternalError(absl::StrCat("the output of rank ", rank.value, " is ",
                                              DescribeTensor(output->dtype, output->shape)));
    }
    outputs_[rank.value] = *std::move(output);
    return absl::OkStatus();
  });
}

bool RunLayerSession::GenerationHasEnded(const absl::Status& failure) {
  if (const auto error = GroupErrorOf(failure)) {
    TellRanks(failure);
    if (error->lost_ranks_size() > 0) return true;
  }
  if (!MayBeLoss(failure)) return false;
  // A client may see a dead worker before the coordinator does.
  v1::Group seen;
  bool ended = false;
  const absl::Status watched =
      client_.WatchGroup(group_.name(), kLossVisible, [&](const v1::Group& group) {
        seen = group;
        ended = group.state() != v1::Group::ACTIVE || group.generation() != group_.generation();
        return !ended;
      });
  if (!ended) return false;
  if (!GroupErrorOf(failure) && !seen.lost_ranks().empty()) {
    TellRanks(WithGroupError(failure, LossOf(seen)));
  }
  return true;
}

void RunLayerSession::TellRanks(const absl::Status& failure) const {
  const auto error = GroupErrorOf(failure);
  if (!error) return;
  for (const v1::RankStatus& rank : error->ranks()) {
    if (rank.code() != 0) events_.message(DescribeRank(rank));
  }
}

absl::Status RunLayerSession::Recover() {
  const v1::Group before = group_;
  events_.message(absl::StrCat("waiting for the group's next generation, ",
                               absl::FormatDuration(kRecoveryTimeout), " at most"));
  auto group = client_.WaitForNextGeneration(before.name(), Generation(before.generation()),
                                             kRecoveryTimeout);
  if (!group.ok()) return group.status();
  group_ = *std::move(group);
  const auto buffer = client_.GetBuffer(buffer_);
  if (!buffer.ok()) return buffer.status();
  if (buffer->state() == v1::Buffer::FAILED) {
    return absl::UnavailableError(
        absl::StrCat(buffer_, " did not form again: ", buffer->state_reason()));
  }
  monitor_.StartNext();
  const std::string replacements = DescribeReplacements(before, group_);
  events_.message(absl::StrCat("generation ", before.generation(), " -> ", group_.generation(),
                               replacements.empty() ? "" : absl::StrCat(", ", replacements),
                               ", continuing at iteration ",
                               options_.iterations - IterationsLeft() + 1));
  return absl::OkStatus();
}

}  // namespace perigee
