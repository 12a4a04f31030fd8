// A shared library opened at run time, for what is not on every machine. Never closed again: NCCL
// and NVML keep threads and exit handlers, which would then run in memory that is gone.
#ifndef PERIGEE_KERNELS_DEVICE_SHARED_LIBRARY_H_
#define PERIGEE_KERNELS_DEVICE_SHARED_LIBRARY_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace perigee {

// A value; copies stand for the same library. Thread-safe.
class SharedLibrary {
 public:
  // `name` as dlopen takes it: a plain name is looked for where the dynamic loader looks
  // (LD_LIBRARY_PATH, the loader's cache), then in lib64 and lib of the folder that the environment
  // variable CUDA_HOME names, if it is set. NOT_FOUND, with the loader's words.
  static absl::StatusOr<SharedLibrary> Open(const std::string& name);

  // Sets `function` (a pointer to a function pointer) to the symbol `name`. UNIMPLEMENTED, naming
  // library and symbol, where there is none.
  template <typename Function>
  absl::Status Find(const char* name, Function** function) const {
    absl::StatusOr<void*> address = Symbol(name);
    if (!address.ok()) return address.status();
    *function = reinterpret_cast<Function*>(*address);
    return absl::OkStatus();
  }

  const std::string& path() const { return path_; }  // as it was found

 private:
  SharedLibrary(void* handle, std::string path);
  absl::StatusOr<void*> Symbol(const char* name) const;

  void* handle_;
  std::string path_;
};

}  // namespace perigee

#endif  // PERIGEE_KERNELS_DEVICE_SHARED_LIBRARY_H_
