// How what goes wrong in C++ is told through the C interface (client/lib/perigee.h).
#ifndef PERIGEE_CLIENT_LIB_C_ERROR_H_
#define PERIGEE_CLIENT_LIB_C_ERROR_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "client/lib/perigee.h"
#include "proto/local/completion_record.h"

namespace perigee {

// Fills `error`, which may be null, as far as its struct_bytes goes; returns the code. A failure of
// ranks is told with the lost ranks, and with the word of the first rank that has failed.
int TellStatus(const absl::Status& status, perigee_error* error);
// The same under a reason of the caller's own; nothing of it where the status is OK.
int TellStatus(const absl::Status& status, absl::string_view reason, perigee_error* error);
// How a command of an attachment ended.
int TellCompletion(const LocalCompletion& completion, perigee_error* error);

// INVALID_ARGUMENT, naming the argument that is NULL.
int TellNull(const char* argument, perigee_error* error);
// Copies what fits, a zero behind it.
void CopyText(absl::string_view text, char* to, size_t size_bytes);

}  // namespace perigee

#endif  // PERIGEE_CLIENT_LIB_C_ERROR_H_
