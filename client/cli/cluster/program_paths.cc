#include "client/cli/cluster/program_paths.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace perigee {
namespace {

constexpr const char* kBinDirVariable = "PERIGEE_BIN_DIR";

absl::StatusOr<std::string> Find(const std::string& name, const std::string& build_folder) {
  std::vector<std::string> places;
  const char* bin_dir = std::getenv(kBinDirVariable);
  if (bin_dir != nullptr && *bin_dir != '\0') {
    places = {absl::StrCat(bin_dir, "/", name)};
  } else {
    const std::filesystem::path own_folder = std::filesystem::path(OwnProgram()).parent_path();
    places = {(own_folder / name).string(),
              (own_folder.parent_path().parent_path() / build_folder / name).string()};
  }
  for (const std::string& place : places) {
    if (access(place.c_str(), X_OK) == 0) return place;
  }
  return absl::NotFoundError(absl::StrCat("program ", name, " is not at ",
                                          absl::StrJoin(places, " or "), "; set ", kBinDirVariable,
                                          " to the directory that it is in"));
}

}  // namespace

absl::StatusOr<ProgramPaths> FindPrograms() {
  auto coordinator = Find("perigee-coordinator", "server");
  if (!coordinator.ok()) return coordinator.status();
  auto worker = Find("perigee-worker", "worker");
  if (!worker.ok()) return worker.status();
  return ProgramPaths{*coordinator, *worker};
}

std::string OwnProgram() {
  std::error_code error;
  const std::filesystem::path path = std::filesystem::read_symlink("/proc/self/exe", error);
  return error ? "/proc/self/exe" : path.string();
}

}  // namespace perigee
