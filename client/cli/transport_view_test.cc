#include "client/cli/transport_view.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace perigee {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

v1::Worker RankOne() {
  v1::Worker worker;
  worker.set_name("workers/w1");
  worker.set_rank(1);
  v1::TransportCounts& counts = *worker.mutable_transport();
  counts.set_group("tenants/default/groups/g");
  counts.set_generation(7);
  counts.set_transport("nccl");
  for (const uint64_t bytes : {2048, 0, 5}) counts.add_bytes_sent(bytes);
  v1::FailureCount& failure = *counts.add_failures();
  failure.set_reason("DEADLINE");
  failure.set_count(3);
  return worker;
}

std::string Json(const v1::Worker& worker) {
  JsonWriter json;
  json.BeginObject();
  WriteTransportCounts(worker, json);
  json.EndObject();
  return json.ToString();
}

TEST(TransportView, FactsNameEveryPeerAndEveryKindOfFailure) {
  EXPECT_TRUE(TransportFacts(v1::Worker()).empty());
  EXPECT_THAT(TransportFacts(RankOne()),
              ElementsAre(Pair("transport", "nccl"), Pair("sent to rank 0", "2.00 KiB"),
                          Pair("sent to rank 2", "5 B"), Pair("failures, DEADLINE", "3")));
}

TEST(TransportView, JsonHasNullWhereNothingIsKnown) {
  EXPECT_THAT(Json(v1::Worker()), HasSubstr("\"transport_counts\": null"));
  EXPECT_THAT(Json(RankOne()), HasSubstr("\"transport\": \"nccl\""));
  EXPECT_THAT(Json(RankOne()), HasSubstr("\"reason\": \"DEADLINE\""));
  v1::Worker uncounted = RankOne();
  uncounted.mutable_transport()->clear_bytes_sent();
  EXPECT_THAT(Json(uncounted), HasSubstr("\"bytes_sent\": null"));
}

TEST(TransportView, MetricsAreALineForEachValue) {
  v1::Worker odd = RankOne();
  odd.set_rank(0);
  odd.mutable_transport()->set_group("a \"b\\\n");
  odd.mutable_transport()->set_transport("local");
  odd.mutable_transport()->clear_bytes_sent();
  odd.mutable_transport()->clear_failures();
  EXPECT_EQ(
      MetricsText({odd, v1::Worker(), RankOne()}),
      "# HELP perigee_transport_info How rows get from a rank to others: nvlink, nccl or local. "
      "Always 1.\n"
      "# TYPE perigee_transport_info gauge\n"
      "perigee_transport_info{group=\"a \\\"b\\\\\\n\",rank=\"0\",worker=\"workers/w1\","
      "transport=\"local\",generation=\"7\"} 1\n"
      "perigee_transport_info{group=\"tenants/default/groups/g\",rank=\"1\","
      "worker=\"workers/w1\",transport=\"nccl\",generation=\"7\"} 1\n"
      "# HELP perigee_link_bytes_total Bytes that a rank has sent to another since its generation "
      "began, where counted.\n"
      "# TYPE perigee_link_bytes_total counter\n"
      "perigee_link_bytes_total{group=\"tenants/default/groups/g\",rank=\"1\","
      "worker=\"workers/w1\",transport=\"nccl\",peer=\"0\"} 2048\n"
      "perigee_link_bytes_total{group=\"tenants/default/groups/g\",rank=\"1\","
      "worker=\"workers/w1\",transport=\"nccl\",peer=\"2\"} 5\n"
      "# HELP perigee_transport_failures_total Operations that failed on a rank since its "
      "generation began, by why.\n"
      "# TYPE perigee_transport_failures_total counter\n"
      "perigee_transport_failures_total{group=\"tenants/default/groups/g\",rank=\"1\","
      "worker=\"workers/w1\",transport=\"nccl\",reason=\"DEADLINE\"} 3\n");
}

}  // namespace
}  // namespace perigee
