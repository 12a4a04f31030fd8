#include "kernels/host/source_rows.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "kernels/plan/destination.h"

namespace perigee {
namespace {

absl::Status Damaged(int32_t peer, int64_t token, int32_t dst) {
  return absl::InternalError(absl::StrCat("rank ", peer, " published destination ", dst,
                                          " of token ", token,
                                          ", which cannot be: its source shard is damaged"));
}

class Reader {
 public:
  Reader(const HostRank& rank, const Planned& planned)
      : rank_(rank), used_(planned.placement.used_rows(rank.rank)) {
    rows_.origins.assign(rank.logical_rows(), kMaskedRoute);
  }

  absl::Status Read(int32_t peer, absl::Span<const int32_t> dst) {
    const size_t topk = rank_.geometry.topk;
    for (size_t route = 0; route < dst.size(); route += topk) {
      const auto token = static_cast<int32_t>(route / topk);
      const auto start = static_cast<int32_t>(rows_.places.size());
      for (size_t k = 0; k < topk; ++k) {
        const int32_t to = dst[route + k];
        if (IsMasked(to)) continue;
        const int32_t raw = DecodeRow(to);
        if (RankOf(raw, rank_.logical_rows()) != rank_.rank.value) continue;
        const bool first = static_cast<size_t>(start) == rows_.places.size();
        if (!Take(LocalRow(raw, rank_.logical_rows()), peer, route + k, first) ||
            first != IsPrimary(to)) {
          return Damaged(peer, token, to);
        }
      }
      const auto count = static_cast<int32_t>(rows_.places.size()) - start;
      if (count > 0) rows_.pulls.push_back({peer, token, start, count});
    }
    return absl::OkStatus();
  }

  SourceRows&& rows() && { return std::move(rows_); }
  const SourceRows& rows() const& { return rows_; }

 private:
  // False where it is no row with a route, or another route's already.
  bool Take(int32_t row, int32_t peer, size_t route, bool first) {
    if (row >= used_ || !IsMasked(rows_.origins[row])) return false;
    const int32_t origin = peer * rank_.geometry.routes() + static_cast<int32_t>(route);
    rows_.origins[row] = first ? origin : EncodeDuplicate(origin);
    rows_.places.push_back(row);
    return true;
  }

  const HostRank& rank_;
  const int32_t used_;
  SourceRows rows_;
};

// All rows up to the last group's end but padding.
absl::Status CheckComplete(const HostRank& rank, const Planned& planned, const SourceRows& rows) {
  const absl::Span<const int32_t> padding = planned.placement.zero_fill_of(rank.rank);
  for (size_t group = 0; group < padding.size() / 2; ++group) {
    const auto first = rows.origins.begin() + padding[2 * group];
    const auto end = first + padding[2 * group + 1];
    const auto taken = std::find_if_not(first, end, IsMasked);
    if (taken == end) continue;
    const int32_t origin = DecodeRow(*taken);
    const auto row = static_cast<int32_t>(taken - rows.origins.begin());
    return Damaged(origin / rank.geometry.routes(),
                   origin % rank.geometry.routes() / rank.geometry.topk,
                   rank.rank.value * rank.logical_rows() + row);
  }
  if (static_cast<int32_t>(rows.places.size()) == planned.placement.load[rank.rank.value]) {
    return absl::OkStatus();
  }
  return absl::InternalError(absl::StrCat("the ranks' destinations give rank ", rank.rank.value,
                                          " ", rows.places.size(), " rows, its plan has ",
                                          planned.placement.load[rank.rank.value],
                                          ": a source shard is damaged"));
}

}  // namespace

absl::StatusOr<SourceRows> ReadSourceRows(const HostRank& rank, const Planned& planned) {
  Reader reader(rank, planned);
  std::vector<int32_t> theirs(rank.geometry.routes());
  for (int32_t peer = 0; peer < rank.geometry.ranks; ++peer) {
    absl::Span<const int32_t> dst = planned.dst;
    if (peer != rank.rank.value) {
      std::copy_n(rank.sources[peer].dst, theirs.size(), theirs.begin());
      dst = theirs;
    }
    if (absl::Status status = reader.Read(peer, dst); !status.ok()) return status;
  }
  if (absl::Status status = CheckComplete(rank, planned, reader.rows()); !status.ok()) {
    return status;
  }
  return std::move(reader).rows();
}

DuplicateGroups DuplicatesOf(const SourceRows& rows) {
  std::vector<SourcePull> pulls;
  std::copy_if(rows.pulls.begin(), rows.pulls.end(), std::back_inserter(pulls),
               [](const SourcePull& pull) { return pull.count > 1; });
  std::sort(pulls.begin(), pulls.end(), [&](const SourcePull& a, const SourcePull& b) {
    return rows.places[a.start] < rows.places[b.start];
  });
  DuplicateGroups duplicates;
  for (const SourcePull& pull : pulls) {
    const auto start = static_cast<int32_t>(duplicates.rows.size());
    duplicates.groups.push_back({rows.places[pull.start], start, pull.count - 1});
    const auto first = rows.places.begin() + pull.start;
    duplicates.rows.insert(duplicates.rows.end(), first + 1, first + pull.count);
  }
  return duplicates;
}

}  // namespace perigee
