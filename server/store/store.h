// What must survive a restart of the coordinator: its term, the counters whose numbers may never be
// given out twice, the salts of generations' keys, and which publication tokens were issued under
// which request_id. Group definitions are not kept: after a restart the coordinator knows no
// groups.
#ifndef PERIGEE_SERVER_STORE_STORE_H_
#define PERIGEE_SERVER_STORE_STORE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "kernels/common/ids.h"
#include "proto/support/publication_token.h"

namespace perigee {

struct OpenedGeneration {
  Generation generation;
  std::vector<SerialRange> serials;  // one for each rank
};

// Which tokens one IssueTokens has given away. The tokens themselves are not kept: they are signed
// again from this and the generation's salt, and come out the same.
struct TokenIssue {
  std::string request_id;
  std::string fingerprint;  // of the request
  std::string group;        // tenants/{t}/groups/{g}
  Generation generation;
  RankId rank;
  BufferId buffer;
  SerialRange serials;
  absl::Duration expiry;
};
struct StoredIssue {
  TokenIssue issue;
  std::string salt;  // of its generation
};

// Thread-safe. What changes something is on disk before it returns, so a crash can burn a number
// but never give it out again; it blocks for a disk flush. UNAVAILABLE or DATA_LOSS, with the path:
// it could not be written or read; the same call may succeed later.
class Store {
 public:
  virtual ~Store() = default;
  // Number of this start: one more than that of the last.
  virtual uint64_t term() const = 0;
  // The next buffer's number, from 1.
  virtual absl::StatusOr<uint64_t> TakeBufferId() = 0;
  // The next generation's number, its salt put down, and the first `count` serials of each rank.
  virtual absl::StatusOr<OpenedGeneration> OpenGeneration(const std::string& salt, int32_t ranks,
                                                          uint64_t count) = 0;
  // Serials that nobody has had, in any generation.
  virtual absl::StatusOr<SerialRange> TakeSerials(uint64_t count) = 0;
  // Puts an issue down. ALREADY_EXISTS: its request_id is known. Issues of before `forget_before`
  // are forgotten.
  virtual absl::Status RecordIssue(const TokenIssue& issue, absl::Time wall,
                                   absl::Time forget_before) = 0;
  virtual absl::StatusOr<absl::optional<StoredIssue>> FindIssue(const std::string& request_id) = 0;
};

}  // namespace perigee

#endif  // PERIGEE_SERVER_STORE_STORE_H_
