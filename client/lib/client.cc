#include "client/lib/client.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/support/random.h"
#include "proto/support/resource_name.h"

namespace perigee {
namespace {

// Every page of a list call. `list` sends one request; `items` names the field of its answer.
template <typename Item, typename Request, typename List, typename Items>
absl::StatusOr<std::vector<Item>> AllPages(Request request, const List& list, const Items& items) {
  std::vector<Item> all;
  do {
    auto page = list(request);
    if (!page.ok()) return page.status();
    for (const Item& item : items(*page)) all.push_back(item);
    request.set_page_token(page->next_page_token());
  } while (!request.page_token().empty());
  return all;
}

std::string DescribeWait(const v1::Group& seen, Generation last) {
  std::string reason =
      seen.state_reason().empty() ? "" : absl::StrCat(" (", seen.state_reason(), ")");
  return absl::StrCat(seen.name(), " is ", v1::Group::State_Name(seen.state()), " at generation ",
                      seen.generation(), reason, "; waited for it to be ACTIVE after generation ",
                      last.value);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Client>> Client::Connect(const ConnectOptions& options) {
  auto connection = ConnectGrpc(options);
  if (!connection.ok()) return connection.status();
  return std::make_unique<Client>(*std::move(connection));
}

absl::StatusOr<v1::Worker> Client::GetWorker(const std::string& name) {
  v1::GetWorkerRequest request;
  request.set_name(name);
  return connection_->GetWorker(request);
}

absl::StatusOr<std::vector<v1::Worker>> Client::ListWorkers() {
  return AllPages<v1::Worker>(
      v1::ListWorkersRequest(),
      [&](const auto& request) { return connection_->ListWorkers(request); },
      [](const auto& page) -> const auto& { return page.workers(); });
}

absl::StatusOr<v1::Group> Client::CreateGroup(const GroupOptions& options) {
  v1::CreateGroupRequest request;
  request.set_parent(kDefaultTenant);
  request.set_group_id(options.group_id);
  request.mutable_group()->set_ranks(options.ranks);
  request.mutable_group()->set_backend(options.backend);
  request.mutable_group()->set_transport(options.transport);
  for (const std::string& worker : options.workers) request.add_workers(worker);
  request.set_request_id(NewRequestId());
  return connection_->CreateGroup(request);
}

absl::StatusOr<v1::Buffer> Client::CreateBuffer(const std::string& group,
                                                const BufferOptions& options) {
  v1::CreateBufferRequest request;
  request.set_parent(group);
  request.set_buffer_id(options.buffer_id);
  *request.mutable_buffer()->mutable_shape() = options.shape;
  request.mutable_buffer()->set_operation_timeout_ms(
      absl::ToInt64Milliseconds(options.operation_timeout));
  request.mutable_buffer()->set_warmup_timeout_ms(
      absl::ToInt64Milliseconds(options.warmup_timeout));
  request.mutable_buffer()->set_sms(options.sms);
  request.mutable_buffer()->set_local_sms(options.local_sms);
  request.mutable_buffer()->set_no_programmatic_launch(!options.programmatic_launch);
  request.mutable_buffer()->set_high_priority_stream(options.high_priority_stream);
  request.set_request_id(NewRequestId());
  return connection_->CreateBuffer(request);
}

absl::StatusOr<v1::Group> Client::GetGroup(const std::string& name) {
  v1::GetGroupRequest request;
  request.set_name(name);
  return connection_->GetGroup(request);
}

absl::StatusOr<std::vector<v1::Group>> Client::ListGroups() {
  v1::ListGroupsRequest request;
  request.set_parent(kDefaultTenant);
  return AllPages<v1::Group>(
      request, [&](const auto& page) { return connection_->ListGroups(page); },
      [](const auto& page) -> const auto& { return page.groups(); });
}

absl::StatusOr<v1::Group> Client::DrainGroup(const std::string& name) {
  v1::DrainGroupRequest request;
  request.set_name(name);
  request.set_request_id(NewRequestId());
  return connection_->DrainGroup(request);
}

absl::Status Client::DeleteGroup(const std::string& name) {
  v1::DeleteGroupRequest request;
  request.set_name(name);
  request.set_request_id(NewRequestId());
  return connection_->DeleteGroup(request);
}

absl::Status Client::WatchGroup(const std::string& name, absl::Duration timeout,
                                absl::FunctionRef<bool(const v1::Group&)> on_group) {
  v1::WatchGroupRequest request;
  request.set_name(name);
  return connection_->WatchGroup(request, timeout, on_group);
}

absl::StatusOr<v1::Group> Client::WaitForNextGeneration(const std::string& name, Generation last,
                                                        absl::Duration timeout) {
  v1::Group seen;
  seen.set_name(name);
  bool there = false;
  absl::Status status = WatchGroup(name, timeout, [&](const v1::Group& group) {
    seen = group;
    there = group.state() == v1::Group::ACTIVE && group.generation() > last.value;
    return !there && group.state() != v1::Group::CLOSED;
  });
  if (there) return seen;
  if (seen.state() == v1::Group::CLOSED) {
    return absl::FailedPreconditionError(DescribeWait(seen, last));
  }
  if (status.ok()) status = absl::UnavailableError("the coordinator ended the watch");
  return absl::Status(status.code(), absl::IsDeadlineExceeded(status)
                                         ? DescribeWait(seen, last)
                                         : absl::StrCat(name, ": ", status.message()));
}

absl::StatusOr<v1::Buffer> Client::GetBuffer(const std::string& name) {
  v1::GetBufferRequest request;
  request.set_name(name);
  return connection_->GetBuffer(request);
}

absl::StatusOr<std::vector<v1::Buffer>> Client::ListBuffers(const std::string& group) {
  v1::ListBuffersRequest request;
  request.set_parent(group.empty() ? GroupName(kDefaultTenant, "-") : group);
  return AllPages<v1::Buffer>(
      request, [&](const auto& page) { return connection_->ListBuffers(page); },
      [](const auto& page) -> const auto& { return page.buffers(); });
}

absl::Status Client::DeleteBuffer(const std::string& name) {
  v1::DeleteBufferRequest request;
  request.set_name(name);
  request.set_request_id(NewRequestId());
  return connection_->DeleteBuffer(request);
}

absl::StatusOr<v1::AttachTicket> Client::IssueAttachTicket(const std::string& buffer,
                                                           Generation generation, RankId rank) {
  v1::IssueAttachTicketRequest request;
  request.set_buffer(buffer);
  request.set_generation(generation.value);
  request.set_rank(rank.value);
  request.set_request_id(NewRequestId());
  return connection_->IssueAttachTicket(request);
}

absl::StatusOr<v1::GenerationInfo> Client::GetGeneration(const std::string& name) {
  v1::GetGenerationRequest request;
  request.set_name(name);
  return connection_->GetGeneration(request);
}

absl::StatusOr<std::vector<v1::GenerationInfo>> Client::ListGenerations(const std::string& group) {
  v1::ListGenerationsRequest request;
  request.set_parent(group);
  return AllPages<v1::GenerationInfo>(
      request, [&](const auto& page) { return connection_->ListGenerations(page); },
      [](const auto& page) -> const auto& { return page.generations(); });
}

absl::StatusOr<v1::IssueTokensResponse> Client::IssueTokens(const std::string& buffer,
                                                            Generation generation, RankId rank,
                                                            int32_t count,
                                                            const std::string& request_id) {
  v1::IssueTokensRequest request;
  request.set_buffer(buffer);
  request.set_generation(generation.value);
  request.set_rank(rank.value);
  request.set_count(count);
  request.set_request_id(request_id.empty() ? NewRequestId() : request_id);
  return connection_->IssueTokens(request);
}

absl::StatusOr<v1::TokenLedger> Client::GetTokenLedger(const std::string& name) {
  v1::GetTokenLedgerRequest request;
  request.set_name(name);
  return connection_->GetTokenLedger(request);
}

absl::Status Client::ExecuteProgram(
    const std::string& buffer, Generation generation, const v1::Program& program,
    absl::FunctionRef<void(const v1::ExecuteProgramResponse&)> on_progress,
    const v1::PathChoice* path_choice) {
  v1::ExecuteProgramRequest request;
  request.set_buffer(buffer);
  request.set_generation(generation.value);
  *request.mutable_program() = program;
  if (path_choice != nullptr) *request.mutable_path_choice() = *path_choice;
  bool complete = false;
  const absl::Status status = connection_->ExecuteProgram(
      request, kProgramIdleTimeout, [&](const v1::ExecuteProgramResponse& message) {
        complete = message.complete();
        on_progress(message);
      });
  if (status.ok() && !complete) {
    return absl::InternalError("the coordinator ended the program's stream without completing it");
  }
  return status;
}

}  // namespace perigee
