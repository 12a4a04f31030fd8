// One tensor on its way from a buffer to a client, chunk by chunk.
#ifndef PERIGEE_WORKER_SESSION_TENSOR_DOWNLOAD_H_
#define PERIGEE_WORKER_SESSION_TENSOR_DOWNLOAD_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/v1/worker.pb.h"
#include "worker/ops/tensor_spec.h"
#include "worker/ops/tensor_store.h"
#include "worker/session/session_buffer.h"

namespace perigee {

// From one thread at a time. Between calls it holds no lock and no memory of the buffer: where the
// tensor is replaced meanwhile, or the buffer closed, the next call says so.
class TensorDownload {
 public:
  // STALE_OBJECT: there is no such tensor, plan or version of weights. Otherwise
  // SessionBuffer::Enter.
  static absl::StatusOr<std::unique_ptr<TensorDownload>> Begin(
      std::shared_ptr<SessionBuffer> buffer, const v1::TensorTarget& target);

  const TensorSpec& spec() const { return spec_; }
  // The next bytes, at most `limit_bytes`; empty at the end. ABORTED: the tensor was replaced while
  // it was read.
  absl::StatusOr<std::string> Next(size_t limit_bytes);

 private:
  TensorDownload(std::shared_ptr<SessionBuffer> buffer, const v1::TensorTarget& target)
      : buffer_(std::move(buffer)), target_(target) {}
  absl::Status BeginTensor(const SessionBuffer::Access& access);
  absl::Status BeginWeights(const SessionBuffer::Access& access);
  absl::Status BeginGradients();
  absl::Status BeginPlan(const SessionBuffer::Access& access);
  absl::StatusOr<const std::byte*> Source(const SessionBuffer::Access& access) const;

  const std::shared_ptr<SessionBuffer> buffer_;
  const v1::TensorTarget target_;
  TensorSpec spec_;
  std::weak_ptr<StoredTensor> tensor_;  // of a named tensor: gone when it is replaced
  std::vector<int32_t> plan_;           // a copy of a plan's tensor
  uint64_t read_bytes_ = 0;
};

}  // namespace perigee

#endif  // PERIGEE_WORKER_SESSION_TENSOR_DOWNLOAD_H_
