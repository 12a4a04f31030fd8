#include "client/cli/cluster/supervisor_event.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace perigee {
namespace {

using Kind = SupervisorEvent::Kind;

constexpr std::pair<Kind, const char*> kWords[] = {
    {Kind::kDirectory, "directory"}, {Kind::kCoordinator, "coordinator"},
    {Kind::kWorker, "worker"},       {Kind::kReady, "ready"},
    {Kind::kLost, "lost"},           {Kind::kFailed, "failed"},
};

// Empty fields are written as a dash, so that every line has the same number of them.
std::string Field(const std::string& text) { return text.empty() ? "-" : text; }
std::string Unfield(absl::string_view text) { return text == "-" ? "" : std::string(text); }

}  // namespace

std::string FormatSupervisorEvent(const SupervisorEvent& event) {
  const auto word = std::find_if(std::begin(kWords), std::end(kWords),
                                 [&](const auto& entry) { return entry.first == event.kind; });
  std::string line = absl::StrCat(word->second, " ", Field(event.name), " ", Field(event.address),
                                  " ", event.pid, " ", event.exit_status, " ", event.text);
  std::replace(line.begin(), line.end(), '\n', ' ');
  return line;
}

absl::optional<SupervisorEvent> ParseSupervisorEvent(absl::string_view line) {
  const std::vector<absl::string_view> fields = absl::StrSplit(line, absl::MaxSplits(' ', 5));
  if (fields.size() != 6) return absl::nullopt;
  for (const auto& [kind, word] : kWords) {
    if (fields[0] != word) continue;
    SupervisorEvent event{.kind = kind,
                          .name = Unfield(fields[1]),
                          .address = Unfield(fields[2]),
                          .text = std::string(fields[5])};
    if (!absl::SimpleAtoi(fields[3], &event.pid) ||
        !absl::SimpleAtoi(fields[4], &event.exit_status)) {
      return absl::nullopt;
    }
    return event;
  }
  return absl::nullopt;
}

}  // namespace perigee
