#include "kernels/rank/source_checks.h"

#include <cstddef>
#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/layout/source_layout.h"
#include "kernels/plan/validate.h"
#include "kernels/rank/argument_checks.h"

namespace perigee {
namespace {

// `what` is the place in the source shard itself, or does not meet it.
absl::Status CheckSourceOf(const RankShape& shape, const char* what, const void* data, size_t bytes,
                           const void* place) {
  if (data == nullptr || data == place) return absl::OkStatus();
  const auto first = reinterpret_cast<uintptr_t>(data);
  const auto begin = reinterpret_cast<uintptr_t>(shape.sources[shape.rank.value].hidden);
  const size_t size = SourceLayout::Create(shape.geometry, shape.hidden).size_bytes;
  if (first + bytes <= begin || first >= begin + size) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(what, " lies in the source shard, expected its place there or other memory"));
}

}  // namespace

absl::Status CheckPrepareSource(const RankShape& shape, const SourceInput& input) {
  absl::Status status = ValidateTokenCount(shape.geometry, shape.rank, input.token_count);
  if (!status.ok()) return status;
  if (input.token_count > 0 && input.topk_experts == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("topk_experts is null, expected routes of ", input.token_count, " tokens"));
  }
  const SourceShardView& own = shape.sources[shape.rank.value];
  status =
      CheckSourceOf(shape, "hidden", input.hidden, shape.row_bytes(input.token_count), own.hidden);
  if (!status.ok()) return status;
  const size_t bytes = sizeof(float) * input.token_count * shape.geometry.topk;
  return CheckSourceOf(shape, "route weights", input.route_weights, bytes, own.route_weights);
}

bool StoresSource(const RankShape& shape, const SourceInput& input) {
  const SourceShardView& own = shape.sources[shape.rank.value];
  return (input.hidden != nullptr && input.hidden != own.hidden) ||
         (input.route_weights != nullptr && input.route_weights != own.route_weights);
}

absl::Status CheckMaterialise(const RankShape& shape, const SourceHandle& source,
                              const DispatchOutput& output) {
  const ObjectTag here = shape.TagOf(shape.source.sequence());
  const ObjectTag tag = source.tag();
  if (source.rank() != shape.rank || tag.buffer != here.buffer ||
      tag.generation != here.generation) {
    const std::string living =
        here.sequence == Sequence()
            ? absl::StrCat("none lives of rank ", shape.rank.value, ", buffer ", here.buffer.value,
                           ", generation ", here.generation.value)
            : absl::StrCat(DescribeSource(shape.rank, here), " lives");
    return absl::InvalidArgumentError(absl::StrCat(
        "source view ", DescribeSource(source.rank(), tag), " is of another data path, ", living));
  }
  if (absl::Status status = source.CheckLives(); !status.ok()) return status;
  if (absl::Status status = CheckShardFree(shape); !status.ok()) return status;
  return CheckDispatchOutput(shape, output);
}

SourceView MakeSourceView(const RankShape& shape) {
  SourceView view;
  view.routes = shape.geometry.routes();
  for (size_t rank = 0; rank < shape.sources.size(); ++rank) {
    view.hidden.push_back(shape.sources[rank].hidden);
    view.route_weights.push_back(shape.sources[rank].route_weights);
    const bool own = static_cast<int32_t>(rank) == shape.rank.value;
    view.access.push_back(own ? kFullAccess : kReadAccess);
  }
  return view;
}

LiveRows LiveAfterMaterialise(const SourceHandle& source) {
  return LiveRows{source.tag().sequence, source.tag().sequence};
}

}  // namespace perigee
