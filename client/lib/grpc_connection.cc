#include "client/lib/grpc_connection.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/lib/grpc_call.h"
#include "client/lib/idle_watch.h"
#include "client/lib/retry.h"
#include "proto/v1/attachments.grpc.pb.h"
#include "proto/v1/buffers.grpc.pb.h"
#include "proto/v1/groups.grpc.pb.h"
#include "proto/v1/health.grpc.pb.h"
#include "proto/v1/publication.grpc.pb.h"
#include "proto/v1/topology.grpc.pb.h"

namespace perigee {
namespace {

constexpr absl::Duration kReadTimeout = absl::Seconds(10);
// What the server itself allows, and a little for the way.
const absl::Duration kFormTimeout = kFormingTimeout + absl::Seconds(5);
const absl::Duration kCloseTimeout = kDrainTimeout + kFormingTimeout;

class GrpcConnection final : public Connection {
 public:
  GrpcConnection(const std::shared_ptr<grpc::Channel>& channel, std::stop_token stop)
      : topology_(v1::TopologyService::NewStub(channel)),
        groups_(v1::GroupService::NewStub(channel)),
        buffers_(v1::BufferService::NewStub(channel)),
        publication_(v1::PublicationService::NewStub(channel)),
        attachments_(v1::AttachmentService::NewStub(channel)),
        stop_(std::move(stop)) {}

  absl::StatusOr<v1::Worker> GetWorker(const v1::GetWorkerRequest& request) override {
    return Call(*topology_, &Topology::GetWorker, request, kReadTimeout, stop_);
  }
  absl::StatusOr<v1::ListWorkersResponse> ListWorkers(
      const v1::ListWorkersRequest& request) override {
    return Call(*topology_, &Topology::ListWorkers, request, kReadTimeout, stop_);
  }
  absl::StatusOr<v1::Group> CreateGroup(const v1::CreateGroupRequest& request) override {
    return Call(*groups_, &Groups::CreateGroup, request, kFormTimeout, stop_);
  }
  absl::StatusOr<v1::Group> GetGroup(const v1::GetGroupRequest& request) override {
    return Call(*groups_, &Groups::GetGroup, request, kReadTimeout, stop_);
  }
  absl::StatusOr<v1::ListGroupsResponse> ListGroups(const v1::ListGroupsRequest& request) override {
    return Call(*groups_, &Groups::ListGroups, request, kReadTimeout, stop_);
  }
  absl::StatusOr<v1::Group> DrainGroup(const v1::DrainGroupRequest& request) override {
    return Call(*groups_, &Groups::DrainGroup, request, kCloseTimeout, {});
  }
  absl::Status DeleteGroup(const v1::DeleteGroupRequest& request) override {
    return Call(*groups_, &Groups::DeleteGroup, request, kCloseTimeout, {}).status();
  }
  absl::StatusOr<v1::Buffer> CreateBuffer(const v1::CreateBufferRequest& request) override {
    return Call(*buffers_, &Buffers::CreateBuffer, request, kFormTimeout, stop_);
  }
  absl::StatusOr<v1::Buffer> GetBuffer(const v1::GetBufferRequest& request) override {
    return Call(*buffers_, &Buffers::GetBuffer, request, kReadTimeout, stop_);
  }
  absl::StatusOr<v1::ListBuffersResponse> ListBuffers(
      const v1::ListBuffersRequest& request) override {
    return Call(*buffers_, &Buffers::ListBuffers, request, kReadTimeout, stop_);
  }
  absl::Status DeleteBuffer(const v1::DeleteBufferRequest& request) override {
    return Call(*buffers_, &Buffers::DeleteBuffer, request, kCloseTimeout, {}).status();
  }
  absl::StatusOr<v1::AttachTicket> IssueAttachTicket(
      const v1::IssueAttachTicketRequest& request) override {
    return Call(*attachments_, &Attachments::IssueAttachTicket, request, kFormTimeout, stop_);
  }
  absl::StatusOr<v1::GenerationInfo> GetGeneration(
      const v1::GetGenerationRequest& request) override {
    return Call(*publication_, &Publication::GetGeneration, request, kReadTimeout, stop_);
  }
  absl::StatusOr<v1::ListGenerationsResponse> ListGenerations(
      const v1::ListGenerationsRequest& request) override {
    return Call(*publication_, &Publication::ListGenerations, request, kReadTimeout, stop_);
  }
  absl::StatusOr<v1::IssueTokensResponse> IssueTokens(
      const v1::IssueTokensRequest& request) override {
    return Call(*publication_, &Publication::IssueTokens, request, kFormTimeout, stop_);
  }
  absl::StatusOr<v1::TokenLedger> GetTokenLedger(
      const v1::GetTokenLedgerRequest& request) override {
    return Call(*publication_, &Publication::GetTokenLedger, request, kFormTimeout, stop_);
  }

  absl::Status WatchGroup(const v1::WatchGroupRequest& request, absl::Duration timeout,
                          absl::FunctionRef<bool(const v1::Group&)> on_group) override;
  absl::Status ExecuteProgram(
      const v1::ExecuteProgramRequest& request, absl::Duration idle_timeout,
      absl::FunctionRef<void(const v1::ExecuteProgramResponse&)> on_message) override;

 private:
  using Topology = v1::TopologyService::StubInterface;
  using Groups = v1::GroupService::StubInterface;
  using Buffers = v1::BufferService::StubInterface;
  using Publication = v1::PublicationService::StubInterface;
  using Attachments = v1::AttachmentService::StubInterface;

  // Every call made here reads, is idempotent or carries a request_id: it may be sent again.
  template <typename Stub, typename Request, typename Response>
  static absl::StatusOr<Response> Call(
      Stub& stub, grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
      const Request& request, absl::Duration timeout, const std::stop_token& stop) {
    Response response;
    const absl::Status status = CallWithRetry(Repeat::kSafe, stop, [&] {
      GrpcCall call(stop, timeout);
      return call.Outcome((stub.*method)(call.context(), request, &response));
    });
    if (!status.ok()) return status;
    return response;
  }

  const std::unique_ptr<Topology> topology_;
  const std::unique_ptr<Groups> groups_;
  const std::unique_ptr<Buffers> buffers_;
  const std::unique_ptr<Publication> publication_;
  const std::unique_ptr<Attachments> attachments_;
  const std::stop_token stop_;
};

absl::Status GrpcConnection::WatchGroup(const v1::WatchGroupRequest& request,
                                        absl::Duration timeout,
                                        absl::FunctionRef<bool(const v1::Group&)> on_group) {
  GrpcCall call(stop_, timeout);
  const auto stream = groups_->WatchGroup(call.context(), request);
  v1::Group group;
  while (stream->Read(&group)) {
    if (on_group(group)) continue;
    call.context()->TryCancel();
    while (stream->Read(&group)) {
    }
    stream->Finish();  // CANCELLED, by our own wish
    return absl::OkStatus();
  }
  return call.Outcome(stream->Finish());
}

absl::Status GrpcConnection::ExecuteProgram(
    const v1::ExecuteProgramRequest& request, absl::Duration idle_timeout,
    absl::FunctionRef<void(const v1::ExecuteProgramResponse&)> on_message) {
  GrpcCall call(stop_, absl::InfiniteDuration());
  IdleWatch watch(idle_timeout, [&call] { call.context()->TryCancel(); });
  const auto stream = groups_->ExecuteProgram(call.context(), request);
  v1::ExecuteProgramResponse message;
  while (stream->Read(&message)) {
    watch.Alive();
    on_message(message);
  }
  absl::Status status = call.Outcome(stream->Finish());
  if (watch.expired()) {
    return absl::UnavailableError(absl::StrCat("the coordinator has been silent for ",
                                               absl::FormatDuration(idle_timeout),
                                               " while a program ran"));
  }
  // Where ranks are why, the coordinator says which; without its word the connection is gone.
  if (absl::IsUnavailable(status) && !GroupErrorOf(status)) {
    return absl::UnavailableError(absl::StrCat("the coordinator was lost while a program ran: ",
                                               std::string(status.message())));
  }
  return status;
}

// Asks for the health of the service that every command needs: a port that answers is not enough.
absl::Status CheckServing(const std::shared_ptr<grpc::Channel>& channel,
                          const ConnectOptions& options) {
  ConnectWithin(*channel, std::min(kConnectRetryTime, options.connect_timeout));
  const auto stub = grpc::health::v1::Health::NewStub(channel);
  grpc::health::v1::HealthCheckRequest request;
  request.set_service(v1::GroupService::service_full_name());
  grpc::health::v1::HealthCheckResponse response;
  GrpcCall call(options.stop, options.connect_timeout);
  absl::Status status = call.Outcome(stub->Check(call.context(), request, &response));
  switch (status.code()) {
    case absl::StatusCode::kOk:
      if (response.status() == grpc::health::v1::HealthCheckResponse::SERVING) return status;
      return absl::UnavailableError(
          absl::StrCat("the coordinator at ", options.address, " does not take calls at present"));
    case absl::StatusCode::kCancelled:
      return absl::CancelledError("cancelled");
    case absl::StatusCode::kDeadlineExceeded:
      return absl::DeadlineExceededError(
          absl::StrCat("no coordinator answered at ", options.address, " within ",
                       absl::FormatDuration(options.connect_timeout)));
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kUnimplemented:
      return absl::UnavailableError(
          absl::StrCat("what answers at ", options.address, " is not a coordinator"));
    default:
      return absl::Status(status.code(), absl::StrCat("cannot reach a coordinator at ",
                                                      options.address, ": ", status.message()));
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<Connection>> ConnectGrpc(const ConnectOptions& options) {
  const std::shared_ptr<grpc::Channel> channel = NewChannel(options.address);
  const absl::Status serving = CheckServing(channel, options);
  if (!serving.ok()) return serving;
  return std::unique_ptr<Connection>(std::make_unique<GrpcConnection>(channel, options.stop));
}

}  // namespace perigee
