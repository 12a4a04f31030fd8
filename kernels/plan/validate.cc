#include "kernels/plan/validate.h"

#include "absl/strings/str_cat.h"

namespace perigee {
namespace {

constexpr int64_t kRowLimit = int64_t{1} << 31;

absl::Status OutOfRange(absl::string_view what, int64_t value, int64_t minimum, int64_t maximum) {
  return absl::InvalidArgumentError(
      absl::StrCat(what, " is ", value, ", expected ", minimum, " to ", maximum));
}

absl::Status CheckRange(absl::string_view what, int64_t value, int64_t minimum, int64_t maximum) {
  if (value < minimum || value > maximum) return OutOfRange(what, value, minimum, maximum);
  return absl::OkStatus();
}

// Each factor is bounded before it is multiplied: no product below leaves 64 bits.
absl::Status CheckRows(const Geometry& geometry) {
  if (geometry.tokens < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("tokens per rank is ", geometry.tokens, ", expected 0 or more"));
  }
  if (geometry.token_padding < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("token padding is ", geometry.token_padding, ", expected 1 row or more"));
  }
  const int64_t rows = geometry.logical_rows();
  if (rows * geometry.ranks < kRowLimit) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("ranks (", geometry.ranks, ") times rows per rank (", rows, " = tokens ",
                   geometry.tokens, " * topk ", geometry.topk, " + padding) is ",
                   rows * geometry.ranks, ", expected less than 2^31"));
}

}  // namespace

absl::Status ValidateGeometry(const Geometry& geometry) {
  const absl::Status ranges[] = {
      CheckRange("ranks", geometry.ranks, 1, kMaxRanks),
      CheckRange("topk", geometry.topk, 1, kMaxTopk),
      CheckRange("experts", geometry.experts, 1, kMaxExperts),
      CheckRange("slots", geometry.slots, 0, kMaxSlots),
  };
  for (const absl::Status& range : ranges) {
    if (!range.ok()) return range;
  }
  if (geometry.experts % geometry.ranks != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "experts is ", geometry.experts, ", expected a multiple of ranks (", geometry.ranks, ")"));
  }
  return CheckRows(geometry);
}

absl::Status ValidateTokenCount(const Geometry& geometry, RankId rank, int64_t token_count) {
  return CheckRange(absl::StrCat("token count of rank ", rank.value), token_count, 0,
                    geometry.tokens);
}

}  // namespace perigee
