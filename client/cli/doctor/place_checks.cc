#include "client/cli/doctor/place_checks.h"

#include "absl/strings/str_cat.h"
#include "client/cli/output.h"
#include "proto/local/unix_socket.h"

namespace perigee {
namespace {

// Logs and the coordinator's database.
constexpr uint64_t kSomeBytes = uint64_t{64} << 20;

Finding CheckPrograms(const PlaceFacts& facts) {
  return Judge(
      facts.programs.ok(), FindingState::kFail,
      {.name = "programs",
       .found = facts.programs.ok()
                    ? absl::StrCat(facts.programs->coordinator, ", ", facts.programs->worker)
                    : std::string(facts.programs.status().message()),
       .expected = "perigee-coordinator and perigee-worker, executable",
       .remedy = "bazel build //client/cli:perigee //server:perigee-coordinator "
                 "//worker:perigee-worker, or export PERIGEE_BIN_DIR=DIR with both in DIR"});
}

Finding CheckRunDirectory(const PlaceFacts& facts) {
  Finding finding = {.name = "run_directory",
                     .found = absl::StrCat(facts.parent, " takes directories of mode 0700"),
                     .expected = "a directory that this user can write to (TMPDIR, else /tmp)",
                     .remedy =
                         "export TMPDIR=DIR, of 40 characters at most, that this user can "
                         "write to: install -d -m 0700 DIR"};
  if (!facts.made.ok()) {
    finding.found = std::string(facts.made.message());
    finding.state = FindingState::kFail;
    return finding;
  }
  if (facts.unprotected) {
    absl::StrAppend(&finding.found, ", but other users may rename them");
    finding.remedy = absl::StrCat("chmod +t ", facts.parent);
  } else if (!facts.wanted.empty() && facts.wanted != facts.parent) {
    absl::StrAppend(&finding.found, "; TMPDIR=", facts.wanted.substr(0, 80),
                    " is not taken: it is relative or too long");
  } else {
    finding.remedy.clear();
    return finding;
  }
  finding.state = FindingState::kWarn;
  return finding;
}

Finding CheckSpace(const PlaceFacts& facts) {
  return Judge(facts.free_bytes >= kSomeBytes, FindingState::kWarn,
               {.name = "run_directory_space",
                .found = absl::StrCat(facts.parent, " has ",
                                      FormatBytes(static_cast<int64_t>(facts.free_bytes)), " free"),
                .expected = absl::StrCat(FormatBytes(int64_t{kSomeBytes}),
                                         " for logs and the coordinator's database"),
                .remedy = absl::StrCat("remove what fills it (du -xsh ", facts.parent,
                                       "/* | sort -h), or export TMPDIR=DIR")});
}

Finding CheckSocketPath(const PlaceFacts& facts) {
  return Judge(
      facts.socket.ok(), FindingState::kFail,
      {.name = "socket_path",
       .found = facts.socket.ok() ? absl::StrCat("a worker's socket works, path of ",
                                                 facts.socket_path_bytes, " bytes")
                                  : std::string(facts.socket.message()),
       .expected =
           absl::StrCat("a Unix socket, its path of ", kMaxSocketPathBytes, " bytes at most"),
       .remedy = "export TMPDIR=DIR on a local file system that takes sockets, such as /tmp"});
}

}  // namespace

std::vector<Finding> CheckPlaces(const PlaceFacts& facts) {
  std::vector<Finding> findings = {CheckPrograms(facts), CheckRunDirectory(facts)};
  if (!facts.made.ok()) return findings;
  findings.push_back(CheckSpace(facts));
  findings.push_back(CheckSocketPath(facts));
  return findings;
}

}  // namespace perigee
