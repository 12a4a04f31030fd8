#include "client/cli/cluster/backend_flags.h"

#include "absl/strings/str_cat.h"

namespace perigee {

void DeclareBackendFlags(FlagSet& flags, SupervisorOptions& options) {
  flags.Choice("backend", {"host", "cuda"},
               "what the workers compute on: this machine's CPUs, or a CUDA device each",
               &options.backend);
  flags.Boolean("shared-gpu",
                "backend cuda: all workers on the first device, each with its part of the SMs; for "
                "tests",
                &options.shared_gpu);
  flags.Choice("memory-handle", {"auto", "fd", "fabric"},
               "backend cuda: how workers get at each other's memory", &options.memory_handle);
}

void DeclareTransportFlag(FlagSet& flags, std::string& transport) {
  flags.Choice("transport", {"nvlink", "nccl"},
               "backend cuda: how rows get from rank to rank: stored into each other's memory, or "
               "by NCCL where that cannot be",
               &transport);
}

std::string BackendFlagsConflict(const FlagSet& flags, const SupervisorOptions& options,
                                 const std::string& transport) {
  if (options.backend == "cuda") {
    if (transport != "nccl" || !options.shared_gpu) return "";
    return "--transport nccl needs a GPU for each rank, and --shared-gpu puts all on one";
  }
  for (const char* name : {"shared-gpu", "memory-handle", "transport"}) {
    if (flags.given(name)) {
      return absl::StrCat("--", name, " is for --backend cuda, and the backend is ",
                          options.backend);
    }
  }
  return "";
}

}  // namespace perigee
