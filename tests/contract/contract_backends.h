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
#include "tests/contract/settled_backend.h"

namespace perigee {

struct ContractCase {
  std::string name;
  std::function<std::unique_ptr<Backend>()> create;
  // true: every rank maps every shard for itself, as separate processes do. false: ranks share one
  // mapping, so that a race detector sees that two of them use the same memory.
  bool own_mappings = true;
  // A group as large as this can run with all ranks in one process.
  int32_t max_ranks = 128;
  // Random groups that a test tries.
  int random_groups = 300;
};

// Those of this machine. A new backend is added here, and every test of the suite runs on it. Where
// there is no CUDA device a test of every binary says so and is skipped.
std::vector<ContractCase> ContractCases();

class ContractTest : public testing::TestWithParam<ContractCase> {
 protected:
  ContractTest()
      : queueing_backend_(GetParam().create()), backend_(MakeSettledBackend(*queueing_backend_)) {}
  // Operations have ended when their calls return.
  Backend& backend() { return *backend_; }
  // As it is: operations may still run when their calls return.
  Backend& queueing_backend() { return *queueing_backend_; }

 private:
  std::unique_ptr<Backend> queueing_backend_;
  std::unique_ptr<Backend> backend_;
};

// For INSTANTIATE_TEST_SUITE_P.
std::string ContractCaseName(const testing::TestParamInfo<ContractCase>& info);

}  // namespace perigee

#endif  // PERIGEE_TESTS_CONTRACT_CONTRACT_BACKENDS_H_
