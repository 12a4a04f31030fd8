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

TEST(GetViewsTest, OutputSlotsAreShownWithTheirBytes) {
  v1::Buffer buffer;
  buffer.mutable_shape()->set_tokens(10);
  buffer.mutable_shape()->set_hidden(16);
  buffer.mutable_shape()->set_topk(2);
  buffer.mutable_shape()->set_experts(4);
  buffer.mutable_shape()->set_token_padding(4);
  buffer.add_rank_bytes(1 << 20);
  buffer.add_rank_bytes(1 << 20);
  EXPECT_THAT(Json(buffer), HasSubstr("\"output_slot_bytes_per_rank\": null"));
  buffer.mutable_shape()->set_dispatch_output_slots(3);
  buffer.mutable_shape()->set_expert_output_slots(2);
  // 32 rows of 32 bytes; with their weights, up to whole pages.
  EXPECT_THAT(Json(buffer), HasSubstr("\"output_slot_bytes_per_rank\": 26624"));
  EXPECT_THAT(Json(buffer), HasSubstr("\"dispatch_output_slots\": 3"));
  EXPECT_THAT(
      FactsOf(buffer),
      testing::Contains(Pair("output slots", "3 of dispatches, 2 of experts, 26.00 KiB a rank")));
}

TEST(GetViewsTest, AWorkerSaysWhatItsRankHasSent) {
  v1::Worker worker;
  EXPECT_THAT(Json(worker), HasSubstr("\"transport_counts\": null"));
  worker.mutable_transport()->set_transport("nvlink");
  EXPECT_THAT(FactsOf(worker), testing::Contains(Pair("transport", "nvlink")));
  EXPECT_THAT(Json(worker), HasSubstr("\"transport\": \"nvlink\""));
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

TEST(GetViewsTest, ABufferHasThePathOfItsRows) {
  v1::Buffer buffer;
  buffer.mutable_path_choice()->set_path("pull");
  buffer.mutable_path_choice()->set_basis(v1::PathChoice::ASKED_FOR);
  EXPECT_THAT(FactsOf(buffer), testing::Contains(Pair("path of rows", "pull (asked for)")));
  EXPECT_THAT(Json(buffer), HasSubstr("\"path\": \"pull\""));
}

TEST(GetViewsTest, GradientsAreShownWithWhatTheyTake) {
  v1::Buffer buffer;
  v1::BufferShape& shape = *buffer.mutable_shape();
  shape.set_experts(16);
  shape.set_slots(8);
  shape.set_hidden(256);
  shape.set_intermediate(64);
  shape.set_layers(3);
  EXPECT_THAT(Json(buffer), HasSubstr("\"gradients\": false"));
  EXPECT_THAT(FactsOf(buffer), Not(testing::Contains(Pair("gradients", testing::_))));
  shape.set_gradients(true);
  EXPECT_THAT(Json(buffer), HasSubstr("\"gradient_bytes_per_rank\": null"));
  EXPECT_THAT(FactsOf(buffer), testing::Contains(Pair("gradients", "kept")));
  buffer.add_rank_bytes(1024);
  buffer.add_rank_bytes(1024);
  // (8 slots + 3 layers of 8 experts) x 3 matrices x 256 x 64 x 4 bytes.
  EXPECT_THAT(Json(buffer), HasSubstr("\"gradient_bytes_per_rank\": 6291456"));
  EXPECT_THAT(FactsOf(buffer), testing::Contains(Pair("gradients", "6.00 MiB a rank")));
}

TEST(GetViewsTest, WeightsAreShownWithTheirFormat) {
  v1::Buffer buffer;
  v1::BufferShape& shape = *buffer.mutable_shape();
  shape.set_intermediate(64);
  shape.set_layers(3);
  EXPECT_THAT(FactsOf(buffer), testing::Contains(Pair("weights", "H' 64, layers 3, bf16")));
  EXPECT_THAT(FactsOf(buffer), Not(testing::Contains(Pair("stale slots", testing::_))));
  EXPECT_THAT(Json(buffer), HasSubstr("\"weight_format\": \"bf16\""));
  EXPECT_THAT(Json(buffer), HasSubstr("\"weight_scales\": false"));
  EXPECT_THAT(Json(buffer), HasSubstr("\"refetch\": false"));
  shape.set_weight_format(v1::BufferShape::WEIGHT_FORMAT_8BIT);
  EXPECT_THAT(FactsOf(buffer), testing::Contains(Pair("weights", "H' 64, layers 3, 8bit")));
  shape.set_weight_format(v1::BufferShape::WEIGHT_FORMAT_MXFP4);
  shape.set_weight_scales(true);
  shape.set_refetch(true);
  EXPECT_THAT(FactsOf(buffer),
              testing::IsSupersetOf({Pair("weights", "H' 64, layers 3, mxfp4 with scales"),
                                     Pair("stale slots", "are fetched again")}));
  EXPECT_THAT(Json(buffer), HasSubstr("\"weight_format\": \"mxfp4\""));
  EXPECT_THAT(Json(buffer), HasSubstr("\"weight_scales\": true"));
  EXPECT_THAT(Json(buffer), HasSubstr("\"refetch\": true"));
}

TEST(GetViewsTest, WhoMayStoreIntoEveryRankIsShown) {
  v1::Buffer buffer;
  EXPECT_THAT(Json(buffer), HasSubstr("\"peer_store\": false"));
  EXPECT_THAT(FactsOf(buffer), Not(testing::Contains(Pair("local clients", testing::_))));
  buffer.mutable_shape()->set_peer_store(true);
  EXPECT_THAT(Json(buffer), HasSubstr("\"peer_store\": true"));
  EXPECT_THAT(FactsOf(buffer),
              testing::Contains(Pair("local clients", "may store into every rank's rows")));
}

TEST(GetViewsTest, ASourceIsShownWithWhatItTakes) {
  v1::Buffer buffer;
  v1::BufferShape& shape = *buffer.mutable_shape();
  shape.set_tokens(1024);
  shape.set_hidden(256);
  shape.set_topk(4);
  EXPECT_THAT(Json(buffer), HasSubstr("\"source_storage\": false"));
  EXPECT_THAT(Json(buffer), HasSubstr("\"source_bytes_per_rank\": null"));
  EXPECT_THAT(FactsOf(buffer), Not(testing::Contains(Pair("source", testing::_))));
  shape.set_source_storage(true);
  // 1024 x (256 x 2 + 4 x (4 + 4)) bytes.
  EXPECT_THAT(Json(buffer), HasSubstr("\"source_bytes_per_rank\": 557056"));
  EXPECT_THAT(FactsOf(buffer), testing::Contains(Pair("source", "544.00 KiB a rank")));
}

v1::ClientAttachment ClientOfRank(int32_t rank, v1::ClientAttachment::State state) {
  v1::ClientAttachment client;
  client.set_buffer("tenants/default/groups/g/buffers/b");
  client.set_rank(rank);
  client.set_state(state);
  if (state == v1::ClientAttachment::TICKET) return client;
  client.set_pid(40 + rank);
  client.mutable_attach_time()->set_seconds(86400);
  return client;
}

TEST(GetViewsTest, ClientsAreShownWithTheirRankProcessAndTime) {
  v1::Buffer buffer;
  EXPECT_EQ(TableRow(buffer).back(), "-");
  *buffer.add_attachments() = ClientOfRank(0, v1::ClientAttachment::ATTACHED);
  *buffer.add_attachments() = ClientOfRank(2, v1::ClientAttachment::TICKET);
  *buffer.add_attachments() = ClientOfRank(3, v1::ClientAttachment::ENDING);
  EXPECT_EQ(TableRow(buffer).back(), "0, 2, 3");
  EXPECT_EQ(TableHeader(buffer).size(), TableRow(buffer).size());
  EXPECT_THAT(FactsOf(buffer),
              testing::IsSupersetOf(
                  {Pair("client of rank 0", "pid 40, attached 1970-01-02T00:00:00.000Z"),
                   Pair("client of rank 2", "a ticket that nobody has used yet"),
                   Pair("client of rank 3", "pid 43, attached 1970-01-02T00:00:00.000Z, ending")}));
  EXPECT_THAT(Json(buffer), HasSubstr("\"state\": \"TICKET\""));
  EXPECT_THAT(Json(buffer), HasSubstr("\"pid\": null"));
  EXPECT_THAT(Json(buffer), HasSubstr("\"attach_time\": \"1970-01-02T00:00:00.000Z\""));
  v1::Group group;
  *group.mutable_attachments() = buffer.attachments();
  EXPECT_THAT(FactsOf(group),
              testing::Contains(Pair("client of rank 0",
                                     "pid 40, attached 1970-01-02T00:00:00.000Z, of "
                                     "tenants/default/groups/g/buffers/b")));
  EXPECT_THAT(Json(group), HasSubstr("\"buffer\": \"tenants/default/groups/g/buffers/b\""));
}

}  // namespace
}  // namespace perigee
