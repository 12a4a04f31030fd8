// A child process of a test, with its output line by line and every wait bounded.
#ifndef PERIGEE_TESTS_TESTING_PROCESS_H_
#define PERIGEE_TESTS_TESTING_PROCESS_H_

#include <sys/types.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/optional.h"

namespace perigee {

// Not thread-safe. The destructor kills the process if it still runs. It also dies with the test.
class Process {
 public:
  // argv[0] is a path. environment: NAME=VALUE entries that replace or add to the test's own. A
  // process that cannot be started fails the test and counts as one that has ended.
  Process(std::vector<std::string> argv, std::vector<std::string> environment);
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  pid_t pid() const { return pid_; }
  void Signal(int number) const;

  // Waits until a whole line that contains `part` has come on stdout or stderr (earlier ones
  // count); none: the process ended or the time was up before.
  absl::optional<std::string> AwaitOut(const std::string& part, absl::Duration timeout);
  absl::optional<std::string> AwaitErr(const std::string& part, absl::Duration timeout);
  // Waits for the end, taking all output meanwhile: the exit status, or 128 + the number of the
  // signal that ended it; none: it still runs.
  absl::optional<int> AwaitExit(absl::Duration timeout);

  // What has come so far.
  const std::string& out() const { return out_.text; }
  const std::string& err() const { return err_.text; }

 private:
  struct Stream {
    int fd = -1;  // owned; -1 after its end
    std::string text;
  };

  // Takes what there is, waiting for it until `until` at most; false: both streams have ended.
  bool Pump(absl::Time until);
  absl::optional<std::string> AwaitLine(Stream& stream, const std::string& part,
                                        absl::Duration timeout);

  pid_t pid_ = -1;
  Stream out_, err_;
  absl::optional<int> exit_;
};

// The processes that have this NAME=VALUE in their environment as it was at their start, zombies
// not counted: with a value of the test's own, all descendants of what it started, orphans
// included.
std::vector<pid_t> ProcessesWithEnvironment(const std::string& entry);

}  // namespace perigee

#endif  // PERIGEE_TESTS_TESTING_PROCESS_H_
