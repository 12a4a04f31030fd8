#include "worker/embedded/embedded_worker.h"

#include <stdlib.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/lib/attach_request.h"
#include "worker/attach/attach_server.h"
#include "worker/embedded/embedded_client.h"
#include "worker/host_id.h"

namespace perigee {
namespace {

// Short: a socket's path ends at 107 characters.
absl::StatusOr<std::string> MakeDirectory() {
  std::string path = "/tmp/perigee-XXXXXX";
  if (mkdtemp(path.data()) == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("cannot make a directory ", path, ": ", std::strerror(errno)));
  }
  return path;
}

void Remove(const std::string& directory) {
  std::error_code ignored;
  if (!directory.empty()) std::filesystem::remove_all(directory, ignored);
}

}  // namespace

absl::StatusOr<std::unique_ptr<EmbeddedWorker>> EmbeddedWorker::Start(WorkerOptions options) {
  std::string own_directory;
  if (options.socket_dir.empty()) {
    absl::StatusOr<std::string> made = MakeDirectory();
    if (!made.ok()) return made.status();
    own_directory = *std::move(made);
    options.socket_dir = own_directory;
  }
  if (options.host.empty()) options.host = HostId();
  absl::StatusOr<std::unique_ptr<Worker>> worker = Worker::Start(std::move(options));
  if (!worker.ok()) {
    Remove(own_directory);
    return worker.status();
  }
  return std::unique_ptr<EmbeddedWorker>(
      new EmbeddedWorker(*std::move(worker), std::move(own_directory)));
}

EmbeddedWorker::EmbeddedWorker(std::unique_ptr<Worker> worker, std::string own_directory)
    : worker_(std::move(worker)),
      link_(std::make_shared<EmbeddedLink>()),
      own_directory_(std::move(own_directory)) {}

EmbeddedWorker::~EmbeddedWorker() { Shutdown(); }

absl::StatusOr<std::unique_ptr<RankClient>> EmbeddedWorker::Attach(const v1::AttachTicket& ticket) {
  const absl::StatusOr<AttachRequest> request = RequestFor(ticket);
  if (!request.ok()) return request.status();
  absl::StatusOr<EmbeddedAttachment> attachment =
      link_->Attach([&] { return worker_->AttachEmbedded(*request); });
  if (!attachment.ok()) return attachment.status();
  return EmbeddedClient::Create(*std::move(attachment), link_);
}

void EmbeddedWorker::Shutdown() {
  link_->End();
  worker_->Shutdown();
  Remove(own_directory_);
}

}  // namespace perigee
