// When run_experts fills slots again that were filled for something else, as the buffer asks.
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/testing/program_runner_fixture.h"

namespace perigee {
namespace {

using ::testing::HasSubstr;

std::string Dispatch(const char* plan) {
  return absl::StrCat("operations { dispatch { hidden: \"x\" topk_experts: \"t\" plan: \"", plan,
                      "\" } } ");
}
std::string Again(const char* plan) {
  return absl::StrCat("operations { dispatch { hidden: \"x\" saved_plan: \"", plan, "\" } } ");
}
std::string Slots(const char* operation, const char* plan, int layer, int version) {
  return absl::StrCat("operations { ", operation, " { plan: \"", plan, "\" layer: ", layer,
                      " weights_version: ", version, " } } ");
}
std::string Prefetch(const char* plan, int layer, int version = 3) {
  return Slots("prefetch_weights", plan, layer, version);
}
std::string Experts(const char* plan, int layer, int version = 3) {
  return Slots("run_experts", plan, layer, version);
}

std::string Prepare(const char* plan) {
  return absl::StrCat("operations { prepare_source { topk_experts: \"t\" source: \"s\" plan: \"",
                      plan, "\" } } ");
}
std::string Materialise(const char* plan) {
  return absl::StrCat("operations { materialise { source: \"s\" plan: \"", plan, "\" } } ");
}

class RefetchTest : public ProgramRunnerTest {
 protected:
  RefetchTest() {
    shape_.refetch = true;
    shape_.source_storage = true;
  }
  // The calls of the data path that the program makes, without their sequences.
  std::string Calls(const std::string& program) {
    const size_t before = path_->calls().size();
    outcome_ = Run(program, objects_.last_sequence().value + 1);
    std::vector<std::string> calls = path_->calls();
    calls.erase(calls.begin(), calls.begin() + static_cast<std::ptrdiff_t>(before));
    for (std::string& call : calls) call.resize(call.find(' '));
    return absl::StrJoin(calls, " ");
  }
  ProgramOutcome outcome_;
};

struct Case {
  const char* name;
  std::string program;
  bool fetches;  // before its last operation, run_experts
};

TEST_F(RefetchTest, SlotsAreFilledAgainWhereTheyWereFilledForSomethingElse) {
  const std::string made = Dispatch("p") + Prefetch("p", 1);
  const Case cases[] = {
      {"nothing since", made + Experts("p", 1), false},
      {"the rows again", made + Again("p") + Experts("p", 1), false},
      {"never filled", Dispatch("p") + Experts("p", 1), true},
      {"another layer since", made + Prefetch("p", 0) + Experts("p", 1), true},
      {"another layer is wanted", made + Experts("p", 0), true},
      {"another version is wanted", made + Experts("p", 1, 4), true},
      {"for another plan since",
       made + Dispatch("q") + Prefetch("q", 1) + Again("p") + Experts("p", 1), true},
      {"and for this one again",
       made + Dispatch("q") + Prefetch("q", 1) + Again("p") + Prefetch("p", 1) + Experts("p", 1),
       false},
      {"the plan was made anew", made + Dispatch("p") + Experts("p", 1), true},
      {"the same view's rows under another name",
       Prepare("q") + Prefetch("q", 1) + Materialise("p") + Experts("p", 1), false},
      {"a view is materialised again",
       Prepare("q") + Materialise("p") + Prefetch("p", 1) + Materialise("p") + Experts("p", 1),
       false},
      {"another view's rows under that name",
       Prepare("q") + Materialise("p") + Prefetch("p", 1) + Prepare("q") + Materialise("p") +
           Experts("p", 1),
       true},
      {"fetched once for both",
       made + Prefetch("p", 0) + Experts("p", 1) + Again("p") + Experts("p", 1), false},
  };
  for (const bool queues : {false, true}) {
    if (queues) path_->set_queues();
    for (const Case& one : cases) {
      SCOPED_TRACE(absl::StrCat(one.name, queues ? ", queued" : ""));
      objects_.ForgetSlots();
      const std::string calls = Calls(one.program);
      EXPECT_EQ(outcome_.status.code(), 0) << outcome_.status.message();
      const bool fetched = calls.ends_with("prefetch_weights run_experts");
      const bool asked = one.program.ends_with(Prefetch("p", 1) + Experts("p", 1));
      EXPECT_EQ(fetched && !asked, one.fetches) << calls;
      for (const v1::OperationTiming& timing : outcome_.progress.timings()) {
        EXPECT_EQ(timing.count(), 1) << timing.operation();
      }
    }
  }
}

TEST_F(RefetchTest, WithoutTheOptionNothingIsFetched) {
  shape_.refetch = false;
  EXPECT_EQ(Calls(Dispatch("p") + Experts("p", 1)), "dispatch run_experts");
}

TEST_F(RefetchTest, WithoutSlotsThereIsNothingToFetch) {
  shape_.geometry.slots = 0;
  EXPECT_EQ(Calls(Dispatch("p") + Experts("p", 1)), "dispatch run_experts");
}

TEST_F(RefetchTest, WhatAnEarlierProgramFilledCounts) {
  EXPECT_EQ(Calls(Dispatch("p") + Prefetch("p", 1)), "dispatch prefetch_weights");
  EXPECT_EQ(Calls(Again("p") + Experts("p", 1)), "dispatch_with_plan run_experts");
  EXPECT_EQ(Calls(Again("p") + Experts("p", 0)), "dispatch_with_plan prefetch_weights run_experts");
}

TEST_F(RefetchTest, ItTakesASequenceAndItsTimeIsThatOfTheExperts) {
  path_->set_behaviour([&](const std::string& operation, Sequence) {
    if (operation == "prefetch_weights") clock_.Advance(absl::Milliseconds(4));
    if (operation == "run_experts") clock_.Advance(absl::Milliseconds(3));
    return FakeDataPath::Outcome();
  });
  Calls(Dispatch("p") + Experts("p", 1) + kCombine);
  EXPECT_EQ(outcome_.progress.last_sequence(), 3u);
  EXPECT_EQ(path_->calls().back(), "combine 3");
  EXPECT_EQ(outcome_.progress.timings(1).total_ns(), 7'000'000);
}

// All ranks take part in the prefetch, so one that cannot says so there.
TEST_F(RefetchTest, ARankThatFailsDeclinesThePrefetchOfTheOthers) {
  path_->set_queues();
  EXPECT_EQ(Calls(R"(operations { dispatch { hidden: "z" topk_experts: "t" plan: "p" } } )" +
                  Experts("p", 1) + kCombine),
            "decline decline decline");
  EXPECT_EQ(outcome_.status.reason(), "STALE_OBJECT");
}

TEST_F(RefetchTest, AfterAFailureOfAllNothingIsKnownOfTheSlots) {
  Calls(Dispatch("p") + Prefetch("p", 1));
  Fail("barrier", Leave(AbortReason::kCancelled, Operation::kBarrier, 3));
  Calls(kBarrier);
  EXPECT_EQ(outcome_.status.reason(), "CANCELLED");
  path_->set_behaviour({});
  EXPECT_EQ(Calls(Again("p") + Experts("p", 1)), "dispatch_with_plan prefetch_weights run_experts");
}

}  // namespace
}  // namespace perigee
