#include "server/rpc/publication_service.h"

#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "proto/support/resource_name.h"
#include "server/rpc/page.h"
#include "server/rpc/unary.h"

namespace perigee {
namespace {

std::string KeyOf(const v1::GenerationInfo& info) { return absl::StrCat(info.generation()); }

// Newest first: what follows is older.
bool IsOlder(const v1::GenerationInfo& info, const std::string& key) {
  uint64_t generation = 0;
  return absl::SimpleAtoi(key, &generation) && info.generation() < generation;
}

}  // namespace

grpc::ServerUnaryReactor* PublicationService::GetGeneration(grpc::CallbackServerContext* context,
                                                            const v1::GetGenerationRequest* request,
                                                            v1::GenerationInfo* response) {
  const auto name = ParseGenerationName(request->name());
  if (!name.ok()) return FinishWith(*context, name.status());
  return FinishWith(*context, control_.GetGeneration(name->group.group_name(), name->generation),
                    response);
}

grpc::ServerUnaryReactor* PublicationService::ListGenerations(
    grpc::CallbackServerContext* context, const v1::ListGenerationsRequest* request,
    v1::ListGenerationsResponse* response) {
  const auto name = ParseGroupName(request->parent());
  if (!name.ok()) return FinishWith(*context, name.status());
  auto generations = control_.ListGenerations(request->parent());
  if (!generations.ok()) return FinishWith(*context, generations.status());
  auto page = TakePage(*std::move(generations), *request, KeyOf, IsOlder);
  if (!page.ok()) return FinishWith(*context, page.status());
  for (v1::GenerationInfo& info : page->items) *response->add_generations() = std::move(info);
  response->set_next_page_token(page->next_page_token);
  return FinishWith(*context, absl::OkStatus());
}

grpc::ServerUnaryReactor* PublicationService::AbortGeneration(
    grpc::CallbackServerContext* context, const v1::AbortGenerationRequest* request,
    v1::GenerationInfo* response) {
  const auto name = ParseGenerationName(request->name());
  if (!name.ok()) return FinishWith(*context, name.status());
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  using Response = v1::GenerationInfo;
  RunOnce<Response>(log_, "AbortGeneration", *request, FinishLater(*context, reactor, response),
                    [&](ReplyFunction<Response> reply) {
                      control_.AbortGeneration(
                          name->group.group_name(), name->generation, request->reason(),
                          [reply](const absl::StatusOr<v1::GenerationInfo>& info) {
                            reply({info.status(), {}, info.ok() ? *info : Response()});
                          });
                    });
  return reactor;
}

}  // namespace perigee
