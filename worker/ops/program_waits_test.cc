#include "worker/ops/program_waits.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "worker/ops/failure_reason.h"

namespace perigee {
namespace {

using ::testing::HasSubstr;

v1::Program Parse(const std::string& text) {
  v1::Program program;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &program)) << text;
  return program;
}

std::string Error(const std::string& operations) {
  const auto waits = ProgramWaits::Create(Parse("ordered_by_waits: true " + operations));
  if (waits.ok()) return "accepted";
  EXPECT_EQ(ReasonOf(waits.status()), kReasonInvalidProgram);
  return std::string(waits.status().message());
}

std::string Operation(const std::string& operation, const std::string& waits_for = "") {
  return absl::StrCat("operations { ", operation, " {} waits_for: [", waits_for, "] } ");
}

TEST(ProgramWaitsTest, RowsOfDifferentSlotsAreNotShared) {
  const auto dispatch = [](const std::string& slot, const std::string& waits_for) {
    return absl::StrCat("operations { dispatch { plan: '", slot, "' slot: '", slot,
                        "' } waits_for: [", waits_for, "] } ");
  };
  EXPECT_EQ(Error(dispatch("a", "") + dispatch("b", "")), "accepted");
  EXPECT_THAT(Error(dispatch("a", "") +
                    "operations { run_experts { plan: 'b' slot: 'a' output_slot: 'e' } }"),
              HasSubstr("both use dispatch-output slot 'a'"));
  EXPECT_THAT(Error("operations { run_experts { plan: 'a' slot: 'a' output_slot: 'e' } } "
                    "operations { combine { plan: 'b' slot: 'e' } }"),
              HasSubstr("both use expert-output slot 'e'"));
  // Combines sum in the shard, wherever their rows come from.
  EXPECT_THAT(Error("operations { combine { plan: 'a' slot: 'e' } } "
                    "operations { combine { plan: 'b' slot: 'f' } }"),
              HasSubstr("both use the rows in the shard"));
}

TEST(ProgramWaitsTest, WithoutItTheOrderIsTheLists) {
  const auto waits = ProgramWaits::Create(Parse(Operation("dispatch") + Operation("barrier")));
  ASSERT_TRUE(waits.ok()) << waits.status();
  EXPECT_TRUE(waits->Waits(1, 0));
  EXPECT_TRUE(ProgramWaits().Waits(7, 3));
}

TEST(ProgramWaitsTest, WaitingGoesThroughOthers) {
  const auto waits = ProgramWaits::Create(Parse("ordered_by_waits: true " + Operation("barrier") +
                                                Operation("barrier", "0") + Operation("barrier") +
                                                Operation("barrier", "1")));
  ASSERT_TRUE(waits.ok()) << waits.status();
  EXPECT_TRUE(waits->Waits(1, 0));
  EXPECT_TRUE(waits->Waits(3, 1));
  EXPECT_TRUE(waits->Waits(3, 0));
  EXPECT_FALSE(waits->Waits(2, 0));
  EXPECT_FALSE(waits->Waits(2, 1));
  EXPECT_FALSE(waits->Waits(3, 2));
}

// So that there can be no cycle.
TEST(ProgramWaitsTest, OnlyEarlierOperationsAreWaitedFor) {
  const std::string two = Operation("barrier") + Operation("barrier");
  EXPECT_THAT(Error(two + Operation("barrier", "0, 2")),
              HasSubstr("operation 2 (barrier) waits for operation 2, expected one that comes"));
  EXPECT_THAT(Error(Operation("barrier", "1") + Operation("barrier", "0")),
              HasSubstr("operation 0 (barrier) waits for operation 1"));
  EXPECT_THAT(Error(Operation("barrier", "-1")), HasSubstr("waits for operation -1"));
  EXPECT_THAT(Error(two + Operation("barrier", "1024")), HasSubstr("waits for operation 1024"));
}

TEST(ProgramWaitsTest, WaitsNeedTheirFlag) {
  const auto waits = ProgramWaits::Create(Parse(Operation("barrier") + Operation("barrier", "0")));
  EXPECT_EQ(ReasonOf(waits.status()), kReasonInvalidProgram);
  EXPECT_THAT(std::string(waits.status().message()),
              HasSubstr("operation 1 (barrier) waits for operation 0, expected ordered_by_waits"));
}

// What two operations share; empty: nothing that matters.
struct UsesCase {
  std::string earlier, later, shared;

  void Expect() const {
    const std::string first = absl::StrCat("operations { ", earlier, " } ");
    const std::string error = Error(absl::StrCat(first, "operations { ", later, " }"));
    EXPECT_THAT(error, HasSubstr(shared.empty() ? "accepted" : "both use " + shared + ", expected"))
        << earlier << ", " << later;
    EXPECT_EQ(Error(absl::StrCat(first, "operations { ", later, " waits_for: 0 }")), "accepted");
  }
};

TEST(ProgramWaitsTest, WhatUsesTheSameThingIsOrdered) {
  const std::string plan_p = R"(dispatch { plan: "p" })";
  const std::string saved_p = R"(dispatch { saved_plan: "p" })";
  const std::string saved_q = R"(dispatch { saved_plan: "q" })";
  const std::string prefetch_p = R"(prefetch_weights { plan: "p" })";
  const std::string prefetch_q = R"(prefetch_weights { plan: "q" })";
  const std::string experts = R"(run_experts { plan: "p" })";
  const std::string combine = R"(combine { plan: "p" })";
  const std::string reduce_p = R"(reduce_gradients { plan: "p" })";
  const std::string reduce_q = R"(reduce_gradients { plan: "q" })";
  const std::string probe = "probe_copy {}";
  const std::string barrier = "barrier {}";
  const UsesCase cases[] = {
      {plan_p, prefetch_p, "plan 'p'"},
      {prefetch_p, plan_p, "plan 'p'"},
      {plan_p, prefetch_q, ""},
      {plan_p, reduce_p, "plan 'p'"},
      {saved_p, prefetch_p, ""},
      {prefetch_p, saved_p, ""},
      {saved_p, saved_q, "the rows in the shard"},
      {saved_q, experts, "the rows in the shard"},
      {saved_q, combine, "the rows in the shard"},
      {experts, combine, "the rows in the shard"},
      {combine, probe, "the rows in the shard"},
      {combine, "prepare_dispatch {}", "the rows in the shard"},
      {combine, prefetch_p, ""},
      {prefetch_p, prefetch_q, "the slots"},
      {prefetch_q, experts, "the slots"},
      {experts, prefetch_q, "the slots"},
      {prefetch_p, reduce_p, ""},
      {reduce_p, reduce_q, "the gradients"},
      {reduce_p, saved_p, ""},
      {R"(dispatch { saved_plan: "p" rows_output: "x" })",
       R"(produce { a: "x" b: "b" output: "y" })", "tensor 'x'"},
      {R"(dispatch { saved_plan: "p" row_weights_output: "x" })",
       R"(prepare_source { hidden: "x" })", "tensor 'x'"},
      {R"(dispatch { saved_plan: "p" rows_output: "x" })",
       R"(produce { a: "a" b: "b" output: "y" })", ""},
      {R"(produce { a: "a" b: "b" output: "x" })", R"(combine { plan: "p" rows: "x" })",
       "tensor 'x'"},
      {barrier, prefetch_p, ""},
      {barrier, barrier, ""},
  };
  for (const UsesCase& uses : cases) uses.Expect();
}

// Between making a target and publishing it, its parts are filled in any order.
TEST(ProgramWaitsTest, WhatFillsATargetIsOrderedByItsParts) {
  const std::string prefetch_p = R"(prefetch_weights { plan: "p" })";
  const std::string experts = R"(run_experts { plan: "p" })";
  const std::string combine = R"(combine { plan: "p" })";
  const std::string target = R"(prepare_dispatch { target: "t" })";
  const std::string metadata = R"(prepare_publication { target: "t" })";
  const std::string store = R"(store_rows { target: "t" })";
  const std::string produce = R"(produce { a: "a" b: "b" output: "x" })";
  const std::string produce_into = R"(produce { a: "a" b: "b" target: "t" })";
  const std::string publish_p = R"(publish { target: "t" plan: "p" })";
  const UsesCase cases[] = {
      {target, metadata, "the rows in the shard"},
      {target, store, "the rows in the shard"},
      {metadata, store, ""},
      {store, metadata, ""},
      {metadata, produce_into, ""},
      {metadata, metadata, "the target's metadata"},
      {store, produce_into, "the target's rows"},
      {metadata, experts, "the rows in the shard"},
      {produce_into, combine, "the rows in the shard"},
      {metadata, publish_p, "the rows in the shard"},
      {store, publish_p, "the rows in the shard"},
      {produce_into, publish_p, "the rows in the shard"},
      {produce, combine, ""},
      {produce, R"(dispatch { hidden: "x" saved_plan: "p" })", "tensor 'x'"},
      {produce, R"(store_rows { target: "t" hidden: "x" })", "tensor 'x'"},
      {produce, R"(produce { a: "x" b: "b" output: "y" })", "tensor 'x'"},
      {produce, R"(produce { a: "a" b: "b" output: "y" })", ""},
      {publish_p, prefetch_p, "plan 'p'"},
      {store, prefetch_p, ""},
  };
  for (const UsesCase& uses : cases) uses.Expect();
}

TEST(ProgramWaitsTest, BothAreNamedWhereOneShouldWait) {
  EXPECT_THAT(Error(R"(operations { barrier {} } operations { prefetch_weights { plan: "p" } }
                       operations { run_experts { plan: "p" } })"),
              HasSubstr("operation 2 (run_experts) and operation 1 (prefetch_weights) both use"));
}

}  // namespace
}  // namespace perigee
