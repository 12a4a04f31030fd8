// Sessions on fake data paths: forming, programs, aborts, ends.
#include "worker/session/session.h"

#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/local/unix_socket.h"
#include "proto/support/random.h"
#include "worker/ops/failure_reason.h"
#include "worker/testing/fake_backend.h"
#include "worker/testing/session_group.h"

namespace perigee {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Message(const absl::Status& status) { return std::string(status.message()); }

v1::BufferShape Shape() {
  v1::BufferShape shape;
  shape.set_tokens(4);
  shape.set_hidden(8);
  shape.set_topk(2);
  shape.set_experts(6);
  shape.set_token_padding(1);
  shape.set_intermediate(8);
  shape.set_layers(2);
  return shape;
}

class SessionTest : public ::testing::Test {
 protected:
  explicit SessionTest(int32_t ranks = 3)
      : group_(ranks, [this](int32_t) {
          auto backend = std::make_unique<FakeBackend>();
          ledgers_.push_back(backend->ledger());
          backend->set_on_data_path([this](FakeDataPath& path) { paths_.push_back(&path); });
          backends_.push_back(backend.get());
          return backend;
        }) {}

  // Every barrier waits until it is aborted or cancelled.
  void BlockBarriers() {
    for (FakeDataPath* path : paths_) {
      path->set_behaviour([path](const std::string&, Sequence sequence) {
        return path->AwaitAbort(Operation::kBarrier, sequence);
      });
    }
  }
  int64_t Alive(int32_t rank) const {
    int64_t alive = 0;
    for (const char* kind : {"shared", "read_only", "private", "peer", "data_path"}) {
      alive += ledgers_[rank]->alive(kind);
    }
    return alive;
  }

  std::vector<FakeBackend*> backends_;
  std::vector<std::shared_ptr<BackendLedger>> ledgers_;
  std::vector<FakeDataPath*> paths_;
  SessionGroup group_;
};

TEST_F(SessionTest, FormsABufferOnAllRanks) {
  group_.MakeBuffer(Shape());
  ASSERT_EQ(paths_.size(), 3u);
  for (int32_t rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(paths_[rank]->options().rank, RankId(rank));
    EXPECT_EQ(paths_[rank]->options().buffer, BufferId(3));
    EXPECT_EQ(paths_[rank]->options().generation, Generation(7));
    EXPECT_EQ(paths_[rank]->options().operation_timeout, absl::Seconds(10));
    EXPECT_EQ(paths_[rank]->options().warmup_timeout, absl::Seconds(30));
    EXPECT_EQ(paths_[rank]->options().sms, 0);
    EXPECT_TRUE(paths_[rank]->options().programmatic_launch);
    // Two peers' shards and home blocks of two layers.
    EXPECT_EQ(ledgers_[rank]->alive("peer"), 8);
    // The own ones, and the slots.
    EXPECT_EQ(ledgers_[rank]->alive("read_only"), 3);
  }
}

TEST_F(SessionTest, OptionsOfABufferReachTheDataPath) {
  v1::Buffer options;
  options.set_sms(24);
  options.set_local_sms(48);
  options.set_no_programmatic_launch(true);
  options.set_high_priority_stream(true);
  group_.MakeBuffer(Shape(), options);
  ASSERT_EQ(paths_.size(), 3u);
  for (const FakeDataPath* path : paths_) {
    EXPECT_EQ(path->options().sms, 24);
    EXPECT_EQ(path->options().local_sms, 48);
    EXPECT_FALSE(path->options().programmatic_launch);
    EXPECT_TRUE(path->options().high_priority_stream);
  }
}

TEST_F(SessionTest, MembersAreChecked) {
  const auto open = [&](void (*change)(v1::OpenSessionCommand&)) {
    v1::OpenSessionCommand command = group_.OpenCommand(1);
    change(command);
    return Session::Open(kTestGroup, Generation(8), command, group_.environment(1)).status();
  };
  EXPECT_TRUE(open([](v1::OpenSessionCommand&) {}).ok());
  for (const absl::Status& status :
       {open([](v1::OpenSessionCommand& command) { command.clear_members(); }),
        open([](v1::OpenSessionCommand& command) { command.set_rank(3); }),
        open([](v1::OpenSessionCommand& command) { command.set_rank(-1); }),
        open([](v1::OpenSessionCommand& command) { command.mutable_members(2)->set_rank(1); }),
        open([](v1::OpenSessionCommand& c) { c.mutable_members(2)->set_incarnation("zz"); }),
        open([](v1::OpenSessionCommand& c) { c.mutable_members(2)->clear_socket_path(); })}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  }
  const absl::Status other = open([](v1::OpenSessionCommand& command) { command.set_rank(2); });
  EXPECT_EQ(other.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(other), AllOf(HasSubstr("workers/w2"), HasSubstr("workers/w1")));
  EXPECT_EQ(open([](v1::OpenSessionCommand& command) {
              command.mutable_members(1)->set_incarnation(Hex64(5));
            }).code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST_F(SessionTest, ShapesAndTicketsAreChecked) {
  v1::AllocateBufferCommand command = group_.AllocateCommand(0, Shape());
  command.mutable_buffer()->mutable_shape()->set_experts(7);
  EXPECT_EQ(group_.session(0).AllocateBuffer(command).status().code(),
            absl::StatusCode::kInvalidArgument);
  command = group_.AllocateCommand(0, Shape());
  command.mutable_tickets(2)->pop_back();
  EXPECT_THAT(Message(group_.session(0).AllocateBuffer(command).status()),
              HasSubstr("ticket 2 has 15 bytes"));
  EXPECT_EQ(Alive(0), 0);
  command = group_.AllocateCommand(0, Shape());
  EXPECT_TRUE(group_.session(0).AllocateBuffer(command).ok());
  EXPECT_EQ(group_.session(0).AllocateBuffer(command).status().code(),
            absl::StatusCode::kAlreadyExists);
}

TEST_F(SessionTest, AWrongTicketNamesTheRankThatRefusedIt) {
  for (int32_t rank = 0; rank < 3; ++rank) {
    ASSERT_TRUE(group_.session(rank).AllocateBuffer(group_.AllocateCommand(rank, Shape())).ok());
  }
  v1::ConnectBufferCommand command = group_.ConnectCommand(0);
  command.set_tickets(2, group_.Ticket(1, 2));
  const absl::Status status = group_.session(0).ConnectBuffer(command);
  EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(Message(status), HasSubstr("rank 2 (workers/w2)"));
  // The ticket of rank 1 is spent by that.
  EXPECT_THAT(Message(group_.session(1).ConnectBuffer(group_.ConnectCommand(1))),
              HasSubstr("rank 2 (workers/w2)"));
  EXPECT_TRUE(group_.session(2).ConnectBuffer(group_.ConnectCommand(2)).ok());
}

TEST_F(SessionTest, ABufferThatFormsOrIsAbsentIsRefused) {
  ASSERT_TRUE(group_.session(0).AllocateBuffer(group_.AllocateCommand(0, Shape())).ok());
  v1::ExecuteProgramCommand command;
  command.set_buffer(kTestBuffer);
  command.set_program_id(1);
  EXPECT_THAT(Message(group_.session(0).Execute(command, nullptr, nullptr)),
              HasSubstr("still forming"));
  command.set_buffer("tenants/default/groups/g/buffers/other");
  EXPECT_EQ(group_.session(0).Execute(command, nullptr, nullptr).code(),
            absl::StatusCode::kNotFound);
}

TEST_F(SessionTest, RunsOneProgramAtATime) {
  group_.MakeBuffer(Shape());
  BlockBarriers();
  group_.StartProgram("operations { barrier {} }");
  for (FakeDataPath* path : paths_) path->AwaitWaiter();
  v1::ExecuteProgramCommand command;
  command.set_buffer(kTestBuffer);
  command.set_program_id(2);
  const absl::Status status = group_.session(0).Execute(command, nullptr, nullptr);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(status), HasSubstr("program 1 is running"));
  EXPECT_EQ(group_.session(0).DropBuffer(kTestBuffer).code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(group_.session(0).Close().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(group_.buffer(0).Enter().status()), HasSubstr("program 1 is running"));
  for (int32_t rank = 0; rank < 3; ++rank) group_.session(rank).Cancel(1);
  for (const ProgramOutcome& outcome : group_.AwaitOutcomes()) {
    EXPECT_EQ(outcome.status.reason(), "CANCELLED");
  }
  for (FakeDataPath* path : paths_) path->set_behaviour({});
  for (const ProgramOutcome& outcome : group_.Execute("operations { barrier {} }")) {
    EXPECT_EQ(outcome.status.code(), 0);
    EXPECT_EQ(outcome.progress.last_sequence(), 2u);
  }
  EXPECT_EQ(group_.environment(0).operations_done, 1u);
}

TEST_F(SessionTest, OnlyTheRunningProgramIsCancelledAndTheWishEndsWithIt) {
  group_.MakeBuffer(Shape());
  BlockBarriers();
  group_.StartProgram("operations { barrier {} }");
  for (FakeDataPath* path : paths_) path->AwaitWaiter();
  group_.session(0).Cancel(2);
  EXPECT_FALSE(paths_[0]->cancel_requested());
  for (int32_t rank = 0; rank < 3; ++rank) group_.session(rank).Cancel(1);
  group_.AwaitOutcomes();
  EXPECT_FALSE(paths_[0]->cancel_requested());
}

TEST_F(SessionTest, ACancelMayOvertakeTheStart) {
  group_.MakeBuffer(Shape());
  BlockBarriers();
  for (int32_t rank = 0; rank < 3; ++rank) group_.session(rank).Cancel(1);
  EXPECT_FALSE(paths_[0]->cancel_requested());
  for (const ProgramOutcome& outcome : group_.Execute("operations { barrier {} }")) {
    EXPECT_EQ(outcome.status.reason(), "CANCELLED");
  }
  for (FakeDataPath* path : paths_) path->set_behaviour({});
  for (const ProgramOutcome& outcome : group_.Execute("operations { barrier {} }")) {
    EXPECT_EQ(outcome.status.code(), 0);
  }
}

TEST_F(SessionTest, AnAbortEndsWaitsAndGivesEverythingBackInOrder) {
  group_.MakeBuffer(Shape());
  BlockBarriers();
  group_.StartProgram("operations { barrier {} }");
  for (FakeDataPath* path : paths_) path->AwaitWaiter();
  const std::shared_ptr<SessionBuffer> held = group_.shared_buffer(0);
  for (int32_t rank = 0; rank < 3; ++rank) group_.session(rank).Abort({2}, "its lease ended");
  const ProgramOutcome outcome = group_.AwaitOutcomes()[0];
  EXPECT_EQ(outcome.status.code(), static_cast<int>(absl::StatusCode::kUnavailable));
  EXPECT_EQ(outcome.status.reason(), "GENERATION_ABORTED");
  EXPECT_THAT(outcome.status.message(), HasSubstr("workers/w2"));
  EXPECT_EQ(outcome.status.worker(), "workers/w0");
  EXPECT_TRUE(group_.session(0).Close().ok());
  // Nothing is left although somebody still holds the buffer.
  EXPECT_EQ(Alive(0), 0);
  const std::vector<std::string> gone = ledgers_[0]->gone();
  ASSERT_GE(gone.size(), 8u);
  EXPECT_EQ(gone[0], "data_path");
  for (size_t i = 1; i < 7; ++i) EXPECT_EQ(gone[i], "peer");
  const absl::Status status = held->Enter().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(ReasonOf(status), kReasonGenerationAborted);
  EXPECT_THAT(Message(status), AllOf(HasSubstr("rank 2 (workers/w2) was lost"),
                                     HasSubstr("its lease ended"), HasSubstr("generation 7")));
  EXPECT_EQ(group_.session(0).FindBuffer(kTestBuffer).status(), status);
  EXPECT_EQ(group_.session(0).AllocateBuffer(group_.AllocateCommand(0, Shape())).status(), status);
  EXPECT_TRUE(group_.session(0).Close().ok());
}

TEST_F(SessionTest, AnAbortWithSeveralOrNoLostRanksSaysSo) {
  group_.MakeBuffer(Shape());
  group_.session(0).Abort({1, 2}, "gone");
  EXPECT_THAT(Message(group_.session(0).FindBuffer(kTestBuffer).status()),
              HasSubstr("rank 1 (workers/w1), rank 2 (workers/w2) were lost: gone"));
  group_.session(1).Abort({}, "the operator said so");
  EXPECT_THAT(Message(group_.session(1).FindBuffer(kTestBuffer).status()),
              HasSubstr("was aborted: the operator said so"));
  group_.session(1).Abort({0}, "a second time");
  EXPECT_THAT(Message(group_.session(1).FindBuffer(kTestBuffer).status()),
              HasSubstr("the operator said so"));
}

TEST_F(SessionTest, AnAbortEndsAnAllocation) {
  int blocks = 0;
  backends_[0]->set_on_allocate_shared([&] {
    ++blocks;
    group_.session(0).Abort({2}, "gone");
  });
  const absl::Status status =
      group_.session(0).AllocateBuffer(group_.AllocateCommand(0, Shape())).status();
  EXPECT_EQ(ReasonOf(status), kReasonGenerationAborted);
  EXPECT_THAT(Message(status), HasSubstr("rank 2 (workers/w2) was lost: gone"));
  EXPECT_EQ(blocks, 1);
  EXPECT_EQ(Alive(0), 0);
  backends_[0]->set_on_allocate_shared({});
}

TEST_F(SessionTest, AnAbortEndsAFetchFromASilentPeer) {
  ScratchDirectory directory;
  absl::StatusOr<UnixListener> silent = UnixListener::Listen(directory.path() + "/silent");
  ASSERT_TRUE(silent.ok());
  v1::OpenSessionCommand open = group_.OpenCommand(0);
  open.mutable_members(1)->set_socket_path(silent->path());
  std::shared_ptr<Session> session =
      *Session::Open(kTestGroup, Generation(8), open, group_.environment(0));
  ASSERT_TRUE(session->AllocateBuffer(group_.AllocateCommand(0, Shape())).ok());
  std::thread other([&] {
    ASSERT_TRUE(WaitLimit(absl::Seconds(20)).Wait(silent->fd(), 1 /* POLLIN */).ok());
    session->Abort({1}, "gone");
  });
  const absl::Status status = session->ConnectBuffer(group_.ConnectCommand(0));
  other.join();
  EXPECT_EQ(ReasonOf(status), kReasonGenerationAborted);
  EXPECT_TRUE(session->Close().ok());
  EXPECT_EQ(Alive(0), 0);
}

TEST_F(SessionTest, ASilentPeerIsNamedAtTheDeadline) {
  ScratchDirectory directory;
  absl::StatusOr<UnixListener> silent = UnixListener::Listen(directory.path() + "/silent");
  ASSERT_TRUE(silent.ok());
  v1::OpenSessionCommand open = group_.OpenCommand(0);
  open.mutable_members(1)->set_socket_path(silent->path());
  std::shared_ptr<Session> session =
      *Session::Open(kTestGroup, Generation(8), open, group_.environment(0));
  ASSERT_TRUE(session->AllocateBuffer(group_.AllocateCommand(0, Shape())).ok());
  v1::ConnectBufferCommand connect = group_.ConnectCommand(0);
  connect.mutable_timeout()->set_seconds(0);
  connect.mutable_timeout()->set_nanos(20'000'000);
  const absl::Status status = session->ConnectBuffer(connect);
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(Message(status), HasSubstr("rank 1 (workers/w1)"));
}

TEST_F(SessionTest, ADroppedBufferGivesItsMemoryBack) {
  group_.MakeBuffer(Shape());
  const std::shared_ptr<SessionBuffer> held = group_.shared_buffer(0);
  EXPECT_TRUE(group_.session(0).DropBuffer(kTestBuffer).ok());
  EXPECT_EQ(Alive(0), 0);
  EXPECT_EQ(ReasonOf(held->Enter().status()), kReasonStaleObject);
  EXPECT_TRUE(group_.session(0).DropBuffer(kTestBuffer).ok());
  EXPECT_EQ(group_.session(0).FindBuffer(kTestBuffer).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(SessionTest, AClosedSessionRefusesEverything) {
  group_.MakeBuffer(Shape());
  EXPECT_TRUE(group_.session(0).Close().ok());
  EXPECT_EQ(Alive(0), 0);
  EXPECT_EQ(ReasonOf(group_.session(0).FindBuffer(kTestBuffer).status()), kReasonStaleObject);
}

TEST_F(SessionTest, TheCurrentSessionNamesBothGenerations) {
  EXPECT_TRUE(group_.current(0).Find(kTestGroup, Generation(7)).ok());
  absl::Status status = group_.current(0).Find(kTestGroup, Generation(6)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(status), AllOf(HasSubstr("generation 6"), HasSubstr("generation 7")));
  EXPECT_FALSE(group_.current(0).Find("tenants/default/groups/h", Generation(7)).ok());
  CurrentSession none;
  EXPECT_THAT(Message(none.Find(kTestGroup, Generation(6)).status()),
              HasSubstr("no generation lives here"));
}

// Random commands from several threads: no wait may last, nothing may stay.
TEST_F(SessionTest, AbortsRaceWithEverything) {
  group_.MakeBuffer(Shape());
  BlockBarriers();
  group_.StartProgram("operations { barrier {} } iterations: 100");
  std::vector<std::thread> threads;
  for (int32_t rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] { group_.session(rank).Abort({1}, "x"); });
    threads.emplace_back([&, rank] { group_.session(rank).Cancel(1); });
    threads.emplace_back([&, rank] {
      (void)group_.session(rank).FindBuffer(kTestBuffer);
      (void)group_.session(rank).AllocateBuffer(group_.AllocateCommand(rank, Shape()));
    });
  }
  for (std::thread& thread : threads) thread.join();
  group_.AwaitOutcomes();
  for (int32_t rank = 0; rank < 3; ++rank) {
    EXPECT_TRUE(group_.session(rank).Close().ok());
    EXPECT_EQ(Alive(rank), 0);
  }
}

}  // namespace
}  // namespace perigee
