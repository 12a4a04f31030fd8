// `perigee bench` on a cluster of its own and on one at an address.
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/lib/path_table.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/cluster_fixture.h"

namespace perigee {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kTracePath = "tests/testdata/routes_e64_k8_layer0.safetensors";

class BenchRunTest : public ClusterTest {
 protected:
  Result Bench(const std::vector<std::string>& more) const {
    std::vector<std::string> args = {"bench", "all", "--iterations", "2", "--warmup", "1"};
    args.insert(args.end(), more.begin(), more.end());
    return RunPerigee(args);
  }
  // Names of the operations of one shape, which must have been measured and compared well.
  static std::vector<std::string> Operations(const google::protobuf::Value& value) {
    const auto shape = value.struct_value().fields();
    EXPECT_EQ(shape.at("mismatched_elements").number_value(), 0);
    EXPECT_GT(shape.at("checked_tokens").number_value(), 0);
    EXPECT_GT(shape.at("copy").struct_value().fields().at("own_gb_per_s").number_value(), 0);
    std::vector<std::string> names;
    for (const auto& element : shape.at("operations").list_value().values()) {
      const auto operation = element.struct_value().fields();
      names.push_back(operation.at("operation").string_value());
      const bool back_to_back = names.back().find("back_to_back") != std::string::npos;
      const bool of_one_input = names.back().find("staged") != std::string::npos;
      EXPECT_EQ(operation.at("samples").number_value(), back_to_back || of_one_input ? 2 : 6)
          << "2 iterations of 3 inputs";
      EXPECT_LE(operation.at("p25_us").number_value(), operation.at("p75_us").number_value());
      if (names.back() != "dispatch" && names.back() != "step_back_to_back") continue;
      EXPECT_GT(operation.at("median_us").number_value(), 0);
      EXPECT_GT(operation.at("total_bytes").number_value(), 0);
      EXPECT_GT(operation.at("floor_over_median").number_value(), 0);
    }
    return names;
  }
};

TEST_F(BenchRunTest, MeasuresEverythingShapeByShape) {
  const Result result = Bench(
      {"--shape", "S32,H64,K4,E16,P16,I32", "--shape", "S8,H16,K2,E4", "--seed", "5", "--json"});
  ASSERT_EQ(result.status, 0) << result.err;
  const auto json = ParseJson(result.out).fields();
  EXPECT_EQ(json.at("result").string_value(), "PASS");
  EXPECT_EQ(json.at("ranks").number_value(), 2);
  EXPECT_EQ(json.at("seed").number_value(), 5);
  EXPECT_NE(json.at("device").string_value(), "");
  const auto& shapes = json.at("shapes").list_value();
  ASSERT_EQ(shapes.values_size(), 2);
  EXPECT_THAT(Operations(shapes.values(0)),
              ElementsAre("plan", "dispatch", "dispatch_saved_plan", "dispatch_back_to_back",
                          "dispatch_saved_plan_back_to_back", "plan_back_to_back", "combine",
                          "step_back_to_back", "combine_back_to_back", "prefetch_weights",
                          "run_experts", "layer"));
  EXPECT_THAT(Operations(shapes.values(1)),
              ElementsAre("plan", "dispatch", "dispatch_saved_plan", "dispatch_back_to_back",
                          "dispatch_saved_plan_back_to_back", "plan_back_to_back", "combine",
                          "step_back_to_back", "combine_back_to_back"));
  EXPECT_TRUE(NothingLeft(absl::ZeroDuration())) << "when the command has ended";
}

// By routes that need a replica, as not all random ones do; plain copies of what it brings are left
// out where they do not fit into half a shard.
TEST_F(BenchRunTest, MovesRowsWeightsAndGradients) {
  struct Case {
    const char *what, *shape, *last;
  };
  for (const Case& wanted :
       {Case{"staged", "S32,H64,K4,E16,I32", "combine_staged"},
        Case{"prefetch", "S32,H64,K4,E16,I32", "barrier_back_to_back"},
        Case{"prefetch", "S32,H64,K4,E16,I8192", "prefetch_weights_back_to_back"},
        Case{"reduce", "S32,H64,K4,E16,I32", "reduce_gradients"}}) {
    const Result result = RunPerigee({"bench", wanted.what, "--shape", wanted.shape, "--seed", "5",
                                      "--iterations", "2", "--warmup", "1", "--json"});
    ASSERT_EQ(result.status, 0) << result.err;
    const auto json = ParseJson(result.out).fields();
    const auto& shape = json.at("shapes").list_value().values(0);
    EXPECT_EQ(Operations(shape).back(), wanted.last);
    const auto& measured = shape.struct_value().fields().at("operations").list_value();
    for (const auto& operation : measured.values()) {
      const auto& fields = operation.struct_value().fields();
      if (fields.at("operation").string_value() == "barrier_back_to_back") continue;
      EXPECT_GT(fields.at("total_bytes").number_value(), 0);
    }
  }
}

// Where the outputs of pending dispatches are changes what they take, and no bit.
TEST_F(BenchRunTest, HoldsOutputsInRings) {
  const Result result =
      RunPerigee({"bench", "rings", "--shape", "S32,H64,K4,E16,I32", "--micro-batches", "6",
                  "--output-slots", "3", "--iterations", "2", "--warmup", "1", "--json"});
  ASSERT_EQ(result.status, 0) << result.err << result.out;
  const auto json = ParseJson(result.out).fields();
  EXPECT_EQ(json.at("result").string_value(), "PASS");
  const auto shape = json.at("shapes").list_value().values(0).struct_value().fields();
  EXPECT_EQ(shape.at("checked_tokens").number_value(), 3 * 6 * 32);
  const auto& rings = shape.at("rings").list_value();
  ASSERT_EQ(rings.values_size(), 4);
  const auto bytes = [&](int way) {
    const auto fields = rings.values(way).struct_value().fields();
    EXPECT_EQ(fields.at("samples").number_value(), 2);
    return fields.at("output_bytes_per_rank").number_value();
  };
  EXPECT_EQ(bytes(0), 0);
  EXPECT_GT(bytes(2), 0);
  EXPECT_EQ(bytes(1), 2 * bytes(2)) << "6 slots, and 3";
  EXPECT_GT(bytes(3), bytes(2));
}

// All of its rows cross links, and nothing else does.
TEST_F(BenchRunTest, MeasuresLinksByADispatchWithoutLocalWork) {
  const Result result = RunPerigee({"bench", "wire", "--shape", "S60,H64,K1,E16,P1", "--ranks", "4",
                                    "--iterations", "2", "--warmup", "1", "--json"});
  ASSERT_EQ(result.status, 0) << result.err;
  const auto json = ParseJson(result.out).fields();
  const auto& shape = json.at("shapes").list_value().values(0);
  EXPECT_THAT(Operations(shape),
              ElementsAre("dispatch", "dispatch_saved_plan", "dispatch_back_to_back",
                          "dispatch_saved_plan_back_to_back"));
  const auto fields = shape.struct_value().fields();
  EXPECT_EQ(fields.at("home_imbalance").number_value(), 1);
  const auto wire = fields.at("wire").struct_value().fields();
  EXPECT_EQ(wire.at("link_bytes").number_value(), 60 * (64 * 2 + 4)) << "rows and their weights";
  for (const char* rate :
       {"dispatch_bytes_per_us", "back_to_back_bytes_per_us", "copy_bytes_per_us"}) {
    EXPECT_GT(wire.at(rate).number_value(), 0) << rate;
  }
}

TEST_F(BenchRunTest, ARunningClusterIsUsedAndLeftAsItWas) {
  StartCluster(2);
  const Result result = Bench({"--shape", "S32,H64,K4,E16", "--address", address_, "--solo"});
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("1 rank (host backend"));
  EXPECT_THAT(result.out, HasSubstr("bit by bit"));
  const Result groups = RunPerigee({"list", "groups", "--address", address_, "--json"});
  EXPECT_EQ(ParseJson(groups.out).fields().at("groups").list_value().values_size(), 0);
}

TEST_F(BenchRunTest, TakesRoutesFromATrace) {
  Result result = Bench({"--shape", "S64,H64,K8,E64", "--trace", kTracePath, "--layer", "0"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr(absl::StrCat("routes of ", kTracePath, ", layer 0")));

  result = Bench({"--shape", "S64,H64,K4,E64", "--trace", kTracePath, "--layer", "0"});
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.err, HasSubstr("64 tokens of 8 routes for each of 2 ranks"));
  result = Bench({"--shape", "S64,H64,K8,E64", "--trace", scratch() + "/absent.safetensors"});
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.err, HasSubstr("absent.safetensors"));
}

TEST_F(BenchRunTest, WrongUseTakesTwoLines) {
  for (const std::vector<std::string>& more : std::vector<std::vector<std::string>>{
           {},
           {"--shape", "S32,H64,K4"},
           {"--shape", "S32,H64,K4,E15"},
           {"--shape", "S32,H64,K4,E16", "--layer", "1"},
           {"--shape", "S32,H64,K4,E16", "--sms", "4"},
           {"--shape", "S32,H64,K4,E16", "--speed"},
       }) {
    const Result result = Bench(more);
    EXPECT_EQ(result.status, 2) << result.err;
    EXPECT_EQ(result.out, "");
    EXPECT_THAT(Lines(result.err), testing::SizeIs(2)) << result.err;
  }
}

// A second run adds to the cell of the first.
TEST_F(BenchRunTest, WhatPathsTakeIsKeptInATable) {
  const std::string table = absl::StrCat(testing::TempDir(), "/paths_", getpid(), ".jsonl");
  std::vector<std::string> args = {"bench",        "direct", "--shape",     "S16,H64,K2,E4",
                                   "--skew",       "1",      "--seed",      "5",
                                   "--iterations", "1",      "--calibrate", table};
  Result result = RunPerigee(args);
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("A selector takes "));
  args[1] = "dispatch";
  result = RunPerigee(args);
  ASSERT_EQ(result.status, 0) << result.err;
  const auto read = PathTable::Read(table);
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_EQ(read->cells().size(), 1u);
  const PathCell& cell = read->cells()[0];
  EXPECT_EQ(cell.routes, "skew 1");
  EXPECT_EQ(cell.shape, (PathShape{16, 64, 2, 4, 2, 128, 2, 0}));
  EXPECT_EQ(cell.machine.backend, "host");
  EXPECT_TRUE(cell.costs.direct_overlapped_us.has_value());
  EXPECT_TRUE(cell.costs.dispatch_us.has_value());
  std::ofstream(table) << "spoilt";
  result = RunPerigee(args);
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.err, HasSubstr("line 1: it is no JSON object"));
  std::remove(table.c_str());
}

TEST_F(BenchRunTest, FetchedRowsAreThoseOfADispatch) {
  const Result result =
      RunPerigee({"bench", "pull", "--shape", "S40,H64,K4,E16,P8", "--skew", "2", "--iterations",
                  "2", "--warmup", "1", "--inputs", "2", "--seed", "5", "--json"});
  ASSERT_EQ(result.status, 0) << result.err;
  const auto json = ParseJson(result.out).fields();
  const auto shape = json.at("shapes").list_value().values(0).struct_value().fields();
  EXPECT_EQ(shape.at("checked_tokens").number_value(), 112) << "and 16 of each input computed";
  EXPECT_EQ(shape.at("mismatched_elements").number_value(), 0);
  EXPECT_NE(shape.at("choice").struct_value().fields().at("reason").string_value(), "");
  std::vector<std::string> names;
  for (const auto& element : shape.at("operations").list_value().values()) {
    names.push_back(element.struct_value().fields().at("operation").string_value());
  }
  EXPECT_THAT(names, ElementsAre("dispatch", "pull", "prepare_source", "materialise",
                                 "dispatch_back_to_back", "pull_back_to_back"));
}

// Every path's rows have come out alike, or the command would fail.
TEST_F(BenchRunTest, APathsRowsAreThoseOfAnOrdinaryDispatch) {
  const Result result =
      RunPerigee({"bench", "direct", "--shape", "S40,H64,K4,E16,P8", "--skew", "2", "--depth", "24",
                  "--iterations", "2", "--warmup", "1", "--inputs", "2", "--seed", "5", "--json"});
  ASSERT_EQ(result.status, 0) << result.err;
  const auto json = ParseJson(result.out).fields();
  EXPECT_EQ(json.at("skew").number_value(), 2);
  EXPECT_EQ(json.at("depth").number_value(), 24);
  const auto shape = json.at("shapes").list_value().values(0).struct_value().fields();
  EXPECT_EQ(shape.at("checked_tokens").number_value(), 160) << "two paths of two inputs";
  EXPECT_EQ(shape.at("mismatched_elements").number_value(), 0);
  EXPECT_GT(shape.at("home_imbalance").number_value(), 1);
  std::vector<std::string> names;
  for (const auto& element : shape.at("operations").list_value().values()) {
    const auto operation = element.struct_value().fields();
    names.push_back(operation.at("operation").string_value());
    EXPECT_GT(operation.at("mean_us").number_value(), 0);
    EXPECT_GE(operation.at("sd_us").number_value(), 0);
  }
  EXPECT_THAT(names, ElementsAre("produce_dispatch", "produce", "direct", "produce_direct",
                                 "direct_overlapped", "produce_dispatch_back_to_back",
                                 "direct_back_to_back", "direct_overlapped_back_to_back"));
}

}  // namespace
}  // namespace perigee
