#include "client/cli/plan_input.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/plan/histogram.h"
#include "kernels/plan/validate.h"
#include "proto/support/tensor_file.h"

namespace perigee {
namespace {

constexpr char kTopkExperts[] = "topk_experts";
constexpr char kTokenCounts[] = "token_counts";

absl::Status BadTensor(const TensorFile& file, const TensorInfo& tensor,
                       absl::string_view expected) {
  return absl::InvalidArgumentError(absl::StrCat(file.path(), ": tensor ", tensor.name, " is ",
                                                 tensor.Describe(), ", expected ", expected));
}

// Where the chosen routes lie in the tensor: rank r's begin at (first_token + r * rank_tokens) * K.
struct Region {
  int64_t ranks = 0;
  int64_t first_token = 0;
  int64_t rank_tokens = 0;  // of one rank in the file; the first `tokens` of them are taken
  int64_t tokens = 0;
  int64_t topk = 0;
};

absl::StatusOr<Region> RegionOfLayer(const std::vector<int64_t>& shape,
                                     const RouteSelection& selection) {
  const int64_t layers = shape[0];
  const int64_t tokens = shape[1];
  const int64_t ranks = selection.ranks.value_or(1);
  if (*selection.layer >= layers) {
    return absl::FailedPreconditionError(
        absl::StrCat("--layer is ", *selection.layer, ", the file has ", layers, " layers"));
  }
  if (tokens % ranks != 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        "--ranks is ", ranks, ", which does not divide the file's ", tokens, " tokens"));
  }
  return Region{ranks, *selection.layer * tokens, tokens / ranks, tokens / ranks, shape[2]};
}

absl::StatusOr<Region> RegionOfRanks(const std::vector<int64_t>& shape,
                                     const RouteSelection& selection) {
  if (selection.ranks && *selection.ranks != shape[0]) {
    return absl::FailedPreconditionError(
        absl::StrCat("--ranks is ", *selection.ranks, ", the file has routes of ", shape[0],
                     " ranks (--layer takes [layers, tokens, topk])"));
  }
  return Region{shape[0], 0, shape[1], shape[1], shape[2]};
}

absl::StatusOr<Region> SelectRegion(const TensorFile& file, const TensorInfo& tensor,
                                    const RouteSelection& selection) {
  if (tensor.shape.size() != 3) {
    return BadTensor(file, tensor,
                     selection.layer ? "[layers, tokens, topk]" : "[ranks, tokens, topk]");
  }
  absl::StatusOr<Region> region = selection.layer ? RegionOfLayer(tensor.shape, selection)
                                                  : RegionOfRanks(tensor.shape, selection);
  if (!region.ok()) return region.status();
  if (region->ranks < 1 || region->ranks > kMaxRanks || region->topk < 1 ||
      region->topk > kMaxTopk || region->rank_tokens > INT32_MAX) {
    return BadTensor(
        file, tensor,
        absl::StrCat("1 to ", kMaxRanks, " ranks and 1 to ", kMaxTopk, " routes a token"));
  }
  if (selection.tokens) region->tokens = std::min<int64_t>(region->tokens, *selection.tokens);
  return region;
}

// [R], cut to the tokens taken.
absl::StatusOr<std::vector<int32_t>> ReadTokenCounts(const TensorFile& file, const Region& region) {
  const TensorInfo* tensor = file.Find(kTokenCounts);
  std::vector<int32_t> counts(region.ranks, static_cast<int32_t>(region.tokens));
  if (tensor == nullptr) return counts;
  if (tensor->shape != std::vector<int64_t>{region.ranks}) {
    return BadTensor(file, *tensor, absl::StrCat("[", region.ranks, "]"));
  }
  absl::StatusOr<std::vector<int64_t>> values = file.ReadInt64(*tensor);
  if (!values.ok()) return values.status();
  for (size_t rank = 0; rank < counts.size(); ++rank) {
    const int64_t count = (*values)[rank];
    if (count < 0 || count > region.rank_tokens) {
      return absl::InvalidArgumentError(absl::StrCat(file.path(), ": token_counts of rank ", rank,
                                                     " is ", count, ", expected 0 to ",
                                                     region.rank_tokens));
    }
    counts[rank] = static_cast<int32_t>(std::min(count, region.tokens));
  }
  return counts;
}

absl::StatusOr<std::vector<int64_t>> ReadRegion(const TensorFile& file, const TensorInfo& tensor,
                                                const Region& region) {
  absl::StatusOr<std::vector<int64_t>> all = file.ReadInt64(tensor);
  if (!all.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(file.path(), ": ", all.status().message()));
  }
  std::vector<int64_t> routes;
  routes.reserve(region.ranks * region.tokens * region.topk);
  for (int64_t rank = 0; rank < region.ranks; ++rank) {
    const auto first =
        all->begin() + (region.first_token + rank * region.rank_tokens) * region.topk;
    routes.insert(routes.end(), first, first + region.tokens * region.topk);
  }
  return routes;
}

}  // namespace

absl::StatusOr<RecordedRoutes> ReadRoutes(const std::string& path,
                                          const RouteSelection& selection) {
  absl::StatusOr<TensorFile> file = TensorFile::Open(path);
  if (!file.ok()) return file.status();
  absl::StatusOr<const TensorInfo*> tensor = file->Get(kTopkExperts);
  if (!tensor.ok()) return tensor.status();
  absl::StatusOr<Region> region = SelectRegion(*file, **tensor, selection);
  if (!region.ok()) return region.status();
  absl::StatusOr<std::vector<int32_t>> token_counts = ReadTokenCounts(*file, *region);
  if (!token_counts.ok()) return token_counts.status();
  absl::StatusOr<std::vector<int64_t>> routes = ReadRegion(*file, **tensor, *region);
  if (!routes.ok()) return routes.status();
  return RecordedRoutes{static_cast<int32_t>(region->ranks), static_cast<int32_t>(region->tokens),
                        static_cast<int32_t>(region->topk), *std::move(routes),
                        *std::move(token_counts)};
}

absl::StatusOr<std::vector<int32_t>> NarrowRoutes(const RecordedRoutes& routes, int32_t experts) {
  std::vector<int32_t> narrow(routes.topk_experts.size(), kMaskedExpert);
  const size_t rank_routes = static_cast<size_t>(routes.tokens) * routes.topk;
  for (size_t i = 0; i < narrow.size(); ++i) {
    const auto rank = static_cast<int32_t>(i / rank_routes);
    const auto token = static_cast<int32_t>(i % rank_routes / routes.topk);
    if (token >= routes.token_counts[rank]) continue;  // anything may stand there
    const int64_t value = routes.topk_experts[i];
    if (value < kMaskedExpert || value >= experts) {
      return BadRouteError(RankId(rank), {token, static_cast<int32_t>(i % routes.topk), value},
                           experts);
    }
    narrow[i] = static_cast<int32_t>(value);
  }
  return narrow;
}

}  // namespace perigee
