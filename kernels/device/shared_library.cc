#include "kernels/device/shared_library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace perigee {
namespace {

// Where to look, in order.
std::vector<std::string> Candidates(const std::string& name) {
  std::vector<std::string> candidates = {name};
  const char* home = std::getenv("CUDA_HOME");
  if (home != nullptr && *home != '\0' && name.find('/') == std::string::npos) {
    candidates.push_back(absl::StrCat(home, "/lib64/", name));
    candidates.push_back(absl::StrCat(home, "/lib/", name));
  }
  return candidates;
}

std::string LoaderError() {
  const char* error = dlerror();
  return error == nullptr ? "unknown error" : error;
}

}  // namespace

absl::StatusOr<SharedLibrary> SharedLibrary::Open(const std::string& name) {
  std::string problems;
  for (const std::string& path : Candidates(name)) {
    void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle != nullptr) return SharedLibrary(handle, path);
    absl::StrAppend(&problems, problems.empty() ? "" : "; ", LoaderError());
  }
  return absl::NotFoundError(absl::StrCat("cannot open ", name, ": ", problems));
}

SharedLibrary::SharedLibrary(void* handle, std::string path)
    : handle_(handle), path_(std::move(path)) {}

absl::StatusOr<void*> SharedLibrary::Symbol(const char* name) const {
  void* symbol = dlsym(handle_, name);
  if (symbol != nullptr) return symbol;
  return absl::UnimplementedError(absl::StrCat(path_, " has no ", name));
}

}  // namespace perigee
