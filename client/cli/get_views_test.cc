#include "client/cli/get_views.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace perigee {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pair;

template <typename Message>
std::string Json(const Message& message) {
  JsonWriter json;
  WriteJson(message, json);
  return json.ToString();
}

v1::Group TwoRanks() {
  v1::Group group;
  group.set_name("tenants/default/groups/g");
  group.set_ranks(2);
  group.set_state(v1::Group::FENCED);
  group.set_state_reason("rank 1 (workers/w1) was lost");
  group.add_lost_ranks(1);
  for (int rank = 0; rank < 2; ++rank) {
    v1::GroupMember* member = group.add_members();
    member->set_rank(rank);
    member->set_worker("workers/w");
    member->set_socket_path("/secret/socket");
  }
  return group;
}

TEST(GetViewsTest, RowsHaveAsManyCellsAsTheirHeader) {
  EXPECT_EQ(TableHeader(v1::Worker()).size(), TableRow(v1::Worker()).size());
  EXPECT_EQ(TableHeader(v1::Group()).size(), TableRow(v1::Group()).size());
  EXPECT_EQ(TableHeader(v1::Buffer()).size(), TableRow(v1::Buffer()).size());
  EXPECT_EQ(TableHeader(v1::GenerationInfo()).size(), TableRow(v1::GenerationInfo()).size());
}

TEST(GetViewsTest, AWorkerWithoutAGroupHasNoRank) {
  v1::Worker worker;
  worker.set_rank(0);
  EXPECT_THAT(Json(worker), HasSubstr("\"group\": null"));
  EXPECT_THAT(Json(worker), HasSubstr("\"rank\": null"));
  worker.set_group("tenants/default/groups/g");
  EXPECT_THAT(Json(worker), HasSubstr("\"rank\": 0"));
  EXPECT_THAT(FactsOf(worker), testing::Contains(Pair("rank", "0")));
}

TEST(GetViewsTest, SocketsAreNotShown) {
  v1::Worker worker;
  worker.set_socket_path("/secret/socket");
  EXPECT_THAT(Json(worker), Not(HasSubstr("secret")));
  EXPECT_THAT(Json(TwoRanks()), Not(HasSubstr("secret")));
  for (const auto& [what, value] : FactsOf(TwoRanks()))
    EXPECT_THAT(value, Not(HasSubstr("secret")));
}

TEST(GetViewsTest, LossesAreFacts) {
  const Facts facts = FactsOf(TwoRanks());
  EXPECT_THAT(facts, testing::Contains(Pair("lost ranks", "1")));
  EXPECT_THAT(facts, testing::Contains(Pair("reason", "rank 1 (workers/w1) was lost")));
  EXPECT_THAT(FactsOf(v1::Group()), Not(testing::Contains(Pair("lost ranks", testing::_))));
}

TEST(GetViewsTest, TimesAreUtcOrNull) {
  v1::GenerationInfo generation;
  generation.mutable_create_time()->set_seconds(86400);
  generation.mutable_create_time()->set_nanos(5000000);
  EXPECT_THAT(Json(generation), HasSubstr("\"create_time\": \"1970-01-02T00:00:00.005Z\""));
  EXPECT_THAT(Json(generation), HasSubstr("\"end_time\": null"));
}

TEST(GetViewsTest, ABuffersBytesAreThoseOfAllRanks) {
  v1::Buffer buffer;
  buffer.add_rank_bytes(1024);
  buffer.add_rank_bytes(1024);
  EXPECT_THAT(FactsOf(buffer), testing::Contains(Pair("bytes", "2.00 KiB")));
}

}  // namespace
}  // namespace perigee
