// Every default that a user may want to know or change, in one place; docs/operations.md shows this
// table to operators.
#ifndef PERIGEE_PROTO_SUPPORT_DEFAULTS_H_
#define PERIGEE_PROTO_SUPPORT_DEFAULTS_H_

#include <cstddef>
#include <cstdint>

#include "absl/time/time.h"

namespace perigee {

inline constexpr absl::Duration kHeartbeatInterval = absl::Milliseconds(250);
// How long a lease outlives the last heartbeat.
inline constexpr absl::Duration kLeaseDuration = absl::Seconds(2);
// How long a broken stream may stay broken before its worker counts as lost. Killed processes break
// their streams at once; this only leaves a live worker the time to reconnect.
inline constexpr absl::Duration kReconnectGrace = absl::Milliseconds(300);
// How long an execute call waits for the survivors' own words after a rank was lost.
inline constexpr absl::Duration kFenceReportTimeout = absl::Milliseconds(700);
inline constexpr absl::Duration kOperationTimeout = absl::Seconds(10);
// The first operation of a buffer in a generation waits longer for the others, which may still
// start.
inline constexpr absl::Duration kWarmupTimeout = absl::Seconds(30);
inline constexpr absl::Duration kFormingTimeout = absl::Seconds(30);
inline constexpr absl::Duration kDrainTimeout = absl::Seconds(30);
inline constexpr absl::Duration kConnectTimeout = absl::Seconds(5);
inline constexpr absl::Duration kReconnectBackoffMin = absl::Milliseconds(50);
inline constexpr absl::Duration kReconnectBackoffMax = absl::Seconds(2);
inline constexpr double kReconnectJitter = 0.2;
// How long a client waits for a group to form again after a loss.
inline constexpr absl::Duration kRecoveryTimeout = absl::Seconds(60);
inline constexpr absl::Duration kAttachTicketLife = absl::Seconds(30);
// How long one side of a command ring looks for news before it sleeps, where cores are not scarce.
inline constexpr absl::Duration kCommandSpin = absl::Microseconds(100);
// How long the operation that a local client has left unfinished may still take before its
// generation is given up.
inline constexpr absl::Duration kClientLeaveGrace = absl::Milliseconds(200);
// How long a granted range of publication tokens is good, and how many serials it has.
inline constexpr absl::Duration kTokenLife = absl::Hours(1);
inline constexpr uint64_t kTokenSerials = 65536;
// A rank asks for the next range, in the background, when 1/4 of its last one is left.
inline constexpr uint64_t kTokenRefillDivisor = 4;
// Publication tokens that one call may ask for.
inline constexpr int32_t kMaxTokensOfCall = 1024;
inline constexpr absl::Duration kProgressInterval = absl::Milliseconds(200);
// How long the answer to a request_id is kept.
inline constexpr absl::Duration kRequestIdLife = absl::Hours(1);
// A process whose supervisor has gone exits within this.
inline constexpr absl::Duration kOrphanExitTimeout = absl::Seconds(3);

inline constexpr size_t kTensorChunkBytes = size_t{1} << 20;
// What one worker keeps of named tensors and unfinished uploads.
inline constexpr uint64_t kTensorLimitBytes = uint64_t{4} << 30;
// How long a tensor stream may be silent before the worker ends it.
inline constexpr absl::Duration kTensorIdleTimeout = absl::Seconds(30);
inline constexpr int32_t kTokenPadding = 128;
inline constexpr int32_t kDefaultPageSize = 1000;
// Environment variable that names the coordinator where --address does not.
inline constexpr const char* kAddressVariable = "PERIGEE_ADDRESS";

}  // namespace perigee

#endif  // PERIGEE_PROTO_SUPPORT_DEFAULTS_H_
