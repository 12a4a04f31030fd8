#include "server/groups/group_context.h"

namespace perigee {

CommandRound GroupContext::SendToAll(
    absl::Duration timeout, absl::FunctionRef<void(int32_t rank, v1::WorkerCommand&)> fill) {
  CommandRound round(now.monotonic + timeout);
  for (const Member& member : members) {
    if (member.lost) continue;
    const int32_t rank = member.info.rank();
    v1::WorkerCommand command;
    fill(rank, command);
    round.Expect(rank, ++last_token_);
    Send(rank, last_token_, std::move(command));
  }
  return round;
}

CommandRound GroupContext::SendToRank(int32_t rank, v1::WorkerCommand command) {
  CommandRound round;
  round.Expect(rank, ++last_token_);
  Send(rank, last_token_, std::move(command));
  return round;
}

void GroupContext::SendTo(int32_t rank, v1::WorkerCommand command) {
  if (!members[rank].lost) Send(rank, 0, std::move(command));
}

void GroupContext::Finish(CallId call, absl::Status status) {
  if (call != 0) effects.push_back(FinishCall{call, {std::move(status), {}, {}}});
}

void GroupContext::Finish(CallId call, const GroupFailure& failure) {
  if (call != 0) effects.push_back(FinishCall{call, {failure.status, failure.error, {}}});
}

void GroupContext::Send(int32_t rank, CommandToken token, v1::WorkerCommand command) {
  const v1::GroupMember& member = members[rank].info;
  command.set_group(name);
  command.set_generation(generation.value);
  effects.push_back(
      SendCommand{rank, member.worker(), member.incarnation(), token, std::move(command)});
}

}  // namespace perigee
