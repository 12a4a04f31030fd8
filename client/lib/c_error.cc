#include "client/lib/c_error.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "client/lib/group_error.h"
#include "proto/local/local_command.h"

namespace perigee {
namespace {

// Of version 1, which has no field less.
constexpr uint32_t kFirstErrorBytes = sizeof(perigee_error);
constexpr int32_t kMaxLostRanks = 128;

perigee_error NoError() {
  perigee_error error{};
  error.rank = error.awaited_rank = error.token = error.k = -1;
  return error;
}

void AddLostRank(int32_t rank, perigee_error& error) {
  if (rank < 0 || rank >= kMaxLostRanks) return;
  error.lost_ranks[rank / 64] |= uint64_t{1} << rank % 64;
}

void AddRanks(const v1::GroupError& group, perigee_error& error) {
  error.generation = group.generation();
  for (const int32_t rank : group.lost_ranks()) AddLostRank(rank, error);
  const auto failed = std::find_if(group.ranks().begin(), group.ranks().end(),
                                   [](const v1::RankStatus& rank) { return rank.code() != 0; });
  if (failed == group.ranks().end()) return;
  error.rank = failed->rank();
  CopyText(failed->reason(), error.reason, sizeof(error.reason));
  if (!failed->has_operation_error()) return;
  const v1::OperationError& operation = failed->operation_error();
  error.sequence = operation.sequence();
  error.awaited_rank = operation.awaited_rank();
  error.token = operation.token();
  error.k = operation.k();
  CopyText(operation.operation(), error.operation, sizeof(error.operation));
}

// The caller may know fewer fields than there are, or more.
int Tell(perigee_error told, const absl::Status& status, perigee_error* error) {
  told.code = static_cast<int32_t>(status.code());
  CopyText(status.message(), told.message, sizeof(told.message));
  if (error != nullptr) {
    told.struct_bytes = error->struct_bytes != 0 ? error->struct_bytes : kFirstErrorBytes;
    std::memcpy(error, &told, std::min<size_t>(told.struct_bytes, sizeof(told)));
  }
  return told.code;
}

}  // namespace

void CopyText(absl::string_view text, char* to, size_t size_bytes) {
  const size_t length = std::min(text.size(), size_bytes - 1);
  text.copy(to, length);
  std::memset(to + length, 0, size_bytes - length);
}

int TellStatus(const absl::Status& status, perigee_error* error) {
  perigee_error told = NoError();
  const absl::optional<v1::GroupError> group = GroupErrorOf(status);
  if (group.has_value()) AddRanks(*group, told);
  return Tell(told, status, error);
}

int TellStatus(const absl::Status& status, absl::string_view reason, perigee_error* error) {
  perigee_error told = NoError();
  if (!status.ok()) CopyText(reason, told.reason, sizeof(told.reason));
  return Tell(told, status, error);
}

int TellCompletion(const LocalCompletion& completion, perigee_error* error) {
  perigee_error told = NoError();
  told.generation = completion.generation.value;
  told.sequence = completion.sequence.value;
  for (const int32_t rank : completion.lost) AddLostRank(rank, told);
  told.rank = completion.rank;
  told.awaited_rank = completion.awaited_rank;
  told.token = completion.token;
  told.k = completion.k;
  if (completion.kind != 0) {
    CopyText(CommandName(static_cast<CommandKind>(completion.kind)), told.operation,
             sizeof(told.operation));
  }
  CopyText(completion.reason, told.reason, sizeof(told.reason));
  return Tell(told, completion.status, error);
}

int TellNull(const char* argument, perigee_error* error) {
  return TellStatus(absl::InvalidArgumentError(absl::StrCat(argument, " is NULL")), error);
}

}  // namespace perigee
