#include "server/coordinator.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/support/grpc_server.h"
#include "proto/support/random.h"
#include "server/control_plane.h"
#include "server/rpc/attachment_service.h"
#include "server/rpc/buffer_service.h"
#include "server/rpc/group_service.h"
#include "server/rpc/publication_service.h"
#include "server/rpc/topology_service.h"
#include "server/store/master_key.h"
#include "server/store/sqlite_store.h"

namespace perigee {
namespace {

constexpr absl::Duration kShutdownGrace = absl::Seconds(1);

ControlPlaneOptions ControlOptions(const CoordinatorOptions& options, std::string master_key) {
  ControlPlaneOptions control;
  control.master_key = std::move(master_key);
  control.lease.heartbeat_interval = options.heartbeat_interval;
  control.lease.lease_duration = options.lease_duration;
  control.lease.reconnect_grace = options.reconnect_grace;
  control.group.forming_timeout = options.forming_timeout;
  control.group.drain_timeout = options.drain_timeout;
  control.group.fence_report_timeout = options.fence_report_timeout;
  control.group.progress_interval = options.progress_interval;
  return control;
}

}  // namespace

// Members in order of construction: each uses those above it.
class Coordinator::Impl {
 public:
  Impl(const CoordinatorOptions& options, std::unique_ptr<SqliteStore> store,
       std::string master_key)
      : store_(std::move(store)),
        log_(*options.clock),
        control_(ControlOptions(options, std::move(master_key)), *store_, *options.clock,
                 RandomBytes),
        topology_(control_),
        groups_(control_, log_),
        buffers_(control_, log_),
        publication_(control_, log_),
        attachments_(control_, log_) {}

  absl::Status Serve(const std::string& address) {
    auto server = GrpcServer::Start(
        {address, {&topology_, &groups_, &buffers_, &publication_, &attachments_}});
    if (!server.ok()) return server.status();
    server_ = *std::move(server);
    for (const char* service :
         {"", v1::TopologyService::service_full_name(), v1::GroupService::service_full_name(),
          v1::BufferService::service_full_name(), v1::PublicationService::service_full_name(),
          v1::AttachmentService::service_full_name()}) {
      server_->SetServing(service, true);
    }
    return absl::OkStatus();
  }

  const std::string& address() const { return server_->address(); }
  void Poke() { control_.Poke(); }

  void Shutdown() {
    // Streams end by themselves once the control plane has told them.
    control_.Shutdown();
    if (server_) server_->Shutdown(kShutdownGrace);
  }

 private:
  const std::unique_ptr<SqliteStore> store_;
  RequestLog log_;
  ControlPlane control_;
  TopologyService topology_;
  GroupService groups_;
  BufferService buffers_;
  PublicationService publication_;
  AttachmentService attachments_;
  std::unique_ptr<GrpcServer> server_;
};

absl::StatusOr<std::unique_ptr<Coordinator>> Coordinator::Start(const CoordinatorOptions& options) {
  auto store = SqliteStore::Open(options.data_dir);
  if (!store.ok()) return store.status();
  auto master_key =
      LoadMasterKey(options.master_key_file.empty() ? absl::StrCat(options.data_dir, "/master.key")
                                                    : options.master_key_file,
                    RandomBytes(kMasterKeyBytes));
  if (!master_key.ok()) return master_key.status();
  auto impl = std::make_unique<Impl>(options, *std::move(store), *std::move(master_key));
  if (absl::Status status = impl->Serve(options.address); !status.ok()) return status;
  return std::unique_ptr<Coordinator>(new Coordinator(std::move(impl)));
}

Coordinator::Coordinator(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Coordinator::~Coordinator() { Shutdown(); }

const std::string& Coordinator::address() const { return impl_->address(); }

void Coordinator::Poke() { impl_->Poke(); }

void Coordinator::Shutdown() { impl_->Shutdown(); }

}  // namespace perigee
