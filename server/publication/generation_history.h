// The generations of groups, living and ended: what GetGeneration and ListGenerations show. Pure
// data. Grants of publication tokens and their ledger belong beside it, each to one generation.
#ifndef PERIGEE_SERVER_PUBLICATION_GENERATION_HISTORY_H_
#define PERIGEE_SERVER_PUBLICATION_GENERATION_HISTORY_H_

#include <cstddef>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "kernels/common/ids.h"
#include "proto/v1/publication.pb.h"

namespace perigee {

// Not thread-safe.
class GenerationHistory {
 public:
  // Of one group the newest ones are kept.
  static constexpr size_t kKeptPerGroup = 1000;

  // FORMING. `workers` by rank. The number is above every earlier one of the group.
  void Begin(const std::string& group, Generation generation,
             const std::vector<std::string>& workers, absl::Time wall);
  void Activate(const std::string& group, Generation generation, absl::Time wall);
  // ENDED for good; a second end changes nothing.
  void End(const std::string& group, Generation generation, const std::string& reason,
           absl::Time wall);
  void Forget(const std::string& group);

  // Null if there is none. Valid until the next change.
  const v1::GenerationInfo* Find(const std::string& group, Generation generation) const;
  std::vector<v1::GenerationInfo> List(const std::string& group) const;  // newest first

 private:
  v1::GenerationInfo* Mutable(const std::string& group, Generation generation);

  std::map<std::string, std::deque<v1::GenerationInfo>> groups_;  // newest last
};

}  // namespace perigee

#endif  // PERIGEE_SERVER_PUBLICATION_GENERATION_HISTORY_H_
