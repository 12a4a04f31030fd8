// One tensor to or from one worker, in chunks of kTensorChunkBytes.
#ifndef PERIGEE_CLIENT_LIB_TENSOR_TRANSFER_H_
#define PERIGEE_CLIENT_LIB_TENSOR_TRANSFER_H_

#include <stop_token>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/lib/tensor.h"
#include "proto/v1/worker.grpc.pb.h"

namespace perigee {

// Both block until the transfer has ended, a stop is requested (CANCELLED) or the worker takes or
// gives nothing for 30 s (UNAVAILABLE). They are not repeated: a failure may mean that the
// generation has ended, which the caller must know.

// INVALID_ARGUMENT also where data is not as long as the shape says.
absl::Status WriteTensor(v1::WorkerService::StubInterface& worker, const v1::TensorTarget& target,
                         const TensorView& tensor, const std::stop_token& stop);
// DATA_LOSS where the worker sends another number of bytes than it announced.
absl::StatusOr<Tensor> ReadTensor(v1::WorkerService::StubInterface& worker,
                                  const v1::TensorTarget& target, const std::stop_token& stop);

}  // namespace perigee

#endif  // PERIGEE_CLIENT_LIB_TENSOR_TRANSFER_H_
