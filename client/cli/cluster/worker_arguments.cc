#include "client/cli/cluster/worker_arguments.h"

#include "absl/strings/str_cat.h"

namespace perigee {

std::string WorkerName(int32_t rank) { return absl::StrCat("w", rank); }

std::vector<std::string> WorkerArguments(const SupervisorOptions& options, int32_t rank,
                                         const std::string& coordinator_address,
                                         const std::string& socket_dir) {
  std::vector<std::string> arguments = {"perigee-worker",
                                        absl::StrCat("--name=", WorkerName(rank)),
                                        absl::StrCat("--coordinator=", coordinator_address),
                                        absl::StrCat("--socket_dir=", socket_dir),
                                        absl::StrCat("--backend=", options.backend),
                                        absl::StrCat("--threads=", options.threads)};
  if (options.backend == "cuda") {  // the host backend refuses these
    arguments.push_back(absl::StrCat("--device=", options.shared_gpu ? 0 : rank));
    arguments.push_back(absl::StrCat("--sms=", options.sms));
    arguments.push_back(absl::StrCat("--memory_handle=", options.memory_handle));
  }
  return arguments;
}

}  // namespace perigee
