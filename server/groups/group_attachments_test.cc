#include "server/groups/group_attachments.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/groups/group_harness.h"
#include "server/groups/lost_command.h"

namespace perigee {
namespace {

using ::testing::HasSubstr;
using Kind = v1::WorkerCommand::CommandCase;

std::string Message(const CallResult& result) { return std::string(result.status.message()); }

class GroupAttachmentsTest : public ::testing::Test {
 protected:
  GroupAttachmentsTest() { group_.Start(3); }

  void Want(CallId call, int32_t rank, const std::string& buffer = "b", uint64_t generation = 0) {
    group_.Do(TicketWanted{call, GroupHarness::BufferNamed(buffer), Generation(generation), rank});
  }
  // The one command that asks a worker to serve a client, taken.
  SendCommand TakeServe() {
    const auto serves = group_.Take(Kind::kServeClient);
    EXPECT_EQ(serves.size(), 1u);
    return serves.empty() ? SendCommand() : serves[0];
  }
  static v1::ClientReport Report(const SendCommand& serve, v1::ClientReport::State state) {
    v1::ClientReport report;
    report.set_attachment_id(serve.command.serve_client().attachment_id());
    report.set_state(state);
    report.set_socket_path("/run/attach.sock");
    report.set_worker_uid(42);
    return report;
  }
  void Admit(const SendCommand& serve) {
    group_.Do(ClientReported{serve.worker, Report(serve, v1::ClientReport::ADMITTED)});
  }
  // A ticket for `rank`, used.
  SendCommand Attach(CallId call, int32_t rank) {
    Want(call, rank);
    const SendCommand serve = TakeServe();
    Admit(serve);
    EXPECT_TRUE(group_.finished.at(call).status.ok()) << group_.finished.at(call).status;
    group_.Do(ClientReported{serve.worker, Report(serve, v1::ClientReport::ATTACHED)});
    return serve;
  }
  void End(const SendCommand& serve, bool attached, bool orderly, uint64_t last_sequence,
           const v1::RankStatus& status = {}) {
    CommandAnswered answer{serve.token, {}};
    *answer.result.mutable_status() = status;
    auto& end = *answer.result.mutable_client_end();
    end.set_attached(attached);
    end.set_orderly(orderly);
    end.set_last_sequence(last_sequence);
    end.set_reason("its process ended");
    group_.Do(answer);
  }
  void ExpectRefused(CallId call, absl::StatusCode code, const std::string& words) {
    ASSERT_EQ(group_.finished.count(call), 1u);
    EXPECT_EQ(group_.finished.at(call).status.code(), code);
    EXPECT_THAT(Message(group_.finished.at(call)), HasSubstr(words));
    EXPECT_TRUE(group_.Take(Kind::kServeClient).empty());
  }

  GroupHarness group_;
};

TEST_F(GroupAttachmentsTest, TheTicketIsGivenWhenTheWorkerKnowsIt) {
  Want(5, 1, "b", 1);
  const SendCommand serve = TakeServe();
  EXPECT_EQ(serve.worker, "workers/w1");
  EXPECT_EQ(serve.command.serve_client().first_sequence(), 1u);
  EXPECT_EQ(serve.command.serve_client().life().seconds(), 30);
  EXPECT_EQ(group_.finished.count(5), 0u);
  group_.Do(ClientReported{"workers/w0", Report(serve, v1::ClientReport::ADMITTED)});
  EXPECT_EQ(group_.finished.count(5), 0u) << "another worker's word";
  Admit(serve);
  ASSERT_TRUE(group_.finished.at(5).status.ok()) << group_.finished.at(5).status;
  const auto& ticket = std::get<v1::AttachTicket>(group_.finished.at(5).response);
  EXPECT_EQ(ticket.buffer(), GroupHarness::BufferNamed("b"));
  EXPECT_EQ(ticket.buffer_id(), group_.buffer("b").id());
  EXPECT_EQ(ticket.generation(), 1u);
  EXPECT_EQ(ticket.rank(), 1);
  EXPECT_EQ(ticket.ranks(), 3);
  EXPECT_EQ(ticket.worker(), "workers/w1");
  EXPECT_EQ(ticket.incarnation(), "life1-of-1");
  EXPECT_EQ(ticket.socket_path(), "/run/attach.sock");
  EXPECT_EQ(ticket.worker_uid(), 42u);
  EXPECT_EQ(ticket.ticket(), serve.command.serve_client().ticket());
  EXPECT_EQ(ticket.first_sequence(), 1u);
}

TEST_F(GroupAttachmentsTest, WhatCannotBeAttachedToIsRefused) {
  Want(5, 0, "other");
  ExpectRefused(5, absl::StatusCode::kNotFound, "no buffer");
  Want(6, 3);
  ExpectRefused(6, absl::StatusCode::kInvalidArgument, "rank is 3, expected 0 to 2");
  Want(7, -1);
  ExpectRefused(7, absl::StatusCode::kInvalidArgument, "rank is -1");
  Want(8, 0, "b", 9);
  ExpectRefused(8, absl::StatusCode::kFailedPrecondition,
                "generation 9 was asked for, generation 1 lives");
  group_.Lose(2);
  Want(9, 0);
  ExpectRefused(9, absl::StatusCode::kFailedPrecondition, "FENCED");
}

TEST_F(GroupAttachmentsTest, TheWorkersRefusalIsTheCalls) {
  Want(5, 1);
  const SendCommand serve = TakeServe();
  End(serve, false, false, 0, Failed(absl::StatusCode::kUnimplemented, "INTERNAL", "backend cuda"));
  ExpectRefused(5, absl::StatusCode::kUnimplemented, "rank 1 (workers/w1): backend cuda");
  EXPECT_EQ(group_.state(), v1::Group::ACTIVE);
  group_.Submit(6);
  EXPECT_EQ(group_.Take(Kind::kExecuteProgram).size(), 3u);
}

TEST_F(GroupAttachmentsTest, ProgramsAndAttachmentsExcludeEachOther) {
  group_.Do(group_.MakeBuffer("c", 3));
  group_.Settle();
  const SendCommand serve = Attach(5, 1);
  group_.Submit(6, "c");
  ASSERT_EQ(group_.finished.count(6), 1u) << "another buffer of the same group";
  EXPECT_EQ(group_.finished.at(6).status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(group_.finished.at(6)), HasSubstr("buffers/b (ranks 1)"));
  End(serve, true, true, 7);
  group_.Submit(7, "b");
  const auto executes = group_.Take(Kind::kExecuteProgram);
  ASSERT_EQ(executes.size(), 3u);
  EXPECT_EQ(executes[0].command.execute_program().first_sequence(), 8u) << "one counter for both";
  Want(8, 0, "c");
  ExpectRefused(8, absl::StatusCode::kFailedPrecondition, "program 1 runs on");
  v1::ProgramProgress progress;
  progress.set_last_sequence(9);
  for (const SendCommand& execute : executes) group_.Answer(execute, {}, progress);
  Want(9, 0);
  EXPECT_EQ(TakeServe().command.serve_client().first_sequence(), 10u);
}

TEST_F(GroupAttachmentsTest, WhoIsAttachedIsShownWithItsBuffer) {
  const auto shown = [&] {
    return group_.machine.DescribeBuffer(GroupHarness::BufferNamed("b"))->attachments();
  };
  EXPECT_TRUE(shown().empty());
  const SendCommand second = Attach(5, 2);
  group_.now.wall += absl::Seconds(3);
  Want(6, 0);
  const SendCommand first = TakeServe();
  ASSERT_EQ(shown().size(), 2);
  EXPECT_EQ(shown()[0].rank(), 0);
  EXPECT_EQ(shown()[0].state(), v1::ClientAttachment::TICKET);
  EXPECT_EQ(shown()[0].pid(), 0);
  EXPECT_FALSE(shown()[0].has_attach_time());
  Admit(first);
  v1::ClientReport report = Report(first, v1::ClientReport::ATTACHED);
  report.set_pid(4242);
  group_.Do(ClientReported{first.worker, report});
  EXPECT_EQ(shown()[0].state(), v1::ClientAttachment::ATTACHED);
  EXPECT_EQ(shown()[0].pid(), 4242);
  EXPECT_EQ(shown()[0].attach_time().seconds() - shown()[1].attach_time().seconds(), 3);
  EXPECT_EQ(shown()[0].buffer(), GroupHarness::BufferNamed("b"));
  EXPECT_EQ(group_.machine.Describe().attachments_size(), 2);
  EXPECT_EQ(group_.machine.DescribeBuffers()[0].attachments_size(), 2);
  // One goes without a word, the other is asked to end.
  End(second, true, false, 0);
  ASSERT_EQ(shown().size(), 1);
  EXPECT_EQ(shown()[0].state(), v1::ClientAttachment::ENDING);
  EXPECT_EQ(shown()[0].pid(), 4242);
  End(first, true, true, 0);
  EXPECT_TRUE(shown().empty());
  EXPECT_EQ(group_.machine.Describe().attachments_size(), 0);
}

TEST_F(GroupAttachmentsTest, ATicketThatIsNeverUsedBlocksNothingAfterItsEnd) {
  Want(5, 1);
  const SendCommand serve = TakeServe();
  Admit(serve);
  group_.Submit(6);
  EXPECT_EQ(group_.finished.at(6).status.code(), absl::StatusCode::kFailedPrecondition);
  Want(7, 1);
  ExpectRefused(7, absl::StatusCode::kAlreadyExists, "has a ticket out");
  End(serve, false, false, 0);
  group_.Submit(8);
  EXPECT_EQ(group_.Take(Kind::kExecuteProgram).size(), 3u);
}

TEST_F(GroupAttachmentsTest, RanksOfAPeriodBeginTogetherAndComeOnce) {
  const SendCommand first = Attach(5, 0);
  const SendCommand second = Attach(6, 1);
  EXPECT_EQ(second.command.serve_client().first_sequence(), 1u);
  Want(7, 0);
  ExpectRefused(7, absl::StatusCode::kAlreadyExists, "has a client attached");
  End(first, true, true, 4);
  Want(8, 0);
  ExpectRefused(8, absl::StatusCode::kFailedPrecondition, "may come again when the other ranks");
  Want(9, 2);
  const SendCommand third = TakeServe();
  EXPECT_EQ(third.command.serve_client().first_sequence(), 1u);
  End(second, true, true, 5);
  End(third, false, false, 0);
  Want(10, 0);
  EXPECT_EQ(TakeServe().command.serve_client().first_sequence(), 6u);
}

TEST_F(GroupAttachmentsTest, GivenAClientThatGoesWithoutAWordThenTheOthersOfTheBufferEnd) {
  group_.Do(group_.MakeBuffer("c", 3));
  group_.Settle();
  const SendCommand gone = Attach(5, 0);
  const SendCommand other = Attach(6, 1);
  Want(7, 2, "c");
  const SendCommand elsewhere = TakeServe();
  End(gone, true, false, 4);
  const auto ends = group_.Take(Kind::kEndClient);
  ASSERT_EQ(ends.size(), 1u);
  EXPECT_EQ(ends[0].worker, "workers/w1");
  EXPECT_EQ(ends[0].command.end_client().attachment_id(),
            other.command.serve_client().attachment_id());
  EXPECT_THAT(ends[0].command.end_client().reason(),
              HasSubstr("the client of rank 0 (workers/w0) has gone: its process ended"));
  Want(8, 2);
  ExpectRefused(8, absl::StatusCode::kFailedPrecondition, "are ending");
  End(other, true, true, 4);
  Want(9, 0);
  EXPECT_EQ(TakeServe().command.serve_client().first_sequence(), 5u);
  EXPECT_EQ(group_.state(), v1::Group::ACTIVE) << "nobody was in an operation";
  Admit(elsewhere);
  EXPECT_TRUE(group_.finished.at(7).status.ok());
}

TEST_F(GroupAttachmentsTest, GivenAClientThatLeavesThenTheOthersAreNotToWaitForIt) {
  group_.Do(group_.MakeBuffer("c", 3));
  group_.Settle();
  const SendCommand leaver = Attach(5, 0);
  const SendCommand other = Attach(6, 1);
  Want(7, 2, "c");
  TakeServe();
  End(leaver, true, true, 4);
  const auto told = group_.Take(Kind::kEndClient);
  ASSERT_EQ(told.size(), 1u) << "that of another buffer is not";
  EXPECT_EQ(told[0].worker, "workers/w1");
  const v1::EndClientCommand& end = told[0].command.end_client();
  EXPECT_EQ(end.attachment_id(), other.command.serve_client().attachment_id());
  EXPECT_TRUE(end.beyond_only());
  EXPECT_EQ(end.last_sequence(), 4u);
  EXPECT_EQ(end.reason(), "the client of rank 0 (workers/w0) has left");
  // Nor is one that comes later.
  Want(9, 2);
  const SendCommand late = TakeServe();
  const auto late_told = group_.Take(Kind::kEndClient);
  ASSERT_EQ(late_told.size(), 1u);
  EXPECT_EQ(late_told[0].worker, late.worker);
  EXPECT_EQ(late_told[0].command.end_client().attachment_id(),
            late.command.serve_client().attachment_id());
  EXPECT_TRUE(late_told[0].command.end_client().beyond_only());
  EXPECT_EQ(late_told[0].command.end_client().last_sequence(), 4u);
  // It may be ended all the same.
  group_.Do(GroupDrained{8, false});
  group_.Wait(kDrainTimeout);
  const auto ends = group_.Take(Kind::kEndClient);
  ASSERT_EQ(ends.size(), 3u);
  EXPECT_FALSE(ends[0].command.end_client().beyond_only());
}

TEST_F(GroupAttachmentsTest, GivenAClientThatGoesInTheMiddleOfAnOperationThenTheGenerationEnds) {
  CallId call = 10;
  for (const char* reason : {"CLIENT_LOST", "DEADLINE", kReasonCommandLost}) {
    const SendCommand gone = Attach(++call, 0);
    Want(++call, 1);
    End(gone, true, false, 4, Failed(absl::StatusCode::kAborted, reason, "in combine"));
    EXPECT_EQ(group_.state(), v1::Group::FENCED) << reason;
    EXPECT_THAT(group_.machine.Describe().state_reason(), HasSubstr("workers/w0): in combine"));
    EXPECT_EQ(group_.finished.at(call).status.code(), absl::StatusCode::kUnavailable);
    group_.Take(Kind::kServeClient);
    group_.Settle();
    ASSERT_EQ(group_.state(), v1::Group::ACTIVE) << "at the next generation";
  }
}

TEST_F(GroupAttachmentsTest, ABufferWithAttachmentsIsNotDeleted) {
  const SendCommand serve = Attach(5, 0);
  group_.Do(BufferDeleted{6, GroupHarness::BufferNamed("b")});
  EXPECT_EQ(group_.finished.at(6).status.code(), absl::StatusCode::kFailedPrecondition);
  End(serve, true, true, 0);
  group_.Do(BufferDeleted{7, GroupHarness::BufferNamed("b")});
  EXPECT_EQ(group_.Take(Kind::kDropBuffer).size(), 3u);
}

TEST_F(GroupAttachmentsTest, DrainingWaitsForThemAndThenEndsThem) {
  const SendCommand serve = Attach(5, 0);
  group_.Do(GroupDrained{6, false});
  EXPECT_TRUE(group_.Take(Kind::kCloseSession).empty());
  Want(7, 1);
  ExpectRefused(7, absl::StatusCode::kFailedPrecondition, "DRAINING");
  group_.Wait(kDrainTimeout);
  EXPECT_EQ(group_.Take(Kind::kEndClient).size(), 1u);
  End(serve, true, true, 0);
  EXPECT_EQ(group_.Take(Kind::kCloseSession).size(), 3u);
}

TEST_F(GroupAttachmentsTest, AWorkerThatSaysNothingEndsTheGeneration) {
  Want(5, 2);
  group_.Wait(kFormingTimeout - absl::Milliseconds(1));
  EXPECT_EQ(group_.state(), v1::Group::ACTIVE);
  group_.Wait(absl::Milliseconds(1));
  EXPECT_EQ(group_.state(), v1::Group::FENCED);
  EXPECT_THAT(group_.machine.Describe().state_reason(), HasSubstr("rank 2 (workers/w2) did not"));
  EXPECT_EQ(group_.finished.at(5).status.code(), absl::StatusCode::kUnavailable);
}

TEST_F(GroupAttachmentsTest, ALostRankEndsThemAll) {
  const SendCommand serve = Attach(5, 0);
  Want(6, 1);
  group_.Lose(2);
  EXPECT_EQ(group_.finished.at(6).status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Message(group_.finished.at(6)), HasSubstr("rank 2 (workers/w2)"));
  End(serve, true, false, 9);  // of a generation that is over
  EXPECT_EQ(group_.state(), v1::Group::FENCED);
}

}  // namespace
}  // namespace perigee
