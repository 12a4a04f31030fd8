#include "client/lib/group_error.h"

#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "proto/support/grpc_status.h"

namespace perigee {
namespace {

constexpr const char* kPayloadType = "type.googleapis.com/perigee.v1.GroupError";

}  // namespace

absl::Status CallStatus(const grpc::Status& status, const grpc::ClientContext& context) {
  absl::Status result = FromGrpc(status);
  if (result.ok()) return result;
  const auto& metadata = context.GetServerTrailingMetadata();
  const auto found = metadata.find(kGroupErrorKey);
  if (found == metadata.end()) return result;
  v1::GroupError error;
  if (!error.ParseFromArray(found->second.data(), static_cast<int>(found->second.size()))) {
    return result;
  }
  return WithGroupError(std::move(result), error);
}

absl::Status WithGroupError(absl::Status status, const v1::GroupError& error) {
  status.SetPayload(kPayloadType, absl::Cord(error.SerializeAsString()));
  return status;
}

absl::optional<v1::GroupError> GroupErrorOf(const absl::Status& status) {
  const absl::optional<absl::Cord> payload = status.GetPayload(kPayloadType);
  v1::GroupError error;
  if (!payload || !error.ParseFromString(std::string(*payload))) return absl::nullopt;
  return error;
}

std::string DescribeRank(const v1::RankStatus& rank) {
  const auto code = static_cast<absl::StatusCode>(rank.code());
  if (code == absl::StatusCode::kOk) return absl::StrCat("rank ", rank.rank(), ": OK");
  return absl::StrCat("rank ", rank.rank(), ": ", absl::StatusCodeToString(code), ": ",
                      rank.message());
}

}  // namespace perigee
