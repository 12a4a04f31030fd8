// The file descriptors of this process, for tests that nothing is left open.
#ifndef PERIGEE_TESTS_TESTING_OPEN_DESCRIPTORS_H_
#define PERIGEE_TESTS_TESTING_OPEN_DESCRIPTORS_H_

#include <filesystem>
#include <set>
#include <string>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace perigee {

// A line "number -> what it is" for each socket, memory, event and process that is open. Files and
// pipes are left out: other threads have some open for a moment (the undefined behaviour sanitizer
// looks through a pipe whether an address can be read). Compare with IsSubsetOf what was open
// before.
inline std::set<std::string> OpenDescriptors() {
  std::set<std::string> open;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code closed_meanwhile;
    const std::string target = std::filesystem::read_symlink(entry.path(), closed_meanwhile);
    for (const char* kind : {"socket:", "anon_inode:", "/memfd:"}) {
      if (!absl::StartsWith(target, kind)) continue;
      open.insert(absl::StrCat(entry.path().filename().string(), " -> ", target));
    }
  }
  return open;
}

}  // namespace perigee

#endif  // PERIGEE_TESTS_TESTING_OPEN_DESCRIPTORS_H_
