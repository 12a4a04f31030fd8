#include "kernels/cuda/cuda_backend.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/combine_launch.h"
#include "kernels/cuda/cuda_data_path.h"
#include "kernels/cuda/cuda_staged_device.h"
#include "kernels/cuda/dispatch_launch.h"
#include "kernels/cuda/nccl_exchange.h"
#include "kernels/cuda/prefetch_launch.h"
#include "kernels/cuda/probe_copy_launch.h"
#include "kernels/cuda/product_launch.h"
#include "kernels/cuda/rank_barrier_launch.h"
#include "kernels/cuda/reduce_gradients_launch.h"
#include "kernels/cuda/run_experts_launch.h"
#include "kernels/cuda/sm_budget.h"
#include "kernels/cuda/staged_launch.h"
#include "kernels/device/copy.h"
#include "kernels/device/cuda_status.h"
#include "kernels/device/device_info.h"
#include "kernels/device/device_memory.h"
#include "kernels/device/device_scope.h"
#include "kernels/device/handle_kinds.h"
#include "kernels/device/memory_use.h"
#include "kernels/device/private_device_memory.h"
#include "kernels/rank/argument_checks.h"
#include "kernels/staged/staged_data_path.h"

namespace perigee {
namespace {

// Kernels are built for compute capability 9.0 and up.
constexpr int kLeastComputeMajor = 9;

class CudaBackend final : public Backend {
 public:
  CudaBackend(CudaBackendOptions options, const CudaDevice& device, HandleKind kind,
              std::shared_ptr<SmBudget> sms, int32_t device_sms, int32_t local_sms)
      : options_(std::move(options)),
        description_(device.name),
        uuid_(device.uuid),
        kind_(kind),
        sms_(std::move(sms)),
        device_sms_(device_sms),
        local_sms_(local_sms) {}

  BackendInfo info() const override {
    BackendInfo info;
    info.name = "cuda";
    info.device = description_;
    info.device_uuid = uuid_;
    const absl::StatusOr<DeviceMemoryUse> use = ReadDeviceMemoryUse(options_.device);
    if (use.ok()) {
      info.memory_bytes = use->total_bytes;
      info.free_bytes = use->free_bytes;
    }
    return info;
  }
  // A peer decides itself how it maps the memory: Import below holds it to the access agreed on.
  absl::StatusOr<std::unique_ptr<Memory>> AllocateShared(size_t size_bytes, PeerAccess) override {
    return DeviceMemory::AllocateShared(options_.device, size_bytes, kind_);
  }
  absl::StatusOr<std::unique_ptr<Memory>> AllocatePrivate(size_t size_bytes) override {
    return PrivateDeviceMemory::Allocate(options_.device, size_bytes);
  }
  absl::StatusOr<std::unique_ptr<Memory>> Import(int descriptor, size_t size_bytes,
                                                 PeerAccess access) override {
    return DeviceMemory::Import(options_.device, descriptor, size_bytes,
                                access == PeerAccess::kReadOnly, kind_);
  }
  absl::Status CheckAttachable() const override {
    if (kind_ == HandleKind::kPosixFd) return absl::OkStatus();
    return absl::UnimplementedError(
        absl::StrCat("local clients cannot attach where memory goes by ", HandleKindName(kind_),
                     ": start the worker with --memory_handle=fd"));
  }
  absl::Status CopyIn(std::byte* to, absl::Span<const std::byte> from) override {
    return CopyToDevice(options_.device, to, from);
  }
  absl::Status CopyOut(absl::Span<std::byte> to, const std::byte* from) override {
    return CopyFromDevice(options_.device, to, from);
  }
  absl::StatusOr<std::unique_ptr<DataPath>> CreateDataPath(
      const DataPathOptions& options) override {
    absl::Status status = CheckDataPathOptions(options, kHostGranularityBytes);
    if (!status.ok()) return status;
    const int32_t sms = options.sms > 0 ? options.sms : options_.sms_per_buffer;
    // Blocks that wait for each other must all run at once.
    if (sms > device_sms_) {
      return absl::InvalidArgumentError(
          absl::StrCat("SMs of a buffer is ", sms, ", the device has ", device_sms_));
    }
    auto share = SmBudget::Reserve(sms_, sms);
    if (!share.ok()) return share.status();
    DataPathOptions resolved = options;
    if (resolved.local_sms == 0) resolved.local_sms = local_sms_;
    if (options.transport == Transport::kNccl) return CreateStaged(resolved, *std::move(share));
    return CreateCudaDataPath(options_.device, resolved, *std::move(share));
  }
  absl::StatusOr<std::string> NewRendezvous() override {
    return options_.exchange != nullptr ? options_.exchange->new_rendezvous() : NewNcclRendezvous();
  }

 private:
  absl::StatusOr<std::unique_ptr<DataPath>> CreateStaged(const DataPathOptions& options,
                                                         std::unique_ptr<SmBudget::Share> sms) {
    auto device = CudaStagedDevice::Create(options_.device, options, std::move(sms));
    if (!device.ok()) return device.status();
    CudaStagedDevice* const made = device->get();
    if (options_.exchange != nullptr) {
      return CreateStagedDataPath(
          *std::move(device), options_.exchange->create(options, [made] { return made->Wait(); }));
    }
    auto exchange = CreateNcclExchange(
        {options.rendezvous, options.rank.value, options.geometry.ranks}, made->stream());
    if (!exchange.ok()) return exchange.status();
    return CreateStagedDataPath(*std::move(device), *std::move(exchange));
  }

  const CudaBackendOptions options_;
  const std::string description_;
  const std::string uuid_;
  const HandleKind kind_;
  const std::shared_ptr<SmBudget> sms_;
  const int32_t device_sms_;
  const int32_t local_sms_;  // where a data path's options leave it open
};

absl::StatusOr<CudaDevice> FindDevice(int index) {
  const CudaDevices devices = QueryCudaDevices();
  if (devices.devices.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("backend cuda: ", DescribeCudaDevices(devices)));
  }
  if (index < 0 || static_cast<size_t>(index) >= devices.devices.size()) {
    return absl::InvalidArgumentError(absl::StrCat("CUDA device is ", index, ", expected 0 to ",
                                                   devices.devices.size() - 1, ": ",
                                                   DescribeCudaDevices(devices)));
  }
  const CudaDevice& device = devices.devices[index];
  if (device.compute_major < kLeastComputeMajor) {
    return absl::FailedPreconditionError(absl::StrCat(
        "backend cuda: ", device.name, " has compute capability ", device.compute_major, ".",
        device.compute_minor, ", expected ", kLeastComputeMajor, ".0 or more"));
  }
  return device;
}

absl::Status LoadAllKernels(int device) {
  const auto scope = DeviceScope::Enter(device);
  if (!scope.ok()) return scope.status();
  for (int error : {LoadRankBarrierKernels(), LoadDispatchKernels(), LoadCombineKernels(),
                    LoadPrefetchKernels(), LoadRunExpertsKernels(), LoadReduceGradientsKernels(),
                    LoadProbeCopyKernels(), LoadProductKernels(), LoadStagedKernels()}) {
    if (error != 0) return CudaStatus(error, "loading kernels");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> CreateCudaBackend(const CudaBackendOptions& options) {
  const absl::StatusOr<CudaDevice> device = FindDevice(options.device);
  if (!device.ok()) return device.status();
  const int32_t sms = options.sm_budget == 0 ? device->multiprocessors : options.sm_budget;
  if (options.sms_per_buffer < 1 || sms < 1) {
    return absl::InvalidArgumentError(absl::StrCat("SMs of a buffer is ", options.sms_per_buffer,
                                                   ", of the backend ", sms,
                                                   ", expected 1 or more"));
  }
  const absl::StatusOr<HandleKind> kind =
      ResolveHandleKind(options.memory_handle, ProbeHandleKinds(options.device));
  if (!kind.ok()) return kind.status();
  if (absl::Status status = LoadAllKernels(options.device); !status.ok()) return status;
  return std::make_unique<CudaBackend>(options, *device, *kind, std::make_shared<SmBudget>(sms),
                                       device->multiprocessors,
                                       std::min<int32_t>(sms, device->multiprocessors));
}

}  // namespace perigee
