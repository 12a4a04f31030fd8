#include "worker/session/session_members.h"

#include <cstring>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "kernels/plan/validate.h"
#include "proto/support/random.h"

namespace perigee {
namespace {

absl::Status CheckMember(const v1::GroupMember& member, int32_t rank) {
  if (member.rank() != rank) {
    return absl::InvalidArgumentError(
        absl::StrCat("member ", rank, " has rank ", member.rank(), ", expected them in order"));
  }
  if (member.worker().empty() || member.socket_path().empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("member ", rank, " has no worker or no socket_path"));
  }
  return ParseIncarnation(member.incarnation()).status();
}

}  // namespace

absl::StatusOr<uint64_t> ParseIncarnation(absl::string_view text) {
  uint64_t value = 0;
  if (text.size() == 16 && absl::SimpleHexAtoi(text, &value) && Hex64(value) == text) return value;
  return absl::InvalidArgumentError(
      absl::StrCat("incarnation '", text.substr(0, 32), "', expected 16 hex digits"));
}

absl::Status CheckMembers(const v1::OpenSessionCommand& command, absl::string_view worker,
                          uint64_t incarnation) {
  const int32_t ranks = command.members_size();
  if (ranks < 1 || ranks > kMaxRanks) {
    return absl::InvalidArgumentError(
        absl::StrCat("the group has ", ranks, " members, expected 1 to ", kMaxRanks));
  }
  for (int32_t rank = 0; rank < ranks; ++rank) {
    if (absl::Status status = CheckMember(command.members(rank), rank); !status.ok()) return status;
  }
  if (command.rank() < 0 || command.rank() >= ranks) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank is ", command.rank(), ", the group has ", ranks, " members"));
  }
  const v1::GroupMember& own = command.members(command.rank());
  if (own.worker() == worker && own.incarnation() == Hex64(incarnation)) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("rank ", command.rank(), " is ", own.worker(), " at incarnation ",
                   own.incarnation(), ", this is ", worker, " at ", Hex64(incarnation)));
}

absl::StatusOr<Transport> ParseTransport(absl::string_view name) {
  if (name.empty() || name == "nvlink") return Transport::kNvlink;
  if (name == "nccl") return Transport::kNccl;
  return absl::InvalidArgumentError(
      absl::StrCat("transport is '", name.substr(0, 32), "', expected nvlink or nccl"));
}

std::string TransportInWords(Transport transport, size_t ranks, const BackendInfo& backend) {
  if (transport == Transport::kNccl) return "nccl";
  return ranks < 2 || backend.name == "host" ? "local" : "nvlink";
}

absl::Status CheckShapeFor(Transport transport, const BufferShape& shape) {
  if (transport == Transport::kNccl && shape.source_storage) {
    return absl::InvalidArgumentError(
        "source_storage is set, expected not to be: over transport nccl no rank reads the source "
        "shard of another");
  }
  if (transport == Transport::kNccl && shape.peer_store) {
    return absl::InvalidArgumentError(
        "peer_store is set, expected not to be: over transport nccl no rank's shard is mapped at "
        "another");
  }
  const int32_t home_experts = shape.geometry.experts_per_rank();
  const bool reads_homes = shape.has_weights() && shape.geometry.slots < home_experts;
  if (transport == Transport::kNvlink || !reads_homes) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "slots is ", shape.geometry.slots, ", expected experts / ranks = ", home_experts,
      " or more: over transport nccl no rank reads the weights of another where they are"));
}

absl::StatusOr<std::vector<Ticket>> ParseTickets(
    const google::protobuf::RepeatedPtrField<std::string>& tickets, int32_t ranks, RankId own) {
  if (tickets.size() != ranks) {
    return absl::InvalidArgumentError(
        absl::StrCat("there are ", tickets.size(), " tickets, expected ", ranks));
  }
  std::vector<Ticket> parsed(ranks);
  for (int32_t rank = 0; rank < ranks; ++rank) {
    const std::string& ticket = tickets[rank];
    const size_t expected = rank == own.value ? 0 : kTicketBytes;
    if (ticket.size() != expected) {
      return absl::InvalidArgumentError(
          absl::StrCat("ticket ", rank, " has ", ticket.size(), " bytes, expected ", expected));
    }
    std::memcpy(parsed[rank].data(), ticket.data(), ticket.size());
  }
  return parsed;
}

}  // namespace perigee
