#include "worker/rpc/coordinator_link.h"

#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/fake_clock.h"
#include "worker/testing/fake_coordinator.h"

namespace perigee {
namespace {

using ::testing::HasSubstr;
using Counts = FakeCoordinator::Counts;

constexpr char kWorker[] = "workers/w";
constexpr absl::Duration kLong = absl::Seconds(30);

class CoordinatorLinkTest : public ::testing::Test {
 protected:
  // Every command is answered.
  std::unique_ptr<CoordinatorLink> MakeLink(const std::string& coordinator) {
    CoordinatorLinkOptions options;
    options.coordinator = coordinator;
    options.worker.set_name(kWorker);
    options.worker.set_incarnation("00000000000000aa");
    options.clock = clock_;
    options.register_attempt = register_attempt_;
    options.on_command = [this](const v1::WorkerCommand& command) {
      v1::WorkerReport report;
      report.mutable_result()->set_command_id(command.command_id());
      link_->Send(report);
    };
    options.on_term = [this](uint64_t term) { term_ = term; };
    options.term = [this] { return term_.load(); };
    options.operations_done = [] { return 5; };
    options.transport = [this] { return transport_; };
    options.on_serving = [this](bool serving) { Note([&] { serving_ = serving; }); };
    options.on_leave = [this](const absl::Status& status) { Note([&] { left_ = status; }); };
    return std::make_unique<CoordinatorLink>(std::move(options));
  }
  void Start() {
    link_ = MakeLink(coordinator_.address());
    const absl::Status status = link_->Start(WaitLimit(kLong));
    ASSERT_TRUE(status.ok()) << status;
  }
  void Note(const std::function<void()>& change) {
    std::lock_guard<std::mutex> lock(mutex_);
    change();
    changed_.notify_all();
  }
  bool Await(const std::function<bool()>& wanted) {
    std::unique_lock<std::mutex> lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(30), wanted);
  }
  bool AwaitUp(int streams) {
    return coordinator_.Await(kWorker, [=](const Counts& counts) {
      return counts.command_streams >= streams && counts.lease_streams >= streams;
    });
  }
  absl::Status AwaitLeave() {
    EXPECT_TRUE(Await([&] { return left_.has_value(); }));
    return left_.value_or(absl::OkStatus());
  }

  FakeClock fake_clock_;
  const Clock* clock_ = &RealClock();
  absl::Duration register_attempt_ = absl::Seconds(1);
  FakeCoordinator coordinator_;
  std::atomic<uint64_t> term_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool serving_ = false;
  absl::optional<absl::Status> left_;
  absl::optional<v1::TransportCounts> transport_;
  std::unique_ptr<CoordinatorLink> link_;
};

TEST_F(CoordinatorLinkTest, HeartbeatsSayWhatTheWorkersRankHasSent) {
  transport_.emplace();
  transport_->set_group("g");
  transport_->add_bytes_sent(7);
  Start();
  ASSERT_TRUE(coordinator_.Await(kWorker, [](const Counts& c) { return c.heartbeats >= 1; }));
  const v1::KeepAliveRequest heartbeat = coordinator_.last_heartbeat(kWorker);
  EXPECT_EQ(heartbeat.operations_done(), 5u);
  EXPECT_EQ(heartbeat.transport().group(), "g");
  EXPECT_EQ(heartbeat.transport().bytes_sent(0), 7u);
}

TEST_F(CoordinatorLinkTest, RegistersAndKeepsBothStreams) {
  coordinator_.SetRegistration(absl::OkStatus(), 3);
  Start();
  EXPECT_EQ(term_, 3u);
  ASSERT_TRUE(AwaitUp(1));
  EXPECT_TRUE(coordinator_.Await(kWorker, [](const Counts& c) { return c.heartbeats >= 3; }));
  EXPECT_TRUE(Await([&] { return serving_; }));
  EXPECT_EQ(coordinator_.last_hello(kWorker).incarnation(), "00000000000000aa");
  EXPECT_EQ(coordinator_.last_hello(kWorker).term(), 3u);
  coordinator_.Do(kWorker, {});
  EXPECT_EQ(coordinator_.counts(kWorker).registrations, 1);
  link_->Stop();
  EXPECT_TRUE(coordinator_.Await(kWorker, [](const Counts& c) { return c.open_streams == 0; }));
  EXPECT_FALSE(left_.has_value());
}

TEST_F(CoordinatorLinkTest, ARefusedRegistrationIsReported) {
  coordinator_.SetRegistration(absl::FailedPreconditionError("ABI 2, expected 1"));
  link_ = MakeLink(coordinator_.address());
  const absl::Status status = link_->Start(WaitLimit(kLong));
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("ABI 2, expected 1"));
}

TEST_F(CoordinatorLinkTest, NobodyThereIsReportedInTime) {
  const std::string gone = FakeCoordinator().address();
  link_ = MakeLink(gone);
  const absl::Status status = link_->Start(WaitLimit(absl::Milliseconds(200)));
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr(gone));
}

TEST_F(CoordinatorLinkTest, ARegistrationCanBeInterrupted) {
  Interrupt interrupt;
  interrupt.Raise();
  link_ = MakeLink(FakeCoordinator().address());
  EXPECT_EQ(link_->Start(WaitLimit(kLong, &interrupt)).code(), absl::StatusCode::kCancelled);
}

// The attempts of these two end by nothing but what is tested.
TEST_F(CoordinatorLinkTest, AnUnansweredRegistrationCanBeInterrupted) {
  register_attempt_ = absl::Hours(1);
  coordinator_.AnswerRegistrations(false);
  link_ = MakeLink(coordinator_.address());
  Interrupt interrupt;
  std::thread other([&] {
    EXPECT_TRUE(coordinator_.Await(kWorker, [](const Counts& c) { return c.registrations == 1; }));
    interrupt.Raise();
  });
  EXPECT_EQ(link_->Start(WaitLimit(absl::Hours(1), &interrupt)).code(),
            absl::StatusCode::kCancelled);
  other.join();
}

TEST_F(CoordinatorLinkTest, StopEndsAnUnansweredRegistration) {
  register_attempt_ = absl::Hours(1);
  Start();
  ASSERT_TRUE(AwaitUp(1));
  coordinator_.AnswerRegistrations(false);
  coordinator_.EndLease(kWorker, absl::NotFoundError("who?"));
  ASSERT_TRUE(coordinator_.Await(kWorker, [](const Counts& c) { return c.registrations == 2; }));
  link_->Stop();
  EXPECT_FALSE(left_.has_value());
}

TEST_F(CoordinatorLinkTest, BrokenStreamsAreOpenedAgain) {
  Start();
  for (int streams = 1; streams <= 3; ++streams) {
    ASSERT_TRUE(AwaitUp(streams));
    coordinator_.BreakStreams(kWorker);
  }
  ASSERT_TRUE(AwaitUp(4));
  coordinator_.Do(kWorker, {});
  EXPECT_EQ(coordinator_.counts(kWorker).registrations, 1);
}

TEST_F(CoordinatorLinkTest, ReportsWaitForTheStream) {
  link_ = MakeLink(coordinator_.address());
  v1::WorkerReport report;
  report.mutable_result()->set_command_id(77);
  link_->Send(report);
  ASSERT_TRUE(link_->Start(WaitLimit(kLong)).ok());
  coordinator_.AwaitResult(77);
  EXPECT_EQ(coordinator_.results(77), 1);
}

TEST_F(CoordinatorLinkTest, AnUnknownWorkerRegistersAgain) {
  Start();
  ASSERT_TRUE(AwaitUp(1));
  coordinator_.EndLease(kWorker, absl::NotFoundError("who?"));
  EXPECT_TRUE(coordinator_.Await(kWorker, [](const Counts& c) { return c.registrations == 2; }));
  EXPECT_TRUE(coordinator_.Await(kWorker, [](const Counts& c) { return c.lease_streams == 2; }));
}

TEST_F(CoordinatorLinkTest, ACoordinatorThatComesBackIsFoundAgain) {
  auto first = std::make_unique<FakeCoordinator>();
  const std::string address = first->address();
  link_ = MakeLink(address);
  ASSERT_TRUE(link_->Start(WaitLimit(kLong)).ok());
  ASSERT_TRUE(first->Await(kWorker, [](const Counts& c) { return c.heartbeats >= 1; }));
  first.reset();
  FakeCoordinator second(address);
  EXPECT_TRUE(second.Await(
      kWorker, [](const Counts& c) { return c.command_streams >= 1 && c.lease_streams >= 1; }));
  EXPECT_FALSE(left_.has_value());
}

TEST_F(CoordinatorLinkTest, ANewerIncarnationEndsItForGood) {
  Start();
  ASSERT_TRUE(AwaitUp(1));
  coordinator_.EndLease(kWorker, absl::AbortedError("incarnation 00000000000000bb is registered"));
  EXPECT_EQ(AwaitLeave().code(), absl::StatusCode::kAborted);
}

TEST_F(CoordinatorLinkTest, AWorkerThatSleptLongerThanItsLeaseLeaves) {
  clock_ = &fake_clock_;
  coordinator_.SetLease(absl::Milliseconds(20), absl::Seconds(2));
  Start();
  ASSERT_TRUE(Await([&] { return serving_; }));
  fake_clock_.Advance(absl::Milliseconds(1999));
  ASSERT_TRUE(coordinator_.Await(kWorker, [](const Counts& c) { return c.heartbeats >= 2; }));
  EXPECT_FALSE(left_.has_value());
  fake_clock_.Advance(absl::Milliseconds(2001));
  const absl::Status status = AwaitLeave();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(status.message()), HasSubstr("lease lasts 2s"));
  EXPECT_FALSE(serving_);
}

// A silent coordinator is not a reason to leave, only not to be served.
TEST_F(CoordinatorLinkTest, ItServesOnlyWhileItsLeaseIsAcknowledged) {
  coordinator_.SetLease(absl::Milliseconds(10), absl::Milliseconds(500));
  Start();
  ASSERT_TRUE(Await([&] { return serving_; }));
  coordinator_.AnswerHeartbeats(false);
  ASSERT_TRUE(Await([&] { return !serving_; }));
  coordinator_.AnswerHeartbeats(true);
  ASSERT_TRUE(Await([&] { return serving_; }));
  EXPECT_FALSE(left_.has_value());
}

}  // namespace
}  // namespace perigee
