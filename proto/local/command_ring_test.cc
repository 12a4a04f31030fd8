#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/local/command_consumer.h"
#include "proto/local/command_producer.h"
#include "proto/local/ring_fixtures.h"
#include "proto/local/spin_budget.h"
#include "tests/testing/fake_clock.h"

namespace perigee {
namespace {

using ::testing::HasSubstr;

constexpr absl::Duration kLong = absl::Seconds(20);

// Goes on by itself with every look, so that a bounded spin ends.
class SteppingClock final : public Clock {
 public:
  absl::Duration Monotonic() const override {
    now_ += absl::Microseconds(1);
    return now_;
  }
  absl::Time Wall() const override { return absl::UnixEpoch() + Monotonic(); }

 private:
  mutable absl::Duration now_;
};

class CommandRingTest : public ::testing::Test {
 protected:
  CommandRingTest()
      : consumer_(memory_.page(), clock_, CommandConsumerOptions()),
        producer_(memory_.page(), clock_, CommandProducerOptions()) {}

  LocalCompletion Failed(const absl::Status& status) {
    LocalCompletion completion;
    completion.status = status;
    return completion;
  }
  uint64_t Submit() {
    const absl::StatusOr<uint64_t> position = producer_.Submit(LocalEmpty());
    EXPECT_TRUE(position.ok()) << position.status();
    return position.value_or(0);
  }
  void ExpectBroken(const char* why) {
    for (int i = 0; i < 2; ++i) {
      const absl::Status status = consumer_.TryNext().status();
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
      EXPECT_THAT(std::string(status.message()), HasSubstr(why));
    }
    EXPECT_EQ(consumer_.Next(kLong).status().code(), absl::StatusCode::kInvalidArgument);
  }

  TestPage memory_;
  SteppingClock clock_;
  CommandConsumer consumer_;
  CommandProducer producer_;
};

TEST_F(CommandRingTest, CommandsGoThereAndCompletionsComeBackInOrder) {
  std::mt19937_64 random(RingTestSeed());
  uint64_t submitted = 0;
  std::vector<LocalOperation> under_way;
  CommandLimits limits = kTestLimits;
  std::vector<LocalCompletion> completions;
  for (int round = 0; round < 200; ++round) {
    const size_t burst = 1 + random() % kCommandSlots;
    for (size_t i = 0; i < burst; ++i) {
      under_way.push_back(RandomCommand(random).operation);
      const absl::StatusOr<uint64_t> position = producer_.Submit(under_way.back());
      ASSERT_TRUE(position.ok()) << position.status();
      EXPECT_EQ(*position, submitted++);
    }
    for (const LocalOperation& operation : under_way) {
      const absl::StatusOr<CommandEntry> entry = consumer_.Next(kLong);
      ASSERT_TRUE(entry.ok()) << entry.status();
      EXPECT_EQ(entry->position, consumer_.taken() - 1);
      const absl::StatusOr<LocalCommand> command =
          DecodeCommand(*entry, limits, consumer_.TokenOf(*entry));
      ASSERT_TRUE(command.ok()) << command.status();
      EXPECT_EQ(command->operation, operation);
      if (TakesSequence(*entry)) limits.next_sequence = limits.next_sequence.Next();
    }
    EXPECT_FALSE(consumer_.TryNext()->has_value());
    EXPECT_EQ(producer_.next_sequence(), limits.next_sequence);
    const uint64_t first = consumer_.completed();
    completions.clear();
    for (size_t i = 0; i < burst; ++i) {
      EXPECT_FALSE(producer_.Poll(first + i)->has_value());
      completions.push_back(RandomCompletion(random));
      consumer_.Complete(completions.back());
      completions.back().position = first + i;
      ExpectSame(**producer_.Poll(first + i), completions.back());
    }
    for (size_t i = 0; i < burst; ++i) {
      ExpectSame(*producer_.Wait(first + i, kLong), completions[i]);
    }
    under_way.clear();
  }
}

TEST_F(CommandRingTest, IsBounded) {
  EXPECT_TRUE(producer_.WaitForRoom(absl::ZeroDuration()).ok());
  for (uint32_t i = 0; i < kCommandSlots; ++i) Submit();
  const absl::Status full = producer_.Submit(LocalBarrier()).status();
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(full.message()), HasSubstr("wait for command 0"));
  EXPECT_EQ(producer_.WaitForRoom(absl::Microseconds(110)).code(),
            absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(producer_.next_sequence(), kTestLimits.next_sequence);
  // Taken is not enough: its completion has yet to find room.
  ASSERT_TRUE(consumer_.Next(kLong).ok());
  EXPECT_FALSE(producer_.Submit(LocalEmpty()).ok());
  consumer_.Complete(LocalCompletion());
  EXPECT_TRUE(producer_.WaitForRoom(kLong).ok());
  EXPECT_EQ(Submit(), kCommandSlots);
}

TEST_F(CommandRingTest, AProgramIsThereWholeOrNotAtAll) {
  std::mt19937_64 random(RingTestSeed());
  CommandLimits limits = kTestLimits;
  for (int round = 0; round < 200; ++round) {
    const size_t before = random() % kCommandSlots;
    for (size_t i = 0; i < before; ++i) Submit();
    std::vector<LocalOperation> program(1 + random() % kCommandSlots);
    for (LocalOperation& operation : program) operation = RandomCommand(random).operation;
    const bool fits = before + program.size() <= kCommandSlots;
    const Sequence sequence = producer_.next_sequence();
    const bool awaits_inputs = random() % 2 == 0;
    const absl::StatusOr<uint64_t> first = producer_.SubmitProgram(program, awaits_inputs);
    EXPECT_EQ(first.ok(), fits) << first.status();
    if (!fits) {
      EXPECT_EQ(first.status().code(), absl::StatusCode::kResourceExhausted);
      EXPECT_EQ(producer_.next_sequence(), sequence);
      program.clear();
    }
    for (size_t i = 0; i < before + program.size(); ++i) {
      const absl::StatusOr<CommandEntry> entry = consumer_.Next(kLong);
      ASSERT_TRUE(entry.ok()) << entry.status();
      if (i >= before) {
        EXPECT_EQ(entry->position, *first + i - before);
        const absl::StatusOr<LocalCommand> command =
            DecodeCommand(*entry, limits, consumer_.TokenOf(*entry));
        ASSERT_TRUE(command.ok()) << command.status();
        EXPECT_EQ(command->operation, program[i - before]);
        EXPECT_EQ(command->awaits_inputs, awaits_inputs && i == before);
        if (TakesSequence(*entry)) limits.next_sequence = limits.next_sequence.Next();
      }
      consumer_.Complete(LocalCompletion());
    }
    EXPECT_FALSE(consumer_.TryNext()->has_value());
    EXPECT_EQ(producer_.next_sequence(), limits.next_sequence);
  }
  EXPECT_EQ(producer_.SubmitProgram({}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(producer_.SubmitProgram(std::vector<LocalOperation>(kCommandSlots + 1)).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(CommandRingTest, ACompletionIsReadableUntilItsRecordIsUsedAgain) {
  for (uint32_t i = 0; i <= kCommandSlots; ++i) {
    EXPECT_TRUE(i == 0 || producer_.Poll(0)->has_value());
    Submit();
    ASSERT_TRUE(consumer_.Next(kLong).ok());
    consumer_.Complete(LocalCompletion());
  }
  EXPECT_EQ(producer_.Poll(0).status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_TRUE(producer_.Poll(1)->has_value());
  EXPECT_EQ(producer_.Wait(kCommandSlots + 1, kLong).status().code(),
            absl::StatusCode::kOutOfRange);
}

TEST_F(CommandRingTest, WaitsAreBounded) {
  EXPECT_EQ(consumer_.Next(absl::Microseconds(110)).status().code(),
            absl::StatusCode::kDeadlineExceeded);
  Submit();
  EXPECT_EQ(producer_.Wait(0, absl::Microseconds(110)).status().code(),
            absl::StatusCode::kDeadlineExceeded);
}

TEST_F(CommandRingTest, ASleepingConsumerIsWoken) {
  CommandConsumerOptions no_spin{absl::ZeroDuration(), absl::Seconds(100)};
  FakeClock stopped;
  CommandConsumer consumer(memory_.page(), stopped, no_spin);
  std::thread worker([&] {
    for (uint64_t i = 0; i < 300; ++i) {
      ASSERT_TRUE(consumer.Next(kLong).ok());
      consumer.Complete(LocalCompletion());
    }
  });
  CommandProducer producer(memory_.page(), stopped,
                           {absl::ZeroDuration(), absl::Seconds(100), nullptr});
  for (uint64_t i = 0; i < 300; ++i) {
    ASSERT_EQ(producer.Submit(LocalEmpty()).value_or(~0ull), i);
    ASSERT_TRUE(producer.Wait(i, kLong).ok());
  }
  worker.join();
}

TEST_F(CommandRingTest, AnInterruptEndsTheWaitAndAllLaterOnes) {
  FakeClock stopped;
  CommandConsumer consumer(memory_.page(), stopped, {absl::ZeroDuration(), absl::Seconds(100)});
  std::thread worker([&] {
    EXPECT_EQ(consumer.Next(kLong).status().code(), absl::StatusCode::kCancelled);
    EXPECT_EQ(consumer.Next(kLong).status().code(), absl::StatusCode::kCancelled);
  });
  consumer.Interrupt();
  worker.join();
}

TEST_F(CommandRingTest, TheEndIsToldWithItsReason) {
  Submit();
  Submit();
  ASSERT_TRUE(consumer_.Next(kLong).ok());
  consumer_.Complete(LocalCompletion());
  EXPECT_FALSE(producer_.End().has_value());
  LocalCompletion why = Failed(absl::UnavailableError("rank 1 was lost"));
  why.reason = "RANK_LOST";
  why.lost = {1};
  std::thread worker([&] { consumer_.End(why); });
  EXPECT_EQ(producer_.Wait(1, kLong).status(), absl::UnavailableError("rank 1 was lost"));
  worker.join();
  EXPECT_EQ(producer_.Poll(1).status(), absl::UnavailableError("rank 1 was lost"));
  EXPECT_EQ(producer_.Submit(LocalEmpty()).status(), absl::UnavailableError("rank 1 was lost"));
  ExpectSame(*producer_.End(), why);
  // What had ended before has ended.
  EXPECT_TRUE(producer_.Wait(0, kLong).ok());
}

TEST_F(CommandRingTest, AWaitEndsWithTheWorker) {
  CommandProducer producer(memory_.page(), clock_, {absl::Microseconds(5), absl::Seconds(100), [] {
                                                      return absl::UnavailableError("gone");
                                                    }});
  ASSERT_TRUE(producer.Submit(LocalEmpty()).ok());
  EXPECT_EQ(producer.Wait(0, kLong).status(), absl::UnavailableError("gone"));
}

TEST_F(CommandRingTest, ACountThatRunsBackwardsBreaksTheRing) {
  Submit();
  Submit();
  ASSERT_TRUE(consumer_.Next(kLong).ok());
  ASSERT_TRUE(consumer_.Next(kLong).ok());
  memory_.page().client.count = 1;
  ExpectBroken("1 commands submitted, after 2 taken");
}

TEST_F(CommandRingTest, ACountThatRunsTooFarBreaksTheRing) {
  memory_.page().client.count = kCommandSlots + 1;
  ExpectBroken("65 commands submitted, after 0 taken and 0 completed");
}

TEST_F(CommandRingTest, ACountPastWhatIsUnderWayBreaksTheRing) {
  Submit();
  ASSERT_TRUE(consumer_.Next(kLong).ok());
  memory_.page().client.count = kCommandSlots + 1;
  ExpectBroken("after 1 taken and 0 completed; at most 64");
}

TEST_F(CommandRingTest, AnEntryThatIsNotWhereItSaysBreaksTheRing) {
  Submit();
  memory_.page().entries[0].position = 64;
  ExpectBroken("entry 0 says that it is 64");
}

TEST_F(CommandRingTest, ADamagedPageIsToldToTheClient) {
  Submit();
  memory_.page().worker.count = 2;
  EXPECT_EQ(producer_.Poll(0).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(producer_.Submit(LocalEmpty()).status().code(), absl::StatusCode::kDataLoss);
  memory_.page().worker.count = 1;
  LocalCompletion other;
  other.position = 9;
  WriteCompletion(memory_.page().completions[0], other);
  EXPECT_EQ(producer_.Poll(0).status().code(), absl::StatusCode::kDataLoss);
  memory_.page().worker.ended = 1;
  EXPECT_EQ(producer_.Submit(LocalEmpty()).status().code(), absl::StatusCode::kDataLoss);
}

TEST(SpinBudgetTest, NobodySpinsWhereCoresAreScarce) {
  EXPECT_EQ(SpinBudget(16, 8), absl::Microseconds(100));
  EXPECT_EQ(SpinBudget(15, 8), absl::ZeroDuration());
}

}  // namespace
}  // namespace perigee
