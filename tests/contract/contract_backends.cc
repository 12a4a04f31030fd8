#include "tests/contract/contract_backends.h"

#include <cstdlib>

#include "kernels/common/check.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/device/device_info.h"
#include "kernels/host/host_backend.h"

namespace perigee {
namespace {

// Fewer where a sanitizer makes each several times slower.
#if defined(PERIGEE_TSAN)
constexpr int kHostGroups = 40;
#elif defined(__SANITIZE_ADDRESS__)
constexpr int kHostGroups = 80;
#else
constexpr int kHostGroups = 300;
#endif

bool HasCudaDevice() { return !QueryCudaDevices().devices.empty(); }

// compute-sanitizer makes each kernel many times slower, and its racecheck runs them one at a time,
// so that a kernel that waits for another rank waits for good: fewer groups, of one rank.
int FromEnvironment(const char* name, int otherwise) {
  const char* given = std::getenv(name);
  return given == nullptr ? otherwise : std::atoi(given);
}
int CudaGroups() { return FromEnvironment("PERIGEE_RANDOM_GROUPS", 1000); }

std::unique_ptr<Backend> CreateCuda() {
  CudaBackendOptions options;
  options.sms_per_buffer = 4;
  options.sm_budget = 1 << 20;  // ranks of one process that share a GPU
  absl::StatusOr<std::unique_ptr<Backend>> backend = CreateCudaBackend(options);
  if (!backend.ok()) ADD_FAILURE() << backend.status();
  PERIGEE_CHECK(backend.ok());
  return *std::move(backend);
}

TEST(CudaContractTest, RunsWhereThereIsADevice) {
  const CudaDevices devices = QueryCudaDevices();
  if (devices.devices.empty()) GTEST_SKIP() << DescribeCudaDevices(devices);
}

}  // namespace

std::vector<ContractCase> ContractCases() {
  const auto host = [] { return CreateHostBackend(); };
  std::vector<ContractCase> cases = {
      {"host_own_mappings", host, true, 128, kHostGroups},
      {"host_one_mapping", host, false, 128, kHostGroups},
  };
  // Before the device is first used: each rank's stream needs a hardware queue of its own, or a
  // kernel that waits for a rank stands before that rank's in the same queue.
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", /*overwrite=*/1);
  const int32_t queues = FromEnvironment("PERIGEE_MAX_RANKS", 31);  // of 32, one is the copies'
  if (HasCudaDevice()) {
    cases.push_back({"cuda_own_mappings", CreateCuda, true, queues, CudaGroups()});
    cases.push_back({"cuda_one_mapping", CreateCuda, false, queues, CudaGroups() / 10});
  }
  return cases;
}

std::string ContractCaseName(const testing::TestParamInfo<ContractCase>& info) {
  return info.param.name;
}

}  // namespace perigee
