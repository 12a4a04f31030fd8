#include "tests/contract/contract_backends.h"

#include "kernels/host/host_backend.h"

namespace perigee {

std::vector<ContractCase> ContractCases() {
  const auto host = [] { return CreateHostBackend(); };
  return {
      {"host_own_mappings", host, true},
      {"host_one_mapping", host, false},
  };
}

std::string ContractCaseName(const testing::TestParamInfo<ContractCase>& info) {
  return info.param.name;
}

}  // namespace perigee
