// Says which field of a request a finding is about.
#ifndef PERIGEE_SERVER_RPC_FIELD_CHECK_H_
#define PERIGEE_SERVER_RPC_FIELD_CHECK_H_

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace perigee {

// "parent: name 'x' does not have the form tenants/{t}"; OK stays OK.
inline absl::Status InField(absl::string_view field, const absl::Status& status) {
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat(field, ": ", status.message()));
}

}  // namespace perigee

#endif  // PERIGEE_SERVER_RPC_FIELD_CHECK_H_
