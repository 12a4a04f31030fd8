#include "server/groups/group_failure.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace perigee {
namespace {

constexpr int32_t kUnavailable = static_cast<int32_t>(absl::StatusCode::kUnavailable);
constexpr int32_t kHighestCode = 16;

// How far a rank's reason is from explaining what happened.
int Distance(const std::string& reason) {
  if (reason == "GENERATION_ABORTED") return 4;
  if (reason == "DECLINED") return 3;
  if (reason == "CANCELLED") return 2;
  if (reason == "DEADLINE" || reason == "OUT_OF_STEP") return 1;
  return 0;
}

std::string NameRank(const Member& member) {
  return absl::StrCat("rank ", member.info.rank(), " (", member.info.worker(), ")");
}

std::string DescribeLoss(const Member& member, Generation generation) {
  const std::string when = generation.value == 0 ? "before the group formed"
                                                 : absl::StrCat("in generation ", generation.value);
  return absl::StrCat("was lost ", when, ": ", member.lost_reason);
}

// Wherever a rank's word is shown, its name stands before it: one that begins with the name again
// would say it twice. The data path knows its rank only, "rank 0, combine, sequence 4: ...".
std::string WithoutSpeaker(const std::string& message, const Member& member) {
  const std::string rank = absl::StrCat("rank ", member.info.rank());
  const std::string names[] = {NameRank(member) + ": ", rank + ": ", rank + ", "};
  absl::string_view rest = message;
  while (std::any_of(std::begin(names), std::end(names),
                     [&](const std::string& name) { return absl::ConsumePrefix(&rest, name); })) {
  }
  return std::string(rest);
}

// " (this rank was in combine, sequence 4)"; empty where it was in no operation.
std::string DescribePlace(const v1::RankStatus& status) {
  const v1::OperationError& place = status.operation_error();
  if (place.operation().empty()) return "";
  const std::string sequence =
      place.sequence() == 0 ? "" : absl::StrCat(", sequence ", place.sequence());
  return absl::StrCat(" (this rank was in ", place.operation(), sequence, ")");
}

// A worker knows that its generation was aborted, but perhaps not yet why; where it does, it
// repeats what it was told.
void ExplainAbort(v1::RankStatus& status, const std::string& why) {
  status.set_code(kUnavailable);
  status.set_reason("GENERATION_ABORTED");
  if (status.message().empty() || absl::StrContains(status.message(), why)) {
    status.set_message(absl::StrCat(why, DescribePlace(status)));
  } else {
    status.set_message(absl::StrCat(why, " (", status.message(), ")"));
  }
}

v1::RankStatus FinalStatus(const GenerationView& view, const Member& member,
                           const v1::RankStatus* answer) {
  v1::RankStatus status;
  if (answer != nullptr) status = *answer;
  status.set_message(WithoutSpeaker(status.message(), member));
  if (member.lost && (status.code() == 0 || status.reason() == "GENERATION_ABORTED")) {
    status.set_code(kUnavailable);
    status.set_reason("RANK_LOST");
    status.set_message(
        absl::StrCat(member.info.worker(), " ", DescribeLoss(member, view.generation)));
  } else if (!view.end_reason.empty() &&
             (answer == nullptr || status.reason() == "GENERATION_ABORTED")) {
    ExplainAbort(status, view.end_reason);
  }
  status.set_rank(member.info.rank());
  status.set_worker(member.info.worker());
  return status;
}

absl::Status CallStatus(const GenerationView& view, const v1::GroupError& error) {
  const std::string loss = DescribeLoss(view.members, view.generation);
  if (!loss.empty()) return absl::UnavailableError(loss);
  const v1::RankStatus* cause = nullptr;
  for (const v1::RankStatus& status : error.ranks()) {
    if (status.code() == 0 || status.reason() == "GENERATION_ABORTED") continue;
    if (cause == nullptr || Distance(status.reason()) < Distance(cause->reason())) cause = &status;
  }
  if (cause == nullptr) {
    return absl::UnavailableError(view.end_reason.empty() ? "the call was not completed"
                                                          : view.end_reason);
  }
  const bool known = cause->code() > 0 && cause->code() <= kHighestCode;
  return absl::Status(
      known ? static_cast<absl::StatusCode>(cause->code()) : absl::StatusCode::kUnknown,
      absl::StrCat("rank ", cause->rank(), " (", cause->worker(), "): ", cause->message()));
}

}  // namespace

std::string DescribeLoss(const std::vector<Member>& members, Generation generation) {
  std::string text;
  for (const Member& member : members) {
    if (!member.lost) continue;
    absl::StrAppend(&text, text.empty() ? "" : "; ", NameRank(member), " ",
                    DescribeLoss(member, generation));
  }
  return text;
}

GroupFailure DescribeFailure(const GenerationView& view,
                             const std::vector<v1::RankStatus>& statuses) {
  GroupFailure failure;
  failure.error.set_group(view.group);
  failure.error.set_generation(view.generation.value);
  for (const Member& member : view.members) {
    if (member.lost) failure.error.add_lost_ranks(member.info.rank());
    const v1::RankStatus* answer = nullptr;
    for (const v1::RankStatus& status : statuses) {
      if (status.rank() == member.info.rank()) answer = &status;
    }
    *failure.error.add_ranks() = FinalStatus(view, member, answer);
  }
  failure.status = CallStatus(view, failure.error);
  return failure;
}

}  // namespace perigee
