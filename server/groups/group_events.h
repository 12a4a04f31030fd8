// What happens to a group (events) and what follows from it (effects): the whole language between
// the pure group machine and whoever runs it.
#ifndef PERIGEE_SERVER_GROUPS_GROUP_EVENTS_H_
#define PERIGEE_SERVER_GROUPS_GROUP_EVENTS_H_

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "kernels/common/ids.h"
#include "proto/support/publication_token.h"
#include "proto/v1/attachments.pb.h"
#include "proto/v1/buffers.pb.h"
#include "proto/v1/command.pb.h"
#include "proto/v1/error.pb.h"
#include "proto/v1/groups.pb.h"
#include "proto/v1/program.pb.h"
#include "proto/v1/publication.pb.h"
#include "server/groups/command_round.h"
#include "server/store/store.h"

namespace perigee {

// A call that waits for the group, as numbered by whoever takes calls. 0 is no call.
using CallId = uint64_t;

// Now, on both clocks; `wall` is for records.
struct Moment {
  absl::Duration monotonic;
  absl::Time wall;
};

// What a call came to.
struct CallResult {
  absl::Status status;
  absl::optional<v1::GroupError> error;  // where ranks are why it failed
  std::variant<std::monostate, v1::Group, v1::Buffer, v1::AttachTicket, v1::IssueTokensResponse,
               v1::TokenLedger>
      response;
};

// ---- Events. Buffers and workers are named by full resource name.

// The first event of every group. `members` by rank, READY workers that are this group's now.
struct GroupCreated {
  CallId call = 0;
  std::vector<v1::GroupMember> members;
};
// The key of a rank in a generation, and the first serials of its publication tokens.
struct FirstTokens {
  TokenKey key;
  SerialRange serials;
};
struct GenerationTaken {
  absl::StatusOr<Generation> generation;
  std::vector<FirstTokens> tokens = {};  // by rank
};
// The answer to TakeSerials.
struct SerialsTaken {
  int32_t rank = 0;
  v1::TokenGrant::Holder holder = v1::TokenGrant::HOLDER_UNSPECIFIED;
  absl::StatusOr<SerialRange> serials;
};
// The answer to RecordIssue.
struct IssueRecorded {
  CallId call = 0;
  absl::Status status;
};
struct TokensWanted {
  CallId call = 0;
  std::string buffer;
  Generation generation;  // 0: whichever lives
  int32_t rank = 0;
  uint64_t count = 1;
  std::string request_id;   // not empty
  std::string fingerprint;  // of the request
};
struct LedgerWanted {
  CallId call = 0;
  Generation generation;
};
struct TokensReported {
  std::string worker;
  v1::TokenReport report;
};
struct BufferIdTaken {
  std::string buffer;
  absl::StatusOr<BufferId> id;
};
struct CommandAnswered {
  CommandToken token = 0;
  v1::CommandResult result;
};
struct ProgressReported {
  std::string worker;
  v1::ProgramProgress progress;
};
struct MemberLost {
  std::string worker;
  std::string incarnation;
  std::string reason;  // "its connection broke"
};
// The answer to ranks_wanted(): one member, with its rank, for each of them.
struct MembersReplaced {
  std::vector<v1::GroupMember> members;
};
struct BufferCreated {
  CallId call = 0;
  v1::Buffer buffer;  // name, complete shape, operation_timeout_ms
};
struct BufferDeleted {
  CallId call = 0;
  std::string buffer;
};
struct ProgramSubmitted {
  CallId call = 0;
  std::string buffer;
  Generation generation;  // 0: whichever lives
  v1::Program program;
  absl::optional<v1::PathChoice> path_choice = absl::nullopt;  // checked
};
struct ProgramCancelled {
  CallId call = 0;  // that submitted it
};
struct TicketWanted {
  CallId call = 0;
  std::string buffer;
  Generation generation;  // 0: whichever lives
  int32_t rank = 0;
};
struct ClientReported {
  std::string worker;
  v1::ClientReport report;
};
struct GroupDrained {
  CallId call = 0;
  bool remove = false;  // once it is CLOSED
};
struct GenerationAborted {
  CallId call = 0;
  Generation generation;
  std::string reason;
};
struct TimePassed {};

using GroupEvent =
    std::variant<GroupCreated, GenerationTaken, BufferIdTaken, CommandAnswered, ProgressReported,
                 MemberLost, MembersReplaced, BufferCreated, BufferDeleted, ProgramSubmitted,
                 ProgramCancelled, TicketWanted, ClientReported, GroupDrained, GenerationAborted,
                 TimePassed, SerialsTaken, IssueRecorded, TokensWanted, LedgerWanted,
                 TokensReported>;

// ---- Effects, to be carried out in order.

struct SendCommand {
  int32_t rank = 0;
  std::string worker;
  std::string incarnation;
  CommandToken token = 0;     // to answer with; 0: the answer is of no interest
  v1::WorkerCommand command;  // command_id and term are the sender's to fill in
};
struct TakeGeneration {};
struct TakeSerials {
  int32_t rank = 0;
  v1::TokenGrant::Holder holder = v1::TokenGrant::HOLDER_UNSPECIFIED;
};
// Tokens may be given away once this is on disk.
struct RecordIssue {
  CallId call = 0;
  TokenIssue issue;
};
// The last word on the tokens of a generation that is over.
struct LedgerClosed {
  Generation generation;
  v1::TokenLedger ledger;
};
struct TakeBufferId {
  std::string buffer;
};
// Every call given in an event is finished exactly once.
struct FinishCall {
  CallId call = 0;
  CallResult result;
};
struct SendProgress {
  CallId call = 0;
  v1::ExecuteProgramResponse message;
};
// State, generation or members are new: watchers want Describe().
struct GroupChanged {};
struct GenerationBegan {
  Generation generation;
  std::vector<std::string> workers;  // by rank
};
struct GenerationActivated {
  Generation generation;
};
struct GenerationEnded {
  Generation generation;
  std::string reason;
};
// No longer of this group.
struct WorkersReleased {
  std::vector<std::string> workers;
};
// The last effect of a group: it is to be forgotten.
struct GroupRemoved {};

using GroupEffect =
    std::variant<SendCommand, TakeGeneration, TakeBufferId, FinishCall, SendProgress, GroupChanged,
                 GenerationBegan, GenerationActivated, GenerationEnded, WorkersReleased,
                 GroupRemoved, TakeSerials, RecordIssue, LedgerClosed>;
using GroupEffects = std::vector<GroupEffect>;

}  // namespace perigee

#endif  // PERIGEE_SERVER_GROUPS_GROUP_EVENTS_H_
