#include "worker/rpc/command_handler.h"

#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/support/clock.h"
#include "proto/support/random.h"
#include "worker/testing/fake_backend.h"
#include "worker/testing/scratch_directory.h"

namespace perigee {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char kGroup[] = "tenants/default/groups/g";
constexpr char kBuffer[] = "tenants/default/groups/g/buffers/b";
constexpr uint64_t kIncarnation = 100;

// A group of one rank.
class CommandHandlerTest : public ::testing::Test {
 protected:
  CommandHandlerTest() {
    backend_.set_on_data_path([this](FakeDataPath& path) { path_ = &path; });
    descriptors_ = *DescriptorServer::Start(directory_.path() + "/w", RealClock());
    environment_.reset(new SessionEnvironment{"workers/w", kIncarnation, backend_, *descriptors_,
                                              RealClock(), budget_, operations_done_, 1});
    clients_ =
        *AttachServer::Start(directory_.path() + "/a", ClientUsers(geteuid(), {}), *environment_);
    handler_ = std::make_unique<CommandHandler>(*environment_, current_, *clients_,
                                                [this](const v1::WorkerReport& report) {
                                                  std::lock_guard<std::mutex> lock(mutex_);
                                                  reports_.push_back(report);
                                                  changed_.notify_all();
                                                });
  }

  v1::WorkerCommand Command(uint64_t generation = 7) {
    v1::WorkerCommand command;
    command.set_command_id(++command_id_);
    command.set_term(5);
    command.set_group(kGroup);
    command.set_generation(generation);
    return command;
  }
  v1::WorkerCommand OpenCommand(uint64_t generation) {
    v1::WorkerCommand command = Command(generation);
    v1::GroupMember& member = *command.mutable_open_session()->add_members();
    member.set_worker("workers/w");
    member.set_incarnation(Hex64(kIncarnation));
    member.set_socket_path(descriptors_->path());
    return command;
  }
  v1::WorkerCommand AllocateCommand(uint64_t generation = 7) {
    v1::WorkerCommand command = Command(generation);
    v1::Buffer& buffer = *command.mutable_allocate_buffer()->mutable_buffer();
    buffer.set_name(kBuffer);
    buffer.set_id(3);
    buffer.mutable_shape()->set_tokens(4);
    buffer.mutable_shape()->set_hidden(8);
    buffer.mutable_shape()->set_topk(2);
    buffer.mutable_shape()->set_experts(2);
    command.mutable_allocate_buffer()->add_tickets("");
    return command;
  }
  v1::WorkerCommand ConnectCommand() {
    v1::WorkerCommand command = Command();
    command.mutable_connect_buffer()->set_buffer(kBuffer);
    command.mutable_connect_buffer()->add_tickets("");
    return command;
  }
  v1::WorkerCommand BarrierCommand() {
    v1::WorkerCommand command = Command();
    command.mutable_execute_program()->set_buffer(kBuffer);
    command.mutable_execute_program()->set_program_id(1);
    command.mutable_execute_program()->set_first_sequence(1);
    command.mutable_execute_program()->mutable_program()->add_operations()->mutable_barrier();
    return command;
  }
  v1::WorkerCommand AbortCommand(uint64_t generation = 7) {
    v1::WorkerCommand command = Command(generation);
    command.mutable_abort_generation()->set_reason("over");
    return command;
  }

  // The one result of a command.
  v1::CommandResult Await(uint64_t command_id) {
    std::unique_lock<std::mutex> lock(mutex_);
    const auto find = [&] {
      const v1::CommandResult* found = nullptr;
      for (const v1::WorkerReport& report : reports_) {
        if (!report.has_result() || report.result().command_id() != command_id) continue;
        EXPECT_EQ(found, nullptr) << "command " << command_id << " was answered twice";
        found = &report.result();
      }
      return found;
    };
    changed_.wait(lock, [&] { return find() != nullptr; });
    return *find();
  }
  v1::CommandResult Do(const v1::WorkerCommand& command) {
    handler_->Receive(command);
    return Await(command.command_id());
  }
  void Form() {
    ASSERT_EQ(Do(OpenCommand(7)).status().code(), 0);
    ASSERT_EQ(Do(AllocateCommand()).status().code(), 0);
    ASSERT_EQ(Do(ConnectCommand()).status().code(), 0);
  }
  void BlockBarriers() {
    path_->set_behaviour([path = path_](const std::string&, Sequence sequence) {
      return path->AwaitAbort(Operation::kBarrier, sequence);
    });
  }

  ScratchDirectory directory_;
  FakeBackend backend_;
  FakeDataPath* path_ = nullptr;
  ByteBudget budget_{1 << 20};
  std::atomic<uint64_t> operations_done_ = 0;
  std::unique_ptr<DescriptorServer> descriptors_;
  std::unique_ptr<SessionEnvironment> environment_;
  CurrentSession current_;
  uint64_t command_id_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<v1::WorkerReport> reports_;
  std::unique_ptr<CommandHandler> handler_;
  std::unique_ptr<AttachServer> clients_;  // its last reports go through the handler
};

TEST_F(CommandHandlerTest, AWholeLife) {
  v1::CommandResult result = Do(OpenCommand(7));
  EXPECT_EQ(result.status().code(), 0);
  EXPECT_EQ(result.status().worker(), "workers/w");
  result = Do(AllocateCommand());
  EXPECT_EQ(result.status().code(), 0) << result.status().message();
  EXPECT_GT(result.allocated_bytes(), 0u);
  EXPECT_EQ(Do(ConnectCommand()).status().code(), 0);
  result = Do(BarrierCommand());
  EXPECT_EQ(result.status().code(), 0);
  EXPECT_EQ(result.progress().program_id(), 1u);
  EXPECT_EQ(result.progress().last_sequence(), 1u);
  v1::WorkerCommand drop = Command();
  drop.mutable_drop_buffer()->set_buffer(kBuffer);
  EXPECT_EQ(Do(drop).status().code(), 0);
  v1::WorkerCommand close = Command();
  close.mutable_close_session();
  EXPECT_EQ(Do(close).status().code(), 0);
  EXPECT_EQ(current_.Get(), nullptr);
}

TEST_F(CommandHandlerTest, AnOlderTermIsRefusedNamingBoth) {
  EXPECT_EQ(Do(OpenCommand(7)).status().code(), 0);
  v1::WorkerCommand command = AbortCommand();
  command.set_term(4);
  const v1::CommandResult result = Do(command);
  EXPECT_EQ(result.status().code(), static_cast<int>(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(result.status().message(), AllOf(HasSubstr("term 4"), HasSubstr("term 5")));
  EXPECT_NE(current_.Get(), nullptr);
  EXPECT_TRUE(handler_->ObserveTerm(9));
  EXPECT_FALSE(handler_->ObserveTerm(8));
  EXPECT_EQ(handler_->term(), 9u);
  EXPECT_NE(Do(AbortCommand()).status().code(), 0);
}

TEST_F(CommandHandlerTest, AnotherGenerationIsRefusedNamingBoth) {
  Form();
  for (const v1::WorkerCommand& command : {AllocateCommand(6), AbortCommand(8)}) {
    const v1::CommandResult result = Do(command);
    EXPECT_EQ(result.status().reason(), "STALE_OBJECT");
    EXPECT_THAT(result.status().message(), HasSubstr("generation 7"));
    EXPECT_THAT(result.status().message(),
                HasSubstr(absl::StrCat("generation ", command.generation())));
  }
  v1::WorkerCommand other_group = AllocateCommand();
  other_group.set_group("tenants/default/groups/h");
  EXPECT_EQ(Do(other_group).status().reason(), "STALE_OBJECT");
  EXPECT_EQ(Do(BarrierCommand()).status().code(), 0);
}

TEST_F(CommandHandlerTest, WithoutASessionEverythingIsRefused) {
  for (const v1::WorkerCommand& command :
       {AllocateCommand(), ConnectCommand(), BarrierCommand(), AbortCommand()}) {
    const v1::CommandResult result = Do(command);
    EXPECT_EQ(result.status().reason(), "STALE_OBJECT");
    EXPECT_EQ(result.status().rank(), -1);
  }
}

TEST_F(CommandHandlerTest, ANewerGenerationTakesThePlaceOfAnOlderOne) {
  Form();
  BlockBarriers();
  const v1::WorkerCommand barrier = BarrierCommand();
  handler_->Receive(barrier);
  path_->AwaitWaiter();
  EXPECT_EQ(Do(OpenCommand(7)).status().reason(), "STALE_OBJECT");
  EXPECT_EQ(Do(OpenCommand(6)).status().reason(), "STALE_OBJECT");
  EXPECT_EQ(Do(OpenCommand(8)).status().code(), 0);
  EXPECT_EQ(Await(barrier.command_id()).status().reason(), "GENERATION_ABORTED");
  EXPECT_EQ(current_.Get()->view().generation, Generation(8));
  EXPECT_EQ(backend_.ledger()->alive("shared"), 0);
}

TEST_F(CommandHandlerTest, AnAbortIsAnsweredAfterTheProgramWithNothingLeft) {
  Form();
  BlockBarriers();
  const v1::WorkerCommand barrier = BarrierCommand();
  handler_->Receive(barrier);
  path_->AwaitWaiter();
  const v1::WorkerCommand abort = AbortCommand();
  handler_->Receive(abort);
  EXPECT_EQ(Await(abort.command_id()).status().code(), 0);
  EXPECT_EQ(backend_.ledger()->alive("shared"), 0);
  EXPECT_EQ(current_.Get(), nullptr);
  std::lock_guard<std::mutex> lock(mutex_);
  ASSERT_GE(reports_.size(), 2u);
  EXPECT_EQ(reports_[reports_.size() - 2].result().command_id(), barrier.command_id());
  EXPECT_EQ(reports_.back().result().command_id(), abort.command_id());
}

TEST_F(CommandHandlerTest, ACancelIsAnsweredAtOnce) {
  Form();
  BlockBarriers();
  const v1::WorkerCommand barrier = BarrierCommand();
  handler_->Receive(barrier);
  path_->AwaitWaiter();
  v1::WorkerCommand cancel = Command();
  cancel.mutable_cancel_program()->set_program_id(1);
  EXPECT_EQ(Do(cancel).status().code(), 0);
  EXPECT_EQ(Await(barrier.command_id()).status().reason(), "CANCELLED");
  cancel.set_command_id(++command_id_);
  EXPECT_EQ(Do(cancel).status().code(), 0) << "ended programs are fine";
}

TEST_F(CommandHandlerTest, ACloseIsRefusedWhileAProgramRuns) {
  Form();
  BlockBarriers();
  handler_->Receive(BarrierCommand());
  path_->AwaitWaiter();
  v1::WorkerCommand close = Command();
  close.mutable_close_session();
  EXPECT_THAT(Do(close).status().message(), HasSubstr("program 1 is running"));
}

TEST_F(CommandHandlerTest, WhatIsUnknownIsRefused) {
  Form();
  EXPECT_EQ(Do(Command()).status().code(), static_cast<int>(absl::StatusCode::kUnimplemented));
}

TEST_F(CommandHandlerTest, AClientIsServedUntilItsEnd) {
  Form();
  v1::WorkerCommand serve = Command();
  serve.mutable_serve_client()->set_buffer(kBuffer);
  serve.mutable_serve_client()->set_attachment_id(4);
  serve.mutable_serve_client()->set_ticket("0123456789abcdef");
  serve.mutable_serve_client()->mutable_life()->set_seconds(30);
  serve.mutable_serve_client()->set_first_sequence(1);
  v1::CommandResult refused = Do(serve);
  EXPECT_EQ(refused.status().code(), static_cast<int>(absl::StatusCode::kUnimplemented));
  EXPECT_THAT(refused.status().message(), HasSubstr("local clients cannot attach to backend"));
  backend_.set_attachable();
  serve.set_command_id(++command_id_);
  handler_->Receive(serve);
  v1::WorkerCommand end = Command();
  end.mutable_end_client()->set_attachment_id(4);
  end.mutable_end_client()->set_reason("enough");
  EXPECT_EQ(Do(end).status().code(), 0);
  const v1::CommandResult ended = Await(serve.command_id());
  EXPECT_EQ(ended.status().code(), 0);
  EXPECT_FALSE(ended.client_end().attached());
  EXPECT_THAT(ended.client_end().reason(), HasSubstr("enough"));
  std::lock_guard<std::mutex> lock(mutex_);
  int admitted = 0;
  for (const v1::WorkerReport& report : reports_) {
    if (!report.has_client()) continue;
    ++admitted;
    EXPECT_EQ(report.client().state(), v1::ClientReport::ADMITTED);
    EXPECT_EQ(report.client().group(), kGroup);
    EXPECT_EQ(report.client().socket_path(), clients_->path());
  }
  EXPECT_EQ(admitted, 1);
}

TEST_F(CommandHandlerTest, ALeavingWorkerEndsItsSessionAndRefusesCommands) {
  Form();
  BlockBarriers();
  const v1::WorkerCommand barrier = BarrierCommand();
  handler_->Receive(barrier);
  path_->AwaitWaiter();
  handler_->Leave("bye");
  EXPECT_EQ(current_.Get(), nullptr);
  EXPECT_EQ(backend_.ledger()->alive("shared"), 0);
  EXPECT_EQ(Await(barrier.command_id()).status().reason(), "GENERATION_ABORTED");
  EXPECT_EQ(Do(OpenCommand(9)).status().code(), static_cast<int>(absl::StatusCode::kUnavailable));
}

TEST_F(CommandHandlerTest, ProgressIsReportedWhileAProgramRuns) {
  Form();
  v1::WorkerCommand command = BarrierCommand();
  command.mutable_execute_program()->mutable_progress_interval()->set_nanos(1);
  command.mutable_execute_program()->mutable_program()->set_iterations(3);
  EXPECT_EQ(Do(command).status().code(), 0);
  std::lock_guard<std::mutex> lock(mutex_);
  int progress = 0;
  for (const v1::WorkerReport& report : reports_) progress += report.has_progress();
  EXPECT_GE(progress, 1);
}

// The command that opens the session of 7 with eight serials of the rank's own.
TEST_F(CommandHandlerTest, TokensAreGrantedCountedAndAskedFor) {
  v1::WorkerCommand open = OpenCommand(7);
  v1::TokenGrant& first = *open.mutable_open_session()->mutable_tokens();
  first.set_key(std::string(32, 'k'));
  first.set_first_serial(1);
  first.set_count(8);
  first.mutable_life()->set_seconds(600);
  first.set_holder(v1::TokenGrant::WORKER);
  ASSERT_EQ(Do(open).status().code(), 0);

  v1::WorkerCommand grant = Command();
  *grant.mutable_grant_tokens() = first;
  grant.mutable_grant_tokens()->clear_key();
  grant.mutable_grant_tokens()->set_first_serial(9);
  v1::CommandResult result = Do(grant);
  EXPECT_EQ(result.status().code(), 0) << result.status().message();
  EXPECT_EQ(result.tokens().held(), 16u);
  grant.set_command_id(++command_id_);
  EXPECT_EQ(Do(grant).tokens().held(), 16u) << "twice is once";

  const std::shared_ptr<Session> session = current_.Get();
  TokenLedger& ledger = session->tokens();
  for (int i = 0; i < 14; ++i) {
    EXPECT_EQ(ledger.Spend(*ledger.Draw(BufferId(3)), BufferId(3)), TokenRefusal::kNone);
  }
  {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto asked = std::find_if(reports_.begin(), reports_.end(),
                                    [](const auto& report) { return report.has_tokens(); });
    ASSERT_NE(asked, reports_.end()) << "two of eight are left";
    EXPECT_EQ(asked->tokens().group(), kGroup);
    EXPECT_EQ(asked->tokens().generation(), 7u);
  }
  const std::string unspent = *ledger.Draw(BufferId(3));
  v1::WorkerCommand ask = Command();
  ask.mutable_report_tokens();
  result = Do(ask);
  EXPECT_EQ(result.tokens().drawn(), 15u);
  EXPECT_EQ(result.tokens().spent(), 14u);
  EXPECT_EQ(Do(AbortCommand()).tokens().spent(), 14u) << "the last word";
  EXPECT_EQ(ledger.Spend(unspent, BufferId(3)), TokenRefusal::kStaleGeneration);
  ask.set_command_id(++command_id_);
  EXPECT_EQ(Do(ask).status().reason(), "STALE_OBJECT");
}

}  // namespace
}  // namespace perigee
