#include "client/cli/run/phase_times.h"

#include <algorithm>

namespace perigee {

double MeanTime(const v1::OperationTiming& timing) {
  return timing.count() == 0
             ? 0
             : static_cast<double>(timing.total_ns()) / static_cast<double>(timing.count());
}

std::vector<PhaseTimes> SummarizePhases(
    const std::vector<std::vector<v1::OperationTiming>>& timings) {
  std::vector<PhaseTimes> phases;
  for (size_t i = 0; !timings.empty() && i < timings[0].size(); ++i) {
    PhaseTimes phase;
    phase.operation = timings[0][i].operation();
    phase.min_ns = INT64_MAX;
    double total_ns = 0, count = 0;
    for (size_t rank = 0; rank < timings.size(); ++rank) {
      if (i >= timings[rank].size() || timings[rank][i].count() == 0) continue;
      const v1::OperationTiming& timing = timings[rank][i];
      if (MeanTime(timing) > phase.slowest_mean_ns) {
        phase.slowest_mean_ns = MeanTime(timing);
        phase.slowest_rank = static_cast<int32_t>(rank);
      }
      total_ns += static_cast<double>(timing.total_ns());
      count += static_cast<double>(timing.count());
      phase.min_ns = std::min(phase.min_ns, timing.min_ns());
      phase.max_ns = std::max(phase.max_ns, timing.max_ns());
    }
    if (count == 0) continue;
    phase.mean_ns = total_ns / count;
    phases.push_back(phase);
  }
  return phases;
}

void WritePhases(const std::vector<std::vector<v1::OperationTiming>>& timings, JsonWriter& json) {
  json.Key("phases");
  json.BeginArray();
  for (const PhaseTimes& phase : SummarizePhases(timings)) {
    json.BeginObject();
    json.Field("operation", phase.operation);
    json.Field("slowest_rank", phase.slowest_rank);
    json.Field("slowest_rank_mean_ns", phase.slowest_mean_ns);
    json.Field("mean_ns", phase.mean_ns);
    json.Field("min_ns", phase.min_ns);
    json.Field("max_ns", phase.max_ns);
    json.EndObject();
  }
  json.EndArray();
}

}  // namespace perigee
