// A group of whole workers in one process, on the host backend, driven by a fake coordinator.
#ifndef PERIGEE_WORKER_TESTING_WORKER_GROUP_H_
#define PERIGEE_WORKER_TESTING_WORKER_GROUP_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "proto/v1/worker.grpc.pb.h"
#include "worker/testing/fake_coordinator.h"
#include "worker/testing/scratch_directory.h"
#include "worker/testing/small_layer.h"
#include "worker/worker.h"

namespace perigee {

class WorkerGroup {
 public:
  explicit WorkerGroup(int32_t ranks);

  int32_t ranks() const { return static_cast<int32_t>(workers_.size()); }
  FakeCoordinator& coordinator() { return coordinator_; }
  const ScratchDirectory& directory() const { return directory_; }
  static std::string Name(int32_t rank);  // workers/w0

  WorkerOptions Options(int32_t rank) const;
  // Ends a worker and starts another incarnation in its place.
  void Replace(int32_t rank);

  v1::WorkerCommand Command() const;  // for the present generation
  // A new generation with the buffer; tickets are new too. Fails the test where a rank does.
  void Form(uint64_t generation, const v1::BufferShape& shape);
  // Streams tensors to a rank's worker, or one back.
  grpc::Status Write(int32_t rank, const LayerTensor& tensor);
  void Load(const SmallLayer& layer);
  struct ReadResult {
    grpc::Status status;
    std::string bytes;
  };
  ReadResult Read(int32_t rank, v1::TensorTarget target);

  // Runs a program, in text format, on these ranks; the ids of the commands.
  std::vector<uint64_t> Send(const std::string& program, const std::vector<int32_t>& ranks);
  std::vector<v1::CommandResult> Await(const std::vector<uint64_t>& commands);
  std::vector<v1::CommandResult> Execute(const std::string& program);
  uint64_t program_id() const { return program_id_; }

 private:
  void Start(int32_t rank);
  std::vector<v1::CommandResult> OnAll(const std::vector<v1::WorkerCommand>& commands);

  ScratchDirectory directory_;
  FakeCoordinator coordinator_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<std::unique_ptr<v1::WorkerService::Stub>> stubs_;
  uint64_t generation_ = 0;
  uint64_t program_id_ = 0;
  uint64_t last_sequence_ = 0;
};

}  // namespace perigee

#endif  // PERIGEE_WORKER_TESTING_WORKER_GROUP_H_
