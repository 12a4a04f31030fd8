#include "client/cli/bench/bench_report.h"

#include <string>

#include "gmock/gmock.h"
#include "google/protobuf/struct.pb.h"
#include "google/protobuf/util/json_util.h"
#include "gtest/gtest.h"

namespace perigee {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

BenchResult Result(RankMemory memory) {
  BenchResult result;
  result.options.what = "all";
  result.options.ranks = 8;
  result.options.backend = "cuda";
  result.options.memory = memory;
  result.options.sms = 16;
  result.options.seed = 77;
  result.device = "GPU 0";
  ShapeResult shape;
  shape.shape = *ParseBenchShape("S4096,H7168,K8,E256");
  shape.copy = {.rank_bytes = 1'000'000, .own_us = 10, .link_us = 20};
  const MovedBytes bytes{16'000'000, 2'000'000, 3'000'000};
  Spread times{.samples = 60, .median_us = 120, .p25_us = 110, .p75_us = 130};
  shape.operations.push_back({"plan", times, absl::nullopt, absl::nullopt});
  shape.operations.push_back(
      {"dispatch", times, bytes, FloorOf(bytes, shape.copy, memory, result.options.ranks)});
  shape.checked_tokens = 48;
  result.shapes.push_back(shape);
  return result;
}

google::protobuf::Struct Parse(const std::string& text) {
  google::protobuf::Struct json;
  EXPECT_TRUE(google::protobuf::util::JsonStringToMessage(text, &json).ok()) << text;
  return json;
}

TEST(BenchText, SaysWhatItWasMeasuredOn) {
  const std::string text = BenchText(Result(RankMemory::kOneForEach));
  EXPECT_THAT(text, HasSubstr("8 ranks (cuda backend, GPU 0), a device each, SMs 16, local SMs "
                              "default\n20 iterations of 3 inputs after 5 to warm up, routes "
                              "random, seed 77\n"));
  EXPECT_THAT(text, HasSubstr("LOCAL BYTES"));
  EXPECT_THAT(text, HasSubstr("link"));
  EXPECT_THAT(text, HasSubstr("0.500"));
  EXPECT_THAT(text, HasSubstr("48 tokens of rank 0 are as computed here"));
  EXPECT_THAT(text, HasSubstr("plan: dispatch less dispatch_saved_plan"));
  EXPECT_THAT(text, HasSubstr("step_back_to_back less dispatch_saved_plan_back_to_back"));
  EXPECT_THAT(BenchText(Result(RankMemory::kOneForAll)), HasSubstr("that share its memory"));
}

TEST(BenchText, RingsAreComparedByWhatTheyTake) {
  BenchResult result = Result(RankMemory::kOneForAll);
  result.options.what = "rings";
  result.options.output_slots = 4;
  ShapeResult& shape = result.shapes[0];
  shape.operations.clear();
  shape.checked_tokens = 1200;
  shape.rings = {{.name = "one_by_one"},
                 {.name = "ring", .pending = 3, .dispatch_output_slots = 4, .output_bytes = 8000}};
  EXPECT_THAT(BenchText(result), HasSubstr("those of one_by_one, bit by bit, in 1,200 tokens"));
  const auto rings = Parse(BenchJson(result)).fields().at("shapes").list_value().values(0);
  const auto& ring = rings.struct_value().fields().at("rings").list_value().values(1);
  EXPECT_EQ(ring.struct_value().fields().at("outputs").string_value(), "ring");
  EXPECT_EQ(ring.struct_value().fields().at("pending").number_value(), 3);
  EXPECT_EQ(ring.struct_value().fields().at("output_bytes_per_rank").number_value(), 8000);
  EXPECT_EQ(rings.struct_value().fields().count("copy"), 0u);
  shape.mismatched_elements = 2;
  EXPECT_THAT(BenchText(result), HasSubstr("FAIL: 2 elements"));
}

TEST(BenchText, AMismatchFails) {
  BenchResult result = Result(RankMemory::kOneForAll);
  EXPECT_TRUE(result.passes());
  EXPECT_THAT(BenchText(result), Not(HasSubstr("FAIL")));
  result.shapes[0].mismatched_elements = 5;
  EXPECT_FALSE(result.passes());
  EXPECT_THAT(BenchText(result), HasSubstr("FAIL: 5 elements"));
  EXPECT_EQ(Parse(BenchJson(result)).fields().at("result").string_value(), "FAIL");
}

TEST(BenchJson, HasTheDocumentedKeys) {
  const auto json = Parse(BenchJson(Result(RankMemory::kOneForEach))).fields();
  for (const char* key :
       {"what", "device", "backend", "transport", "ranks", "solo", "shared_memory", "sms",
        "local_sms", "programmatic_launch", "high_priority_stream", "iterations", "warmup",
        "inputs", "seed", "trace", "layer", "shapes", "result"}) {
    EXPECT_EQ(json.count(key), 1u) << key;
  }
  const auto shape = json.at("shapes").list_value().values(0).struct_value().fields();
  for (const char* key :
       {"shape", "tokens", "hidden", "topk", "experts", "slots", "token_padding", "intermediate",
        "copy", "operations", "checked_tokens", "mismatched_elements"}) {
    EXPECT_EQ(shape.count(key), 1u) << key;
  }
  EXPECT_EQ(shape.at("slots").number_value(), 32);
  const auto copy = shape.at("copy").struct_value().fields();
  EXPECT_EQ(copy.at("rank_bytes").number_value(), 1'000'000);
  EXPECT_EQ(copy.at("own_us").number_value(), 10);
  EXPECT_EQ(copy.at("own_gb_per_s").number_value(), 200);
  EXPECT_EQ(copy.at("to_next_rank_us").number_value(), 20);
  EXPECT_EQ(copy.at("to_next_rank_gb_per_s").number_value(), 50);
  EXPECT_TRUE(copy.at("alone_us").has_null_value());
  const auto& operations = shape.at("operations").list_value();
  const auto plan = operations.values(0).struct_value().fields();
  EXPECT_TRUE(plan.at("floor_us").has_null_value());
  const auto dispatch = operations.values(1).struct_value().fields();
  EXPECT_EQ(plan.size(), dispatch.size());
  EXPECT_EQ(dispatch.at("operation").string_value(), "dispatch");
  EXPECT_EQ(dispatch.at("samples").number_value(), 60);
  EXPECT_EQ(dispatch.at("median_us").number_value(), 120);
  EXPECT_EQ(dispatch.at("total_bytes").number_value(), 16'000'000);
  EXPECT_EQ(dispatch.at("max_local_bytes").number_value(), 2'000'000);
  EXPECT_EQ(dispatch.at("max_link_bytes").number_value(), 3'000'000);
  EXPECT_EQ(dispatch.at("floor_us").number_value(), 60);
  EXPECT_EQ(dispatch.at("floor_bound").string_value(), "link");
  EXPECT_EQ(dispatch.at("floor_over_median").number_value(), 0.5);
}

TEST(BenchJson, WireHasRatesBesideTheCopys) {
  BenchResult result = Result(RankMemory::kOneForEach);
  const auto wire = [&] {
    const auto shape =
        Parse(BenchJson(result)).fields().at("shapes").list_value().values(0).struct_value();
    return shape.fields().at("wire");
  };
  ShapeResult& shape = result.shapes[0];
  for (const char* name : {"dispatch_saved_plan", "dispatch_saved_plan_back_to_back"}) {
    shape.operations.push_back(shape.operations[1]);
    shape.operations.back().name = name;
  }
  EXPECT_TRUE(wire().has_null_value()) << "of all routes";
  result.options.what = "wire";
  const auto rates = wire().struct_value().fields();
  EXPECT_EQ(rates.at("link_bytes").number_value(), 3'000'000);
  EXPECT_EQ(rates.at("dispatch_bytes_per_us").number_value(), 25'000);
  EXPECT_EQ(rates.at("back_to_back_bytes_per_us").number_value(), 25'000);
  EXPECT_EQ(rates.at("copy_bytes_per_us").number_value(), 50'000);
  EXPECT_THAT(BenchText(result),
              HasSubstr("On the busiest link, by a saved plan: 3.00 MB in a dispatch, 25000 "
                        "bytes/us, back to back 25000 bytes/us; the copy to the next rank 50000 "
                        "bytes/us.\n"));
}

TEST(BenchJson, OneRankHasNoNext) {
  BenchResult result = Result(RankMemory::kOneForEach);
  result.shapes[0].copy.link_us = 0;
  const auto shape =
      Parse(BenchJson(result)).fields().at("shapes").list_value().values(0).struct_value();
  EXPECT_TRUE(
      shape.fields().at("copy").struct_value().fields().at("to_next_rank_us").has_null_value());
}

}  // namespace
}  // namespace perigee
