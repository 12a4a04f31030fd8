// What stands behind a perigee_attachment.
#ifndef PERIGEE_CLIENT_LIB_C_ATTACHMENT_H_
#define PERIGEE_CLIENT_LIB_C_ATTACHMENT_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "client/lib/local_client.h"
#include "client/lib/perigee.h"
#include "kernels/device/event.h"

struct perigee_attachment {
  std::unique_ptr<perigee::LocalClient> client;
  int32_t intermediate = 0;
  int32_t layers = 0;
  bool gradients = false;
  absl::optional<CUstream_st*> followed;  // by the next command
  std::unique_ptr<perigee::Event> mark;   // of perigee_mark_stream, once there is one
  // Between perigee_begin_program and its end: what is to be handed over together.
  absl::optional<std::vector<perigee::LocalOperation>> program;
};

namespace perigee {

// A failure on the way to the worker: where that is the end of the attachment, all that the worker
// has told about it.
int TellLost(LocalClient& client, const absl::Status& status, perigee_error* error);
// Gives the worker a command, or adds it to the program that has begun; its number.
int GiveCommand(perigee_attachment* attachment, const LocalOperation& operation, uint64_t* command,
                perigee_error* error);
// How a command ended, well or not; completion: none where that is not known.
int AwaitCommand(perigee_attachment& attachment, uint64_t command, absl::Duration timeout,
                 absl::optional<LocalCompletion>& completion, perigee_error* error);
// To the worker, all or none, behind the stream that is followed, if one is; the number of the
// first.
absl::StatusOr<uint64_t> HandOver(perigee_attachment& attachment,
                                  absl::Span<const LocalOperation> operations);

}  // namespace perigee

#endif  // PERIGEE_CLIENT_LIB_C_ATTACHMENT_H_
