// The life of one group, as pure logic: Step takes what happened and the time, and returns what is
// to be done. No clock, lock, thread or gRPC. Not thread-safe.
//
//   state     entered by                            left by
//   PENDING   GroupCreated: takes a generation      GenerationTaken -> FORMING
//   FORMING   OpenSession to every rank, then the   all answered -> ACTIVE
//             buffers allocate and connect          a rank fails or is lost -> FENCED
//   ACTIVE    every buffer is ACTIVE or FAILED      a rank is lost, an abort, ranks out of step
//                                                   -> FENCED; drain -> DRAINING
//   FENCED    AbortGeneration to every survivor     survivors have answered, programs have ended,
//             at once; no command of the ended      a worker for every rank: takes a generation
//             generation is sent any more           -> FORMING, at a higher one
//   DRAINING  no new programs, tickets or buffers   programs and attachments have ended:
//                                                   CloseSession to every rank
//                                                   -> CLOSED; a rank is lost: as FENCED, but then
//                                                   -> CLOSED
//   CLOSED    workers released                      (removed, where asked for)
//
// The time line of a generation: a number is taken (durably) before anything is sent with it;
// GenerationBegan stands before the first OpenSession, GenerationEnded before AbortGeneration or
// CloseSession. Two generations of a group never overlap. A number that is taken while a rank
// is lost is burnt.
//
// The first forming is the caller's to repeat: where it fails the group is closed and removed, and
// the call fails with the rank's status. A later one that fails is tried again after a pause.
#ifndef PERIGEE_SERVER_GROUPS_GROUP_MACHINE_H_
#define PERIGEE_SERVER_GROUPS_GROUP_MACHINE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "proto/v1/groups.pb.h"
#include "server/groups/group_attachments.h"
#include "server/groups/group_buffers.h"
#include "server/groups/group_context.h"
#include "server/groups/group_events.h"
#include "server/groups/group_programs.h"
#include "server/groups/group_tokens.h"
#include "server/groups/placement.h"

namespace perigee {

struct GroupKind {
  std::string backend;    // host or cuda
  std::string transport;  // nvlink or nccl
};

class GroupMachine {
 public:
  // `name` is tenants/{t}/groups/{g}.
  GroupMachine(std::string name, GroupKind kind, const GroupTimes& times, RandomSource random);
  GroupMachine(const GroupMachine&) = delete;
  GroupMachine& operator=(const GroupMachine&) = delete;

  GroupEffects Step(const GroupEvent& event, const Moment& now);

  v1::Group Describe() const;
  // With the local clients of each.
  absl::optional<v1::Buffer> DescribeBuffer(const std::string& name) const;
  std::vector<v1::Buffer> DescribeBuffers() const;  // in order of name
  const GroupBuffers& buffers() const { return buffers_; }
  // When a TimePassed is due.
  absl::Duration NextDeadline() const;
  // Lost ranks for which the group waits: MembersReplaced is welcome. Empty in all other states.
  std::vector<RankWorker> ranks_wanted() const;

 private:
  void On(const GroupCreated& event);
  void On(const GenerationTaken& event);
  void On(const BufferIdTaken& event);
  void On(const CommandAnswered& event);
  void On(const ProgressReported& event);
  void On(const MemberLost& event);
  void On(const MembersReplaced& event);
  void On(const BufferCreated& event);
  void On(const BufferDeleted& event);
  void On(const ProgramSubmitted& event);
  void On(const ProgramCancelled& event);
  void On(const TicketWanted& event);
  void On(const ClientReported& event);
  void On(const GroupDrained& event);
  void On(const GenerationAborted& event);
  void On(const TimePassed& event);
  void On(const SerialsTaken& event);
  void On(const IssueRecorded& event);
  void On(const TokensWanted& event);
  void On(const LedgerWanted& event);
  void On(const TokensReported& event);

  bool generation_lives() const { return generation_began_ && context_.end_reason.empty(); }
  // OK in ACTIVE; else FAILED_PRECONDITION with the state and why.
  absl::Status CheckActive() const;
  bool any_lost() const;
  void Change(v1::Group::State state, const std::string& reason);
  void RequestGeneration();
  void OpenSessions(Generation generation, const std::vector<FirstTokens>& tokens);
  // Ends the generation because of ranks or an abort.
  void Fence(const std::string& reason);
  // The group never became ACTIVE: it is closed and removed, and CreateGroup fails with `failure`.
  void FailCreation(const GroupFailure& failure);
  // Forming did not succeed: fences, and closes the group or schedules the next try.
  void FailForming(const GroupFailure& failure);
  // Forming waits before the next try.
  void PauseForming();
  void CloseSessions();
  // Ranks that did not close their session end it the hard way.
  void AbortWhereOpen();
  void Close();
  // Goes on wherever what was awaited has come.
  void Advance();
  void AdvanceForming();
  void AdvanceEnded();

  GroupContext context_;
  GroupBuffers buffers_;
  GroupPrograms programs_;
  GroupAttachments attachments_;
  GroupTokens tokens_;
  const GroupKind kind_;

  v1::Group::State state_ = v1::Group::STATE_UNSPECIFIED;
  std::string state_reason_;
  uint64_t version_ = 0;
  absl::Time create_time_;

  bool generation_began_ = false;
  bool taking_generation_ = false;
  bool buffers_began_ = false;     // in FORMING: sessions are open
  bool sessions_closing_ = false;  // in DRAINING
  CommandRound round_;             // OpenSession, AbortGeneration or CloseSession
  bool closing_ = false;           // for good: CLOSED follows instead of FORMING
  bool remove_ = false;            // once CLOSED

  CallId create_call_ = 0;
  absl::optional<GroupFailure> create_failure_;
  std::vector<CallId> drain_calls_;
  std::vector<CallId> remove_calls_;
  absl::Duration drain_deadline_ = absl::InfiniteDuration();
  absl::Duration retry_at_;  // forming is not tried again before
  absl::Duration pause_;     // that the last failure of forming led to
};

}  // namespace perigee

#endif  // PERIGEE_SERVER_GROUPS_GROUP_MACHINE_H_
