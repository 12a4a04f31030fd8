#include "tests/contract/contract_backends.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/common/check.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/device/copy.h"
#include "kernels/device/device_info.h"
#include "kernels/host/host_backend.h"
#include "tests/contract/local_exchange.h"
#include "tests/contract/staged_host_backend.h"
#include "tests/contract/tuned_backend.h"

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

// compute-sanitizer makes each kernel many times slower, and its racecheck runs them one at a time,
// so that a kernel that waits for another rank waits for good: fewer groups, of one rank.
int FromEnvironment(const char* name, int otherwise) {
  const char* given = std::getenv(name);
  return given == nullptr ? otherwise : std::atoi(given);
}
int CudaGroups() { return FromEnvironment("PERIGEE_RANDOM_GROUPS", 1000); }

// Devices that ranks are put on in turn.
int32_t DevicesAskedFor() { return FromEnvironment("PERIGEE_DEVICES", 1); }

CudaBackendOptions CudaOptions(int32_t device) {
  CudaBackendOptions options;
  options.device = device;
  options.sms_per_buffer = 4;
  options.sm_budget = 1 << 20;  // ranks of one process that share a GPU
  return options;
}

std::unique_ptr<Backend> CreateCudaWith(const CudaBackendOptions& options) {
  absl::StatusOr<std::unique_ptr<Backend>> backend = CreateCudaBackend(options);
  if (!backend.ok()) ADD_FAILURE() << backend.status();
  PERIGEE_CHECK(backend.ok());
  return *std::move(backend);
}

std::unique_ptr<Backend> CreateCuda(int32_t device) { return CreateCudaWith(CudaOptions(device)); }

// Staged data paths whose ranks may share a device.
std::unique_ptr<Backend> CreateStagedCuda(int32_t device) {
  CudaBackendOptions options = CudaOptions(device);
  ExchangeFactory local;
  local.new_rendezvous = NewLocalRendezvous;
  local.create = [device](const DataPathOptions& path, std::function<absl::Status()> settle) {
    LocalCopies copies;
    copies.read = [device](absl::Span<std::byte> to, const std::byte* from) {
      return CopyFromDevice(device, to, from);
    };
    copies.write = [device](std::byte* to, absl::Span<const std::byte> from) {
      return CopyToDevice(device, to, from);
    };
    copies.settle = std::move(settle);
    return MakeLocalExchange(path.rendezvous, path.rank.value, std::move(copies));
  };
  options.exchange = std::make_shared<const ExchangeFactory>(std::move(local));
  return CreateCudaWith(options);
}

// As where workers share a GPU: what stays in a rank has no more SMs than what reaches peers.
std::unique_ptr<Backend> CreateCudaWithEqualSms(int32_t device) {
  return MakeTunedBackend(CreateCuda(device),
                          [](DataPathOptions& options) { options.local_sms = options.sms = 3; });
}
std::unique_ptr<Backend> CreateCudaWithAllBeside(int32_t device) {
  return MakeTunedBackend(CreateCuda(device),
                          [](DataPathOptions& options) { options.sums_beside_from_tokens = 0; });
}
std::unique_ptr<Backend> CreateCudaWithNothingBeside(int32_t device) {
  return MakeTunedBackend(CreateCuda(device),
                          [](DataPathOptions& options) { options.own_rows_beside = false; });
}
std::unique_ptr<Backend> CreateCudaWithPlainLaunches(int32_t device) {
  return MakeTunedBackend(CreateCuda(device), [](DataPathOptions& options) {
    options.programmatic_launch = false;
    options.high_priority_stream = true;  // in no other case
  });
}

TEST(CudaContractTest, RunsWhereThereIsADevice) {
  const CudaDevices devices = QueryCudaDevices();
  const int32_t asked_for = DevicesAskedFor();
  if (devices.devices.empty() && asked_for == 1) GTEST_SKIP() << DescribeCudaDevices(devices);
  EXPECT_GE(asked_for, 1) << "PERIGEE_DEVICES is no number of devices";
  EXPECT_LE(asked_for, static_cast<int32_t>(devices.devices.size()))
      << "PERIGEE_DEVICES asks for " << asked_for
      << " CUDA devices; here: " << DescribeCudaDevices(devices);
}

// Those of one device, or one that spans all: a mapping is for one device, so there each rank has
// its own, and groups are no larger than the tests map so.
std::vector<ContractCase> CudaCases(int32_t queues) {
  const int32_t devices = DevicesAskedFor();
  if (devices == 1) {
    return {{"cuda_own_mappings", CreateCuda, true, queues, CudaGroups()},
            {"cuda_one_mapping", CreateCuda, false, queues, CudaGroups() / 10},
            {"cuda_equal_sms", CreateCudaWithEqualSms, true, queues, CudaGroups() / 2},
            {"cuda_all_beside", CreateCudaWithAllBeside, true, queues, CudaGroups() / 2},
            {"cuda_nothing_beside", CreateCudaWithNothingBeside, true, queues, CudaGroups() / 4},
            {"cuda_plain_launches", CreateCudaWithPlainLaunches, true, queues, CudaGroups() / 4},
            {"cuda_staged", CreateStagedCuda, true, std::min(queues, kMostOwnMappings),
             CudaGroups() / 4, 1, Transport::kNccl}};
  }
  const std::string name = absl::StrCat("cuda_", devices, "_devices");
  const int32_t most = std::min(queues, kMostOwnMappings);
  return {{name, CreateCuda, true, most, CudaGroups(), devices},
          {name + "_equal_sms", CreateCudaWithEqualSms, true, most, CudaGroups() / 4, devices},
          {name + "_all_beside", CreateCudaWithAllBeside, true, most, CudaGroups() / 4, devices},
          {name + "_nothing_beside", CreateCudaWithNothingBeside, true, most, CudaGroups() / 4,
           devices},
          {name + "_plain_launches", CreateCudaWithPlainLaunches, true, most, CudaGroups() / 4,
           devices}};
}

}  // namespace

std::vector<ContractCase> ContractCases() {
  const auto host = [](int32_t) { return CreateHostBackend(); };
  std::vector<ContractCase> cases = {
      {"host_own_mappings", host, true, 128, kHostGroups},
      {"host_one_mapping", host, false, 128, kHostGroups},
      {"host_staged", [](int32_t) { return MakeStagedHostBackend(); }, true, 16, kHostGroups / 2, 1,
       Transport::kNccl},
  };
  // Before the device is first used: each rank's stream needs a hardware queue of its own, or a
  // kernel that waits for a rank stands before that rank's in the same queue.
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", /*overwrite=*/1);
  const int32_t queues = FromEnvironment("PERIGEE_MAX_RANKS", 31);  // of 32, one is the copies'
  const auto present = static_cast<int32_t>(QueryCudaDevices().devices.size());
  if (DevicesAskedFor() >= 1 && DevicesAskedFor() <= present) {
    for (const ContractCase& contract : CudaCases(queues)) cases.push_back(contract);
  }
  return cases;
}

std::vector<ContractCase> PublishingCases() {
  std::vector<ContractCase> cases = ContractCases();
  std::erase_if(cases, [](const ContractCase& contract) { return contract.is_staged(); });
  return cases;
}

std::vector<TransportCase> TransportCases() {
  const auto host = [](int32_t) { return CreateHostBackend(); };
  const auto staged_host = [](int32_t) { return MakeStagedHostBackend(); };
  std::vector<TransportCase> cases = {{"host_staged", host, staged_host, 16, kHostGroups / 2}};
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", /*overwrite=*/1);
  const int32_t devices = DevicesAskedFor();
  const auto present = static_cast<int32_t>(QueryCudaDevices().devices.size());
  if (devices == 1 && present >= 1) {
    cases.push_back({"cuda_staged", CreateCuda, CreateStagedCuda, 16, CudaGroups() / 10});
  }
  if (devices > 1 && devices <= present) {
    // A communicator takes a good part of a second to make.
    cases.push_back({"cuda_nccl", CreateCuda, CreateCuda, devices, CudaGroups() / 40, devices});
  }
  return cases;
}

ContractTest::ContractTest() {
  for (int32_t device = 0; device < GetParam().devices; ++device) {
    queueing_.push_back(GetParam().create(device));
    settled_.push_back(MakeSettledBackend(*queueing_.back()));
  }
}

RankBackends ContractTest::InTurn(const Owned& backends, Transport transport) {
  std::vector<Backend*> in_turn;
  for (const auto& backend : backends) in_turn.push_back(backend.get());
  return RankBackends(in_turn, transport);
}

std::string ContractCaseName(const testing::TestParamInfo<ContractCase>& info) {
  return info.param.name;
}

}  // namespace perigee
