#include "client/cli/run/step_session.h"

#include <memory>
#include <thread>

#include "absl/strings/str_cat.h"
#include "client/lib/rank_tensors.h"
#include "kernels/common/ids.h"

namespace perigee {
namespace {

// Calls work(rank) on a thread each; the first error in order of rank.
template <typename Work>
absl::Status OnRanks(int32_t ranks, const Work& work) {
  std::vector<absl::Status> statuses(ranks);
  {
    std::vector<std::jthread> threads;
    for (int32_t rank = 0; rank < ranks; ++rank) {
      threads.emplace_back([&, rank] { statuses[rank] = work(rank); });
    }
  }
  for (int32_t rank = 0; rank < ranks; ++rank) {
    if (statuses[rank].ok() || absl::IsCancelled(statuses[rank])) continue;
    return absl::Status(statuses[rank].code(),
                        absl::StrCat("rank ", rank, ": ", statuses[rank].message()));
  }
  for (const absl::Status& status : statuses) {
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status StepSession::Run(const std::function<void(int32_t)>& progress) {
  absl::Status status = Create();
  if (status.ok()) status = Attach();
  for (int32_t step = 0; step < options_.iterations && status.ok(); ++step) {
    std::vector<StepOutcome> outcomes(options_.ranks);
    status = Step(outcomes);
    if (!status.ok()) break;
    if (step == 0) {
      outcomes_ = std::move(outcomes);
    } else if (outcomes != outcomes_) {
      ++steps_that_differ_;
    }
    progress(step + 1);
  }
  for (const auto& rank : ranks_) timings_.push_back(rank->timings());
  ranks_.clear();
  clients_.clear();
  return status;
}

absl::Status StepSession::Create() {
  const auto group = client_.CreateGroup({.ranks = options_.ranks, .backend = options_.backend});
  if (!group.ok()) return group.status();
  group_ = *group;
  const StepSizes& sizes = input_.sizes;
  BufferOptions buffer;
  buffer.shape.set_tokens(static_cast<int32_t>(sizes.tokens / options_.ranks));
  buffer.shape.set_hidden(sizes.hidden);
  buffer.shape.set_topk(sizes.topk);
  buffer.shape.set_experts(sizes.experts);
  buffer.shape.set_slots(options_.slots);
  buffer.shape.set_token_padding(options_.token_padding);
  buffer.shape.set_intermediate(sizes.intermediate);
  buffer.shape.set_layers(sizes.layers);
  buffer.shape.set_gradients(true);
  const auto created = client_.CreateBuffer(group_.name(), buffer);
  if (!created.ok()) return created.status();
  buffer_ = created->name();
  RankTensors tensors(group_, buffer_, stop_);
  for (int32_t layer = 0; layer < sizes.layers; ++layer) {
    absl::Status status =
        tensors.LoadLayer(layer, kStepWeightsVersion, input_.layers[layer].weights(sizes));
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status StepSession::Attach() {
  for (int32_t rank = 0; rank < options_.ranks; ++rank) {
    const auto ticket =
        client_.IssueAttachTicket(buffer_, Generation(group_.generation()), RankId(rank));
    if (!ticket.ok()) return ticket.status();
    auto attached = LocalClient::Attach(*ticket);
    if (!attached.ok()) {
      return absl::Status(
          attached.status().code(),
          absl::StrCat("rank ", rank, " cannot be attached to: ", attached.status().message()));
    }
    clients_.push_back(*std::move(attached));
    ranks_.push_back(std::make_unique<StepRank>(*clients_.back(), input_, stop_));
  }
  return absl::OkStatus();
}

absl::Status StepSession::Step(std::vector<StepOutcome>& outcomes) {
  return OnRanks(options_.ranks, [&](int32_t rank) {
    absl::StatusOr<StepOutcome> outcome = ranks_[rank]->Run();
    if (outcome.ok()) outcomes[rank] = *std::move(outcome);
    // The others wait for this rank otherwise.
    if (!outcome.ok()) (void)clients_[rank]->Detach();
    return outcome.status();
  });
}

absl::Status StepSession::Delete() {
  if (group_.name().empty()) return absl::OkStatus();
  const absl::Status status = client_.DeleteGroup(group_.name());
  return absl::IsNotFound(status) ? absl::OkStatus() : status;
}

}  // namespace perigee
