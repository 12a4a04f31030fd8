#include "proto/local/local_command.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/local/ring_fixtures.h"

namespace perigee {
namespace {

using ::testing::HasSubstr;

constexpr LocalPlanId kPlan(5);

CommandEntry Entry(const LocalOperation& operation) {
  LocalCommand command;
  command.operation = operation;
  command.sequence = kTestLimits.next_sequence;
  return EncodeCommand(command, kTestLimits.generation);
}

void ExpectRefused(const CommandEntry& entry, absl::StatusCode code, const char* why) {
  const absl::StatusOr<LocalCommand> decoded = DecodeCommand(entry, kTestLimits);
  EXPECT_EQ(decoded.status().code(), code) << why;
  EXPECT_THAT(std::string(decoded.status().message()), HasSubstr(why));
}
void ExpectInvalid(const CommandEntry& entry, const char* why) {
  ExpectRefused(entry, absl::StatusCode::kInvalidArgument, why);
}

TEST(LocalCommandTest, EveryCommandComesBackAsItWas) {
  std::mt19937_64 random(RingTestSeed());
  for (int i = 0; i < 2000; ++i) {
    const LocalCommand command = RandomCommand(random);
    const CommandEntry entry = EncodeCommand(command, kTestLimits.generation);
    const absl::StatusOr<LocalCommand> decoded =
        DecodeCommand(entry, kTestLimits, TokenOf(command));
    ASSERT_TRUE(decoded.ok()) << decoded.status();
    EXPECT_EQ(*decoded, command);
    EXPECT_EQ(TakesSequence(entry), command.sequence != Sequence());
  }
}

TEST(LocalCommandTest, KindsHaveNamesAndTheUnknownNone) {
  EXPECT_STREQ(CommandName(KindOf(LocalClonePlan{})), "clone_plan");
  EXPECT_STREQ(CommandName(KindOf(LocalEmpty{})), "empty");
  EXPECT_STREQ(CommandName(static_cast<CommandKind>(0)), "unknown");
  EXPECT_STREQ(CommandName(static_cast<CommandKind>(18)), "unknown");
}

TEST(LocalCommandTest, RefusesUnknownKinds) {
  CommandEntry entry = Entry(LocalEmpty{});
  for (const uint32_t kind : {0u, 18u, 0xffffffffu}) {
    entry.kind = kind;
    ExpectInvalid(entry, "expected 1 to 17");
    EXPECT_FALSE(TakesSequence(entry));
  }
}

TEST(LocalCommandTest, RefusesAnotherGenerationOrSequence) {
  CommandEntry entry = Entry(LocalBarrier{});
  entry.generation = 6;
  ExpectRefused(entry, absl::StatusCode::kFailedPrecondition,
                "(barrier) carries generation 6; generation 7 lives");
  entry = Entry(LocalBarrier{});
  entry.sequence = 12;
  ExpectRefused(entry, absl::StatusCode::kFailedPrecondition,
                "carries sequence 12, the next one is 11");
  entry = Entry(LocalReleasePlan{kPlan});
  EXPECT_EQ(entry.sequence, 0u);
  entry.sequence = 11;
  ExpectInvalid(entry, "sequence is 11, expected 0");
}

TEST(LocalCommandTest, RefusesFieldsOutOfTheirRange) {
  ExpectInvalid(Entry(LocalDispatch{kPlan, 17, false}), "token_count is 17, expected 0 to 16");
  ExpectInvalid(Entry(LocalDispatchWithPlan{kPlan, -1, false}), "token_count is -1");
  ExpectInvalid(Entry(LocalPrepareDispatch{kPlan, 17}), "token_count is 17, expected 0 to 16");
  ExpectInvalid(Entry(LocalPrepareSource{kPlan, 17, true, true}), "token_count is 17, expected 0");
  ExpectInvalid(Entry(LocalPrepareSource{LocalPlanId(0), 1, true, true}), "plan is 0");
  ExpectInvalid(Entry(LocalMaterialise{LocalPlanId(0)}), "plan is 0");
  ExpectInvalid(Entry(LocalPrefetchWeights{kPlan, 3, 1}), "layer is 3, expected 0 to 2");
  ExpectInvalid(Entry(LocalRunExperts{kPlan, -1, 1, true}), "layer is -1");
  ExpectInvalid(Entry(LocalRunExperts{kPlan, 0, 0, true}), "weights_version is 0");
  ExpectInvalid(Entry(LocalClonePlan{kPlan, LocalPlanId()}), "source_plan is 0");
  for (const LocalOperation& operation :
       {LocalOperation(LocalDispatch{}), LocalOperation(LocalDispatchWithPlan{}),
        LocalOperation(LocalPrefetchWeights{LocalPlanId(), 0, 1}),
        LocalOperation(LocalRunExperts{LocalPlanId(), 0, 1}), LocalOperation(LocalCombine{}),
        LocalOperation(LocalReleasePlan{}), LocalOperation(LocalClonePlan{{}, kPlan}),
        LocalOperation(LocalPrepareDispatch{}), LocalOperation(LocalPreparePublication{}),
        LocalOperation(LocalStoreRows{}), LocalOperation(LocalPublish{})}) {
    ExpectInvalid(Entry(operation), "plan is 0, expected another number");
  }
}

TEST(LocalCommandTest, RefusesWeightsWhereNoneAreKept) {
  CommandLimits limits = kTestLimits;
  limits.layers = 0;
  const absl::StatusOr<LocalCommand> decoded =
      DecodeCommand(Entry(LocalPrefetchWeights{kPlan, 0, 1}), limits);
  EXPECT_THAT(std::string(decoded.status().message()), HasSubstr("the buffer keeps no weights"));
}

TEST(LocalCommandTest, RefusesGradientsWhereNoneAreKept) {
  CommandLimits limits = kTestLimits;
  limits.gradients = false;
  const absl::StatusOr<LocalCommand> decoded =
      DecodeCommand(Entry(LocalReduceGradients{kPlan, 0}), limits);
  EXPECT_THAT(std::string(decoded.status().message()), HasSubstr("the buffer keeps no gradients"));
}

TEST(LocalCommandTest, RefusesFieldsThatTheKindHasNoUseFor) {
  CommandEntry entry = Entry(LocalBarrier{});
  entry.plan = 1;
  ExpectInvalid(entry, "(barrier): plan is 1, expected 0");
  entry = Entry(LocalCombine{kPlan, true});
  entry.flags |= kCommandToken;
  ExpectInvalid(entry, "flags is 9, expected 1");
  entry.flags = kCommandOwnWeights;
  ExpectInvalid(entry, "flags is 4, expected 0");
  entry = Entry(LocalDispatch{kPlan, 1, true});
  entry.flags |= kCommandOwnWeights;
  ExpectInvalid(entry, "flags is 5, expected 1");
  entry = Entry(LocalReduceGradients{kPlan, 1});
  entry.weights_version = 1;
  ExpectInvalid(entry, "(reduce_gradients): weights_version is 1, expected 0");
  entry = Entry(LocalPrefetchWeights{kPlan, 1, 1});
  entry.flags = kCommandRouteWeights;
  ExpectInvalid(entry, "flags is 1, expected 0");
  entry = Entry(LocalDispatch{kPlan, 1, false});
  entry.layer = 1;
  ExpectInvalid(entry, "layer is 1, expected 0");
  entry = Entry(LocalEmpty{});
  entry.weights_version = 1;
  ExpectInvalid(entry, "weights_version is 1, expected 0");
  entry = Entry(LocalPrepareDispatch{kPlan, 1});
  entry.flags = kCommandRouteWeights;
  ExpectInvalid(entry, "(prepare_dispatch): flags is 1, expected 0");
  entry = Entry(LocalPreparePublication{kPlan, true, {}});
  entry.flags |= kCommandOwnWeights;
  ExpectInvalid(entry, "flags is 5, expected 1");
  entry = Entry(LocalStoreRows{kPlan});
  entry.token_count = 2;
  ExpectInvalid(entry, "(store_rows): token_count is 2, expected 0");
  entry = Entry(LocalPublish{kPlan});
  entry.source_plan = 3;
  ExpectInvalid(entry, "(publish): source_plan is 3, expected 0");
  entry = Entry(LocalReleasePlan{kPlan});
  entry.source_plan = 9;
  ExpectInvalid(entry, "source_plan is 9, expected 0");
  entry = Entry(LocalCombine{kPlan});
  entry.token_count = 1;
  ExpectInvalid(entry, "token_count is 1, expected 0");
}

TEST(LocalCommandTest, RefusesSlotsThatCannotBeMeant) {
  CommandEntry entry = Entry(LocalDispatch{kPlan, 1, false, kAnySlot});
  EXPECT_EQ(entry.flags, kCommandSlot);
  entry.slot = -2;
  ExpectInvalid(entry, "(dispatch): slot is -2, expected -1 or an index");
  entry = Entry(LocalDispatch{kPlan, 1, false});
  entry.slot = 1;
  ExpectInvalid(entry, "slot is 1, expected 0");
  entry = Entry(LocalDispatchWithPlan{kPlan, 1, false, 2});
  entry.source_plan = 5;
  ExpectInvalid(entry, "source_plan is 5, expected 0");
  LocalRunExperts run{kPlan, 0, 1};
  run.output_slot = true;
  ExpectInvalid(Entry(run), "(run_experts): output_slot is set, expected a slot");
  LocalCombine combine{.plan = kPlan, .route_weights = true, .slot = LocalSlot{1, 3}};
  ExpectInvalid(Entry(combine), "route_weights is set, expected none");
  combine = {.plan = kPlan, .own_rows = true, .slot = LocalSlot{1, 3}};
  ExpectInvalid(Entry(combine), "own_rows is set, expected rows of the slot");
  LocalReleaseSlot release{{1, 3}, LocalRing::kExpertOutput, SlotRead::kByStream};
  ExpectInvalid(Entry(release), "(release_slot): read is to be told, expected over");
  entry = Entry(LocalReleaseSlot{{1, 3}});
  entry.flags |= kCommandReadByStream | kCommandReadByGraph;
  ExpectInvalid(entry, "read is by a stream and by a graph");
  entry = Entry(LocalReleaseSlot{{1, 3}});
  entry.flags = kCommandSlot;
  ExpectInvalid(entry, "flags is 32, expected 0");
  entry = Entry(LocalReleaseSlot{{1, 3}});
  entry.plan = 1;
  ExpectInvalid(entry, "plan is 1, expected 0");
}

// No slot is meant by accident.
TEST(LocalCommandTest, AnIndexThatDoesNotFitIsNoOther) {
  for (const int32_t index : {65536, -65536, 65537, INT32_MAX, INT32_MIN}) {
    const CommandEntry entry = Entry(LocalReleaseSlot{{index, 3}});
    EXPECT_LT(entry.slot, 0) << index;
    EXPECT_EQ(entry.source_plan, 3u);
    ExpectInvalid(Entry(LocalDispatch{kPlan, 1, false, index}), "expected -1 or an index");
  }
}

// The flag and the bytes come from one place each: one without the other is no command.
TEST(LocalCommandTest, ATokenIsThereExactlyWhereTheEntrySaysSo) {
  CommandEntry entry = Entry(LocalPreparePublication{kPlan, true, PublicationTokenBytes{'x'}});
  EXPECT_EQ(entry.flags, kCommandRouteWeights | kCommandToken);
  ExpectInvalid(entry, "flags is 9, expected 1");
  EXPECT_TRUE(DecodeCommand(entry, kTestLimits, PublicationTokenBytes{'y'}).ok());
}

}  // namespace
}  // namespace perigee
