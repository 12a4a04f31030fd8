// Either side of the ring killed at any instruction, PERIGEE_CRASHES times (500 where it is not
// set, 40 under a sanitizer): the other gets whole commands or completions only, and never waits
// for ever.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include "gtest/gtest.h"
#include "kernels/common/check.h"
#include "proto/local/command_consumer.h"
#include "proto/local/command_producer.h"
#include "proto/local/ring_fixtures.h"

namespace perigee {
namespace {

constexpr absl::Duration kLong = absl::Seconds(20);

// A child process that is killed, or has ended, when this goes.
class Child {
 public:
  template <typename Body>
  explicit Child(const Body& body) : pid_(fork()) {
    PERIGEE_CHECK(pid_ >= 0);
    if (pid_ != 0) return;
    alarm(60);  // should its parent be killed
    body();
    _exit(0);
  }
  ~Child() { Kill(); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  void Kill() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    int status = 0;
    PERIGEE_CHECK(waitpid(pid_, &status, 0) == pid_);
    pid_ = -1;
  }
  // Without reaping it.
  bool ended() const {
    siginfo_t info{};
    return pid_ < 0 ||
           (waitid(P_PID, pid_, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == pid_);
  }

 private:
  pid_t pid_;
};

// Command and completion of a position: what was cut in two would not be.
LocalOperation OperationAt(uint64_t position) {
  std::mt19937_64 random(position);
  return RandomCommand(random).operation;
}
CommandEntry EntryAt(uint64_t position, Sequence next_sequence) {
  CommandEntry entry =
      EncodeCommand({next_sequence, OperationAt(position)}, kTestLimits.generation);
  entry.position = position;
  return entry;
}
LocalCompletion CompletionAt(uint64_t position) {
  std::mt19937_64 random(~position);
  LocalCompletion completion = RandomCompletion(random);
  completion.position = position;
  return completion;
}

class CommandCrashTest : public ::testing::Test {
 protected:
  CommandCrashTest() : random_(RingTestSeed()) {}

  int64_t crashes() const { return RingTestCount("PERIGEE_CRASHES", 500, 40); }
  // Somewhere in the middle of what the child does.
  void Linger() {
    for (uint64_t turns = random_() % 5000; turns > 0; --turns) asm volatile("");
  }
  absl::Duration AnySpin() {
    return random_() % 2 == 0 ? absl::ZeroDuration() : absl::Microseconds(20);
  }

  std::mt19937_64 random_;
};

TEST_F(CommandCrashTest, AClientThatIsKilledLeavesWholeCommands) {
  for (int64_t crash = 0; crash < crashes(); ++crash) {
    TestPage memory;
    const absl::Duration spin = AnySpin();
    Child client([&] {
      CommandProducer producer(memory.page(), RealClock(), {spin, absl::Milliseconds(1), nullptr});
      for (uint64_t position = 0;; ++position) {
        if (!producer.WaitForRoom(kLong).ok()) _exit(1);
        if (!producer.Submit(OperationAt(position)).ok()) _exit(1);
      }
    });
    CommandConsumer consumer(memory.page(), RealClock(), {AnySpin(), absl::Milliseconds(1)});
    Sequence sequence = kTestLimits.next_sequence;
    const auto take = [&](absl::Duration timeout) {
      const absl::StatusOr<CommandEntry> entry = consumer.Next(timeout);
      if (!entry.ok()) return entry.status();
      EXPECT_EQ(*entry, EntryAt(consumer.completed(), sequence));
      EXPECT_EQ(consumer.TokenOf(*entry), TokenOf({{}, OperationAt(consumer.completed())}));
      if (TakesSequence(*entry)) sequence = sequence.Next();
      consumer.Complete(LocalCompletion());
      return absl::OkStatus();
    };
    for (uint64_t last = random_() % 200; consumer.taken() <= last;) {
      ASSERT_TRUE(take(kLong).ok());
    }
    Linger();
    client.Kill();
    absl::Status status;
    while (status.ok()) status = take(absl::ZeroDuration());
    EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
    EXPECT_EQ(consumer.taken(), memory.page().client.count);
  }
}

TEST_F(CommandCrashTest, AWorkerThatIsKilledLeavesWholeCompletionsAndEndsWaits) {
  for (int64_t crash = 0; crash < crashes(); ++crash) {
    TestPage memory;
    const absl::Duration spin = AnySpin();
    const uint64_t ends_after = random_() % 300;
    const absl::Status end = absl::AbortedError(std::string(random_() % 800, 'e'));
    Child worker([&] {
      CommandConsumer consumer(memory.page(), RealClock(), {spin, absl::Milliseconds(1)});
      while (consumer.completed() < ends_after) {
        if (!consumer.Next(kLong).ok()) _exit(1);
        consumer.Complete(CompletionAt(consumer.completed()));
      }
      LocalCompletion why;
      why.status = end;
      consumer.End(why);
      _exit(0);
    });
    const auto check_worker = [&] {
      return worker.ended() ? absl::UnavailableError("gone") : absl::OkStatus();
    };
    CommandProducer producer(memory.page(), RealClock(),
                             {AnySpin(), absl::Milliseconds(1), check_worker});
    const uint64_t kill_at = random_() % 300;
    absl::Status status;
    for (uint64_t position = 0; status.ok(); ++position) {
      const absl::StatusOr<uint64_t> submitted = producer.Submit(OperationAt(position));
      if (position == kill_at) {
        Linger();
        worker.Kill();
      }
      status = submitted.status();
      if (!status.ok()) break;
      const absl::StatusOr<LocalCompletion> completion = producer.Wait(position, kLong);
      status = completion.status();
      if (completion.ok()) ExpectSame(*completion, CompletionAt(position));
    }
    EXPECT_TRUE(status == absl::UnavailableError("gone") || status == end) << status;
  }
}

}  // namespace
}  // namespace perigee
