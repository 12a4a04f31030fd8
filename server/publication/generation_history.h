// The generations of groups, living and ended: what GetGeneration and ListGenerations show, and
// what became of the publication tokens of ended ones. Pure data.
#ifndef PERIGEE_SERVER_PUBLICATION_GENERATION_HISTORY_H_
#define PERIGEE_SERVER_PUBLICATION_GENERATION_HISTORY_H_

#include <cstddef>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/optional.h"
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
  // The ledger of a generation that has ended; dropped where the generation is not kept any more.
  void KeepLedger(const std::string& group, Generation generation, const v1::TokenLedger& ledger);
  void Forget(const std::string& group);

  // Null if there is none. Valid until the next change.
  const v1::GenerationInfo* Find(const std::string& group, Generation generation) const;
  std::vector<v1::GenerationInfo> List(const std::string& group) const;  // newest first
  // Null if none was kept. Valid until the next change.
  const v1::TokenLedger* FindLedger(const std::string& group, Generation generation) const;

 private:
  struct Life {
    v1::GenerationInfo info;
    absl::optional<v1::TokenLedger> ledger;
  };

  Life* Mutable(const std::string& group, Generation generation);

  std::map<std::string, std::deque<Life>> groups_;  // newest last
};

}  // namespace perigee

#endif  // PERIGEE_SERVER_PUBLICATION_GENERATION_HISTORY_H_
