#include <algorithm>
#include <utility>
#include <vector>

#include "kernels/layout/gradients_layout.h"
#include "kernels/rank/argument_checks.h"
#include "kernels/rank/weights_errors.h"
#include "kernels/staged/staged_rank.h"

namespace perigee {
namespace {

struct Replica {
  int32_t rank = 0;
  int32_t slot = 0;
  int32_t expert = 0;
};

// Of all ranks, in the order in which every rank sends and receives them.
std::vector<Replica> ReplicasOf(const StagedRank& rank, const StagedPlan& plan) {
  const int32_t slots = rank.shape().geometry.slots;
  std::vector<Replica> replicas;
  for (int32_t i = 0; i < rank.ranks() * slots; ++i) {
    const int32_t expert = plan.tensors().experts_to_copy[i];
    if (expert >= 0) replicas.push_back({i / slots, i % slots, expert});
  }
  return replicas;
}

absl::StatusOr<HomeHeader> ReadOwnHome(StagedRank& rank, const ExpertWeights& weights) {
  const Geometry& geometry = rank.shape().geometry;
  const auto layout = WeightsLayout::Home(weights.shape, geometry.experts_per_rank());
  HomeHeader header;
  const absl::Status status =
      rank.device->Read(absl::MakeSpan(reinterpret_cast<std::byte*>(&header), sizeof(header)),
                        weights.home[rank.shape().rank.value] + layout.header);
  if (!status.ok()) return status;
  return header;
}

bool Holds(const StagedRank& rank, const ExpertWeights& weights, const Replica& replica) {
  const int32_t home = rank.shape().geometry.home_rank(replica.expert);
  const HomeHeader& held = rank.collective->words()[home].home;
  return held.version == weights.version && held.layer == weights.layer;
}

// The tags of this rank's slots, changed by change(tag of a used slot, replica).
template <typename Change>
absl::Status ChangeTags(StagedRank& rank, const ExpertWeights& weights,
                        const std::vector<Replica>& replicas, const Change& change) {
  const int32_t slots = rank.shape().geometry.slots;
  if (slots == 0) return absl::OkStatus();
  std::byte* const at = weights.slots + WeightsLayout::Slots(weights.shape, slots).header;
  std::vector<SlotTag> tags(slots);
  const auto bytes =
      absl::MakeSpan(reinterpret_cast<std::byte*>(tags.data()), slots * sizeof(SlotTag));
  if (absl::Status status = rank.device->Read(bytes, at); !status.ok()) return status;
  for (const Replica& replica : replicas) {
    if (replica.rank == rank.shape().rank.value) change(tags[replica.slot], replica);
  }
  return rank.device->Write(at, bytes);
}

absl::Status MoveMatrices(StagedRank& rank, const ExpertWeights& weights,
                          const std::vector<Replica>& replicas) {
  const Geometry& geometry = rank.shape().geometry;
  const int32_t self = rank.shape().rank.value;
  const auto home = WeightsLayout::Home(weights.shape, geometry.experts_per_rank());
  const auto slots = WeightsLayout::Slots(weights.shape, geometry.slots);
  std::vector<Outgoing> outgoing;
  std::vector<Incoming> incoming;
  for (const Replica& replica : replicas) {
    const int32_t at = geometry.home_rank(replica.expert);
    for (int part = 0; part < kWeightParts; ++part) {
      const size_t bytes = weights.shape.part_bytes(part);
      if (at == self) {
        const size_t index = replica.expert % geometry.experts_per_rank();
        const std::byte* const from = weights.home[self] + home.part(part) + index * bytes;
        outgoing.push_back({replica.rank, from, bytes});
      }
      if (replica.rank == self) {
        std::byte* const to = weights.slots + slots.part(part) + replica.slot * bytes;
        incoming.push_back({at, to, bytes});
      }
    }
  }
  return rank.collective->Transfer(std::move(outgoing), std::move(incoming));
}

// The first of this rank's slots whose home did not hold the weights wanted.
absl::Status StaleHome(StagedRank& rank, const ExpertWeights& weights, const Replica& replica) {
  const int32_t home = rank.shape().geometry.home_rank(replica.expert);
  const HomeHeader& held = rank.collective->words()[home].home;
  const WantedWeights wanted{weights.layer, weights.version};
  return rank.device->progress().Fail(StaleHomeRecord(home, held, wanted),
                                      DescribeStaleHome(home, held, wanted));
}

// Between two looks at the homes: what was sent is what was wanted where both find it.
absl::Status FillSlots(StagedRank& rank, const ExpertWeights& weights,
                       const std::vector<Replica>& replicas) {
  absl::Status stale;
  const auto keep_good = [&](const std::vector<Replica>& from) {
    std::vector<Replica> good;
    for (const Replica& replica : from) {
      const bool own = replica.rank == rank.shape().rank.value;
      if (Holds(rank, weights, replica)) {
        good.push_back(replica);
      } else if (own && stale.ok()) {
        stale = StaleHome(rank, weights, replica);
      }
    }
    return good;
  };
  absl::Status status =
      ChangeTags(rank, weights, replicas, [](SlotTag& tag, const Replica&) { tag = SlotTag(); });
  if (!status.ok()) return status;
  std::vector<Replica> good = keep_good(replicas);
  if (status = MoveMatrices(rank, weights, good); !status.ok()) return status;
  const absl::StatusOr<HomeHeader> home = ReadOwnHome(rank, weights);
  if (!home.ok()) return home.status();
  if (status = rank.collective->Renew(*home); !status.ok()) return status;
  good = keep_good(good);
  status = ChangeTags(rank, weights, good, [&](SlotTag& tag, const Replica& replica) {
    tag = SlotTag{weights.version, weights.layer, replica.expert};
  });
  return status.ok() ? stale : status;
}

// One slot's matrix of one kind. The rank that sends it has `slot`, the home `sums`.
struct Reduction {
  int32_t from = 0;
  int32_t home = 0;
  const float* slot = nullptr;
  float* sums = nullptr;
  int64_t elements = 0;
};

// In pieces that the staging area holds.
absl::Status ReduceMatrix(StagedRank& rank, const Reduction& reduction) {
  const int64_t most = rank.area.rows_in_bytes / static_cast<int64_t>(sizeof(float));
  auto* const staged = reinterpret_cast<float*>(rank.area.rows_in);
  for (int64_t first = 0; first < reduction.elements; first += most) {
    const int64_t count = std::min(most, reduction.elements - first);
    const size_t bytes = count * sizeof(float);
    absl::Status status;
    if (reduction.sums == nullptr) {
      const auto* at = reinterpret_cast<const std::byte*>(reduction.slot + first);
      status = rank.collective->Transfer({{reduction.home, at, bytes}}, {});
    } else {
      auto* const at = reinterpret_cast<std::byte*>(staged);
      status = rank.collective->Transfer({}, {{reduction.from, at, bytes}});
      if (status.ok()) status = rank.device->AddFloats(reduction.sums + first, staged, count);
    }
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

struct GradientParts {
  size_t slot_offset = 0;
  float* home = nullptr;
};

// Slots in ascending (rank, slot): so an expert's come in that order, whatever others do.
absl::Status ReduceSlots(StagedRank& rank, const ExpertGradients& gradients,
                         const std::vector<Replica>& replicas) {
  const Geometry& geometry = rank.shape().geometry;
  const int32_t self = rank.shape().rank.value;
  const int64_t elements = gradients.shape.matrix_elements();
  const GradientsLayout layout = GradientsLayout::Create(gradients.shape, geometry.slots);
  const GradientParts parts[] = {{layout.gate, gradients.home_gate},
                                 {layout.up, gradients.home_up},
                                 {layout.down, gradients.home_down}};
  for (const Replica& replica : replicas) {
    const int32_t home = geometry.home_rank(replica.expert);
    if (replica.rank != self && home != self) continue;
    const int64_t in_slots = replica.slot * elements;
    const int64_t in_home = replica.expert % geometry.experts_per_rank() * elements;
    for (const GradientParts& part : parts) {
      Reduction reduction{replica.rank, home, nullptr, nullptr, elements};
      if (home == self) reduction.sums = part.home + in_home;
      if (home != self) {
        reduction.slot =
            reinterpret_cast<const float*>(gradients.own_slots + part.slot_offset) + in_slots;
      }
      absl::Status status = ReduceMatrix(rank, reduction);
      if (!status.ok()) return status;
    }
  }
  return rank.device->Wait();
}

// When they have been sent.
absl::Status ClearSlots(StagedRank& rank, const ExpertGradients& gradients,
                        const std::vector<Replica>& replicas) {
  const int64_t elements = gradients.shape.matrix_elements();
  const auto layout = GradientsLayout::Create(gradients.shape, rank.shape().geometry.slots);
  for (const Replica& replica : replicas) {
    if (replica.rank != rank.shape().rank.value) continue;
    for (const size_t part : {layout.gate, layout.up, layout.down}) {
      float* const first = reinterpret_cast<float*>(gradients.own_slots + part);
      absl::Status status =
          rank.device->CopyFloats({first + replica.slot * elements}, {}, elements);
      if (!status.ok()) return status;
    }
  }
  return rank.device->Wait();
}

}  // namespace

absl::Status StagedPrefetchWeights(StagedRank& rank, Sequence sequence, const PlanPtr& handle,
                                   const ExpertWeights& weights) {
  absl::Status status = rank.collective->Begin(sequence, Operation::kPrefetchWeights);
  if (!status.ok()) return status;
  const auto plan = StagedPlanOf(rank.shape(), handle);
  if (!plan.ok()) return plan.status();
  if (status = CheckWeights(rank.shape(), weights); !status.ok()) return status;

  OperationDescriptor descriptor = rank.shape().Descriptor(Operation::kPrefetchWeights);
  descriptor.plan_sequence = (*plan)->tag().sequence.value;
  descriptor.intermediate = weights.shape.intermediate;
  descriptor.layer = weights.layer;
  descriptor.weights_version = weights.version;
  descriptor.dtype = static_cast<uint32_t>(DtypeOf(weights.shape.format));
  const absl::StatusOr<HomeHeader> home = ReadOwnHome(rank, weights);
  if (!home.ok()) return home.status();
  RankWords words;
  words.home = *home;
  if (status = rank.collective->Enter(descriptor, 0, words); !status.ok()) return status;
  return FillSlots(rank, weights, ReplicasOf(rank, **plan));
}

absl::Status StagedReduceGradients(StagedRank& rank, Sequence sequence, const PlanPtr& handle,
                                   const ExpertGradients& gradients) {
  absl::Status status = rank.collective->Begin(sequence, Operation::kReduceGradients);
  if (!status.ok()) return status;
  const auto plan = StagedPlanOf(rank.shape(), handle);
  if (!plan.ok()) return plan.status();
  if (status = CheckGradients(rank.shape(), gradients); !status.ok()) return status;

  OperationDescriptor descriptor = rank.shape().Descriptor(Operation::kReduceGradients);
  descriptor.plan_sequence = (*plan)->tag().sequence.value;
  descriptor.intermediate = gradients.shape.intermediate;
  descriptor.layer = gradients.layer;
  descriptor.dtype = static_cast<uint32_t>(Dtype::kFloat32);
  if (status = rank.collective->Enter(descriptor, 0); !status.ok()) return status;
  const std::vector<Replica> replicas = ReplicasOf(rank, **plan);
  status = ReduceSlots(rank, gradients, replicas);
  if (status.ok()) status = ClearSlots(rank, gradients, replicas);
  return status.ok() ? status : WithUndefinedSums(status, gradients.layer);
}

}  // namespace perigee
