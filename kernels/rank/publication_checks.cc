#include "kernels/rank/publication_checks.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/plan/validate.h"
#include "kernels/rank/argument_checks.h"

namespace perigee {
namespace {

std::string DescribeOwner(RankId rank, const ObjectTag& tag) {
  return absl::StrCat("rank ", rank.value, ", buffer ", tag.buffer.value, ", generation ",
                      tag.generation.value);
}

}  // namespace

absl::Status CheckTarget(const RankShape& shape, const TargetFacts& target) {
  const ObjectTag here = shape.TagOf(target.tag.sequence);
  if (target.rank != shape.rank || target.tag != here) {
    return absl::InvalidArgumentError(
        absl::StrCat("target is of ", DescribeOwner(target.rank, target.tag), ", expected one of ",
                     DescribeOwner(shape.rank, here)));
  }
  if (target.tag.sequence == shape.live.target) return absl::OkStatus();
  const std::string living =
      shape.live.target.value == 0
          ? std::string("none lives")
          : absl::StrCat("the one of sequence ", shape.live.target.value, " lives");
  return absl::InvalidArgumentError(
      absl::StrCat("target of sequence ", target.tag.sequence.value, " is dead, ", living,
                   ": it was published, dropped, or another operation has written the shard"));
}

absl::Status CheckPrepareDispatch(const RankShape& shape, const TargetInput& input) {
  absl::Status status = ValidateTokenCount(shape.geometry, shape.rank, input.token_count);
  if (!status.ok()) return status;
  if (input.token_count > 0 && input.topk_experts == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("topk_experts is null, expected routes of ", input.token_count, " tokens"));
  }
  return CheckShardFree(shape);
}

absl::Status CheckPreparePublication(const RankShape& shape, const TargetFacts& target,
                                     const float* route_weights) {
  if (absl::Status status = CheckTarget(shape, target); !status.ok()) return status;
  if (shape.live.prepared) {
    return absl::InvalidArgumentError(absl::StrCat("the publication of the target of sequence ",
                                                   target.tag.sequence.value,
                                                   " is prepared already, expected once"));
  }
  const size_t bytes = sizeof(float) * target.token_count * shape.geometry.topk;
  return CheckOutsideShard(shape, "route weights", route_weights,
                           route_weights == nullptr ? 0 : bytes);
}

absl::Status CheckStoreRows(const RankShape& shape, const TargetFacts& target,
                            const BFloat16* hidden) {
  if (absl::Status status = CheckTarget(shape, target); !status.ok()) return status;
  if (target.token_count > 0 && hidden == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("hidden is null, expected ", target.token_count, " tokens"));
  }
  return CheckOutsideShard(shape, "hidden", hidden, shape.row_bytes(target.token_count));
}

absl::Status CheckPublish(const RankShape& shape, const TargetFacts& target,
                          const DispatchOutput& output) {
  if (absl::Status status = CheckTarget(shape, target); !status.ok()) return status;
  if (!shape.live.prepared) {
    return absl::InvalidArgumentError(absl::StrCat("the publication of the target of sequence ",
                                                   target.tag.sequence.value,
                                                   " is not prepared, expected that first"));
  }
  return CheckDispatchOutput(shape, output);
}

LiveRows LiveWithTarget(Sequence target) { return LiveRows{{}, {}, target}; }

LiveRows LivePrepared(const TargetFacts& target, const float* route_weights) {
  const bool sends = route_weights != nullptr || target.token_count == 0;
  return LiveRows{{}, {}, target.tag.sequence, /*prepared=*/true, sends};
}

LiveRows LiveAfterPublish(const LiveRows& before) {
  return LiveRows{before.target, before.sends_weights ? before.target : Sequence(0)};
}

}  // namespace perigee
