#include "kernels/plan/duplicates.h"

#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/common/check.h"

namespace perigee {
namespace {

struct Maps {
  absl::Span<const int32_t> primary;
  absl::Span<const uint8_t> ordinal;
};

absl::Status Malformed(int32_t row, int32_t primary, int32_t ordinal) {
  return absl::InternalError(absl::StrCat("duplicate map is malformed at row ", row, ": primary ",
                                          primary, ", ordinal ", ordinal));
}

// Calls visit(row) for every row of a group that is no padding, in order.
template <typename Visit>
absl::Status ForEachRow(absl::Span<const int32_t> cu_seqlens,
                        absl::Span<const int32_t> zero_fill_ranges, const Visit& visit) {
  int32_t begin = 0;
  for (size_t group = 0; group < cu_seqlens.size(); ++group) {
    const int32_t padding = zero_fill_ranges[2 * group + 1];
    for (int32_t row = begin; row < cu_seqlens[group] - padding; ++row) {
      if (absl::Status status = visit(row); !status.ok()) return status;
    }
    begin = cu_seqlens[group];
  }
  return absl::OkStatus();
}

// [used rows] duplicates of each row.
absl::StatusOr<std::vector<int32_t>> CountDuplicates(absl::Span<const int32_t> cu_seqlens,
                                                     absl::Span<const int32_t> zero_fill_ranges,
                                                     const Maps& maps) {
  const int32_t used = cu_seqlens.back();
  std::vector<int32_t> counts(used, 0);
  absl::Status status = ForEachRow(cu_seqlens, zero_fill_ranges, [&](int32_t row) {
    const int32_t primary = maps.primary[row];
    if (primary == -1) return absl::OkStatus();
    if (primary < 0 || primary >= used || maps.primary[primary] != -1) {
      return Malformed(row, primary, maps.ordinal[row]);
    }
    ++counts[primary];
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  return counts;
}

// Groups in order of their primary rows.
std::vector<DuplicateGroup> MakeGroups(absl::Span<const int32_t> counts) {
  std::vector<DuplicateGroup> groups;
  int32_t start = 0;
  for (size_t row = 0; row < counts.size(); ++row) {
    if (counts[row] == 0) continue;
    groups.push_back({static_cast<int32_t>(row), start, counts[row]});
    start += counts[row];
  }
  return groups;
}

// The duplicate rows, each in its place in its group.
absl::StatusOr<std::vector<int32_t>> PlaceDuplicates(absl::Span<const int32_t> cu_seqlens,
                                                     absl::Span<const int32_t> zero_fill_ranges,
                                                     const Maps& maps,
                                                     absl::Span<const DuplicateGroup> groups) {
  const int32_t used = cu_seqlens.back();
  std::vector<const DuplicateGroup*> group_of(used, nullptr);  // by primary row
  size_t total = 0;
  for (const DuplicateGroup& group : groups) {
    group_of[group.primary_row] = &group;
    total += group.count;
  }
  std::vector<int32_t> rows(total, -1);
  size_t placed = 0;
  absl::Status status = ForEachRow(cu_seqlens, zero_fill_ranges, [&](int32_t row) {
    const int32_t primary = maps.primary[row];
    if (primary == -1) return absl::OkStatus();
    const int32_t ordinal = maps.ordinal[row];
    const DuplicateGroup* group = primary >= 0 && primary < used ? group_of[primary] : nullptr;
    if (group == nullptr || ordinal < 1 || ordinal > group->count ||
        rows[group->start + ordinal - 1] != -1) {
      return Malformed(row, primary, ordinal);
    }
    rows[group->start + ordinal - 1] = row;
    ++placed;
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  if (placed != total) return absl::InternalError("duplicate map changed while it was read");
  return rows;
}

}  // namespace

absl::StatusOr<DuplicateGroups> BuildDuplicateGroups(absl::Span<const int32_t> cu_seqlens,
                                                     absl::Span<const int32_t> zero_fill_ranges,
                                                     absl::Span<const int32_t> duplicate_primary,
                                                     absl::Span<const uint8_t> duplicate_ordinal) {
  PERIGEE_CHECK(!cu_seqlens.empty() && zero_fill_ranges.size() == 2 * cu_seqlens.size());
  PERIGEE_CHECK(duplicate_primary.size() >= static_cast<size_t>(cu_seqlens.back()));
  PERIGEE_CHECK(duplicate_ordinal.size() >= static_cast<size_t>(cu_seqlens.back()));
  const Maps maps{duplicate_primary, duplicate_ordinal};
  auto counts = CountDuplicates(cu_seqlens, zero_fill_ranges, maps);
  if (!counts.ok()) return counts.status();
  DuplicateGroups result;
  result.groups = MakeGroups(*counts);
  auto rows = PlaceDuplicates(cu_seqlens, zero_fill_ranges, maps, result.groups);
  if (!rows.ok()) return rows.status();
  result.rows = *std::move(rows);
  return result;
}

}  // namespace perigee
