// The program part of client/lib/perigee.h.
#include "client/lib/c_attachment.h"
#include "client/lib/c_error.h"

using perigee::TellNull;
using perigee::TellStatus;

int perigee_begin_program(perigee_attachment* attachment, perigee_error* error) {
  if (attachment == nullptr) return TellNull("attachment", error);
  if (attachment->program) {
    return TellStatus(absl::FailedPreconditionError("a program has begun already"), error);
  }
  attachment->program.emplace();
  attachment->followed.reset();
  return TellStatus(absl::OkStatus(), error);
}

int perigee_submit_program(perigee_attachment* attachment, perigee_error* error) {
  if (attachment == nullptr) return TellNull("attachment", error);
  if (!attachment->program) {
    return TellStatus(absl::FailedPreconditionError("no program has begun"), error);
  }
  if (!attachment->program->empty()) {
    const absl::StatusOr<uint64_t> first = perigee::HandOver(*attachment, *attachment->program);
    if (!first.ok()) return perigee::TellLost(*attachment->client, first.status(), error);
  }
  attachment->program.reset();
  return TellStatus(absl::OkStatus(), error);
}

int perigee_drop_program(perigee_attachment* attachment, perigee_error* error) {
  if (attachment == nullptr) return TellNull("attachment", error);
  if (attachment->program) attachment->followed.reset();
  attachment->program.reset();
  return TellStatus(absl::OkStatus(), error);
}
