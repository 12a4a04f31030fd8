// Four ranks for tests of operations that end early: what each rank was told, and whether the next
// operation works.
#ifndef PERIGEE_TESTS_CONTRACT_EARLY_END_FIXTURE_H_
#define PERIGEE_TESTS_CONTRACT_EARLY_END_FIXTURE_H_

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "kernels/backend.h"
#include "kernels/layout/geometry.h"
#include "kernels/layout/operation.h"
#include "kernels/plan/random_group.h"
#include "tests/contract/contract_backends.h"
#include "tests/contract/expert_store.h"
#include "tests/contract/rank_group.h"

namespace perigee {

class EarlyEndTest : public ContractTest {
 protected:
  static constexpr int32_t kRanks = 4;
  static constexpr Geometry kGeometry = {
      .ranks = kRanks, .experts = 8, .tokens = 6, .topk = 3, .slots = 2, .token_padding = 4};

  EarlyEndTest();

  // A new group with new inputs, every token valid.
  void Start(absl::Duration operation_timeout);

  // All ranks, which must succeed.
  std::vector<DispatchResult> Dispatch();
  std::vector<absl::Status> Barrier();
  // One rank, in place.
  absl::Status Combine(int32_t rank, Sequence sequence, const PlanPtr& plan, bool weights = false);

  // Every rank has ended with this code, reason and text.
  void ExpectAll(const std::vector<absl::Status>& statuses, absl::StatusCode code,
                 AbortReason reason, const std::string& text);
  void ExpectOne(int32_t rank, const absl::Status& status, absl::StatusCode code,
                 AbortReason reason, const std::string& text);
  // All ranks have left at the same sequence: whatever comes next works.
  void ExpectNextWorks();

  bool sources_ = false;  // whether the next group that is started has an owner-sharded source
  std::mt19937_64 random_;
  std::unique_ptr<RankGroup> group_;
  std::unique_ptr<ExpertStore> store_;
  GroupInput input_;
  std::vector<RankInput> inputs_;
};

}  // namespace perigee

#endif  // PERIGEE_TESTS_CONTRACT_EARLY_END_FIXTURE_H_
