#include "server/groups/group_buffers.h"

#include <set>
#include <string>
#include <variant>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/groups/group_harness.h"

namespace perigee {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Kind = v1::WorkerCommand::CommandCase;

std::string Message(const CallResult& result) { return std::string(result.status.message()); }

TEST(GroupBuffers, GivenAnActiveGroupWhenABufferIsMadeThenAllAllocateBeforeAnyConnects) {
  GroupHarness group;
  group.Create(3);
  group.Settle();
  group.Do(group.MakeBuffer("b", 2));
  EXPECT_TRUE(group.sent.empty()) << "sent before the id was taken";
  group.Do(BufferIdTaken{GroupHarness::BufferNamed("b"), BufferId(17)});

  const auto allocates = group.Take(Kind::kAllocateBuffer);
  ASSERT_EQ(allocates.size(), 3u);
  EXPECT_EQ(allocates[0].command.allocate_buffer().buffer().id(), 17u);
  group.Answer(allocates[0]);
  group.Answer(allocates[1]);
  EXPECT_TRUE(group.Take(Kind::kConnectBuffer).empty());
  group.Answer(allocates[2]);
  const auto connects = group.Take(Kind::kConnectBuffer);
  ASSERT_EQ(connects.size(), 3u);

  // What rank p presents to rank r is what rank r expects of rank p, and every pair has its own.
  std::set<std::string> tickets;
  for (int owner = 0; owner < 3; ++owner) {
    for (int presenter = 0; presenter < 3; ++presenter) {
      const auto& expected = allocates[owner].command.allocate_buffer().tickets(presenter);
      EXPECT_EQ(connects[presenter].command.connect_buffer().tickets(owner), expected);
      EXPECT_EQ(expected.empty(), owner == presenter);
      if (owner != presenter) {
        EXPECT_TRUE(tickets.insert(expected).second);
      }
    }
  }
  for (const SendCommand& connect : connects) {
    EXPECT_EQ(connect.command.connect_buffer().rendezvous(), "of rank 0");
  }
  EXPECT_TRUE(group.finished.count(2) == 0);
  for (const SendCommand& connect : connects) group.Answer(connect);
  ASSERT_TRUE(group.finished.at(2).status.ok());
  const auto& buffer = std::get<v1::Buffer>(group.finished.at(2).response);
  EXPECT_EQ(buffer.state(), v1::Buffer::ACTIVE);
  EXPECT_EQ(buffer.generation(), 1u);
  EXPECT_EQ(buffer.id(), 17u);
  EXPECT_THAT(buffer.rank_bytes(), ElementsAre(1000, 1001, 1002));
}

TEST(GroupBuffers, GivenARankWithoutMemoryThenAllDropItAndTheCallNamesTheRank) {
  for (const bool fails_connecting : {false, true}) {
    GroupHarness group;
    group.Create(2);
    group.Settle();
    group.Do(group.MakeBuffer("b", 2));
    group.Do(BufferIdTaken{GroupHarness::BufferNamed("b"), BufferId(1)});
    if (fails_connecting) group.AnswerAll(Kind::kAllocateBuffer);
    const auto commands =
        group.Take(fails_connecting ? Kind::kConnectBuffer : Kind::kAllocateBuffer);
    group.Answer(commands[1], Failed(absl::StatusCode::kResourceExhausted, "INTERNAL",
                                     "needed 100 bytes, 7 are free"));
    EXPECT_TRUE(group.Take(Kind::kDropBuffer).empty()) << "rank 0 is still at it";
    group.Answer(commands[0]);
    const auto drops = group.Take(Kind::kDropBuffer);
    ASSERT_EQ(drops.size(), 2u);
    group.Answer(drops[0]);
    EXPECT_EQ(group.finished.count(2), 0u);
    group.Answer(drops[1], Failed(absl::StatusCode::kNotFound, "INTERNAL", "no such buffer"));
    EXPECT_EQ(group.finished.at(2).status.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_EQ(Message(group.finished.at(2)), "rank 1 (workers/w1): needed 100 bytes, 7 are free");
    EXPECT_EQ(group.machine.buffers().Find(GroupHarness::BufferNamed("b")), nullptr);
    EXPECT_EQ(group.state(), v1::Group::ACTIVE);
  }
}

TEST(GroupBuffers, GivenASilentRankThenTheCallFailsAfterTheFormingTimeoutTwiceAtMost) {
  GroupHarness group;
  group.Create(2);
  group.Settle();
  group.Do(group.MakeBuffer("b", 2));
  group.Do(BufferIdTaken{GroupHarness::BufferNamed("b"), BufferId(1)});
  group.Answer(group.Take(Kind::kAllocateBuffer)[0]);
  group.Wait(GroupTimes().forming_timeout);
  group.Wait(GroupTimes().forming_timeout);
  EXPECT_EQ(group.finished.at(2).status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(Message(group.finished.at(2)),
              HasSubstr("rank 1 (workers/w1): did not answer allocate_buffer within 30s"));
}

TEST(GroupBuffers, GivenNoIdThenTheStoresErrorIsTheAnswer) {
  GroupHarness group;
  group.Create(2);
  group.Settle();
  group.Do(group.MakeBuffer("b", 2));
  group.Do(BufferIdTaken{GroupHarness::BufferNamed("b"), absl::UnavailableError("disk full")});
  EXPECT_EQ(Message(group.finished.at(2)), "disk full");
  EXPECT_EQ(group.machine.buffers().Find(GroupHarness::BufferNamed("b")), nullptr);
}

TEST(GroupBuffers, GivenALostRankWhileItIsMadeThenTheCallIsUnavailableAndItIsGone) {
  GroupHarness group;
  group.Create(2);
  group.Settle();
  group.Do(group.MakeBuffer("b", 2));
  group.Do(BufferIdTaken{GroupHarness::BufferNamed("b"), BufferId(1)});
  group.Lose(0);
  EXPECT_EQ(group.finished.at(2).status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Message(group.finished.at(2)), HasSubstr("rank 0 (workers/w0) was lost"));
  ASSERT_TRUE(group.finished.at(2).error.has_value());
  EXPECT_EQ(group.finished.at(2).error->ranks(1).reason(), "GENERATION_ABORTED");
  EXPECT_EQ(group.machine.buffers().Find(GroupHarness::BufferNamed("b")), nullptr);
}

TEST(GroupBuffers, GivenAnExistingNameOrTooManyThenCreationIsRefused) {
  GroupHarness group;
  group.Start(1);
  group.Do(group.MakeBuffer("b", 3));
  EXPECT_EQ(group.finished.at(3).status.code(), absl::StatusCode::kAlreadyExists);
  for (size_t i = 1; i < GroupBuffers::kMaxBuffers; ++i) {
    group.Do(group.MakeBuffer("x" + std::to_string(i), 100 + i));
  }
  group.Do(group.MakeBuffer("one-more", 4));
  EXPECT_EQ(group.finished.at(4).status.code(), absl::StatusCode::kResourceExhausted);
}

TEST(GroupBuffers, DeletingDropsItOnEveryRank) {
  GroupHarness group;
  group.Start(2);
  group.Do(BufferDeleted{3, GroupHarness::BufferNamed("b")});
  group.Submit(4);
  EXPECT_EQ(group.finished.at(4).status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(group.finished.at(4)), HasSubstr("being deleted"));
  const auto drops = group.Take(Kind::kDropBuffer);
  ASSERT_EQ(drops.size(), 2u);
  group.Answer(drops[0]);
  EXPECT_EQ(group.finished.count(3), 0u);
  group.Answer(drops[1]);
  EXPECT_TRUE(group.finished.at(3).status.ok());
  group.Do(BufferDeleted{5, GroupHarness::BufferNamed("b")});
  EXPECT_EQ(group.finished.at(5).status.code(), absl::StatusCode::kNotFound);
}

TEST(GroupBuffers, ARankThatWillNotDropItMakesItFailed) {
  GroupHarness group;
  group.Start(2);
  group.Do(BufferDeleted{3, GroupHarness::BufferNamed("b")});
  const auto drops = group.Take(Kind::kDropBuffer);
  group.Answer(drops[0]);
  group.Answer(drops[1], Failed(absl::StatusCode::kFailedPrecondition, "INTERNAL", "busy"));
  EXPECT_THAT(Message(group.finished.at(3)), HasSubstr("rank 1 (workers/w1): busy"));
  EXPECT_EQ(group.buffer("b").state(), v1::Buffer::FAILED);
  group.Do(BufferDeleted{4, GroupHarness::BufferNamed("b")});
  EXPECT_TRUE(group.finished.at(4).status.ok());
}

TEST(GroupBuffers, ABufferInUseIsNotDeleted) {
  GroupHarness group;
  group.Start(2);
  group.Submit(3);
  group.Do(BufferDeleted{4, GroupHarness::BufferNamed("b")});
  EXPECT_EQ(group.finished.at(4).status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(group.Take(Kind::kDropBuffer).empty());
}

TEST(GroupBuffers, GivenALostRankWhileItIsDeletedThenItIsGone) {
  GroupHarness group;
  group.Start(2);
  group.Do(BufferDeleted{3, GroupHarness::BufferNamed("b")});
  group.Lose(1);
  EXPECT_TRUE(group.finished.at(3).status.ok());
  EXPECT_EQ(group.machine.buffers().Find(GroupHarness::BufferNamed("b")), nullptr);
}

TEST(GroupBuffers, GivenFormingAgainFailsForOneBufferThenItIsFailedAndTheGroupActive) {
  GroupHarness group;
  group.Start(2);
  group.Do(group.MakeBuffer("c", 3));
  group.Settle();
  group.Do(GenerationAborted{4, Generation(1), ""});
  group.AnswerAll(Kind::kAbortGeneration);
  group.Do(GenerationTaken{Generation(2)});
  group.AnswerAll(Kind::kOpenSession);
  const auto allocates = group.Take(Kind::kAllocateBuffer);
  ASSERT_EQ(allocates.size(), 4u);
  for (const SendCommand& command : allocates) {
    const bool is_c =
        command.command.allocate_buffer().buffer().name() == GroupHarness::BufferNamed("c");
    group.Answer(command, is_c && command.rank == 1
                              ? Failed(absl::StatusCode::kResourceExhausted, "INTERNAL", "full")
                              : v1::RankStatus());
  }
  group.AnswerAll(Kind::kConnectBuffer);
  EXPECT_EQ(group.state(), v1::Group::FORMING) << "c is being dropped";
  group.AnswerAll(Kind::kDropBuffer);
  EXPECT_EQ(group.state(), v1::Group::ACTIVE);
  EXPECT_EQ(group.buffer("b").state(), v1::Buffer::ACTIVE);
  EXPECT_EQ(group.buffer("c").state(), v1::Buffer::FAILED);
  EXPECT_EQ(group.buffer("c").state_reason(), "rank 1 (workers/w1): full");

  // The next generation tries again.
  group.Do(GenerationAborted{5, Generation(2), ""});
  group.last_generation = 2;
  group.Settle();
  EXPECT_EQ(group.buffer("c").state(), v1::Buffer::ACTIVE);
}

}  // namespace
}  // namespace perigee
