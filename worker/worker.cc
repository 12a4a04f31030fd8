#include "worker/worker.h"

#include <unistd.h>

#include <atomic>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/common/check.h"
#include "kernels/layout/abi.h"
#include "proto/local/private_directory.h"
#include "proto/support/event_log.h"
#include "proto/support/grpc_server.h"
#include "proto/support/random.h"
#include "proto/support/resource_name.h"
#include "worker/attach/attach_server.h"
#include "worker/attach/client_users.h"
#include "worker/memory/descriptor_server.h"
#include "worker/ops/byte_budget.h"
#include "worker/rpc/command_handler.h"
#include "worker/rpc/coordinator_link.h"
#include "worker/rpc/worker_service.h"
#include "worker/session/current_session.h"

namespace perigee {
namespace {

constexpr char kVersion[] = "0.1.0";
// How long running calls of clients have at shutdown.
constexpr absl::Duration kShutdownGrace = absl::Milliseconds(500);

absl::Status CheckOptions(const WorkerOptions& options) {
  PERIGEE_CHECK(options.backend != nullptr && options.clock != nullptr);
  absl::Status status = CheckId("worker name", options.name);
  if (status.ok()) status = CheckId("host", options.host);
  if (!status.ok()) return status;
  if (options.coordinator.empty()) return absl::InvalidArgumentError("no coordinator is given");
  if (options.threads < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("threads is ", options.threads, ", expected 1 or more"));
  }
  if (!options.attach_uids.empty() && options.attach_dir.empty()) {
    return absl::InvalidArgumentError(
        "attach_uids are given, and no attach_dir that they can enter");
  }
  status = EnsurePrivateDirectory(options.socket_dir);
  if (!status.ok() || options.attach_dir.empty()) return status;
  return options.attach_uids.empty() ? EnsurePrivateDirectory(options.attach_dir)
                                     : EnsureOwnDirectory(options.attach_dir);
}

}  // namespace

class Worker::Impl {
 public:
  explicit Impl(WorkerOptions options)
      : options_(std::move(options)),
        incarnation_(RandomUint64()),
        incarnation_text_(Hex64(incarnation_)),
        tensor_budget_(options_.tensor_limit_bytes) {}
  ~Impl() { Shutdown(); }

  absl::Status Start();
  void Shutdown();
  absl::StatusOr<EmbeddedAttachment> AttachEmbedded(const AttachRequest& request);

  const std::string& address() const { return server_->address(); }
  const std::string& incarnation() const { return incarnation_text_; }
  const std::string& socket_path() const { return socket_path_; }

 private:
  v1::Worker Describe() const;
  CoordinatorLinkOptions LinkOptions();
  void SetServing(bool serving);
  void Leave(const absl::Status& status);

  WorkerOptions options_;
  const uint64_t incarnation_;
  const std::string incarnation_text_;
  std::string socket_path_;
  std::atomic<bool> shut_down_ = false;
  ByteBudget tensor_budget_;
  std::atomic<uint64_t> operations_done_ = 0;
  CurrentSession current_;
  std::unique_ptr<DescriptorServer> descriptors_;
  std::unique_ptr<SessionEnvironment> environment_;
  std::unique_ptr<AttachServer> clients_;
  // The handler reports through the link, the link brings commands to the handler: the link stops
  // first, and goes last.
  std::unique_ptr<CoordinatorLink> link_;
  std::unique_ptr<CommandHandler> handler_;
  std::unique_ptr<WorkerService> service_;
  std::unique_ptr<GrpcServer> server_;
};

absl::Status Worker::Impl::Start() {
  if (absl::Status status = CheckOptions(options_); !status.ok()) return status;
  socket_path_ =
      absl::StrCat(options_.socket_dir, "/", options_.name, "-", incarnation_text_, ".sock");
  absl::StatusOr<std::unique_ptr<DescriptorServer>> descriptors =
      DescriptorServer::Start(socket_path_, *options_.clock);
  if (!descriptors.ok()) return descriptors.status();
  descriptors_ = *std::move(descriptors);
  environment_.reset(new SessionEnvironment{WorkerName(options_.name), incarnation_,
                                            *options_.backend, *descriptors_, *options_.clock,
                                            tensor_budget_, operations_done_, options_.threads});
  const std::string& attach_dir =
      options_.attach_dir.empty() ? options_.socket_dir : options_.attach_dir;
  absl::StatusOr<std::unique_ptr<AttachServer>> clients = AttachServer::Start(
      absl::StrCat(attach_dir, "/", options_.name, "-", incarnation_text_, ".attach"),
      ClientUsers(geteuid(), options_.attach_uids), *environment_);
  if (!clients.ok()) return clients.status();
  clients_ = *std::move(clients);
  service_ = std::make_unique<WorkerService>(current_);
  absl::StatusOr<std::unique_ptr<GrpcServer>> server =
      GrpcServer::Start({options_.address, {service_.get()}});
  if (!server.ok()) return server.status();
  server_ = *std::move(server);
  SetServing(false);
  handler_ = std::make_unique<CommandHandler>(
      *environment_, current_, *clients_,
      [this](const v1::WorkerReport& report) { link_->Send(report); });
  link_ = std::make_unique<CoordinatorLink>(LinkOptions());
  return link_->Start(WaitLimit(options_.register_timeout, options_.stop));
}

v1::Worker Worker::Impl::Describe() const {
  const BackendInfo info = options_.backend->info();
  v1::Worker worker;
  worker.set_name(WorkerName(options_.name));
  worker.set_incarnation(incarnation_text_);
  worker.set_host(absl::StrCat("hosts/", options_.host));
  worker.set_backend(info.name);
  worker.set_device(options_.device_place.empty()
                        ? info.device
                        : absl::StrCat(info.device, " (", options_.device_place, ")"));
  if (!options_.gpu.uuid().empty()) *worker.mutable_gpu() = options_.gpu;
  worker.set_memory_bytes(info.memory_bytes);
  worker.set_address(server_->address());
  worker.set_socket_path(descriptors_->path());
  worker.set_data_path_abi(kDataPathAbi);
  worker.set_version(kVersion);
  worker.set_pid(getpid());
  return worker;
}

CoordinatorLinkOptions Worker::Impl::LinkOptions() {
  CoordinatorLinkOptions options;
  options.coordinator = options_.coordinator;
  options.worker = Describe();
  options.clock = options_.clock;
  options.on_command = [this](const v1::WorkerCommand& command) { handler_->Receive(command); };
  options.on_term = [this](uint64_t term) { handler_->ObserveTerm(term); };
  options.term = [this] { return handler_->term(); };
  options.operations_done = [this] { return operations_done_.load(); };
  options.transport = [this]() -> absl::optional<v1::TransportCounts> {
    // Closed before it is let go of: whoever does so last has nothing to wait for.
    const std::shared_ptr<Session> session = current_.Get();
    if (session == nullptr) return absl::nullopt;
    return session->transport_counts();
  };
  options.on_serving = [this](bool serving) { SetServing(serving); };
  options.on_leave = [this](const absl::Status& status) { Leave(status); };
  return options;
}

void Worker::Impl::SetServing(bool serving) {
  server_->SetServing("", serving);
  server_->SetServing(v1::WorkerService::service_full_name(), serving);
}

void Worker::Impl::Leave(const absl::Status& status) {
  LogEvent(LogLevel::kError, "leaving", {{"worker", options_.name}, {"status", status}});
  handler_->Leave(std::string(status.message()));
  if (options_.on_leave) options_.on_leave(status);
}

absl::StatusOr<EmbeddedAttachment> Worker::Impl::AttachEmbedded(const AttachRequest& request) {
  return clients_->AttachEmbedded(request);
}

// The coordinator hears of it first, and tells the peers while this worker is still cleaning up.
void Worker::Impl::Shutdown() {
  if (shut_down_.exchange(true)) return;
  if (link_) link_->Stop();
  if (handler_) handler_->Leave("the worker shuts down");
  if (server_) {
    SetServing(false);
    server_->Shutdown(kShutdownGrace);
  }
  // Its last reports go through the handler.
  clients_.reset();
  handler_.reset();
  descriptors_.reset();
}

absl::StatusOr<std::unique_ptr<Worker>> Worker::Start(WorkerOptions options) {
  auto impl = std::make_unique<Impl>(std::move(options));
  if (absl::Status status = impl->Start(); !status.ok()) return status;
  return std::unique_ptr<Worker>(new Worker(std::move(impl)));
}

Worker::Worker(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Worker::~Worker() = default;

const std::string& Worker::address() const { return impl_->address(); }
const std::string& Worker::incarnation() const { return impl_->incarnation(); }
const std::string& Worker::socket_path() const { return impl_->socket_path(); }
void Worker::Shutdown() { impl_->Shutdown(); }
absl::StatusOr<EmbeddedAttachment> Worker::AttachEmbedded(const AttachRequest& request) {
  return impl_->AttachEmbedded(request);
}

}  // namespace perigee
