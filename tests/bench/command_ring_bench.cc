// What the command ring between a local client and its worker takes, two processes on this machine:
// from the submission of an empty command to the worker's having it, and until the client has its
// completion; beside it an empty call over gRPC, on a Unix socket and on TCP. Microseconds.
//
//   bazel run //tests/bench:command_ring_bench -- [ROUNDS]
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "kernels/common/check.h"
#include "proto/local/command_consumer.h"
#include "proto/local/command_producer.h"
#include "tests/bench/bench_table.h"
#include "tests/bench/grpc_round_trip.h"

namespace perigee {
namespace {

constexpr absl::Duration kLong = absl::Seconds(60);

struct Sides {
  const char* name;
  absl::Duration worker_spin;
  absl::Duration client_spin;
  bool find_worker_asleep;
};

class Measurement {
 public:
  explicit Measurement(const Sides& sides) : sides_(sides) {
    void* const memory =
        mmap(nullptr, kCommandPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    PERIGEE_CHECK(memory != MAP_FAILED);
    memory_ = absl::MakeSpan(static_cast<std::byte*>(memory), kCommandPageBytes);
    FormatCommandPage(memory_, {Generation(1), BufferId(1), RankId(0), 1, Sequence(1)});
  }
  ~Measurement() { munmap(memory_.data(), memory_.size()); }

  void Run(int rounds) {
    const pid_t worker = fork();
    PERIGEE_CHECK(worker >= 0);
    if (worker == 0) {
      alarm(600);
      Serve(rounds);
      _exit(0);
    }
    Ask(rounds);
    PERIGEE_CHECK(waitpid(worker, nullptr, 0) == worker);
    Print("picked up", picked_up_);
    Print("round trip", round_trips_);
  }

 private:
  CommandPage& page() { return **OpenCommandPage(memory_); }

  // The completion carries when the command was there: both processes read the same clock.
  void Serve(int rounds) {
    CommandConsumer consumer(page(), RealClock(), {sides_.worker_spin, absl::Milliseconds(100)});
    for (int round = 0; round < rounds; ++round) {
      PERIGEE_CHECK(consumer.Next(kLong).ok());
      LocalCompletion completion;
      completion.seen = absl::ToInt64Nanoseconds(RealClock().Monotonic());
      consumer.Complete(completion);
    }
  }

  void Ask(int rounds) {
    CommandProducer producer(page(), RealClock(),
                             {sides_.client_spin, absl::Milliseconds(20), nullptr});
    for (int round = 0; round < rounds; ++round) {
      if (sides_.find_worker_asleep) AwaitSleep();
      const absl::Duration start = RealClock().Monotonic();
      const absl::StatusOr<uint64_t> position = producer.Submit(LocalEmpty());
      PERIGEE_CHECK(position.ok());
      const absl::StatusOr<LocalCompletion> completion = producer.Wait(*position, kLong);
      PERIGEE_CHECK(completion.ok());
      round_trips_.push_back(RealClock().Monotonic() - start);
      picked_up_.push_back(absl::Nanoseconds(completion->seen) - start);
    }
  }

  // And a little longer, for the system call between saying so and sleeping.
  void AwaitSleep() {
    std::atomic_ref<uint32_t> asleep(page().worker.asleep);
    while (asleep.load() == 0) usleep(20);
    usleep(50);
  }

  void Print(const std::string& what, const std::vector<absl::Duration>& times) const {
    PrintTimes(sides_.name + (", " + what), times);
  }

  const Sides sides_;
  absl::Span<std::byte> memory_;
  std::vector<absl::Duration> picked_up_;
  std::vector<absl::Duration> round_trips_;
};

int Main(int rounds) {
  PrintCircumstances();
  std::printf("rounds   %d\n", rounds);
  PrintTimesHeader();
  const EmptyCallServer calls;  // before anything here uses gRPC
  const absl::Duration spin = absl::Seconds(10);
  const absl::Duration none = absl::ZeroDuration();
  for (const Sides& sides : {Sides{"worker and client awake", spin, spin, false},
                             Sides{"worker awake, client sleeps", spin, none, false},
                             Sides{"worker asleep, client awake", none, spin, true},
                             Sides{"worker asleep, client sleeps", none, none, true}}) {
    Measurement(sides).Run(rounds);
  }
  PrintTimes("gRPC over a Unix socket, round trip", TimeEmptyCalls(calls.unix_address(), rounds));
  PrintTimes("gRPC over TCP, round trip", TimeEmptyCalls(calls.tcp_address(), rounds));
  return 0;
}

}  // namespace
}  // namespace perigee

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 20000;
  if (rounds < 1) {
    std::fprintf(stderr, "usage: command_ring_bench [ROUNDS], at least 1\n");
    return 2;
  }
  return perigee::Main(rounds);
}
