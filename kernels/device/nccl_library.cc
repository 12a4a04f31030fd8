#include "kernels/device/nccl_library.h"

#include <array>
#include <cstdlib>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/device/copy.h"
#include "kernels/device/device_scope.h"
#include "kernels/device/nccl_communicator.h"
#include "kernels/device/nccl_functions.h"
#include "kernels/device/private_device_memory.h"
#include "kernels/device/shared_library.h"
#include "kernels/device/stream.h"

namespace perigee {
namespace {

constexpr size_t kCount = 16;
using Values = std::array<float, kCount>;

absl::Status Resolve(const SharedLibrary& library, NcclFunctions& functions) {
  absl::Status status = library.Find("ncclGetVersion", &functions.get_version);
  if (status.ok()) status = library.Find("ncclGetErrorString", &functions.get_error_string);
  if (status.ok()) status = library.Find("ncclGetUniqueId", &functions.get_unique_id);
  if (status.ok()) status = library.Find("ncclCommInitRank", &functions.comm_init_rank);
  if (status.ok()) {
    status = library.Find("ncclCommInitRankConfig", &functions.comm_init_rank_config);
  }
  if (status.ok()) {
    status = library.Find("ncclCommGetAsyncError", &functions.comm_get_async_error);
  }
  if (status.ok()) status = library.Find("ncclCommAbort", &functions.comm_abort);
  if (status.ok()) status = library.Find("ncclCommDestroy", &functions.comm_destroy);
  if (status.ok()) status = library.Find("ncclAllReduce", &functions.all_reduce);
  if (status.ok()) status = library.Find("ncclSend", &functions.send);
  if (status.ok()) status = library.Find("ncclRecv", &functions.receive);
  if (status.ok()) status = library.Find("ncclGroupStart", &functions.group_start);
  if (status.ok()) status = library.Find("ncclGroupEnd", &functions.group_end);
  return status;
}

absl::Status CheckSum(const Values& sent, const Values& received) {
  if (sent == received) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("ncclAllReduce over one rank made [",
                                          absl::StrJoin(received, ", "), "] of [",
                                          absl::StrJoin(sent, ", "), "]"));
}

}  // namespace

// A program that uses it can put every GPU of the host out of service, also for others.
void TurnNvlinkMulticastOff() {
  static std::once_flag once;
  std::call_once(once, [] { setenv("NCCL_NVLS_ENABLE", "0", /*overwrite=*/0); });
}

absl::StatusOr<std::unique_ptr<NcclLibrary>> NcclLibrary::Open(const std::string& name) {
  TurnNvlinkMulticastOff();
  const absl::StatusOr<SharedLibrary> library = SharedLibrary::Open(name);
  if (!library.ok()) return library.status();
  auto functions = std::make_unique<NcclFunctions>();
  if (absl::Status status = Resolve(*library, *functions); !status.ok()) return status;
  int version = 0;
  absl::Status status = NcclStatus(*functions, functions->get_version(&version), "ncclGetVersion");
  if (!status.ok()) return status;
  return std::unique_ptr<NcclLibrary>(
      new NcclLibrary(std::move(functions), library->path(), version));
}

NcclLibrary::NcclLibrary(std::unique_ptr<NcclFunctions> functions, std::string path, int version)
    : functions_(std::move(functions)), path_(std::move(path)), version_(version) {}

NcclLibrary::~NcclLibrary() = default;

std::string NcclLibrary::version_text() const {
  return absl::StrCat(version_ / 10000, ".", version_ / 100 % 100, ".", version_ % 100);
}

absl::Status NcclLibrary::SmokeCheck(int device) const {
  const absl::StatusOr<DeviceScope> scope = DeviceScope::Enter(device);
  if (!scope.ok()) return scope.status();
  const auto stream = Stream::Create(device);
  if (!stream.ok()) return stream.status();
  const auto send = PrivateDeviceMemory::Allocate(device, sizeof(Values));
  if (!send.ok()) return send.status();
  const auto receive = PrivateDeviceMemory::Allocate(device, sizeof(Values));
  if (!receive.ok()) return receive.status();
  Values sent;
  for (size_t i = 0; i < kCount; ++i) sent[i] = static_cast<float>(i) + 0.5f;
  Values received = {};
  absl::Status status = CopyToDevice(
      device, (*send)->data(),
      absl::MakeConstSpan(reinterpret_cast<const std::byte*>(sent.data()), sizeof(sent)));
  if (!status.ok()) return status;
  const auto id = NcclCommunicator::NewId(*functions_);
  if (!id.ok()) return id.status();
  const auto communicator = NcclCommunicator::Create(*functions_, *id, /*ranks=*/1, /*rank=*/0);
  if (!communicator.ok()) return communicator.status();
  status =
      (*communicator)->SumFloats((*send)->data(), (*receive)->data(), kCount, (*stream)->get());
  if (status.ok()) status = (*stream)->Synchronize();
  if (!status.ok()) return status;
  status = CopyFromDevice(
      device, absl::MakeSpan(reinterpret_cast<std::byte*>(received.data()), sizeof(received)),
      (*receive)->data());
  return status.ok() ? CheckSum(sent, received) : status;
}

}  // namespace perigee
