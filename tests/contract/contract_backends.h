// The backends that the contract suite runs on, and the ways in which ranks can map memory.
#ifndef PERIGEE_TESTS_CONTRACT_CONTRACT_BACKENDS_H_
#define PERIGEE_TESTS_CONTRACT_CONTRACT_BACKENDS_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "tests/contract/rank_backends.h"
#include "tests/contract/settled_backend.h"

namespace perigee {

// Every pair of ranks is a mapping: larger groups would need more than a process may have.
inline constexpr int32_t kMostOwnMappings = 16;

struct ContractCase {
  std::string name;
  // A backend on one of the devices.
  std::function<std::unique_ptr<Backend>(int32_t device)> create;
  // true: every rank maps every shard for itself, as separate processes do. false: ranks share one
  // mapping, so that a race detector sees that two of them use the same memory.
  bool own_mappings = true;
  // A group as large as this can run with all ranks in one process.
  int32_t max_ranks = 128;
  // Random groups that a test tries.
  int random_groups = 300;
  // Rank r has a backend on device r % devices.
  int32_t devices = 1;
  // Over Transport::kNccl ranks share no words, and experts beyond the slots are refused.
  Transport transport = Transport::kNvlink;

  bool is_staged() const { return transport == Transport::kNccl; }
  // Of these numbers of slots, those with which experts run where E/R is `needed`.
  std::vector<int32_t> SlotsToRun(std::vector<int32_t> slots, int32_t needed) const {
    if (is_staged()) std::erase_if(slots, [&](int32_t some) { return some < needed; });
    return slots;
  }
};

// Those of this machine. A new backend is added here, and every test of the suite runs on it. Where
// there is no CUDA device a test of every binary says so and is skipped. PERIGEE_DEVICES=N, more
// than 1, puts the ranks on N CUDA devices in turn; where there are fewer, that test fails.
std::vector<ContractCase> ContractCases();
// Those whose data paths publish directly (DataPath::publication).
std::vector<ContractCase> PublishingCases();

// Two backends for one group of ranks: over Transport::kNvlink, and over Transport::kNccl.
struct TransportCase {
  std::string name;
  std::function<std::unique_ptr<Backend>(int32_t device)> create;
  std::function<std::unique_ptr<Backend>(int32_t device)> create_staged;
  int32_t max_ranks = 16;
  int random_groups = 50;
  int32_t devices = 1;
};
// Those of this machine. NCCL itself has no two ranks on one device: it takes part where
// PERIGEE_DEVICES says that there are several.
std::vector<TransportCase> TransportCases();

class ContractTest : public testing::TestWithParam<ContractCase> {
 protected:
  ContractTest();
  // Operations have ended when their calls return.
  RankBackends backends() const { return InTurn(settled_, GetParam().transport); }
  Backend& backend(int32_t rank) const { return *settled_[rank % settled_.size()]; }
  // As they are: operations may still run when their calls return.
  RankBackends queueing_backends() const { return InTurn(queueing_, GetParam().transport); }

 private:
  using Owned = std::vector<std::unique_ptr<Backend>>;  // by device
  static RankBackends InTurn(const Owned& backends, Transport transport);

  Owned queueing_;
  Owned settled_;
};

// For INSTANTIATE_TEST_SUITE_P.
std::string ContractCaseName(const testing::TestParamInfo<ContractCase>& info);

}  // namespace perigee

#endif  // PERIGEE_TESTS_CONTRACT_CONTRACT_BACKENDS_H_
