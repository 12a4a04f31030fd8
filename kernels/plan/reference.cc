#include "kernels/plan/reference.h"

#include <algorithm>
#include <climits>
#include <map>
#include <utility>

namespace perigee {
namespace {

struct Route {
  int rank, token, k, expert;
};

// Source ranks ascending, inside a rank token by token: the global order of routes.
std::vector<Route> LiveRoutes(const Geometry& g, const Matrix& topk_experts,
                              const std::vector<int32_t>& token_counts) {
  std::vector<Route> routes;
  for (int r = 0; r < g.ranks; ++r) {
    for (int s = 0; s < token_counts[r]; ++s) {
      for (int k = 0; k < g.topk; ++k) {
        const int expert = topk_experts[r][s * g.topk + k];
        if (expert >= 0) routes.push_back({r, s, k, expert});
      }
    }
  }
  return routes;
}

// The lowest index that holds the largest (sign 1) or smallest (sign -1) value.
int Best(const std::vector<int32_t>& values, int sign) {
  int best = 0;
  for (int i = 1; i < static_cast<int>(values.size()); ++i) {
    if (sign * values[i] > sign * values[best]) best = i;
  }
  return best;
}

Matrix Balance(const Geometry& g, const std::vector<int32_t>& count) {
  int total = 0;
  for (int c : count) total += c;
  std::vector<int32_t> balance(g.ranks);
  for (int d = 0; d < g.ranks; ++d) {
    for (int e = d * g.experts_per_rank(); e < (d + 1) * g.experts_per_rank(); ++e) {
      balance[d] += count[e];
    }
    balance[d] -= total / g.ranks + (d < total % g.ranks ? 1 : 0);
  }
  Matrix z(g.ranks, std::vector<int32_t>(g.ranks, 0));
  for (int h = Best(balance, 1); balance[h] > 0; h = Best(balance, 1)) {
    const int u = Best(balance, -1);
    z[h][u] = -balance[u];
    balance[h] += balance[u];
    balance[u] = 0;
  }
  return z;
}

Matrix Split(const Geometry& g, const std::vector<int32_t>& count, const Matrix& z) {
  Matrix alloc(g.experts, std::vector<int32_t>(g.ranks, 0));
  for (int e = 0; e < g.experts; ++e) alloc[e][e / g.experts_per_rank()] = count[e];
  for (int h = 0; h < g.ranks; ++h) {
    std::vector<int32_t> q = z[h];
    std::vector<int32_t> rem(g.experts, 0);
    for (int e = 0; e < g.experts; ++e) {
      if (e / g.experts_per_rank() == h) rem[e] = count[e];
    }
    for (int d = Best(q, 1); q[d] > 0; d = Best(q, 1)) {
      const int e = Best(rem, 1);
      const int t = std::min(rem[e], q[d]);
      alloc[e][d] += t;
      alloc[e][h] -= t;
      rem[e] -= t;
      q[d] -= t;
    }
  }
  return alloc;
}

std::vector<int32_t> Slots(const Geometry& g, const Matrix& alloc, int d) {
  std::vector<std::pair<int, int>> remote;  // (count, id)
  for (int e = 0; e < g.experts; ++e) {
    if (e / g.experts_per_rank() != d && alloc[e][d] > 0) remote.push_back({alloc[e][d], e});
  }
  std::sort(remote.rbegin(), remote.rend());
  std::vector<int32_t> slots(g.slots, -1);
  for (int b = 0; b < g.slots && b < static_cast<int>(remote.size()); ++b) {
    slots[b] = remote[b].second;
  }
  return slots;
}

// Rows of each group on rank d, the global experts first.
std::vector<int32_t> GroupSizes(const Geometry& g, const Matrix& alloc,
                                const std::vector<int32_t>& slots, int d) {
  std::vector<int32_t> sizes;
  sizes.reserve(g.groups());
  for (int e = 0; e < g.experts; ++e) sizes.push_back(alloc[e][d]);
  for (int e : slots) {
    sizes.push_back(e < 0 ? 0 : alloc[e][d]);
    if (e >= 0) sizes[e] = 0;
  }
  return sizes;
}

// First row of expert e's group on rank d.
int GroupStart(const Geometry& g, const ReferencePlan& plan, int e, int d) {
  int group = e;
  for (int b = 0; b < g.slots; ++b) {
    if (plan.experts_to_copy[d][b] == e) group = g.experts + b;
  }
  return group == 0 ? 0 : plan.cu_seqlens[d][group - 1];
}

void LayOut(const Geometry& g, ReferencePlan& plan) {
  plan.remote_stats.assign(g.ranks, {0, 0});
  for (int d = 0; d < g.ranks; ++d) {
    plan.experts_to_copy.push_back(Slots(g, plan.alloc, d));
    int end = 0;
    plan.cu_seqlens.emplace_back();
    plan.zero_fill.emplace_back();
    for (int size : GroupSizes(g, plan.alloc, plan.experts_to_copy[d], d)) {
      int padded = 0;
      while (padded < size) padded += g.token_padding;
      plan.zero_fill[d].push_back({padded > size ? end + size : 0, padded - size});
      end += padded;
      plan.cu_seqlens[d].push_back(end);
    }
    for (int e = 0; e < g.experts; ++e) {
      plan.remote_stats[d][0] += e / g.experts_per_rank() != d && plan.alloc[e][d] > 0;
    }
  }
  for (const auto& slots : plan.experts_to_copy) {
    for (int e : slots) {
      if (e >= 0) ++plan.remote_stats[e / g.experts_per_rank()][1];
    }
  }
}

void SendRoutes(const Geometry& g, const std::vector<Route>& routes, ReferencePlan& plan) {
  const int nvs = static_cast<int>(g.logical_rows());
  plan.dst.assign(g.ranks, std::vector<int32_t>(g.routes(), INT_MIN));
  std::vector<int> seen(g.experts, 0);                            // global index, by expert
  std::map<std::pair<int, int>, std::vector<int>> rows_of_token;  // (rank d, global token) -> rows
  for (const Route& route : routes) {
    const int index = seen[route.expert]++;
    int d = 0;
    int before = 0;
    while (before + plan.alloc[route.expert][d] <= index) before += plan.alloc[route.expert][d++];
    const int local = GroupStart(g, plan, route.expert, d) + index - before;
    std::vector<int>& rows = rows_of_token[{d, route.rank * g.tokens + route.token}];
    const int raw = d * nvs + local;
    plan.dst[route.rank][route.token * g.topk + route.k] = rows.empty() ? raw : -raw - 1;
    rows.push_back(local);
  }
  plan.duplicate_groups.resize(g.ranks);
  plan.duplicate_rows.resize(g.ranks);
  std::map<std::pair<int, int>, std::vector<int>> by_primary;  // (rank d, primary row) -> rows
  for (const auto& [key, rows] : rows_of_token) by_primary[{key.first, rows[0]}] = rows;
  for (const auto& [key, rows] : by_primary) {
    if (rows.size() < 2) continue;
    auto& all = plan.duplicate_rows[key.first];
    plan.duplicate_groups[key.first].push_back(
        {key.second, static_cast<int32_t>(all.size()), static_cast<int32_t>(rows.size()) - 1});
    all.insert(all.end(), rows.begin() + 1, rows.end());
  }
}

}  // namespace

ReferencePlan PlanByTheRules(const Geometry& geometry, const Matrix& topk_experts,
                             const std::vector<int32_t>& token_counts) {
  const std::vector<Route> routes = LiveRoutes(geometry, topk_experts, token_counts);
  std::vector<int32_t> count(geometry.experts, 0);
  for (const Route& route : routes) ++count[route.expert];
  ReferencePlan plan;
  plan.transfers = Balance(geometry, count);
  plan.alloc = Split(geometry, count, plan.transfers);
  LayOut(geometry, plan);
  SendRoutes(geometry, routes, plan);
  return plan;
}

}  // namespace perigee
