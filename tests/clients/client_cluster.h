// A coordinator and the workers of one group in this process, and a buffer with the weights of a
// small random layer: what rank clients of every kind are tested against.
#ifndef PERIGEE_TESTS_CLIENTS_CLIENT_CLUSTER_H_
#define PERIGEE_TESTS_CLIENTS_CLIENT_CLUSTER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "client/lib/client.h"
#include "client/lib/rank_client.h"
#include "proto/support/publication_token.h"
#include "server/coordinator.h"
#include "worker/embedded/embedded_worker.h"
#include "worker/testing/scratch_directory.h"
#include "worker/testing/small_layer.h"

namespace perigee {

// The ways to a rank.
enum class Way { kRemote, kLocal, kEmbedded };
std::string NameOf(Way way);
inline void PrintTo(Way way, std::ostream* out) { *out << NameOf(way); }

// Workers and clients of all ranks are streams of this process: each needs a hardware queue of its
// own, or what waits for a kernel stands before it in the same queue. Before CUDA is asked for
// anything, devices included.
void SeparateHardwareQueues();

class ClientCluster {
 public:
  static constexpr int32_t kRanks = 3;
  static constexpr uint64_t kVersion = 5;  // of the weights
  // Of the buffer.
  static constexpr int32_t kDispatchOutputSlots = 3;
  static constexpr int32_t kExpertOutputSlots = 2;

  // Starts the worker of the last rank, w2, in the test's own way; returns when it is registered.
  using StartLast = std::function<void(const std::string& coordinator)>;

  // The layer has kRanks ranks. Fails the test where the cluster does not come up. With start_last
  // no weights are loaded: its process may be at work already. On backend cuda the workers share
  // device 0.
  explicit ClientCluster(const SmallLayer& layer, const StartLast& start_last = nullptr,
                         const std::string& backend = "host");

  Client& client() { return *client_; }
  EmbeddedWorker& worker(int32_t rank) { return *workers_[rank]; }
  const v1::Group& group() const { return group_; }
  const std::string& buffer() const { return buffer_; }
  // The coordinator's.
  std::string data_dir() const { return directory_.path() + "/data"; }

  // Another buffer beside it, of the same shape, with the weights of `layer`; its name. While a
  // rank is attached there can be none. Zero: the default of how long operations wait for ranks.
  std::string AddBuffer(const std::string& id, const SmallLayer& layer,
                        absl::Duration operation_timeout = absl::ZeroDuration());

  void LoadWeights(const SmallLayer& layer) { LoadWeights(buffer_, layer); }
  void LoadWeights(const std::string& buffer, const SmallLayer& layer);
  absl::StatusOr<v1::AttachTicket> Ticket(int32_t rank) { return Ticket(buffer_, rank); }
  absl::StatusOr<v1::AttachTicket> Ticket(const std::string& buffer, int32_t rank);
  // One client for each rank.
  std::vector<std::unique_ptr<RankClient>> Connect(Way way) { return Connect(way, buffer_); }
  std::vector<std::unique_ptr<RankClient>> Connect(Way way, const std::string& buffer);
  // A publication token for a rank of the buffer, or of another one.
  PublicationTokenBytes Token(int32_t rank) { return Token(buffer_, rank); }
  PublicationTokenBytes Token(const std::string& buffer, int32_t rank);
  // A barrier of all ranks, as a program.
  absl::Status RunProgram();
  // The same once clients have gone: a worker lets go first, the coordinator hears of it soon.
  absl::Status AwaitProgram();

  // Its worker goes.
  void Lose(int32_t rank) { workers_[rank]->Shutdown(); }
  // Another one takes its name; returns when the group has formed again, with the weights loaded.
  void Replace(int32_t rank, const SmallLayer& layer);

 private:
  void Start(int32_t rank);
  std::string CreateBuffer(const std::string& id, const SmallLayer& layer,
                           absl::Duration operation_timeout);

  const std::string backend_;
  ScratchDirectory directory_;
  std::unique_ptr<Coordinator> coordinator_;
  std::vector<std::unique_ptr<EmbeddedWorker>> workers_;
  std::unique_ptr<Client> client_;
  v1::Group group_;
  std::string buffer_;
};

// PERIGEE_SEED if it is set, else a fresh one. Prints it either way.
uint64_t TestSeed();
// Does the same for every rank, each on a thread of its own: collective operations meet.
void OnEveryRank(const std::function<void(int32_t rank)>& work);
// Copies between this process' vectors and a rank's memory, which may be a device's.
void CopyIn(const RankMemory& memory, void* to, const void* from, size_t bytes);
void CopyOut(const RankMemory& memory, void* to, const void* from, size_t bytes);
template <typename T>
void Put(const RankMemory& memory, T* to, const std::vector<T>& values) {
  CopyIn(memory, to, values.data(), values.size() * sizeof(T));
}
template <typename T>
std::vector<T> Get(const RankMemory& memory, const T* from, size_t count) {
  std::vector<T> values(count);
  CopyOut(memory, values.data(), from, count * sizeof(T));
  return values;
}
template <typename T>
std::string BytesOf(const RankMemory& memory, absl::Span<T> values) {
  std::string bytes(values.size() * sizeof(T), 0);
  CopyOut(memory, bytes.data(), values.data(), bytes.size());
  return bytes;
}

// The rank's tokens of the layer, into its client's memory; how many they are.
int32_t WriteTokens(const SmallLayer& layer, int32_t rank, const RankMemory& memory);
// Runs the whole layer on one rank, with plan `plan`, and holds all that comes out against the
// reference: the plan and where shard and gathered weights are in reach exactly, sums to rounding.
void RunLayer(const SmallLayer& layer, RankClient& client, LocalPlanId plan);
// The same from a place on where the rows and the plan are there.
void FinishLayer(const SmallLayer& layer, RankClient& client, LocalPlanId plan);

}  // namespace perigee

#endif  // PERIGEE_TESTS_CLIENTS_CLIENT_CLUSTER_H_
