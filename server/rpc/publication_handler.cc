#include "server/rpc/publication_handler.h"

#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "proto/support/defaults.h"
#include "proto/support/resource_name.h"
#include "server/rpc/call_reply.h"
#include "server/rpc/field_check.h"
#include "server/rpc/page.h"

namespace perigee {
namespace {

std::string KeyOf(const v1::GenerationInfo& info) { return absl::StrCat(info.generation()); }

// Newest first: what follows is older.
bool IsOlder(const v1::GenerationInfo& info, const std::string& key) {
  uint64_t generation = 0;
  return absl::SimpleAtoi(key, &generation) && info.generation() < generation;
}

}  // namespace

absl::StatusOr<v1::GenerationInfo> PublicationHandler::GetGeneration(
    const v1::GetGenerationRequest& request) const {
  const auto name = ParseGenerationName(request.name());
  if (!name.ok()) return InField("name", name.status());
  return control_.GetGeneration(name->group.group_name(), name->generation);
}

absl::StatusOr<v1::ListGenerationsResponse> PublicationHandler::ListGenerations(
    const v1::ListGenerationsRequest& request) const {
  const auto name = ParseGroupName(request.parent());
  if (!name.ok()) return InField("parent", name.status());
  auto generations = control_.ListGenerations(request.parent());
  if (!generations.ok()) return generations.status();
  auto page = TakePage(*std::move(generations), request, KeyOf, IsOlder);
  if (!page.ok()) return page.status();
  v1::ListGenerationsResponse response;
  for (v1::GenerationInfo& info : page->items) *response.add_generations() = std::move(info);
  response.set_next_page_token(page->next_page_token);
  return response;
}

void PublicationHandler::AbortGeneration(const v1::AbortGenerationRequest& request,
                                         ReplyFunction<v1::GenerationInfo> reply) {
  using Response = v1::GenerationInfo;
  const auto name = ParseGenerationName(request.name());
  if (!name.ok()) return reply({InField("name", name.status()), {}, {}});
  RunOnce<Response>(log_, "AbortGeneration", request, reply, [&](ReplyFunction<Response> first) {
    control_.AbortGeneration(name->group.group_name(), name->generation, request.reason(),
                             [first](const absl::StatusOr<v1::GenerationInfo>& info) {
                               first({info.status(), {}, info.ok() ? *info : Response()});
                             });
  });
}

// The store keeps these answers: they outlive the coordinator, and would be large to keep in
// memory.
void PublicationHandler::IssueTokens(const v1::IssueTokensRequest& request,
                                     ReplyFunction<v1::IssueTokensResponse> reply) {
  using Response = v1::IssueTokensResponse;
  absl::Status status = InField("buffer", ParseBufferName(request.buffer()).status());
  if (status.ok() && (request.count() < 0 || request.count() > kMaxTokensOfCall)) {
    status = absl::InvalidArgumentError(
        absl::StrCat("count is ", request.count(), ", expected 1 to ", kMaxTokensOfCall));
  }
  if (!status.ok()) return reply({status, {}, {}});
  RunJoined<Response>(log_, "IssueTokens", request, reply, [&](ReplyFunction<Response> first) {
    control_.IssueTokens(request, ReplyWith<Response>(std::move(first)));
  });
}

void PublicationHandler::GetTokenLedger(const v1::GetTokenLedgerRequest& request,
                                        ReplyFunction<v1::TokenLedger> reply) {
  const auto name = ParseGenerationName(request.name());
  if (!name.ok()) return reply({InField("name", name.status()), {}, {}});
  control_.GetTokenLedger(name->group.group_name(), name->generation,
                          ReplyWith<v1::TokenLedger>(std::move(reply)));
}

}  // namespace perigee
