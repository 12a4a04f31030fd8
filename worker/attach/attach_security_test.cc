// Who gets nothing from the attach socket.
#include <sys/stat.h>
#include <sys/wait.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/testing/attach_fixture.h"

namespace perigee {
namespace {

using ::testing::HasSubstr;

constexpr Ticket kTicket = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
constexpr int kNobody = 65534;
constexpr int kSkip = 2;  // exit status of a child that may not become another user

class AttachSecurityTest : public AttachTest {
 protected:
  // The exit status of a child that does `work`.
  template <typename Work>
  static int InChild(const Work& work) {
    const pid_t child = fork();
    if (child == 0) _exit(work());
    int outcome = -1;
    EXPECT_EQ(waitpid(child, &outcome, 0), child);
    return WIFEXITED(outcome) ? WEXITSTATUS(outcome) : 128 + WTERMSIG(outcome);
  }
  // 0: what a child of another user that knows path and ticket gets has this code.
  int AsNobody(absl::StatusCode expected) {
    return InChild([&] {
      if (setuid(kNobody) != 0) return kSkip;
      absl::StatusOr<UnixSocket> socket =
          UnixSocket::Connect(server_->path(), WaitLimit(kLong), /*peer_uid=*/0);
      if (!socket.ok()) return 3;
      absl::StatusOr<SocketMessage> message = TestClient::Ask(*socket, Request(kTicket));
      if (!message.ok()) return message.status().code() == expected ? 0 : 4;
      const absl::StatusOr<AttachReply> reply = ParseAttachReply(message->bytes);
      if (!reply.ok()) return 5;
      return static_cast<absl::StatusCode>(reply->code) == expected ? 0 : 6;
    });
  }
};

TEST_F(AttachSecurityTest, AReplayedTicketIsRefusedAndTheClientThatLivesNoticesNothing) {
  ASSERT_TRUE(Serve(1, kTicket).ok());
  absl::StatusOr<TestClient> client = Attach(Request(kTicket));
  ASSERT_TRUE(client.ok()) << client.status();
  ExpectRefused(Request(kTicket));
  EXPECT_TRUE(client->Run(LocalBarrier{})->status.ok());
}

TEST_F(AttachSecurityTest, AForgedTicketIsRefusedAndSpendsNothing) {
  ASSERT_TRUE(Serve(1, kTicket).ok());
  Ticket forged = kTicket;
  forged[0] ^= 0x80;
  ExpectRefused(Request(forged));
  ExpectRefused(Request({}));
  EXPECT_TRUE(Attach(Request(kTicket)).ok());
}

TEST_F(AttachSecurityTest, WhoGuessesThePathGetsNothing) {
  absl::StatusOr<UnixSocket> socket = UnixSocket::Connect(server_->path(), WaitLimit(kLong));
  ASSERT_TRUE(socket.ok());
  ASSERT_TRUE(socket->Send("hello", {}, WaitLimit(kLong)).ok());
  absl::StatusOr<SocketMessage> message =
      socket->Receive(sizeof(AttachReply), kAttachParts, WaitLimit(kLong));
  ASSERT_TRUE(message.ok()) << message.status();
  EXPECT_TRUE(message->descriptors.empty());
  EXPECT_EQ(ParseAttachReply(message->bytes)->code,
            static_cast<uint32_t>(absl::StatusCode::kPermissionDenied));
  EXPECT_EQ(socket->Receive(1, 0, WaitLimit(kLong)).status().code(),
            absl::StatusCode::kUnavailable);
}

TEST_F(AttachSecurityTest, ATicketOfAnotherRankGenerationOrWorkerIsRefusedAndSpent) {
  using Change = void (*)(AttachRequest&);
  uint64_t id = 0;
  for (const Change change : {Change([](AttachRequest& request) { request.rank = 1; }),
                              Change([](AttachRequest& request) { request.generation = 6; }),
                              Change([](AttachRequest& request) { request.buffer = 4; }),
                              Change([](AttachRequest& request) { request.incarnation = 1; })}) {
    ASSERT_TRUE(Serve(++id, kTicket).ok());
    AttachRequest request = Request(kTicket);
    change(request);
    ExpectRefused(request);
    const AttachmentEnd end = AwaitEnd(id);
    EXPECT_FALSE(end.end.attached());
    EXPECT_THAT(end.end.reason(), HasSubstr("its ticket was presented wrongly"));
    ExpectRefused(Request(kTicket));
    ExpectAllGivenBack();
  }
}

TEST_F(AttachSecurityTest, AnExpiredTicketIsRefused) {
  ASSERT_TRUE(Serve(1, kTicket).ok());
  clock_.Advance(absl::Seconds(30));  // before the server has looked at the clock
  ExpectRefused(Request(kTicket));
  EXPECT_FALSE(AwaitEnd().end.attached());
}

TEST_F(AttachSecurityTest, AConnectionThatWasPassedOnPresentsNothing) {
  ASSERT_TRUE(Serve(1, kTicket).ok());
  absl::StatusOr<UnixSocket> socket = UnixSocket::Connect(server_->path(), WaitLimit(kLong));
  ASSERT_TRUE(socket.ok());
  // The child has got this process's connection, and its ticket.
  EXPECT_EQ(
      InChild([&] {
        absl::StatusOr<SocketMessage> message = TestClient::Ask(*socket, Request(kTicket));
        if (!message.ok()) return 1;
        return message->descriptors.empty() && ParseAttachReply(message->bytes)->code != 0 ? 0 : 2;
      }),
      0);
  EXPECT_TRUE(Attach(Request(kTicket)).ok()) << "the ticket was not looked at";
}

TEST_F(AttachSecurityTest, ALeaseEndsWithItsProcessWhoeverHoldsItsConnection) {
  ASSERT_TRUE(Serve(1, kTicket).ok());
  int keep[2];
  ASSERT_EQ(pipe(keep), 0);
  // The child attaches and ends; its own child keeps the connection open until this test lets it
  // go.
  EXPECT_EQ(InChild([&] {
              absl::StatusOr<TestClient> client = Attach(Request(kTicket));
              if (!client.ok()) return 1;
              if (fork() == 0) {
                close(keep[1]);
                char byte;
                (void)!read(keep[0], &byte, 1);
                _exit(0);
              }
              return 0;
            }),
            0);
  const AttachmentEnd end = AwaitEnd();
  EXPECT_TRUE(end.end.attached());
  EXPECT_FALSE(end.end.orderly());
  EXPECT_THAT(end.end.reason(), HasSubstr("its process has ended"));
  ExpectAllGivenBack();
  close(keep[0]);
  close(keep[1]);
}

TEST_F(AttachSecurityTest, AnotherProcessCannotDetachAClient) {
  ASSERT_TRUE(Serve(1, kTicket).ok());
  absl::StatusOr<TestClient> client = Attach(Request(kTicket));
  ASSERT_TRUE(client.ok()) << client.status();
  EXPECT_EQ(InChild([&] { return client->Detach().ok() ? 0 : 1; }), 0);
  EXPECT_FALSE(AwaitEnd().end.orderly());
}

TEST_F(AttachSecurityTest, AnotherUserIsRefusedUnlessAllowed) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can take another user's place";
  // Allowed is somebody else: the socket is there for all, the ticket is not.
  StartServer({4711});
  ASSERT_TRUE(Serve(1, kTicket).ok());
  const int refused = AsNobody(absl::StatusCode::kPermissionDenied);
  if (refused == kSkip) GTEST_SKIP() << "this root may not become another user";
  EXPECT_EQ(refused, 0);
  EXPECT_EQ(end_count(), 0u) << "the ticket was not looked at";
  server_->End(Generation(7), 1, "next");
  AwaitEnd();
  StartServer({kNobody});
  ASSERT_TRUE(Serve(2, kTicket).ok());
  EXPECT_EQ(AsNobody(absl::StatusCode::kOk), 0);
  EXPECT_TRUE(AwaitEnd(2).end.attached());
}

}  // namespace
}  // namespace perigee
