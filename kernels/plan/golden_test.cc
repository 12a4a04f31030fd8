// The checked-in vectors, held against the planner and against the reference.
#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/json_util.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "kernels/plan/compare.h"
#include "kernels/plan/plan.h"
#include "kernels/plan/reference.h"

namespace perigee {
namespace {

using Json = google::protobuf::Value;

int32_t Number(const Json& json) { return static_cast<int32_t>(json.number_value()); }

const Json& Field(const Json& json, const std::string& key) {
  const auto& fields = json.struct_value().fields();
  const auto field = fields.find(key);
  if (field == fields.end()) {
    ADD_FAILURE() << "no field " << key;
    static const Json none;
    return none;
  }
  return field->second;
}

std::vector<int32_t> Row(const Json& json) {
  std::vector<int32_t> row;
  for (const Json& value : json.list_value().values()) row.push_back(Number(value));
  return row;
}

Matrix Rows(const Json& json) {
  Matrix rows;
  for (const Json& value : json.list_value().values()) rows.push_back(Row(value));
  return rows;
}

template <size_t N>
std::vector<std::vector<std::array<int32_t, N>>> Tuples(const Json& json) {
  std::vector<std::vector<std::array<int32_t, N>>> result;
  for (const Json& rank : json.list_value().values()) {
    result.emplace_back();
    for (const std::vector<int32_t>& row : Rows(rank)) {
      EXPECT_EQ(row.size(), N);
      std::array<int32_t, N> tuple{};
      std::copy_n(row.begin(), N, tuple.begin());
      result.back().push_back(tuple);
    }
  }
  return result;
}

struct GoldenCase {
  std::string name;
  Geometry geometry;
  Matrix topk_experts;
  std::vector<int32_t> token_counts;
  ReferencePlan plan;  // transfers empty: not given
  int32_t logical_rows = 0;
  std::vector<int32_t> load;  // empty: not given
};

GoldenCase ReadCase(const Json& json) {
  GoldenCase golden;
  golden.name = Field(json, "name").string_value();
  golden.geometry = {.ranks = Number(Field(json, "ranks")),
                     .experts = Number(Field(json, "experts")),
                     .tokens = Number(Field(json, "tokens")),
                     .topk = Number(Field(json, "topk")),
                     .slots = Number(Field(json, "slots")),
                     .token_padding = Number(Field(json, "token_padding"))};
  golden.topk_experts = Rows(Field(json, "topk_experts"));
  golden.token_counts.assign(golden.geometry.ranks, golden.geometry.tokens);
  const auto& fields = json.struct_value().fields();
  if (fields.contains("token_counts")) golden.token_counts = Row(fields.at("token_counts"));
  if (fields.contains("load")) golden.load = Row(fields.at("load"));
  golden.logical_rows = Number(Field(json, "NvS"));
  if (fields.contains("transfers")) golden.plan.transfers = Rows(fields.at("transfers"));
  golden.plan.alloc = Rows(Field(json, "alloc"));
  golden.plan.cu_seqlens = Rows(Field(json, "cu_seqlens"));
  golden.plan.zero_fill = Tuples<2>(Field(json, "zero_fill_ranges"));
  golden.plan.experts_to_copy = Rows(Field(json, "experts_to_copy"));
  golden.plan.remote_stats = Rows(Field(json, "remote_stats"));
  golden.plan.dst = Rows(Field(json, "dst"));
  golden.plan.duplicate_groups = Tuples<3>(Field(json, "dup_groups"));
  golden.plan.duplicate_rows = Rows(Field(json, "dup_rows"));
  return golden;
}

std::vector<GoldenCase> ReadCases() {
  std::ifstream file("kernels/plan/testdata/planning.json");
  std::stringstream text;
  text << file.rdbuf();
  Json json;
  const auto status = google::protobuf::util::JsonStringToMessage(text.str(), &json);
  EXPECT_TRUE(status.ok()) << status.ToString();
  std::vector<GoldenCase> cases;
  for (const Json& value : Field(json, "cases").list_value().values()) {
    cases.push_back(ReadCase(value));
  }
  return cases;
}

std::vector<int32_t> Flat(const Matrix& matrix) {
  std::vector<int32_t> flat;
  for (const auto& row : matrix) flat.insert(flat.end(), row.begin(), row.end());
  return flat;
}

TEST(Golden, PlannerGivesTheVectors) {
  const std::vector<GoldenCase> cases = ReadCases();
  ASSERT_EQ(cases.size(), 16u);
  for (GoldenCase golden : cases) {
    SCOPED_TRACE(golden.name);
    EXPECT_EQ(golden.geometry.logical_rows(), golden.logical_rows);
    const auto plan = PlanGroup(golden.geometry, Flat(golden.topk_experts), golden.token_counts);
    ASSERT_TRUE(plan.ok()) << plan.status();
    if (golden.plan.transfers.empty()) {
      golden.plan.transfers =
          PlanByTheRules(golden.geometry, golden.topk_experts, golden.token_counts).transfers;
    }
    ExpectSamePlan(*plan, golden.plan);
    if (!golden.load.empty()) {
      EXPECT_EQ(plan->placement.load, golden.load);
    }
  }
}

TEST(Golden, ReferenceGivesTheVectors) {
  for (const GoldenCase& golden : ReadCases()) {
    SCOPED_TRACE(golden.name);
    const ReferencePlan plan =
        PlanByTheRules(golden.geometry, golden.topk_experts, golden.token_counts);
    if (!golden.plan.transfers.empty()) {
      EXPECT_EQ(plan.transfers, golden.plan.transfers);
    }
    EXPECT_EQ(plan.alloc, golden.plan.alloc);
    EXPECT_EQ(plan.cu_seqlens, golden.plan.cu_seqlens);
    EXPECT_EQ(plan.zero_fill, golden.plan.zero_fill);
    EXPECT_EQ(plan.experts_to_copy, golden.plan.experts_to_copy);
    EXPECT_EQ(plan.remote_stats, golden.plan.remote_stats);
    EXPECT_EQ(plan.dst, golden.plan.dst);
    EXPECT_EQ(plan.duplicate_groups, golden.plan.duplicate_groups);
    EXPECT_EQ(plan.duplicate_rows, golden.plan.duplicate_rows);
  }
}

}  // namespace
}  // namespace perigee
