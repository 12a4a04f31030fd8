// What a Client asks of a coordinator, one function for each call of proto/v1, behind an interface
// that tests can replace. The meaning and the errors of a call are those of its .proto.
#ifndef PERIGEE_CLIENT_LIB_CONNECTION_H_
#define PERIGEE_CLIENT_LIB_CONNECTION_H_

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/v1/attachments.pb.h"
#include "proto/v1/buffers.pb.h"
#include "proto/v1/groups.pb.h"
#include "proto/v1/publication.pb.h"
#include "proto/v1/topology.pb.h"

namespace perigee {

// Thread-safe. Calls block, each for a bounded time. A failure of ranks carries a GroupError
// (client/lib/group_error.h).
class Connection {
 public:
  virtual ~Connection() = default;

  virtual absl::StatusOr<v1::Worker> GetWorker(const v1::GetWorkerRequest& request) = 0;
  virtual absl::StatusOr<v1::ListWorkersResponse> ListWorkers(
      const v1::ListWorkersRequest& request) = 0;

  virtual absl::StatusOr<v1::Group> CreateGroup(const v1::CreateGroupRequest& request) = 0;
  virtual absl::StatusOr<v1::Group> GetGroup(const v1::GetGroupRequest& request) = 0;
  virtual absl::StatusOr<v1::ListGroupsResponse> ListGroups(
      const v1::ListGroupsRequest& request) = 0;
  virtual absl::StatusOr<v1::Group> DrainGroup(const v1::DrainGroupRequest& request) = 0;
  virtual absl::Status DeleteGroup(const v1::DeleteGroupRequest& request) = 0;
  // Calls on_group for every message until it returns false (then OK), the stream ends (then its
  // status) or `timeout` has passed (DEADLINE_EXCEEDED).
  virtual absl::Status WatchGroup(const v1::WatchGroupRequest& request, absl::Duration timeout,
                                  absl::FunctionRef<bool(const v1::Group&)> on_group) = 0;
  // Calls on_message for every message. UNAVAILABLE also where the stream stays silent for longer
  // than `idle_timeout`.
  virtual absl::Status ExecuteProgram(
      const v1::ExecuteProgramRequest& request, absl::Duration idle_timeout,
      absl::FunctionRef<void(const v1::ExecuteProgramResponse&)> on_message) = 0;

  virtual absl::StatusOr<v1::Buffer> CreateBuffer(const v1::CreateBufferRequest& request) = 0;
  virtual absl::StatusOr<v1::Buffer> GetBuffer(const v1::GetBufferRequest& request) = 0;
  virtual absl::StatusOr<v1::ListBuffersResponse> ListBuffers(
      const v1::ListBuffersRequest& request) = 0;
  virtual absl::Status DeleteBuffer(const v1::DeleteBufferRequest& request) = 0;

  virtual absl::StatusOr<v1::AttachTicket> IssueAttachTicket(
      const v1::IssueAttachTicketRequest& request) = 0;

  virtual absl::StatusOr<v1::GenerationInfo> GetGeneration(
      const v1::GetGenerationRequest& request) = 0;
  virtual absl::StatusOr<v1::ListGenerationsResponse> ListGenerations(
      const v1::ListGenerationsRequest& request) = 0;
  virtual absl::StatusOr<v1::IssueTokensResponse> IssueTokens(
      const v1::IssueTokensRequest& request) = 0;
  virtual absl::StatusOr<v1::TokenLedger> GetTokenLedger(
      const v1::GetTokenLedgerRequest& request) = 0;
};

}  // namespace perigee

#endif  // PERIGEE_CLIENT_LIB_CONNECTION_H_
