// The local clients of one group: who has a ticket, who is attached. Pure; not thread-safe.
//
//   Issue:   ServeClient to the rank's worker -> it reports ADMITTED: the call gets the ticket ->
//   it
//            reports ATTACHED -> its answer: ended. An unused ticket ends with its expiry.
//   EndAll:  EndClient to every worker concerned, then as they answer; workers that do not within
//            drain_timeout end the generation
//   Fence:   none is left
//
// The attachments of a buffer that live at the same time form a period. Its ranks begin with the
// same sequence and each is attached once in it; when one of them goes without a word, or fails,
// the others are ended too: their operations would wait for it. The next period, or program, goes
// on after the highest sequence that was used.
#ifndef PERIGEE_SERVER_GROUPS_GROUP_ATTACHMENTS_H_
#define PERIGEE_SERVER_GROUPS_GROUP_ATTACHMENTS_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "server/groups/command_round.h"
#include "server/groups/group_buffers.h"
#include "server/groups/group_context.h"

namespace perigee {

class GroupAttachments {
 public:
  // Both are borrowed.
  GroupAttachments(GroupContext& context, GroupBuffers& buffers)
      : context_(context), buffers_(buffers) {}

  // In an ACTIVE group that has no programs. Errors as in attachments.proto.
  void Issue(const TicketWanted& event);
  // False: the token is not of an attachment.
  bool Answer(CommandToken token, const v1::CommandResult& result);
  void TakeReport(const ClientReported& event);
  // `why` for people.
  void EndAll(const std::string& why);
  void TimePassed();
  absl::Duration NextDeadline() const;
  // The generation has ended; context.end_reason says why, and lost members are marked.
  void Fence();

  // Why the generation cannot go on; empty: it can.
  const std::string& fatal() const { return fatal_; }
  bool idle() const { return attachments_.empty(); }
  bool uses(const std::string& buffer) const { return periods_.count(buffer) > 0; }
  // In order of buffer and rank; of one buffer, or of all where it is empty.
  std::vector<v1::ClientAttachment> List(const std::string& buffer = "") const;
  // FAILED_PRECONDITION that names buffers and ranks, unless idle.
  absl::Status CheckIdle() const;

 private:
  struct Attachment {
    CallId call = 0;  // that waits for the ticket
    std::string buffer;
    int32_t rank = 0;
    std::string ticket;
    CommandRound round;                                  // of one rank
    absl::Duration deadline = absl::InfiniteDuration();  // to be admitted, or to end
    bool attached = false;
    bool ending = false;
    int32_t pid = 0;  // once it is attached
    absl::Time attach_time;
  };
  // A client that left in good order: it takes part in nothing behind this sequence.
  struct Leaver {
    int32_t rank = 0;
    uint64_t last_sequence = 0;
  };
  struct Period {
    uint64_t first_sequence = 0;
    uint64_t last_sequence = 0;     // that was used; first_sequence - 1: none
    std::set<int32_t> ranks;        // that were attached
    std::string ending;             // why it ends; empty: it does not
    absl::optional<Leaver> leaver;  // the first in order of sequences
  };

  absl::Status Check(const TicketWanted& event) const;
  void NoteLeaver(const Attachment& leaver, uint64_t last_sequence);
  void TellOfLeaver(uint64_t id, const Attachment& attachment, const Leaver& leaver);
  void End(Attachment& attachment, uint64_t id, const std::string& why);
  void EndPeriod(const std::string& buffer, const std::string& why);
  // The attachment is over; its worker's last word.
  void Close(uint64_t id, const v1::CommandResult& result);
  v1::AttachTicket MakeTicket(const Attachment& attachment, const v1::ClientReport& report) const;
  std::string Describe(int32_t rank) const;

  GroupContext& context_;
  GroupBuffers& buffers_;
  std::map<uint64_t, Attachment> attachments_;  // by id
  std::map<std::string, Period> periods_;       // by buffer: those with attachments
  uint64_t last_id_ = 0;
  std::string fatal_;
};

}  // namespace perigee

#endif  // PERIGEE_SERVER_GROUPS_GROUP_ATTACHMENTS_H_
