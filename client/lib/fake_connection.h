// A Connection that answers from what the test puts into it and keeps what it was asked.
#ifndef PERIGEE_CLIENT_LIB_FAKE_CONNECTION_H_
#define PERIGEE_CLIENT_LIB_FAKE_CONNECTION_H_

#include <vector>

#include "client/lib/connection.h"

namespace perigee {

// Not thread-safe. Calls without a place for an answer are UNIMPLEMENTED.
class FakeConnection final : public Connection {
 public:
  // What ListWorkers sends, one page each.
  std::vector<v1::ListWorkersResponse> worker_pages;
  // What WatchGroup and ExecuteProgram send before they end with these statuses.
  std::vector<v1::Group> watched;
  absl::Status watch_status;
  std::vector<v1::ExecuteProgramResponse> messages;
  absl::Status execute_status;

  // What was asked.
  std::vector<v1::ListWorkersRequest> list_workers_requests;
  std::vector<v1::CreateGroupRequest> create_group_requests;
  std::vector<v1::CreateBufferRequest> create_buffer_requests;
  std::vector<v1::ListBuffersRequest> list_buffers_requests;
  std::vector<v1::ExecuteProgramRequest> execute_requests;
  std::vector<v1::IssueAttachTicketRequest> ticket_requests;

  absl::StatusOr<v1::Worker> GetWorker(const v1::GetWorkerRequest&) override { return Absent(); }
  absl::StatusOr<v1::ListWorkersResponse> ListWorkers(
      const v1::ListWorkersRequest& request) override {
    list_workers_requests.push_back(request);
    return worker_pages.at(list_workers_requests.size() - 1);
  }
  absl::StatusOr<v1::Group> CreateGroup(const v1::CreateGroupRequest& request) override {
    create_group_requests.push_back(request);
    return request.group();
  }
  absl::StatusOr<v1::Group> GetGroup(const v1::GetGroupRequest&) override { return Absent(); }
  absl::StatusOr<v1::ListGroupsResponse> ListGroups(const v1::ListGroupsRequest&) override {
    return Absent();
  }
  absl::StatusOr<v1::Group> DrainGroup(const v1::DrainGroupRequest&) override { return Absent(); }
  absl::Status DeleteGroup(const v1::DeleteGroupRequest&) override { return Absent(); }
  absl::Status WatchGroup(const v1::WatchGroupRequest&, absl::Duration,
                          absl::FunctionRef<bool(const v1::Group&)> on_group) override {
    for (const v1::Group& group : watched) {
      if (!on_group(group)) return absl::OkStatus();
    }
    return watch_status;
  }
  absl::Status ExecuteProgram(
      const v1::ExecuteProgramRequest& request, absl::Duration,
      absl::FunctionRef<void(const v1::ExecuteProgramResponse&)> on_message) override {
    execute_requests.push_back(request);
    for (const v1::ExecuteProgramResponse& message : messages) on_message(message);
    return execute_status;
  }
  absl::StatusOr<v1::Buffer> CreateBuffer(const v1::CreateBufferRequest& request) override {
    create_buffer_requests.push_back(request);
    return request.buffer();
  }
  absl::StatusOr<v1::Buffer> GetBuffer(const v1::GetBufferRequest&) override { return Absent(); }
  absl::StatusOr<v1::ListBuffersResponse> ListBuffers(
      const v1::ListBuffersRequest& request) override {
    list_buffers_requests.push_back(request);
    return v1::ListBuffersResponse();
  }
  absl::Status DeleteBuffer(const v1::DeleteBufferRequest&) override { return Absent(); }
  absl::StatusOr<v1::AttachTicket> IssueAttachTicket(
      const v1::IssueAttachTicketRequest& request) override {
    ticket_requests.push_back(request);
    return v1::AttachTicket();
  }
  absl::StatusOr<v1::GenerationInfo> GetGeneration(const v1::GetGenerationRequest&) override {
    return Absent();
  }
  absl::StatusOr<v1::ListGenerationsResponse> ListGenerations(
      const v1::ListGenerationsRequest&) override {
    return Absent();
  }
  absl::StatusOr<v1::IssueTokensResponse> IssueTokens(const v1::IssueTokensRequest&) override {
    return Absent();
  }
  absl::StatusOr<v1::TokenLedger> GetTokenLedger(const v1::GetTokenLedgerRequest&) override {
    return Absent();
  }

 private:
  static absl::Status Absent() { return absl::UnimplementedError("not in this fake"); }
};

}  // namespace perigee

#endif  // PERIGEE_CLIENT_LIB_FAKE_CONNECTION_H_
