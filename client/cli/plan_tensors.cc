#include "client/cli/plan_tensors.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/support/tensor_file.h"

namespace perigee {
namespace {

TensorSource Int32Tensor(const std::string& name, std::vector<int64_t> shape,
                         const std::vector<int32_t>& values) {
  return {name, TensorDtype::kI32, std::move(shape),
          absl::MakeConstSpan(reinterpret_cast<const std::byte*>(values.data()),
                              values.size() * sizeof(int32_t))};
}

// The ranks' duplicate lists side by side, unused entries -1.
struct DuplicateTensors {
  std::vector<int32_t> counts;  // [R, 2] groups, duplicates
  std::vector<int32_t> groups;  // [R, NvS, 3]
  std::vector<int32_t> rows;    // [R, NvS]
};

DuplicateTensors PadDuplicates(const GroupPlan& plan) {
  const size_t ranks = plan.duplicates.size();
  const size_t logical_rows = plan.geometry().logical_rows();
  DuplicateTensors tensors;
  tensors.groups.assign(ranks * logical_rows * 3, -1);
  tensors.rows.assign(ranks * logical_rows, -1);
  for (size_t rank = 0; rank < ranks; ++rank) {
    const DuplicateGroups& lists = plan.duplicates[rank];
    tensors.counts.push_back(static_cast<int32_t>(lists.groups.size()));
    tensors.counts.push_back(static_cast<int32_t>(lists.rows.size()));
    int32_t* group = &tensors.groups[rank * logical_rows * 3];
    for (const DuplicateGroup& list : lists.groups) {
      *group++ = list.primary_row;
      *group++ = list.start;
      *group++ = list.count;
    }
    std::copy(lists.rows.begin(), lists.rows.end(), tensors.rows.begin() + rank * logical_rows);
  }
  return tensors;
}

}  // namespace

absl::Status WritePlan(const std::string& path, const GroupPlan& plan) {
  const Geometry& geometry = plan.geometry();
  const Placement& placement = plan.placement;
  const DuplicateTensors duplicates = PadDuplicates(plan);
  const int64_t ranks = geometry.ranks;
  const int64_t groups = geometry.groups();
  const int64_t rows = geometry.logical_rows();
  return WriteTensorFile(
      path,
      {Int32Tensor("dst", {ranks, geometry.routes()}, plan.dst),
       Int32Tensor("cu_seqlens", {ranks, groups}, placement.cu_seqlens),
       Int32Tensor("zero_fill_ranges", {ranks, groups, 2}, placement.zero_fill_ranges),
       Int32Tensor("experts_to_copy", {ranks, geometry.slots}, placement.experts_to_copy),
       Int32Tensor("remote_stats", {ranks, 2}, placement.remote_stats),
       Int32Tensor("alloc", {geometry.experts, ranks}, placement.alloc),
       Int32Tensor("load", {ranks}, placement.load),
       Int32Tensor("dup_counts", {ranks, 2}, duplicates.counts),
       Int32Tensor("dup_groups", {ranks, rows, 3}, duplicates.groups),
       Int32Tensor("dup_rows", {ranks, rows}, duplicates.rows)},
      {{"ranks", absl::StrCat(ranks)},
       {"experts", absl::StrCat(geometry.experts)},
       {"tokens", absl::StrCat(geometry.tokens)},
       {"topk", absl::StrCat(geometry.topk)},
       {"slots", absl::StrCat(geometry.slots)},
       {"token_padding", absl::StrCat(geometry.token_padding)}});
}

}  // namespace perigee
