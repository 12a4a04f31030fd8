// What `perigee plan` says about a plan.
#ifndef PERIGEE_CLIENT_CLI_PLAN_REPORT_H_
#define PERIGEE_CLIENT_CLI_PLAN_REPORT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/plan/bytes.h"
#include "kernels/plan/plan.h"

namespace perigee {

struct Skew {
  double before = 1;
  double after = 1;
};

struct PlanReport {
  Geometry geometry;
  int32_t hidden = 0;
  double planning_ms = 0;
  std::string output;

  int64_t routes = 0;
  std::vector<int32_t> home_load;  // [R] rows of each rank without balancing
  std::vector<int32_t> load;       // [R] rows of each rank with it
  Skew rank;                       // hottest rank over mean
  Skew expert;                    // hottest expert over mean; after: largest share of one on a rank
  std::vector<int32_t> replicas;  // [R]
  int64_t replicas_in_slots = 0;
  std::vector<RowCounts> rows;  // [R]
  // Rows of hidden that each rank has to hold: as the shard is sized, as the hottest rank would
  // need without balancing, and as any rank would have to be prepared for without balancing.
  int64_t capacity_rows = 0;
  int64_t unbalanced_rows = 0;
  int64_t unbalanced_worst_rows = 0;
};

PlanReport MakePlanReport(const GroupPlan& plan, int32_t hidden);
std::string PlanReportText(const PlanReport& report);
// Keys: docs/cli.md.
std::string PlanReportJson(const PlanReport& report);

}  // namespace perigee

#endif  // PERIGEE_CLIENT_CLI_PLAN_REPORT_H_
