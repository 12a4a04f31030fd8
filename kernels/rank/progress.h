// Where one rank stands in its sequence of operations, and what went wrong: the part of every
// backend's collective operations that needs no shared memory. Texts of errors are made here, so
// that all backends say the same.
#ifndef PERIGEE_KERNELS_RANK_PROGRESS_H_
#define PERIGEE_KERNELS_RANK_PROGRESS_H_

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "kernels/common/ids.h"
#include "kernels/layout/operation.h"
#include "kernels/rank/agreement.h"

namespace perigee {

struct ProgressOptions {
  RankId rank;
  Generation generation;
  absl::Duration operation_timeout = absl::Seconds(10);
  absl::Duration warmup_timeout = absl::ZeroDuration();  // zero: as operation_timeout
};

// Abort, aborted and last_error: from any thread. The others: from one thread at a time.
//
// An operation that ends with a reason that is not AllRanksLeave leaves the ranks at different
// places, so all later operations of this rank are refused with kAborted; kStaleWeights is the
// exception, after which every rank has still passed the exit.
class Progress {
 public:
  explicit Progress(const ProgressOptions& options) : options_(options) {}

  // Whether `sequence` may start now; forgets the last error. INVALID_ARGUMENT, nothing changed, if
  // it is not greater than the last that entered; UNAVAILABLE after Abort or after a failure that
  // nothing can follow.
  absl::Status Begin(Sequence sequence, Operation operation);
  // The last error, as an operation does that is refused.
  void Forget();
  // Starts an operation that has no sequence and waits for nobody. UNAVAILABLE after Abort.
  absl::Status BeginLocal(Operation operation);
  // Whether the sequence begun leaves some out: then the others must be told, and Skipped() says
  // so.
  bool skips() const { return current_.sequence != last_sequence_.Next(); }
  // This rank is at the entry of the operation begun, which uses up its sequence.
  void ReachEntry();
  void ReachExit() { current_.phase = Phase::kExit; }
  // The operation begun by another call than this rank's last: for errors found later, of an
  // operation that was left running.
  void Resume(Sequence sequence, Operation operation, Phase phase);

  // Each records why the operation ended and returns it as a status.
  absl::Status Fail(ErrorRecord record, const std::string& text);
  absl::Status Skipped();
  absl::Status Left(const Decision& decision);
  // kDeadline or kOutOfStep at the barrier reached: the rank that is missing or where it cannot be,
  // and the position it was seen at.
  absl::Status WaitFailed(AbortReason reason, int32_t awaited_rank, uint64_t seen);
  absl::Status Aborted();
  absl::Status CheckNotAborted() { return aborted() ? Aborted() : absl::OkStatus(); }

  // The first call gives the reason that every later error names.
  void Abort(int32_t lost_rank, const std::string& reason);
  bool aborted() const { return aborted_.load(std::memory_order_acquire); }

  // Of the operation that was called last; none if it was refused or has succeeded.
  absl::optional<ErrorRecord> last_error() const;
  Sequence sequence() const { return current_.sequence; }  // of the operation begun
  Sequence last_sequence() const { return last_sequence_; }
  // How long the operation begun waits for other ranks: the first that enters may take longer.
  absl::Duration timeout() const;
  const ProgressOptions& options() const { return options_; }

 private:
  struct Current {
    Sequence sequence;
    Operation operation = Operation::kNone;
    Phase phase = Phase::kNone;
  };

  const ProgressOptions options_;
  Current current_;
  Sequence first_sequence_;  // that has entered; 0: none has
  Sequence last_sequence_;
  std::string broken_;  // why no operation can follow; empty while one can
  std::atomic<bool> aborted_ = false;

  mutable std::mutex mutex_;
  absl::optional<ErrorRecord> last_error_;  // guarded by mutex_
  int32_t lost_rank_ = -1;                  // guarded by mutex_
  std::string abort_text_;                  // guarded by mutex_
};

}  // namespace perigee

#endif  // PERIGEE_KERNELS_RANK_PROGRESS_H_
