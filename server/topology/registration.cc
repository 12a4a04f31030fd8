#include "server/topology/registration.h"

#include <algorithm>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "kernels/layout/abi.h"
#include "proto/support/resource_name.h"

namespace perigee {
namespace {

constexpr size_t kIncarnationDigits = 16;
constexpr size_t kMaxText = 1024;
constexpr int kMaxPeers = 256;  // GPUs that a worker may tell of

absl::Status Wrong(const v1::Worker& worker, absl::string_view field, absl::string_view value,
                   absl::string_view expected) {
  return absl::InvalidArgumentError(
      absl::StrCat(worker.name(), ": ", field, " is '", value, "', expected ", expected));
}

bool IsIncarnation(const std::string& text) {
  return text.size() == kIncarnationDigits && std::all_of(text.begin(), text.end(), [](char c) {
           return absl::ascii_isdigit(static_cast<unsigned char>(c)) || (c >= 'a' && c <= 'f');
         });
}

absl::Status CheckTexts(const v1::Worker& worker) {
  for (const std::string* text :
       {&worker.host(), &worker.device(), &worker.address(), &worker.socket_path(),
        &worker.version(), &worker.gpu().uuid(), &worker.gpu().name(), &worker.gpu().pci(),
        &worker.gpu().driver()}) {
    if (text->size() > kMaxText) {
      return absl::InvalidArgumentError(absl::StrCat(worker.name(), ": a text of ", text->size(),
                                                     " bytes, expected at most ", kMaxText));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckGpu(const v1::Worker& worker) {
  const v1::Gpu& gpu = worker.gpu();
  if (gpu.peers_size() + gpu.unreachable_size() > kMaxPeers) {
    return absl::InvalidArgumentError(absl::StrCat(worker.name(), ": ",
                                                   gpu.peers_size() + gpu.unreachable_size(),
                                                   " other GPUs, expected at most ", kMaxPeers));
  }
  for (const auto& uuids : {gpu.peers(), gpu.unreachable()}) {
    for (const std::string& uuid : uuids) {
      if (uuid.size() > kMaxText) return Wrong(worker, "gpu", uuid.substr(0, 80), "UUIDs");
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckRegistration(const v1::Worker& worker) {
  auto id = ParseWorkerName(worker.name());
  if (!id.ok()) return id.status();
  if (!IsIncarnation(worker.incarnation())) {
    return Wrong(worker, "incarnation", worker.incarnation(), "16 lower-case hex digits");
  }
  if (worker.data_path_abi() != kDataPathAbi) {
    return absl::FailedPreconditionError(absl::StrCat(worker.name(), " has data-path ABI ",
                                                      worker.data_path_abi(),
                                                      ", this coordinator has ", kDataPathAbi));
  }
  if (worker.backend() != "host" && worker.backend() != "cuda") {
    return Wrong(worker, "backend", worker.backend(), "host or cuda");
  }
  if (worker.address().empty()) return Wrong(worker, "address", "", "host:port");
  if (worker.socket_path().empty()) return Wrong(worker, "socket_path", "", "a path");
  if (absl::Status status = CheckTexts(worker); !status.ok()) return status;
  return CheckGpu(worker);
}

}  // namespace perigee
