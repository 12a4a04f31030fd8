// How a GroupError fits into the trailing metadata of a call.
#ifndef PERIGEE_SERVER_RPC_GROUP_ERROR_METADATA_H_
#define PERIGEE_SERVER_RPC_GROUP_ERROR_METADATA_H_

#include <cstddef>
#include <string>

#include "proto/v1/error.pb.h"

namespace perigee {

inline constexpr const char* kGroupErrorMetadataKey = "perigee-group-error-bin";
// gRPC's peers refuse trailing metadata of more than 8 KiB, and a call that ends with it then ends
// with another status. Base64 makes 4 bytes of 3.
inline constexpr size_t kGroupErrorLimitBytes = 5 * 1024;
// Of a status message, which travels beside it.
inline constexpr size_t kStatusMessageLimitBytes = 1024;

// Serialized, at most kGroupErrorLimitBytes: where it is larger, messages are shortened, then
// details of operations left out, then messages, at last workers; every rank keeps its code and
// reason.
std::string SerializeGroupError(const v1::GroupError& error);

// At most kStatusMessageLimitBytes; "..." shows that something was cut off.
std::string LimitStatusMessage(std::string message);

}  // namespace perigee

#endif  // PERIGEE_SERVER_RPC_GROUP_ERROR_METADATA_H_
