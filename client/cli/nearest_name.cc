#include "client/cli/nearest_name.h"

#include <algorithm>
#include <cstddef>
#include <numeric>

namespace perigee {
namespace {

// Letters to insert, delete or replace.
size_t EditDistance(absl::string_view a, absl::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

}  // namespace

std::string NearestName(absl::string_view name, const std::vector<std::string>& known) {
  constexpr size_t kLongestName = 64;
  std::string nearest;
  size_t best = name.size() / 2 + 1;
  if (name.size() > kLongestName) return nearest;
  for (const std::string& candidate : known) {
    const size_t distance = EditDistance(name, candidate);
    if (distance >= best) continue;
    best = distance;
    nearest = candidate;
  }
  return nearest;
}

}  // namespace perigee
