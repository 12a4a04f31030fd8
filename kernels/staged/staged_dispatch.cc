#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/plan/histogram.h"
#include "kernels/plan/plan.h"
#include "kernels/rank/argument_checks.h"
#include "kernels/staged/staged_rank.h"

namespace perigee {
namespace {

absl::Status FirstError(std::initializer_list<absl::Status> checks) {
  for (const absl::Status& check : checks) {
    if (!check.ok()) return check;
  }
  return absl::OkStatus();
}

template <typename T>
absl::Span<const std::byte> BytesOf(const std::vector<T>& values) {
  return absl::MakeConstSpan(reinterpret_cast<const std::byte*>(values.data()),
                             values.size() * sizeof(T));
}

absl::Status CheckAddresses(StagedDevice& device, const DispatchInput& input,
                            const DispatchOutput& output) {
  return FirstError({device.CheckAddress("hidden", input.hidden),
                     device.CheckAddress("output rows", output.rows)});
}

// A peer's words cannot be what a rank of this buffer sends.
absl::Status Damaged(StagedRank& rank, const std::string& text) {
  ErrorRecord record;
  record.reason = static_cast<uint32_t>(AbortReason::kAborted);
  return rank.device->progress().Fail(record, text);
}

// This rank's routes [S, K], masked past the token count, private to the operation.
absl::StatusOr<std::vector<int32_t>> ReadRoutes(StagedRank& rank, const DispatchInput& input) {
  const Geometry& geometry = rank.shape().geometry;
  std::vector<int32_t> routes(geometry.routes(), kMaskedExpert);
  const size_t bytes = sizeof(int32_t) * input.token_count * geometry.topk;
  const absl::Status status =
      rank.device->Read(absl::MakeSpan(reinterpret_cast<std::byte*>(routes.data()), bytes),
                        reinterpret_cast<const std::byte*>(input.topk_experts));
  if (!status.ok()) return status;
  return routes;
}

// What this rank says about them; the flags that go with it.
uint32_t DescribeRoutes(const Geometry& geometry, const std::vector<int32_t>& routes,
                        int32_t token_count, RankWords& words) {
  words.planning.token_count = token_count;
  const absl::optional<BadRoute> bad = FindBadRoute(geometry, routes, token_count);
  if (!bad) return 0;
  words.planning.bad_token = bad->token;
  words.planning.bad_k = bad->k;
  words.planning.bad_value = static_cast<int32_t>(bad->value);
  return kEntryBadRoute;
}

// The routes of all ranks [R, S, K], for the token counts that they have told.
absl::StatusOr<GroupPlan> PlanTogether(StagedRank& rank, const std::vector<int32_t>& own) {
  const Geometry& geometry = rank.shape().geometry;
  const auto routes = static_cast<size_t>(geometry.routes());
  std::vector<int32_t> token_counts;
  for (const RankWords& words : rank.collective->words()) {
    token_counts.push_back(words.planning.token_count);
    if (token_counts.back() >= 0 && token_counts.back() <= geometry.tokens) continue;
    return Damaged(rank,
                   absl::StrCat("rank ", token_counts.size() - 1, " has told ", token_counts.back(),
                                " tokens, expected 0 to ", geometry.tokens));
  }
  const auto place = [&](int32_t of) {
    return reinterpret_cast<std::byte*>(rank.area.routes + of * routes);
  };
  const auto bytes = [&](int32_t of) {
    return sizeof(int32_t) * static_cast<size_t>(token_counts[of]) * geometry.topk;
  };
  const int32_t self = rank.shape().rank.value;
  std::vector<int32_t> all(rank.ranks() * routes, kMaskedExpert);
  std::copy(own.begin(), own.end(), all.begin() + self * routes);
  // What is not sent must not be taken for a route either.
  absl::Status status = rank.device->Write(place(0), BytesOf(all));
  if (!status.ok()) return status;
  std::vector<Outgoing> outgoing;
  std::vector<Incoming> incoming;
  for (int32_t peer = 0; peer < rank.ranks(); ++peer) {
    if (peer == self) continue;
    outgoing.push_back({peer, place(self), bytes(self)});
    incoming.push_back({peer, place(peer), bytes(peer)});
  }
  status = rank.collective->Transfer(std::move(outgoing), std::move(incoming));
  if (!status.ok()) return status;
  const auto to = reinterpret_cast<std::byte*>(all.data());
  status = rank.device->Read(absl::MakeSpan(to, all.size() * sizeof(int32_t)), place(0));
  if (!status.ok()) return status;
  absl::StatusOr<GroupPlan> plan = PlanGroup(geometry, all, token_counts);
  return plan.ok() ? std::move(plan) : Damaged(rank, std::string(plan.status().message()));
}

// Weights go beside the rows, where their ranks send any.
absl::Status QueueWeightsOut(StagedRank& rank, const StagedPlan& plan, const DispatchInput& input,
                             std::vector<Outgoing>& outgoing, std::vector<Incoming>& incoming) {
  const RowLists& lists = plan.lists();
  std::vector<int32_t> counts = lists.received_route_counts;
  for (int32_t source = 0; source < rank.ranks(); ++source) {
    if (rank.collective->words()[source].sends_weights == 0) counts[source] = 0;
  }
  const std::vector<Incoming> in = IncomingByRank(rank.area.weights_in, counts, sizeof(float));
  incoming.insert(incoming.end(), in.begin(), in.end());
  if (input.route_weights == nullptr) return absl::OkStatus();
  const std::vector<Outgoing> out =
      OutgoingByRank(rank.area.weights_out, lists.sent_route_counts, sizeof(float));
  outgoing.insert(outgoing.end(), out.begin(), out.end());
  return rank.device->CopyFloats({rank.area.weights_out},
                                 {input.route_weights, plan.view().sent_routes},
                                 lists.sent_routes.size());
}

absl::Status PlaceWeights(StagedRank& rank, const StagedPlan& plan) {
  float* const weights = rank.shape().own().row_weights;
  const float* from = rank.area.weights_in;
  const int32_t* to = plan.view().received_routes;
  for (int32_t source = 0; source < rank.ranks(); ++source) {
    const int32_t count = plan.lists().received_route_counts[source];
    if (rank.collective->words()[source].sends_weights != 0) {
      absl::Status status = rank.device->CopyFloats({weights, to}, {from}, count);
      if (!status.ok()) return status;
      from += count;
    }
    to += count;
  }
  return rank.device->CopyFloats({weights, plan.view().padding}, {}, plan.lists().padding.size());
}

absl::Status PlaceRows(StagedRank& rank, const StagedPlan& plan) {
  BFloat16* const rows = rank.shape().own().rows;
  const ListsView& view = plan.view();
  const RowLists& lists = plan.lists();
  StagedDevice& device = *rank.device;
  absl::Status status =
      device.CopyRows({rows, view.received_rows}, {rank.area.rows_in}, lists.received_rows.size());
  if (status.ok()) {
    status =
        device.CopyRows({rows, view.duplicates}, {rows, view.duplicated}, lists.duplicates.size());
  }
  if (status.ok()) status = device.CopyRows({rows, view.padding}, {}, lists.padding.size());
  return status;
}

absl::Status CopyOut(StagedRank& rank, const StagedPlan& plan, const DispatchOutput& output) {
  const ShardView& own = rank.shape().own();
  const int32_t used = plan.facts().used_rows;
  absl::Status status;
  if (output.rows != nullptr) status = rank.device->CopyRows({output.rows}, {own.rows}, used);
  if (status.ok() && output.row_weights != nullptr) {
    status = rank.device->CopyFloats({output.row_weights}, {own.row_weights}, used);
  }
  return status;
}

// All that moves, by a plan that all ranks have.
absl::Status MoveRows(StagedRank& rank, const StagedPlan& plan, const DispatchInput& input,
                      const DispatchOutput& output) {
  const LiveRows before = std::exchange(rank.shape().live, LiveRows());
  const size_t row_bytes = rank.shape().row_bytes(1);
  const RowLists& lists = plan.lists();
  absl::Status status = rank.device->CopyRows(
      {rank.area.rows_out}, {input.hidden, plan.view().sent_tokens}, lists.sent_tokens.size());
  auto outgoing = OutgoingByRank(rank.area.rows_out, lists.sent_token_counts, row_bytes);
  auto incoming = IncomingByRank(rank.area.rows_in, lists.received_row_counts, row_bytes);
  if (status.ok()) status = QueueWeightsOut(rank, plan, input, outgoing, incoming);
  if (status.ok()) status = rank.collective->Transfer(std::move(outgoing), std::move(incoming));
  if (status.ok()) status = PlaceRows(rank, plan);
  if (status.ok()) status = PlaceWeights(rank, plan);
  if (status.ok()) status = CopyOut(rank, plan, output);
  if (status.ok()) status = rank.device->Wait();
  if (status.ok()) rank.shape().live = LiveAfterDispatch(plan.tag().sequence, input, before);
  return status;
}

absl::Status WritePlan(StagedRank& rank, const StagedPlan& plan, const PlanArrays& to) {
  if (to.sequence == nullptr) return absl::OkStatus();
  const PlanTensors& tensors = plan.tensors();
  const auto write = [&](auto* at, const auto& values) {
    return rank.device->Write(reinterpret_cast<std::byte*>(at), BytesOf(values));
  };
  return FirstError({write(to.dst, tensors.dst), write(to.cu_seqlens, tensors.cu_seqlens),
                     write(to.zero_fill_ranges, tensors.zero_fill_ranges),
                     write(to.experts_to_copy, tensors.experts_to_copy),
                     write(to.load, tensors.load), write(to.home_load, tensors.home_load),
                     write(to.sequence, std::vector<uint64_t>{plan.tag().sequence.value})});
}

}  // namespace

absl::StatusOr<PlanPtr> StagedDispatch(StagedRank& rank, Sequence sequence,
                                       const DispatchInput& input, const DispatchOutput& output) {
  absl::Status status = rank.collective->Begin(sequence, Operation::kDispatch);
  if (!status.ok()) return status;
  if (status = CheckDispatch(rank.shape(), input, output); !status.ok()) return status;
  if (status = CheckAddresses(*rank.device, input, output); !status.ok()) return status;
  const absl::StatusOr<std::vector<int32_t>> routes = ReadRoutes(rank, input);
  if (!routes.ok()) return routes.status();

  RankWords words;
  words.sends_weights = input.route_weights != nullptr ? 1 : 0;
  const uint32_t flags = DescribeRoutes(rank.shape().geometry, *routes, input.token_count, words);
  status = rank.collective->Enter(rank.shape().Descriptor(Operation::kDispatch), flags, words);
  if (!status.ok()) return status;
  const absl::StatusOr<GroupPlan> planned = PlanTogether(rank, *routes);
  if (!planned.ok()) return planned.status();
  const auto plan =
      StagedPlan::Create(*rank.device, rank.lists, sequence, input.token_count, *planned);
  if (!plan.ok()) return Damaged(rank, std::string(plan.status().message()));
  if (status = MoveRows(rank, **plan, input, output); !status.ok()) return status;
  if (status = WritePlan(rank, **plan, output.plan); !status.ok()) return status;
  return PlanPtr(*plan);
}

absl::Status StagedDispatchWithPlan(StagedRank& rank, Sequence sequence, const PlanPtr& handle,
                                    const DispatchInput& input, const DispatchOutput& output) {
  absl::Status status = rank.collective->Begin(sequence, Operation::kDispatchWithPlan);
  if (!status.ok()) return status;
  const auto plan = StagedPlanOf(rank.shape(), handle);
  if (!plan.ok()) return plan.status();
  status = CheckDispatchWithPlan(rank.shape(), (*plan)->facts(), input, output);
  if (!status.ok()) return status;
  if (status = CheckAddresses(*rank.device, input, output); !status.ok()) return status;

  OperationDescriptor descriptor = rank.shape().Descriptor(Operation::kDispatchWithPlan);
  descriptor.plan_sequence = (*plan)->tag().sequence.value;
  RankWords words;
  words.sends_weights = input.route_weights != nullptr ? 1 : 0;
  if (status = rank.collective->Enter(descriptor, 0, words); !status.ok()) return status;
  return MoveRows(rank, **plan, input, output);
}

}  // namespace perigee
