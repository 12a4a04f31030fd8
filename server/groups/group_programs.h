// The programs of one group: one runs on every rank, the others wait in order. Pure; not
// thread-safe.
//
//   Submit:  waits -> runs (ExecuteProgram to every rank) -> every rank has answered: ends
//   Cancel:  waits -> gone, CANCELLED; runs -> CancelProgram to every rank, then as they answer;
//            ranks that do not within drain_timeout end the generation
//   Fence:   waits -> UNAVAILABLE; runs -> ends when every survivor has answered, at the latest
//            after fence_report_timeout
#ifndef PERIGEE_SERVER_GROUPS_GROUP_PROGRAMS_H_
#define PERIGEE_SERVER_GROUPS_GROUP_PROGRAMS_H_

#include <cstdint>
#include <deque>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/groups/command_round.h"
#include "server/groups/group_buffers.h"
#include "server/groups/group_context.h"

namespace perigee {

class GroupPrograms {
 public:
  static constexpr size_t kMaxWaiting = 64;

  // Both are borrowed.
  GroupPrograms(GroupContext& context, GroupBuffers& buffers)
      : context_(context), buffers_(buffers) {}

  // In an ACTIVE group. FAILED_PRECONDITION: another generation lives, or the buffer is not ACTIVE;
  // NOT_FOUND: no such buffer; INVALID_ARGUMENT: the program; RESOURCE_EXHAUSTED: too many wait.
  void Submit(const ProgramSubmitted& event);
  void Cancel(CallId call);
  // Those that wait end with ABORTED, the one that runs is cancelled; `why` for people.
  void CancelAll(const std::string& why);
  // False: the token is not of the running program.
  bool Answer(CommandToken token, const v1::CommandResult& result);
  void TakeProgress(const ProgressReported& event);
  void TimePassed();
  absl::Duration NextDeadline() const;

  // The generation has ended; context.end_reason says why, and lost members are marked.
  void Fence();
  // In an ended generation: a rank more is lost.
  void GiveUp(int32_t rank);

  // Why the generation cannot go on, after an answer that leaves the ranks at different operations;
  // empty: it can.
  const std::string& fatal() const { return fatal_; }
  bool idle() const { return programs_.empty(); }
  // FAILED_PRECONDITION that names the buffer, unless idle.
  absl::Status CheckIdle() const;
  bool uses(const std::string& buffer) const;

 private:
  struct Run {
    uint64_t id = 0;
    CallId call = 0;
    std::string buffer;
    v1::Program program;
    bool started = false;
    CommandRound round;
    std::map<int32_t, v1::ProgramProgress> progress;  // latest, by rank
    bool cancelled = false;
    absl::Duration deadline = absl::InfiniteDuration();  // to stop, or to report
  };

  absl::Status Check(const ProgramSubmitted& event) const;
  void StartNext();
  void CancelRunning();
  void Record(int32_t rank, const v1::ProgramProgress& progress);
  void EndIfComplete();
  void End(const Run& run);
  v1::ExecuteProgramResponse Message(const Run& run) const;

  GroupContext& context_;
  GroupBuffers& buffers_;
  std::deque<Run> programs_;  // the first one runs
  uint64_t last_id_ = 0;
  std::string fatal_;
};

}  // namespace perigee

#endif  // PERIGEE_SERVER_GROUPS_GROUP_PROGRAMS_H_
