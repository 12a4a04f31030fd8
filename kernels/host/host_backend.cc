#include "kernels/host/host_backend.h"

#include <cstring>
#include <fstream>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "kernels/host/available_memory.h"
#include "kernels/host/host_data_path.h"
#include "kernels/host/memfd_memory.h"

namespace perigee {
namespace {

// For people: "AMD EPYC 9654, 96 cores".
std::string DescribeProcessor() {
  std::string model = "processor";
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line)) {
    if (!absl::StartsWith(line, "model name")) continue;
    const size_t colon = line.find(": ");
    if (colon != std::string::npos) model = line.substr(colon + 2);
    break;
  }
  return absl::StrCat(model, ", ", std::thread::hardware_concurrency(), " cores");
}

class HostBackend final : public Backend {
 public:
  explicit HostBackend(HostBackendOptions options) : options_(std::move(options)) {}

  BackendInfo info() const override {
    const HostMemory memory = ReadHostMemory();
    return BackendInfo{"host", DescribeProcessor(), memory.total_bytes, memory.available_bytes};
  }
  absl::StatusOr<std::unique_ptr<Memory>> AllocateShared(size_t size_bytes,
                                                         PeerAccess access) override {
    return AllocateMemfd(size_bytes, access);
  }
  absl::Status CheckAttachable() const override { return absl::OkStatus(); }
  absl::StatusOr<std::unique_ptr<Memory>> AllocatePrivate(size_t size_bytes) override {
    return AllocateAnonymous(size_bytes);
  }
  absl::StatusOr<std::unique_ptr<Memory>> Import(int descriptor, size_t size_bytes,
                                                 PeerAccess access) override {
    return ImportMemfd(descriptor, size_bytes, access);
  }
  absl::Status CopyIn(std::byte* to, absl::Span<const std::byte> from) override {
    if (!from.empty()) std::memcpy(to, from.data(), from.size());
    return absl::OkStatus();
  }
  absl::Status CopyOut(absl::Span<std::byte> to, const std::byte* from) override {
    if (!to.empty()) std::memcpy(to.data(), from, to.size());
    return absl::OkStatus();
  }
  absl::StatusOr<std::unique_ptr<DataPath>> CreateDataPath(
      const DataPathOptions& options) override {
    return CreateHostDataPath(options, options_);
  }

 private:
  const HostBackendOptions options_;
};

}  // namespace

std::unique_ptr<Backend> CreateHostBackend(const HostBackendOptions& options) {
  return std::make_unique<HostBackend>(options);
}

}  // namespace perigee
