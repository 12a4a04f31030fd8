// A cluster, a group of all its workers, a buffer with random weights, and a local client on every
// rank; by backend, "host" or "cuda", where the workers share a GPU.
#ifndef PERIGEE_TESTS_INTEGRATION_LOCAL_CLIENT_FIXTURE_H_
#define PERIGEE_TESTS_INTEGRATION_LOCAL_CLIENT_FIXTURE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <stop_token>
#include <string>
#include <type_traits>
#include <vector>

#include "client/lib/client.h"
#include "client/lib/local_client.h"
#include "client/lib/rank_tensors.h"
#include "tests/integration/cluster_fixture.h"
#include "tests/testing/layer_file.h"

namespace perigee {

class LocalClientTest : public ClusterTest, public ::testing::WithParamInterface<const char*> {
 protected:
  static constexpr int kRanks = 4;
  static constexpr uint64_t kVersion = 3;
  static constexpr LocalPlanId kPlan{1};

  LocalClientTest();
  void SetUp() override;

  // Weights of the layer on every rank, in the generation that lives.
  void LoadWeights();
  absl::StatusOr<v1::AttachTicket> Ticket(int rank);
  // clients_, one for each rank; but for `without`, where it is one.
  void AttachAll(int without = -1);
  // A client of the rank in a process of its own, attached; with `in_barrier` in an operation that
  // waits for the other ranks.
  std::unique_ptr<Process> AttachProcess(int rank, bool in_barrier);
  // Until the rank's worker runs an operation of its client.
  void AwaitOperation(int rank);
  // Between host memory and memory shared with a worker, wherever that is.
  static void Put(const LocalClient& client, void* to, const void* from, size_t size_bytes);
  static void Get(const LocalClient& client, void* to, const void* from, size_t size_bytes);
  template <typename T>
  static std::vector<std::remove_const_t<T>> Get(const LocalClient& client, absl::Span<T> from) {
    std::vector<std::remove_const_t<T>> values(from.size());
    Get(client, values.data(), from.data(), from.size() * sizeof(T));
    return values;
  }

  // Does the same for every rank that has a client, each on a thread of its own: collective
  // operations meet.
  void OnEveryRank(const std::function<void(int rank)>& work);
  // The first `tokens` of the rank's tokens of the layer, into its client's memory.
  void WriteInputs(int rank, int tokens);
  // Poisons what comes out, runs the layer on the rank, and compares all of it with the reference.
  void RunLayer(int rank, int tokens);
  // A barrier of all ranks as a program.
  absl::Status RunProgram();
  // The same once the clients have gone: a worker lets go first, the coordinator hears of it soon.
  absl::Status AwaitProgram();

  std::mt19937_64 random_;
  LayerFile layer_;
  std::stop_source stop_;
  std::unique_ptr<Client> client_;
  v1::Group group_;
  std::string buffer_;
  std::unique_ptr<RankTensors> tensors_;
  std::vector<std::unique_ptr<LocalClient>> clients_;
};

}  // namespace perigee

#endif  // PERIGEE_TESTS_INTEGRATION_LOCAL_CLIENT_FIXTURE_H_
