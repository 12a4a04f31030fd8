#include "client/lib/remote_steps.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/lib/group_error.h"
#include "client/lib/group_loss.h"
#include "proto/support/defaults.h"

namespace perigee {
namespace {

// By then the coordinator has seen every loss that a client can see.
const absl::Duration kLossVisible = kLeaseDuration + absl::Seconds(1);

template <typename T>
TensorView View(v1::TensorDtype dtype, std::vector<int64_t> shape, const T* data) {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  return {dtype,
          std::move(shape),
          {reinterpret_cast<const std::byte*>(data), static_cast<size_t>(count) * sizeof(T)}};
}

// What of a rank's tokens the operation reads.
struct TokenInput {
  bool hidden = false;
  bool routes = false;
  bool weights = false;
};
TokenInput InputOf(const v1::ProgramOperation& operation) {
  if (operation.has_dispatch()) {
    const v1::DispatchOperation& dispatch = operation.dispatch();
    return {true, !dispatch.topk_experts().empty(), !dispatch.route_weights().empty()};
  }
  if (operation.has_prepare_source()) {
    const v1::PrepareSourceOperation& prepare = operation.prepare_source();
    return {!prepare.hidden().empty(), true, !prepare.route_weights().empty()};
  }
  return {operation.has_store_rows(), operation.has_prepare_dispatch(),
          !operation.prepare_publication().route_weights().empty()};
}

// Whether the ranks are at different places after it, or gone.
bool EndsGeneration(const v1::RankStatus& rank) {
  for (const char* reason :
       {"RANK_LOST", "GENERATION_ABORTED", "DEADLINE", "OUT_OF_STEP", "CLIENT_LOST"}) {
    if (rank.reason() == reason) return true;
  }
  return false;
}

bool MayBeLoss(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsAborted(status) || absl::IsNotFound(status) ||
         absl::IsFailedPrecondition(status);
}

}  // namespace

LocalCompletion ToCompletion(const v1::RankStatus& rank, const v1::GroupError& error) {
  LocalCompletion completion;
  completion.generation = Generation(error.generation());
  completion.rank = rank.rank();
  if (rank.code() == 0) return completion;
  completion.status = absl::Status(static_cast<absl::StatusCode>(rank.code()), rank.message());
  completion.reason = rank.reason();
  completion.lost.assign(error.lost_ranks().begin(), error.lost_ranks().end());
  if (!rank.has_operation_error()) return completion;
  const v1::OperationError& place = rank.operation_error();
  completion.sequence = Sequence(place.sequence());
  completion.phase = place.phase() == "entry" ? 1 : (place.phase() == "exit" ? 2 : 0);
  completion.awaited_rank = place.awaited_rank();
  completion.token = place.token();
  completion.k = place.k();
  completion.expected = place.expected();
  completion.seen = place.seen();
  return completion;
}

RemoteSteps::RemoteSteps(Client& client, const v1::Group& group, const std::string& buffer,
                         const Geometry& geometry, int32_t hidden, std::stop_token stop)
    : client_(client),
      group_(group),
      buffer_(buffer),
      geometry_(geometry),
      hidden_(hidden),
      tensors_(group, buffer, std::move(stop)) {}

RemoteSteps::Outcome RemoteSteps::Run(const RemoteRound& round,
                                      absl::Span<const ClientArenaView> arenas) {
  std::vector<absl::Status> statuses(arenas.size());
  const auto transfer = [&](auto&& work) {
    return tensors_.ForEachRank([&](RankId rank) { return statuses[rank.value] = work(rank); });
  };
  absl::Status status =
      transfer([&](RankId rank) { return Write(rank, round, arenas[rank.value]); });
  if (!status.ok()) {
    Outcome outcome = TransferFailed(statuses);
    outcome.ran = false;
    return outcome;
  }
  v1::Program program;
  *program.add_operations() = *round.operation;
  std::vector<v1::ProgramProgress> progress(arenas.size());
  status = client_.ExecuteProgram(buffer_, Generation(group_.generation()), program,
                                  [&](const v1::ExecuteProgramResponse& message) {
                                    for (const v1::ProgramProgress& rank : message.progress()) {
                                      if (IsRank(rank.rank())) progress[rank.rank()] = rank;
                                    }
                                  });
  if (!status.ok()) return Failed(status);
  status = transfer([&](RankId rank) {
    return Read(rank, round, progress[rank.value].last_sequence(), arenas[rank.value]);
  });
  if (!status.ok()) {
    Outcome outcome = TransferFailed(statuses);
    outcome.ran = true;
    return outcome;
  }
  const bool collective = !round.operation->has_run_experts() &&
                          !round.operation->has_prepare_publication() &&
                          !round.operation->has_store_rows();
  Outcome outcome;
  for (const v1::ProgramProgress& rank : progress) {
    LocalCompletion& completion = outcome.ranks.emplace_back();
    if (collective) completion.sequence = Sequence(rank.last_sequence());
    if (rank.timings_size() > 0)
      completion.duration = absl::Nanoseconds(rank.timings(0).total_ns());
  }
  return outcome;
}

absl::Status RemoteSteps::Write(RankId rank, const RemoteRound& round,
                                const ClientArenaView& arena) {
  const TokenInput input = InputOf(*round.operation);
  const int64_t count = round.token_counts[rank.value];
  absl::Status status;
  if (input.hidden) {
    status = tensors_.Write(rank, kRemoteHidden,
                            View(v1::TENSOR_DTYPE_BFLOAT16, {count, hidden_}, arena.hidden));
  }
  if (status.ok() && input.routes) {
    status =
        tensors_.Write(rank, kRemoteTopkExperts,
                       View(v1::TENSOR_DTYPE_INT32, {count, geometry_.topk}, arena.topk_experts));
  }
  if (status.ok() && input.weights) {
    status = tensors_.Write(
        rank, kRemoteRouteWeights,
        View(v1::TENSOR_DTYPE_FLOAT32, {count, geometry_.topk}, arena.route_weights));
  }
  return status;
}

absl::Status RemoteSteps::Read(RankId rank, const RemoteRound& round, uint64_t sequence,
                               const ClientArenaView& arena) {
  const v1::ProgramOperation& operation = *round.operation;
  if (!round.new_plan.empty()) {
    const uint64_t made = operation.has_publish() ? round.target_sequence : sequence;
    return ReadPlan(rank, round.new_plan, made, arena.plan);
  }
  if (!operation.has_combine()) return absl::OkStatus();
  const v1::CombineOperation& combine = operation.combine();
  const size_t elements = static_cast<size_t>(geometry_.tokens) * hidden_;
  absl::Status status = Fetch(tensors_.Read(rank, combine.output()), "output", arena.output,
                              elements * sizeof(BFloat16));
  if (status.ok() && !combine.route_weights_output().empty()) {
    status = Fetch(tensors_.Read(rank, combine.route_weights_output()), "gathered weights",
                   arena.gathered_weights, geometry_.routes() * sizeof(float));
  }
  return status;
}

absl::Status RemoteSteps::ReadPlan(RankId rank, const std::string& plan, uint64_t sequence,
                                   const PlanArrays& view) {
  *view.sequence = 0;
  const size_t ranks = geometry_.ranks;
  const size_t groups = geometry_.groups();
  const struct {
    const char* name;
    int32_t* to;
    size_t count;
  } parts[] = {{"dst", view.dst, static_cast<size_t>(geometry_.routes())},
               {"cu_seqlens", view.cu_seqlens, groups},
               {"zero_fill_ranges", view.zero_fill_ranges, 2 * groups},
               {"experts_to_copy", view.experts_to_copy, ranks * geometry_.slots},
               {"load", view.load, ranks},
               {"home_load", view.home_load, ranks}};
  for (const auto& part : parts) {
    absl::Status status = Fetch(tensors_.ReadPlan(rank, plan, part.name), part.name, part.to,
                                part.count * sizeof(int32_t));
    if (!status.ok()) return status;
  }
  *view.sequence = sequence;
  return absl::OkStatus();
}

absl::Status RemoteSteps::Fetch(absl::StatusOr<Tensor> tensor, const char* what, void* to,
                                size_t bytes) const {
  if (!tensor.ok()) return tensor.status();
  if (tensor->data.size() != bytes) {
    return absl::InternalError(absl::StrCat("the worker's ", what, " are ",
                                            DescribeTensor(tensor->dtype, tensor->shape), ", ",
                                            bytes, " bytes were expected"));
  }
  std::memcpy(to, tensor->data.data(), bytes);
  return absl::OkStatus();
}

RemoteSteps::Outcome RemoteSteps::Failed(absl::Status failure) {
  Outcome outcome;
  absl::optional<v1::GroupError> error = GroupErrorOf(failure);
  v1::Group seen;
  if (!error && MayBeLoss(failure) && GenerationHasEnded(failure, seen)) {
    outcome.over = true;
    if (!seen.lost_ranks().empty()) error = LossOf(seen);
  }
  if (!error) {
    outcome.ran = outcome.over;
    for (int32_t rank = 0; rank < geometry_.ranks; ++rank) {
      outcome.ranks.push_back(Refusal(failure, ""));
    }
    return outcome;
  }
  outcome.over = outcome.over || error->lost_ranks_size() > 0;
  outcome.ranks.resize(geometry_.ranks);
  for (const v1::RankStatus& rank : error->ranks()) {
    if (!IsRank(rank.rank())) continue;
    outcome.ranks[rank.rank()] = ToCompletion(rank, *error);
    outcome.over = outcome.over || EndsGeneration(rank);
  }
  return outcome;
}

// A client may see a dead worker before the coordinator does; who refuses knows what lives.
bool RemoteSteps::GenerationHasEnded(const absl::Status& failure, v1::Group& seen) {
  const bool waits = !absl::IsFailedPrecondition(failure);
  bool ended = false;
  const absl::Status watched =
      client_.WatchGroup(group_.name(), kLossVisible, [&](const v1::Group& group) {
        seen = group;
        ended = group.state() != v1::Group::ACTIVE || group.generation() != group_.generation();
        return waits && !ended;
      });
  return ended || absl::IsNotFound(watched);
}

// Nothing was run, or what it left cannot be had: the other ranks' operation is of no use.
RemoteSteps::Outcome RemoteSteps::TransferFailed(const std::vector<absl::Status>& statuses) {
  size_t failed = 0;
  while (statuses[failed].ok()) ++failed;
  Outcome outcome = Failed(statuses[failed]);
  if (outcome.over) return outcome;
  for (size_t rank = 0; rank < statuses.size(); ++rank) {
    if (!statuses[rank].ok()) {
      outcome.ranks[rank] = Refusal(statuses[rank], "");
      continue;
    }
    outcome.ranks[rank] =
        Refusal(absl::FailedPreconditionError(absl::StrCat(
                    "rank ", failed, " could not take part: ", statuses[failed].message())),
                "DECLINED");
    outcome.ranks[rank].awaited_rank = static_cast<int32_t>(failed);
  }
  return outcome;
}

}  // namespace perigee
