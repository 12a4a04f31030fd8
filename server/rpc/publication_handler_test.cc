// Requests as PublicationService takes them, without gRPC.
#include "server/rpc/publication_handler.h"

#include <algorithm>

#include "proto/support/defaults.h"
#include "server/testing/handler_fixture.h"

namespace perigee {
namespace {

class PublicationHandlerTest : public HandlerFixture {
 protected:
  PublicationHandler handler_{control_, log_};
};

TEST_F(PublicationHandlerTest, AnAbortedGenerationHasEndedAndStaysListed) {
  AddWorkers(1);
  const std::string group = MakeGroup("g", 1);
  const uint64_t generation = control_.GetGroup(group)->generation();
  v1::AbortGenerationRequest abort;
  abort.set_name(absl::StrCat(group, "/generations/", generation));
  abort.set_reason("maintenance");
  const auto ended = Ask(handler_, &PublicationHandler::AbortGeneration, abort);
  ASSERT_TRUE(ended.status.ok()) << ended.status;
  EXPECT_EQ(ended.message.state(), v1::GenerationInfo::ENDED);
  EXPECT_TRUE(absl::IsFailedPrecondition(
      Ask(handler_, &PublicationHandler::AbortGeneration, abort).status));

  v1::GetGenerationRequest get;
  get.set_name(abort.name());
  EXPECT_EQ(handler_.GetGeneration(get)->generation(), generation);
  v1::ListGenerationsRequest list;
  list.set_parent(group);
  const auto all = handler_.ListGenerations(list);
  ASSERT_TRUE(all.ok()) << all.status();
  ASSERT_GE(all->generations_size(), 1);
  EXPECT_EQ(all->generations(all->generations_size() - 1).generation(), generation);
}

TEST_F(PublicationHandlerTest, TokensAreIssuedOnceForEachRequestAlsoByALaterCoordinator) {
  AddWorkers(2);
  const std::string buffer = MakeBuffer();
  v1::IssueTokensRequest request;
  request.set_buffer(buffer);
  request.set_rank(1);
  request.set_count(3);
  request.set_request_id("one");
  const auto issue = [&](PublicationHandler& handler) {
    return Ask(handler, &PublicationHandler::IssueTokens, request);
  };
  const auto first = issue(handler_);
  ASSERT_TRUE(first.status.ok()) << first.status;
  ASSERT_EQ(first.message.tokens_size(), 3);
  EXPECT_EQ(first.message.worker(), "workers/w1");
  EXPECT_EQ(issue(handler_).message.tokens(0), first.message.tokens(0));
  // Nothing of the first coordinator is left but its store and key.
  RequestLog log(clock_);
  ControlPlaneOptions options;
  options.master_key = kMasterKey;
  ControlPlane later(options, store_, clock_, RandomBytes);
  PublicationHandler handler(later, log);
  const auto repeated = issue(handler);
  ASSERT_TRUE(repeated.status.ok()) << repeated.status;
  EXPECT_TRUE(std::equal(first.message.tokens().begin(), first.message.tokens().end(),
                         repeated.message.tokens().begin(), repeated.message.tokens().end()));
  request.set_count(2);
  EXPECT_TRUE(absl::IsInvalidArgument(issue(handler).status)) << "the id was used for three";
  request.set_request_id("two");
  EXPECT_TRUE(absl::IsNotFound(issue(handler).status)) << "it knows no group";
  const auto more = issue(handler_);
  ASSERT_TRUE(more.status.ok()) << more.status;
  EXPECT_EQ(more.message.first_serial(), first.message.first_serial() + 3);
  request.set_request_id("");
  EXPECT_NE(issue(handler_).message.first_serial(), issue(handler_).message.first_serial());
}

TEST_F(PublicationHandlerTest, TheLedgerOutlivesItsGeneration) {
  AddWorkers(1);
  const std::string group = MakeGroup("g", 1);
  v1::GetTokenLedgerRequest get;
  get.set_name(absl::StrCat(group, "/generations/", control_.GetGroup(group)->generation()));
  const auto living = Ask(handler_, &PublicationHandler::GetTokenLedger, get);
  ASSERT_TRUE(living.status.ok()) << living.status;
  ASSERT_EQ(living.message.ranks_size(), 1);
  EXPECT_EQ(living.message.ranks(0).granted(), kTokenSerials);
  EXPECT_EQ(living.message.ranks(0).burnt(), 0u);
  v1::AbortGenerationRequest abort;
  abort.set_name(get.name());
  ASSERT_TRUE(Ask(handler_, &PublicationHandler::AbortGeneration, abort).status.ok());
  const auto ended = Ask(handler_, &PublicationHandler::GetTokenLedger, get);
  ASSERT_TRUE(ended.status.ok()) << ended.status;
  EXPECT_EQ(ended.message.ranks(0).burnt(), kTokenSerials);
  get.set_name(absl::StrCat(group, "/generations/999"));
  EXPECT_TRUE(absl::IsNotFound(Ask(handler_, &PublicationHandler::GetTokenLedger, get).status));
}

TEST_F(PublicationHandlerTest, EveryCallNamesTheFieldThatIsWrong) {
  v1::GetGenerationRequest get;
  get.set_name("tenants/default/groups/g/generations/x");
  ExpectNamesField(handler_.GetGeneration(get).status(), "name");
  v1::ListGenerationsRequest list;
  list.set_parent("g");
  ExpectNamesField(handler_.ListGenerations(list).status(), "parent");
  v1::AbortGenerationRequest abort;
  ExpectNamesField(Ask(handler_, &PublicationHandler::AbortGeneration, abort).status, "name");
  v1::IssueTokensRequest issue;
  ExpectNamesField(Ask(handler_, &PublicationHandler::IssueTokens, issue).status, "buffer");
  issue.set_buffer("tenants/default/groups/g/buffers/b");
  for (const int32_t count : {-1, kMaxTokensOfCall + 1}) {
    issue.set_count(count);
    ExpectNamesField(Ask(handler_, &PublicationHandler::IssueTokens, issue).status, "count");
  }
  v1::GetTokenLedgerRequest ledger;
  ExpectNamesField(Ask(handler_, &PublicationHandler::GetTokenLedger, ledger).status, "name");
}

}  // namespace
}  // namespace perigee
