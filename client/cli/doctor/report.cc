#include "client/cli/doctor/report.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cli/output.h"

namespace perigee {

int DoctorReport::Count(FindingState state) const {
  return static_cast<int>(std::count_if(checks.begin(), checks.end(),
                                        [state](const Finding& f) { return f.state == state; }));
}

std::string DoctorText(const DoctorReport& report) {
  size_t width = 0;
  for (const Finding& finding : report.checks) width = std::max(width, finding.name.size());
  std::string text;
  for (const Finding& finding : report.checks) {
    absl::StrAppendFormat(&text, "%-4s  %-*s  %s\n", FindingMark(finding.state),
                          static_cast<int>(width), finding.name, finding.found);
    if (finding.state != FindingState::kOk) {
      absl::StrAppendFormat(&text, "      %-*s  -> %s\n", static_cast<int>(width), "",
                            finding.remedy);
    }
  }
  absl::StrAppendFormat(
      &text, "%s: %d ok, %d warn, %d FAIL, %s on the %s backend\n",
      report.Count(FindingState::kFail) == 0 ? "workers can run here" : "workers CANNOT run here",
      report.Count(FindingState::kOk), report.Count(FindingState::kWarn),
      report.Count(FindingState::kFail), WorkersText(report.ranks), report.backend);
  return text;
}

std::string DoctorJson(const DoctorReport& report) {
  JsonWriter json;
  json.BeginObject();
  json.Field("backend", report.backend);
  json.Field("ranks", report.ranks);
  json.Field("ok", report.Count(FindingState::kOk));
  json.Field("warn", report.Count(FindingState::kWarn));
  json.Field("fail", report.Count(FindingState::kFail));
  json.Key("checks");
  json.BeginArray();
  for (const Finding& finding : report.checks) {
    json.BeginObject();
    json.Field("name", finding.name);
    json.Field("state", FindingMark(finding.state));
    json.Field("found", finding.found);
    json.Field("expected", finding.expected);
    json.Field("remedy", finding.remedy);
    json.EndObject();
  }
  json.EndArray();
  json.EndObject();
  return json.ToString();
}

}  // namespace perigee
