#include "worker/ops/objects.h"

#include <memory>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/ops/failure_reason.h"

namespace perigee {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class TaggedPlan final : public PlanHandle {
 public:
  explicit TaggedPlan(ObjectTag tag) : tag_(tag) {}
  ObjectTag tag() const override { return tag_; }

 private:
  const ObjectTag tag_;
};

constexpr BufferId kBuffer(3);
constexpr Generation kGeneration(7);

ObjectTag Tag(uint64_t sequence) { return {kBuffer, kGeneration, Sequence(sequence)}; }
PlanPtr Plan(const ObjectTag& tag) { return std::make_shared<TaggedPlan>(tag); }
std::string Message(const absl::Status& status) { return std::string(status.message()); }

class ObjectsTest : public ::testing::Test {
 protected:
  // A dispatch with sequence `sequence` that makes and keeps `name`.
  PlanPtr Dispatch(const std::string& name, uint64_t sequence, bool weights = true) {
    PlanPtr plan = Plan(Tag(sequence));
    objects_.KeepPlan(name, plan);
    objects_.RowsDispatched(Sequence(sequence), plan->tag(), weights);
    objects_.UseSequence(Sequence(sequence));
    return plan;
  }
  BufferObjects objects_{"tenants/t/groups/g/buffers/b", kBuffer, kGeneration};
};

// One row per step of a life: what was done last, and whether run_experts and combine may follow.
struct Step {
  const char* name;
  void (*run)(BufferObjects& objects, const PlanHandle& plan);
  bool experts_may_follow;
  bool combine_may_follow;
};

TEST_F(ObjectsTest, WhatEndsTheRows) {
  const Step steps[] = {
      {"dispatch", [](BufferObjects&, const PlanHandle&) {}, true, true},
      {"run_experts", [](BufferObjects& objects, const PlanHandle&) { objects.RowsComputed(); },
       false, true},
      {"combine",
       [](BufferObjects& objects, const PlanHandle&) { objects.RowsConsumed(Sequence(5)); }, false,
       false},
      {"an operation that ended early",
       [](BufferObjects& objects, const PlanHandle&) { objects.RowsUndefined(Sequence(5)); }, false,
       false},
      {"another dispatch",
       [](BufferObjects& objects, const PlanHandle&) {
         objects.RowsDispatched(Sequence(5), Tag(5), true);
       },
       false, false},
      {"a dispatch by the same plan",
       [](BufferObjects& objects, const PlanHandle& plan) {
         objects.RowsDispatched(Sequence(5), plan.tag(), true);
       },
       true, true},
      {"a dispatch after a combine",
       [](BufferObjects& objects, const PlanHandle& plan) {
         objects.RowsConsumed(Sequence(5));
         objects.RowsDispatched(Sequence(6), plan.tag(), true);
       },
       true, true},
  };
  for (const Step& step : steps) {
    SCOPED_TRACE(step.name);
    const PlanPtr plan = Dispatch("p", 4);
    step.run(objects_, *plan);
    EXPECT_EQ(objects_.CheckRowsForExperts(*plan, true).ok(), step.experts_may_follow);
    EXPECT_EQ(objects_.CheckRowsForCombine(*plan, true).ok(), step.combine_may_follow);
  }
}

// One row per life that is over: what the refusal must say.
struct Refusal {
  const char* name;
  void (*run)(BufferObjects& objects);
  std::vector<const char*> names;
};

TEST_F(ObjectsTest, RefusalsNameWhatIsCarriedAndWhatLives) {
  const PlanPtr plan = Plan(Tag(4));
  const Refusal refusals[] = {
      {"nothing yet", [](BufferObjects& objects) { objects.Clear(); }, {"nothing was dispatched"}},
      {"consumed",
       [](BufferObjects& objects) { objects.RowsConsumed(Sequence(9)); },
       {"sequence 4", "consumed by the combine of sequence 9"}},
      {"spoilt",
       [](BufferObjects& objects) { objects.RowsUndefined(Sequence(9)); },
       {"sequence 4", "sequence 9", "ended early"}},
      {"another plan's",
       [](BufferObjects& objects) { objects.RowsDispatched(Sequence(8), Tag(8), true); },
       {"{buffer 3, generation 7, sequence 4}", "{buffer 3, generation 7, sequence 8}"}},
  };
  for (const Refusal& refusal : refusals) {
    SCOPED_TRACE(refusal.name);
    objects_.RowsDispatched(Sequence(4), plan->tag(), true);
    refusal.run(objects_);
    for (const absl::Status& status :
         {objects_.CheckRowsForExperts(*plan, false), objects_.CheckRowsForCombine(*plan, false)}) {
      EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
      EXPECT_EQ(ReasonOf(status), kReasonStaleObject);
      for (const char* name : refusal.names) EXPECT_THAT(Message(status), HasSubstr(name));
    }
  }
}

TEST_F(ObjectsTest, PlansLiveUntilTheirGenerationEnds) {
  const PlanPtr plan = Dispatch("p", 1);
  objects_.RowsConsumed(Sequence(2));
  Dispatch("q", 3);
  EXPECT_EQ(*objects_.FindPlan("p"), plan);
  // A further dispatch under the same name replaces it.
  const PlanPtr newer = Dispatch("p", 4);
  EXPECT_EQ(*objects_.FindPlan("p"), newer);
  objects_.Clear();
  EXPECT_EQ(objects_.FindPlan("p").status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(ObjectsTest, PlansOfAnotherBufferOrGenerationAreRefused) {
  for (const ObjectTag& tag : {ObjectTag{kBuffer, Generation(6), Sequence(2)},
                               ObjectTag{BufferId(2), kGeneration, Sequence(2)}}) {
    objects_.UseSequence(Sequence(12));
    objects_.KeepPlan("p", Plan(tag));
    const absl::Status status = objects_.FindPlan("p").status();
    EXPECT_EQ(ReasonOf(status), kReasonStaleObject);
    EXPECT_THAT(Message(status),
                AllOf(HasSubstr(absl::StrCat("{buffer ", tag.buffer.value, ", generation ",
                                             tag.generation.value, ", sequence 2}")),
                      HasSubstr("{buffer 3, generation 7, sequence 12}")));
    EXPECT_FALSE(objects_.CheckRowsForCombine(*Plan(tag), false).ok());
  }
}

TEST_F(ObjectsTest, AMissingPlanIsNamed) {
  EXPECT_THAT(Message(objects_.FindPlan("absent").status()), HasSubstr("'absent'"));
}

TEST_F(ObjectsTest, WeightsAreWantedOnlyWhereTheyCame) {
  const PlanPtr plan = Dispatch("p", 1, /*weights=*/false);
  EXPECT_TRUE(objects_.CheckRowsForExperts(*plan, false).ok());
  EXPECT_TRUE(objects_.CheckRowsForCombine(*plan, false).ok());
  EXPECT_THAT(Message(objects_.CheckRowsForExperts(*plan, true)), HasSubstr("without"));
  EXPECT_THAT(Message(objects_.CheckRowsForCombine(*plan, true)), HasSubstr("without"));
}

TEST_F(ObjectsTest, ThePlansKeptAreBounded) {
  for (size_t i = 0; i < kMaxPlans; ++i) {
    ASSERT_TRUE(objects_.CheckPlanRoom(absl::StrCat("p", i)).ok());
    Dispatch(absl::StrCat("p", i), i + 1);
  }
  EXPECT_EQ(objects_.CheckPlanRoom("more").code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(objects_.CheckPlanRoom("p0").ok());
}

}  // namespace
}  // namespace perigee
