// WorkerService (proto/v1/worker.proto): tensors in and out, on gRPC's callback API. It only moves
// messages; what they mean is TensorUpload's and TensorDownload's.
#ifndef PERIGEE_WORKER_RPC_WORKER_SERVICE_H_
#define PERIGEE_WORKER_RPC_WORKER_SERVICE_H_

#include "absl/time/time.h"
#include "proto/support/defaults.h"
#include "proto/v1/worker.grpc.pb.h"
#include "worker/session/current_session.h"

namespace perigee {

class WorkerService final : public v1::WorkerService::CallbackService {
 public:
  // `current` outlives the service. A stream that is silent for idle_timeout ends with
  // DEADLINE_EXCEEDED.
  explicit WorkerService(const CurrentSession& current,
                         absl::Duration idle_timeout = kTensorIdleTimeout)
      : current_(current), idle_timeout_(idle_timeout) {}

  grpc::ServerReadReactor<v1::WriteTensorRequest>* WriteTensor(
      grpc::CallbackServerContext* context, v1::WriteTensorResponse* response) override;
  grpc::ServerWriteReactor<v1::ReadTensorResponse>* ReadTensor(
      grpc::CallbackServerContext* context, const v1::ReadTensorRequest* request) override;

 private:
  const CurrentSession& current_;
  const absl::Duration idle_timeout_;
};

}  // namespace perigee

#endif  // PERIGEE_WORKER_RPC_WORKER_SERVICE_H_
