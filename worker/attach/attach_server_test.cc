// Lives of attachments, from the ticket to the end.
#include "worker/attach/attach_server.h"

#include <atomic>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/local/stream_words.h"
#include "worker/testing/attach_fixture.h"

namespace perigee {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsSubsetOf;

constexpr Ticket kTicket = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};

class AttachServerTest : public AttachTest {
 protected:
  TestClient Attached(uint64_t first_sequence = 1) {
    EXPECT_TRUE(Serve(1, kTicket, first_sequence).ok());
    absl::StatusOr<TestClient> client = Attach(Request(kTicket));
    EXPECT_TRUE(client.ok()) << client.status();
    return *std::move(client);
  }
};

TEST_F(AttachServerTest, AClientComesWorksAndLeaves) {
  const std::set<std::string> descriptors = OpenDescriptors();
  {
    TestClient client = Attached(5);
    EXPECT_EQ(IdentityOf(**OpenCommandPage(client.page.memory())),
              (CommandPageIdentity{Generation(7), BufferId(3), RankId(0), 1, Sequence(5)}));
    for (const LocalOperation& operation :
         {LocalOperation(LocalEmpty{}), LocalOperation(LocalDispatch{LocalPlanId(1), 4, false}),
          LocalOperation(LocalBarrier{})}) {
      const absl::StatusOr<LocalCompletion> done = client.Run(operation);
      ASSERT_TRUE(done.ok()) << done.status();
      EXPECT_TRUE(done->status.ok()) << done->status;
    }
    EXPECT_THAT(path_->calls(), ElementsAre("dispatch 5", "barrier 6"));
    EXPECT_EQ(operations_done_, 3u);
    EXPECT_TRUE(client.Detach().ok());
    const AttachmentEnd end = AwaitEnd();
    EXPECT_EQ(end.status.code(), 0);
    EXPECT_TRUE(end.end.attached());
    EXPECT_TRUE(end.end.orderly());
    EXPECT_EQ(end.end.last_sequence(), 6u);
    EXPECT_EQ(client.commands->Submit(LocalEmpty{}).status().code(), absl::StatusCode::kCancelled);
    EXPECT_EQ(client.socket.Receive(1, 0, WaitLimit(kLong)).status().code(),
              absl::StatusCode::kUnavailable)
        << "the connection ends last";
  }
  ExpectAllGivenBack();
  EXPECT_THAT(OpenDescriptors(), IsSubsetOf(descriptors));
  ASSERT_EQ(reports_.size(), 2u);
  EXPECT_EQ(reports_[0].state(), v1::ClientReport::ADMITTED);
  EXPECT_EQ(reports_[0].socket_path(), server_->path());
  EXPECT_EQ(reports_[0].worker_uid(), geteuid());
  EXPECT_EQ(reports_[1].state(), v1::ClientReport::ATTACHED);
  EXPECT_EQ(reports_[0].pid(), 0);
  EXPECT_EQ(reports_[1].pid(), getpid());
}

TEST_F(AttachServerTest, WhatCannotBeServedIsRefusedAndLeavesNothing) {
  v1::ServeClientCommand command;
  command.set_buffer(kBuffer);
  command.set_ticket("short");
  EXPECT_EQ(server_->Serve(*session_, command, {}).code(), absl::StatusCode::kInvalidArgument);
  command.set_ticket(std::string(16, 'x'));
  EXPECT_EQ(server_->Serve(*session_, command, {}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(Serve(1, kTicket).ok());
  EXPECT_EQ(Serve(2, {7}).code(), absl::StatusCode::kFailedPrecondition) << "one for a buffer";
  server_->End(Generation(7), 1, "enough");
  AwaitEnd();
  ExpectAllGivenBack();
}

TEST_F(AttachServerTest, TooLittleMemoryIsToldBeforeThereIsATicket) {
  absl::StatusOr<ByteBudget::Share> rest = budget_.Take((1 << 24) - 100);
  ASSERT_TRUE(rest.ok());
  const absl::Status status = Serve(1, kTicket);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_TRUE(reports_.empty());
  EXPECT_EQ(buffer().guest(), nullptr);
}

TEST_F(AttachServerTest, AnUnusedTicketEndsWithItsLife) {
  EXPECT_TRUE(Serve(1, kTicket).ok());
  clock_.Advance(absl::Seconds(30));
  server_->Poke();
  const AttachmentEnd end = AwaitEnd();
  EXPECT_FALSE(end.end.attached());
  EXPECT_TRUE(end.end.orderly());
  EXPECT_EQ(end.end.last_sequence(), 0u);
  ExpectAllGivenBack();
  ExpectRefused(Request(kTicket));
}

TEST_F(AttachServerTest, ABrokenConnectionEndsTheAttachment) {
  { TestClient gone = Attached(); }
  const AttachmentEnd end = AwaitEnd();
  EXPECT_EQ(end.status.code(), 0) << "no operation was under way";
  EXPECT_TRUE(end.end.attached());
  EXPECT_FALSE(end.end.orderly());
  EXPECT_THAT(end.end.reason(), HasSubstr("its connection ended"));
  ExpectAllGivenBack();
}

// Nobody else will come: what it waits for does not end by itself.
TEST_F(AttachServerTest, AClientThatWaitsForOneThatHasLeftIsEnded) {
  BlockBarriers();
  TestClient client = Attached();
  ASSERT_TRUE(client.commands->Submit(LocalBarrier{}).ok());
  path_->AwaitWaiter();
  server_->End(Generation(7), 1, "the client of rank 1 has left", Sequence(0));
  while (end_count() == 0) {
    clock_.Advance(kClientLeaveGrace / 4);
    server_->Poke();
    std::this_thread::yield();
  }
  const AttachmentEnd end = AwaitEnd();
  EXPECT_EQ(end.status.reason(), "CLIENT_LOST");
  EXPECT_THAT(end.status.message(), HasSubstr("the client of rank 1 has left"));
  session_->Abort({}, "a client has left");
  EXPECT_TRUE(session_->Close().ok());
}

TEST_F(AttachServerTest, AClientGoesOnAloneUntilItWouldWaitForOneThatHasLeft) {
  TestClient client = Attached();
  EXPECT_TRUE(client.Run(LocalBarrier{})->status.ok());
  server_->End(Generation(7), 1, "the client of rank 1 has left", Sequence(2));
  for (const LocalOperation& operation :
       {LocalOperation(LocalEmpty{}), LocalOperation(LocalBarrier{}),
        LocalOperation(LocalEmpty{})}) {
    const auto done = client.Run(operation);
    ASSERT_TRUE(done.ok()) << done.status();
    EXPECT_TRUE(done->status.ok()) << "the other has done it, too";
  }
  const auto waits = client.Run(LocalBarrier{});
  EXPECT_EQ(waits.status().code(), absl::StatusCode::kCancelled);
  EXPECT_THAT(std::string(waits.status().message()), HasSubstr("the client of rank 1 has left"));
  const AttachmentEnd end = AwaitEnd();
  EXPECT_EQ(end.status.code(), 0) << "the generation lives";
  EXPECT_TRUE(end.end.orderly());
  EXPECT_EQ(end.end.last_sequence(), 2u);
  EXPECT_THAT(path_->calls(), testing::ElementsAre("barrier 1", "barrier 2"));
  ExpectAllGivenBack();
}

TEST_F(AttachServerTest, AClientThatGoesInAnOperationIsReportedBeforeItEnds) {
  BlockBarriers();
  {
    TestClient gone = Attached();
    ASSERT_TRUE(gone.commands->Submit(LocalBarrier{}).ok());
    path_->AwaitWaiter();
  }
  // The lease is over; for a while the others may still come.
  while (operations_done_ == 0 && end_count() == 0) {
    clock_.Advance(kClientLeaveGrace / 4);
    server_->Poke();
    std::this_thread::yield();
  }
  const AttachmentEnd end = AwaitEnd();
  EXPECT_EQ(end.status.reason(), "CLIENT_LOST");
  EXPECT_EQ(end.end.last_sequence(), 1u);
  EXPECT_THAT(end.status.message(), HasSubstr("in the middle of the operation of sequence 1"));
  EXPECT_NE(buffer().guest(), nullptr);
  session_->Abort({}, "a client has gone");
  EXPECT_TRUE(session_->Close().ok());
  EXPECT_EQ(budget_.used_bytes(), 0u);
  EXPECT_EQ(end_count(), 1u) << "told once";
}

TEST_F(AttachServerTest, ACommandMayAwaitItsInputsAndNotForever) {
  TestClient client = Attached();
  CommandPage& page = **OpenCommandPage(client.page.memory());
  for (const bool comes : {true, false, true}) {
    const absl::StatusOr<uint64_t> command =
        client.commands->Submit(LocalBarrier{}, /*awaits_inputs=*/true);
    ASSERT_TRUE(command.ok()) << command.status();
    if (comes) {
      std::atomic_ref<uint64_t>(ReadyWord(page, *command)).store(ReadyValue(*command));
    }
    absl::optional<LocalCompletion> done;
    while (!done) {
      if (!comes) clock_.Advance(absl::Seconds(1));
      done = *client.commands->Poll(*command);
      std::this_thread::yield();
    }
    EXPECT_EQ(done->status.code(),
              comes ? absl::StatusCode::kOk : absl::StatusCode::kDeadlineExceeded)
        << done->status;
    EXPECT_EQ(page.done.count, *command + 1) << "streams that wait for it go on";
  }
  EXPECT_THAT(path_->calls(), ElementsAre("barrier 1", "decline 2", "barrier 3"));
  EXPECT_TRUE(client.Detach().ok());
  AwaitEnd();
  EXPECT_EQ(page.done.count, kDoneForGood) << "and all when it is over";
}

TEST_F(AttachServerTest, AnOperationThatEndsInTimeIsNoLoss) {
  BlockBarriers();
  {
    TestClient gone = Attached();
    ASSERT_TRUE(gone.commands->Submit(LocalBarrier{}).ok());
    path_->AwaitWaiter();
  }
  path_->RequestCancel(true);  // all ranks leave it
  const AttachmentEnd end = AwaitEnd();
  EXPECT_EQ(end.status.code(), 0);
  EXPECT_FALSE(end.end.orderly());
  EXPECT_EQ(end.end.last_sequence(), 1u);
  ExpectAllGivenBack();
}

TEST_F(AttachServerTest, AnEndFromOutsideIsToldToTheClient) {
  TestClient client = Attached();
  server_->End(Generation(6), 1, "of another generation");
  server_->End(Generation(7), 2, "of another attachment");
  ASSERT_TRUE(client.Run(LocalBarrier{}).ok());
  server_->End(Generation(7), 1, "the group is drained");
  EXPECT_TRUE(AwaitEnd().end.orderly());
  const absl::Status status = client.Run(LocalBarrier{}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled);
  EXPECT_THAT(std::string(status.message()), HasSubstr("the group is drained"));
  ExpectAllGivenBack();
}

TEST_F(AttachServerTest, AnAbortEndsTheOperationAndNamesTheLostRank) {
  BlockBarriers();
  TestClient client = Attached();
  const uint64_t barrier = *client.commands->Submit(LocalBarrier{});
  path_->AwaitWaiter();
  session_->Abort({0}, "its lease ended");
  const absl::StatusOr<LocalCompletion> aborted = client.commands->Wait(barrier, kLong);
  ASSERT_TRUE(aborted.ok()) << aborted.status();
  EXPECT_EQ(aborted->status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(aborted->reason, "GENERATION_ABORTED");
  EXPECT_THAT(aborted->lost, ElementsAre(0));
  EXPECT_EQ(AwaitEnd().status.reason(), "GENERATION_ABORTED");
  EXPECT_EQ(client.Run(LocalBarrier{}).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(session_->Close().ok());
  EXPECT_EQ(budget_.used_bytes(), 0u);
}

TEST_F(AttachServerTest, AFatalOperationIsDeliveredAndEndsTheAttachment) {
  path_->set_behaviour([this](const std::string&, Sequence sequence) {
    return path_->LeaveEarly(AbortReason::kDeadline, Operation::kBarrier, sequence, 0);
  });
  TestClient client = Attached();
  const absl::StatusOr<LocalCompletion> late = client.Run(LocalBarrier{});
  ASSERT_TRUE(late.ok()) << late.status();
  EXPECT_EQ(late->reason, "DEADLINE");
  const AttachmentEnd end = AwaitEnd();
  EXPECT_EQ(end.status.reason(), "DEADLINE");
  EXPECT_EQ(end.end.last_sequence(), 1u);
}

TEST_F(AttachServerTest, ABrokenRingEndsTheAttachmentAndNothingElse) {
  TestClient client = Attached();
  (*OpenCommandPage(client.page.memory()))->client.count = 1000;
  const AttachmentEnd end = AwaitEnd();
  EXPECT_EQ(end.status.code(), 0);
  EXPECT_FALSE(end.end.orderly());
  EXPECT_THAT(end.end.reason(), HasSubstr("the command ring is broken"));
  ExpectAllGivenBack();
  EXPECT_TRUE(Serve(2, {9}).ok());
}

}  // namespace
}  // namespace perigee
