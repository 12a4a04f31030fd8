// A group of sessions in one process, without a coordinator: each with a backend, a socket and a
// session of its own, as a worker has them.
#ifndef PERIGEE_WORKER_TESTING_SESSION_GROUP_H_
#define PERIGEE_WORKER_TESTING_SESSION_GROUP_H_

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "worker/memory/descriptor_server.h"
#include "worker/session/current_session.h"
#include "worker/session/session.h"
#include "worker/testing/scratch_directory.h"

namespace perigee {

inline constexpr char kTestGroup[] = "tenants/default/groups/g";
inline constexpr char kTestBuffer[] = "tenants/default/groups/g/buffers/b";

class SessionGroup {
 public:
  using MakeBackend = std::function<std::unique_ptr<Backend>(int32_t rank)>;

  // Sessions of generation 7 on all ranks, without buffers.
  SessionGroup(int32_t ranks, const MakeBackend& make_backend, const std::string& transport = "");
  ~SessionGroup();

  int32_t ranks() const { return static_cast<int32_t>(ranks_.size()); }
  Session& session(int32_t rank) { return *ranks_[rank]->current.Get(); }
  const CurrentSession& current(int32_t rank) const { return ranks_[rank]->current; }
  SessionBuffer& buffer(int32_t rank) { return **session(rank).FindBuffer(kTestBuffer); }
  std::shared_ptr<SessionBuffer> shared_buffer(int32_t rank) {
    return *session(rank).FindBuffer(kTestBuffer);
  }
  const SessionEnvironment& environment(int32_t rank) const { return *ranks_[rank]->environment; }

  // The ticket that rank `from` presents to rank `to`.
  std::string Ticket(int32_t from, int32_t to) const;
  v1::OpenSessionCommand OpenCommand(int32_t rank) const;
  v1::AllocateBufferCommand AllocateCommand(int32_t rank, const v1::BufferShape& shape) const;
  v1::ConnectBufferCommand ConnectCommand(int32_t rank) const;
  // The buffer kTestBuffer with id 3 on all ranks; fails the test where a rank does not succeed.
  // options: its other fields.
  void MakeBuffer(const v1::BufferShape& shape, const v1::Buffer& options = {});

  // Runs a program, in text format, on every rank; what each rank reports. The first sequence
  // follows the highest used.
  std::vector<ProgramOutcome> Execute(const std::string& program);
  // The same in parts.
  void StartProgram(const std::string& program);
  std::vector<ProgramOutcome> AwaitOutcomes();

  // A whole tensor in one go.
  absl::Status Write(int32_t rank, const v1::TensorTarget& target, const v1::TensorHeader& header,
                     absl::Span<const std::byte> bytes);
  absl::StatusOr<std::string> Read(int32_t rank, const v1::TensorTarget& target);

 private:
  struct Rank {
    std::unique_ptr<Backend> backend;
    std::unique_ptr<DescriptorServer> descriptors;
    ByteBudget budget{uint64_t{1} << 28};
    std::atomic<uint64_t> operations_done{0};
    std::unique_ptr<SessionEnvironment> environment;
    CurrentSession current;
  };

  const std::string transport_;
  ScratchDirectory directory_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  uint64_t program_id_ = 0;
  uint64_t last_sequence_ = 0;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<int32_t, ProgramOutcome> outcomes_;  // guarded by mutex_
};

v1::TensorTarget NamedTarget(const std::string& tensor);
v1::TensorTarget WeightsTarget(int32_t layer, uint64_t version, v1::WeightTarget::Kind kind);
v1::TensorTarget PlanTensorTarget(const std::string& plan, const std::string& tensor);

}  // namespace perigee

#endif  // PERIGEE_WORKER_TESTING_SESSION_GROUP_H_
