// The backends that the contract suite runs on, and the ways in which ranks can map memory.
#ifndef PERIGEE_TESTS_CONTRACT_CONTRACT_BACKENDS_H_
#define PERIGEE_TESTS_CONTRACT_CONTRACT_BACKENDS_H_

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/backend.h"

namespace perigee {

struct ContractCase {
  std::string name;
  std::function<std::unique_ptr<Backend>()> create;
  // true: every rank maps every shard for itself, as separate processes do. false: ranks share one
  // mapping, so that a race detector sees that two of them use the same memory.
  bool own_mappings = true;
};

// A new backend is added here, and every test of the suite runs on it.
std::vector<ContractCase> ContractCases();

class ContractTest : public testing::TestWithParam<ContractCase> {
 protected:
  ContractTest() : backend_(GetParam().create()) {}
  Backend& backend() { return *backend_; }

 private:
  std::unique_ptr<Backend> backend_;
};

// For INSTANTIATE_TEST_SUITE_P.
std::string ContractCaseName(const testing::TestParamInfo<ContractCase>& info);

}  // namespace perigee

#endif  // PERIGEE_TESTS_CONTRACT_CONTRACT_BACKENDS_H_
