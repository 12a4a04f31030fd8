// How far a long run has come, on standard error: a line that changes on a terminal, a line every
// few seconds elsewhere, nothing for runs that end sooner.
#ifndef PERIGEE_CLIENT_CLI_RUN_PROGRESS_H_
#define PERIGEE_CLIENT_CLI_RUN_PROGRESS_H_

#include <cstdint>
#include <functional>
#include <mutex>
#include <string>

#include "absl/time/time.h"
#include "proto/support/clock.h"

namespace perigee {

// Thread-safe.
class RunProgress {
 public:
  // write: takes text as it is, for example to standard error.
  RunProgress(int32_t iterations, bool terminal, const Clock& clock,
              std::function<void(const std::string&)> write);

  void Update(int32_t iterations_done);
  // Writes a line of another kind, clear of the changing one.
  void Message(const std::string& line);

 private:
  void ClearLine();

  const int32_t iterations_;
  const bool terminal_;
  const Clock& clock_;
  const std::function<void(const std::string&)> write_;
  std::mutex mutex_;
  absl::Duration last_;
  bool line_open_ = false;
};

}  // namespace perigee

#endif  // PERIGEE_CLIENT_CLI_RUN_PROGRESS_H_
