// What one check of `perigee doctor` says.
#ifndef PERIGEE_CLIENT_CLI_DOCTOR_FINDING_H_
#define PERIGEE_CLIENT_CLI_DOCTOR_FINDING_H_

#include <cstdint>
#include <string>
#include <utility>

namespace perigee {

//   kOk    as it should be
//   kWarn  workers run, but slower, fewer of them, or with a risk that the operator should know
//   kFail  workers do not run
enum class FindingState { kOk, kWarn, kFail };

struct Finding {
  std::string name = "";  // stable: scripts look for it
  FindingState state = FindingState::kOk;
  std::string found = "";     // the fact, as measured
  std::string expected = "";  // what would be ok
  std::string remedy = "";    // one line: a command or a setting; empty where it is ok
};

// The mark in tables and JSON: "ok", "warn", "FAIL".
inline const char* FindingMark(FindingState state) {
  switch (state) {
    case FindingState::kOk:
      return "ok";
    case FindingState::kWarn:
      return "warn";
    case FindingState::kFail:
      break;
  }
  return "FAIL";
}

// `finding`, which lacks its state, as ok or as what `otherwise` says; an ok one loses its remedy.
inline Finding Judge(bool ok, FindingState otherwise, Finding finding) {
  finding.state = ok ? FindingState::kOk : otherwise;
  if (ok) finding.remedy.clear();
  return finding;
}

// "1 worker", "8 workers".
inline std::string WorkersText(int32_t ranks) {
  return std::to_string(ranks) + (ranks == 1 ? " worker" : " workers");
}

}  // namespace perigee

#endif  // PERIGEE_CLIENT_CLI_DOCTOR_FINDING_H_
