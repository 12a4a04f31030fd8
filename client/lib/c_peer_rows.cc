// The part of client/lib/perigee.h about other ranks' rows.
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "client/lib/c_attachment.h"
#include "client/lib/c_error.h"

using perigee::TellNull;
using perigee::TellStatus;

int perigee_peer_rows(perigee_attachment* attachment, int32_t rank, uint16_t** rows,
                      perigee_error* error) {
  if (attachment == nullptr) return TellNull("attachment", error);
  if (rows == nullptr) return TellNull("rows", error);
  const auto found = attachment->client->memory().TakePeerRows(
      {perigee::Access::kLoad, perigee::Access::kStore, perigee::Access::kBulkCopy});
  if (!found.ok()) return TellStatus(found.status(), error);
  const auto ranks = static_cast<int32_t>(found->size());
  if (rank < 0 || rank >= ranks) {
    return TellStatus(
        absl::InvalidArgumentError(absl::StrCat("rank is ", rank, ", expected 0 to ", ranks - 1)),
        error);
  }
  *rows = reinterpret_cast<uint16_t*>((*found)[rank]);
  return TellStatus(absl::OkStatus(), error);
}
