// Requests as PublicationService takes them, without gRPC.
#include "server/rpc/publication_handler.h"

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

TEST_F(PublicationHandlerTest, EveryCallNamesTheFieldThatIsWrong) {
  v1::GetGenerationRequest get;
  get.set_name("tenants/default/groups/g/generations/x");
  ExpectNamesField(handler_.GetGeneration(get).status(), "name");
  v1::ListGenerationsRequest list;
  list.set_parent("g");
  ExpectNamesField(handler_.ListGenerations(list).status(), "parent");
  v1::AbortGenerationRequest abort;
  ExpectNamesField(Ask(handler_, &PublicationHandler::AbortGeneration, abort).status, "name");
}

}  // namespace
}  // namespace perigee
