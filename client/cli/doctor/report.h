// How `perigee doctor` prints its findings.
#ifndef PERIGEE_CLIENT_CLI_DOCTOR_REPORT_H_
#define PERIGEE_CLIENT_CLI_DOCTOR_REPORT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "client/cli/doctor/finding.h"

namespace perigee {

struct DoctorReport {
  std::string backend;
  int32_t ranks = 0;
  std::vector<Finding> checks;

  int Count(FindingState state) const;
};

// A line for each check, below it the remedy of one that is not ok, and a last line that counts.
std::string DoctorText(const DoctorReport& report);
// Keys: docs/cli.md.
std::string DoctorJson(const DoctorReport& report);

}  // namespace perigee

#endif  // PERIGEE_CLIENT_CLI_DOCTOR_REPORT_H_
