// The buffers of one group: how each comes to be on every rank and goes away again. Pure; not
// thread-safe.
//
//   Create:         taking an id -> allocating (all ranks) -> connecting (all ranks) -> ACTIVE
//   a rank fails:   -> dropping (all ranks) -> gone, and the call fails with that rank's status
//   Fence:          one that was being made or deleted is gone, the others are FENCED
//   StartForming:   FENCED or FAILED -> allocating -> connecting -> ACTIVE, or -> dropping ->
//   FAILED Delete:         ACTIVE -> dropping -> gone; FENCED or FAILED -> gone at once
//
// Connecting begins when every rank has allocated, so a peer's descriptors are there to be fetched.
#ifndef PERIGEE_SERVER_GROUPS_GROUP_BUFFERS_H_
#define PERIGEE_SERVER_GROUPS_GROUP_BUFFERS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "server/groups/command_round.h"
#include "server/groups/group_context.h"

namespace perigee {

class GroupBuffers {
 public:
  static constexpr size_t kMaxBuffers = 64;

  // `context` is borrowed.
  explicit GroupBuffers(GroupContext& context) : context_(context) {}

  // In an ACTIVE group. ALREADY_EXISTS, RESOURCE_EXHAUSTED, or what a rank answered.
  void Create(const BufferCreated& event);
  void TakeId(const BufferIdTaken& event);
  // NOT_FOUND; FAILED_PRECONDITION while it is being made or `in_use`.
  void Delete(const BufferDeleted& event, bool in_use);
  // False: the token is not of a buffer's command.
  bool Answer(CommandToken token, const v1::CommandResult& result);
  void TimePassed();
  absl::Duration NextDeadline() const;

  // The sessions of a new generation are open.
  void StartForming();
  // Buffers that StartForming began are not all ACTIVE or FAILED yet.
  bool forming() const;
  // The generation has ended on every rank, its memory with it; context.end_reason says why.
  void Fence();
  // The group has ended: none is left.
  void Close();

  // Null if there is none of that name. Valid until the next change.
  const v1::Buffer* Find(const std::string& name) const;
  // OK where it is ACTIVE and not being deleted, in this generation or whichever (0). NOT_FOUND;
  // FAILED_PRECONDITION: another generation lives, or its state, and why.
  absl::Status CheckUsable(const std::string& name, Generation generation) const;
  std::vector<v1::Buffer> List() const;  // in order of name
  // Last sequence used in this generation; of a buffer that is ACTIVE.
  uint64_t last_sequence(const std::string& name) const;
  void set_last_sequence(const std::string& name, uint64_t sequence);
  // Stays with the buffer through its generations.
  void set_path_choice(const std::string& name, const v1::PathChoice& choice);

 private:
  enum class Step { kTakingId, kAllocating, kConnecting, kSettled, kDropping };
  struct Record {
    v1::Buffer info;
    Step step = Step::kTakingId;
    CommandRound round;
    std::vector<std::vector<std::string>> tickets;  // [owner][presenter]
    CallId create_call = 0;
    std::vector<CallId> delete_calls;
    absl::optional<GroupFailure> failure;  // why it is being dropped
    uint64_t last_sequence = 0;
  };

  void Allocate(Record& record);
  void Connect(Record& record);
  void Drop(Record& record);
  // Takes the next step where a round is complete. True: the record is to be erased.
  bool Advance(Record& record);
  void AdvanceAll();
  bool EndDrop(Record& record);
  void SetFenced(Record& record, v1::Buffer::State state, const std::string& reason);

  GroupContext& context_;
  std::map<std::string, Record> records_;
};

}  // namespace perigee

#endif  // PERIGEE_SERVER_GROUPS_GROUP_BUFFERS_H_
