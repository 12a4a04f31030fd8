// Runs a program on one rank: launches its operations in order, keeps this rank's place among the
// others when one fails, and measures.
//
// How a failure is left:
//  - the program itself is wrong: every rank finds that by itself; nothing is launched.
//  - a collective operation is refused before its launch: this rank declines it, all leave there.
//  - a local operation fails, or this rank alone finds stale weights: this rank declines the next
//    collective operation of the program; if there is none, it just reports.
//    Where operations queue, the rest of what is queued at a time is declined, in both cases: the
//    others have queued it.
//    So it is with what a prefetch that ran beside others has found, told where they wait for it.
//  - an operation was left early: the program ends here; the record says whether all did.
//
// Over transport nccl a copy to the next rank takes part of every rank, so it has a sequence, and
// begins when all have come to it.
//
// With the buffer's refetch, run_experts takes a sequence for the prefetch that it begins with,
// where it needs one: whether it does, each rank knows from the operations of this and earlier
// programs.
#ifndef PERIGEE_WORKER_OPS_PROGRAM_RUNNER_H_
#define PERIGEE_WORKER_OPS_PROGRAM_RUNNER_H_

#include <functional>
#include <map>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "proto/support/clock.h"
#include "proto/v1/command.pb.h"
#include "worker/ops/error_report.h"
#include "worker/ops/group_view.h"
#include "worker/ops/operation_launcher.h"
#include "worker/ops/program_waits.h"

namespace perigee {

struct ProgramOrder {
  uint64_t program_id = 0;
  Sequence first_sequence;
  v1::Program program;
  absl::Duration progress_interval;  // zero: no progress is reported before the end
};

struct ProgramEvents {
  std::function<void(const v1::ProgramProgress&)> on_progress;  // at most once per interval
  std::function<void()> on_operation_done;
};

struct ProgramOutcome {
  v1::RankStatus status;
  v1::ProgramProgress progress;
};

// One run of one program, on one thread.
class ProgramRunner {
 public:
  // All references outlive the runner.
  ProgramRunner(const GroupView& group, const ProgramSite& site, const ProgramOrder& order,
                const Clock& clock, const ProgramEvents& events);

  // Blocks until the program has ended on this rank. Every wait inside is bounded by the data
  // path's operation timeout, its abort word and its cancel wish.
  ProgramOutcome Run();

 private:
  absl::Status Prepare();
  // Up to where the program ends. Where operations queue, they may still run then.
  void RunIterations(int32_t count);
  // Where the data path times iterations.
  void MarkTime();
  // False when the program ends with this operation.
  bool Step(int index);
  // Of an operation, or of a prefetch that other operations run beside, or that one begins with: up
  // to these, and the rest.
  enum class Part { kAll, kBegin, kEnd };
  // As Step; `operation` counts as part of that at `index`. begin: when that has begun.
  bool Launch(const v1::ProgramOperation& operation, int index, Part part, absl::Duration begin);
  // Whether run_experts finds slots that were filled for something else, and fills them.
  bool Refetches(const v1::ProgramOperation& operation) const;
  // What every rank knows of an operation, done or not.
  void Note(const v1::ProgramOperation& operation, Sequence sequence);
  // Whether the copies of a prefetch, or the preparation of a publication, may run beside what
  // follows it.
  bool RunsBeside(int index) const;
  // What is launched from here on waits for the prefetch that runs beside.
  void Join();
  // Waits for what is still running.
  void Settle();
  // As Step.
  bool DeclineAt(const v1::ProgramOperation& operation, Sequence sequence);
  Sequence TakeSequence();
  // The next of this operation; it is counted after it.
  void Measure(int index, absl::Duration duration);
  void Count(int index);
  void ReportProgress();
  v1::ProgramProgress Progress() const;
  ProgramOutcome Outcome() const;

  // Launched, and not yet known to have ended.
  struct Running {
    int index = 0;
    bool collective = false;
    Part part = Part::kAll;
  };
  // How many iterations are launched before this rank waits for them.
  int32_t IterationsAtATime() const;

  const GroupView& group_;
  const ProgramSite site_;
  const ProgramOrder& order_;
  const Clock& clock_;
  const ProgramEvents& events_;
  OperationLauncher launcher_;
  ProgramWaits waits_;
  absl::optional<int> beside_;  // the prefetch whose copies run beside, not joined yet
  Sequence next_sequence_;
  absl::optional<Failure> failure_;
  bool others_know_ = false;  // of the failure, by a collective operation
  std::vector<Running> running_;
  int32_t iterations_done_ = 0;
  std::vector<v1::OperationTiming> timings_;
  std::map<int, std::vector<int64_t>> durations_ns_;  // by operation, where the program keeps them
  std::vector<int64_t> iteration_ns_;                 // where the program times iterations
  absl::Duration last_report_;
};

}  // namespace perigee

#endif  // PERIGEE_WORKER_OPS_PROGRAM_RUNNER_H_
