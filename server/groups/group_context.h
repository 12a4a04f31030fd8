// What the parts of a group's machine share: who the ranks are, the generation, and the way out for
// effects. Pure; not thread-safe.
#ifndef PERIGEE_SERVER_GROUPS_GROUP_CONTEXT_H_
#define PERIGEE_SERVER_GROUPS_GROUP_CONTEXT_H_

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "kernels/common/ids.h"
#include "proto/support/defaults.h"
#include "server/groups/command_round.h"
#include "server/groups/group_events.h"
#include "server/groups/group_failure.h"

namespace perigee {

struct GroupTimes {
  absl::Duration forming_timeout = kFormingTimeout;  // for each command of forming and closing
  absl::Duration connect_timeout = kConnectTimeout;  // of a rank to its peers
  absl::Duration drain_timeout = kDrainTimeout;      // for programs to end; then to stop
  absl::Duration fence_report_timeout = kFenceReportTimeout;
  absl::Duration progress_interval = kProgressInterval;
};

// `count` unpredictable bytes.
using RandomSource = std::function<std::string(size_t count)>;

class GroupContext {
 public:
  GroupContext(std::string name, const GroupTimes& times, RandomSource random)
      : name(std::move(name)), times(times), random(std::move(random)) {}

  const std::string name;  // tenants/{t}/groups/{g}
  const GroupTimes times;
  const RandomSource random;

  std::vector<Member> members;  // by rank
  Generation generation;        // that lives, or the last that did
  std::string end_reason;       // empty: it lives

  // Of the step under way.
  Moment now;
  GroupEffects effects;

  int32_t ranks() const { return static_cast<int32_t>(members.size()); }
  GenerationView view() const { return {name, generation, members, end_reason}; }

  // Sends every rank that is not lost a command that `fill` completes.
  CommandRound SendToAll(absl::Duration timeout,
                         absl::FunctionRef<void(int32_t rank, v1::WorkerCommand&)> fill);
  // One rank that is not lost; for as long as it takes.
  CommandRound SendToRank(int32_t rank, v1::WorkerCommand command);
  // The answer is of no interest.
  void SendTo(int32_t rank, v1::WorkerCommand command);
  void Finish(CallId call, absl::Status status);
  void Finish(CallId call, const GroupFailure& failure);
  template <typename Response>
  void FinishWith(CallId call, const Response& response) {
    if (call != 0) effects.push_back(FinishCall{call, {absl::OkStatus(), {}, response}});
  }

 private:
  void Send(int32_t rank, CommandToken token, v1::WorkerCommand command);

  CommandToken last_token_ = 0;
};

}  // namespace perigee

#endif  // PERIGEE_SERVER_GROUPS_GROUP_CONTEXT_H_
