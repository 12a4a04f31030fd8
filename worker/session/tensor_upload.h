// One tensor on its way from a client into a buffer, chunk by chunk. Nothing of it is used before
// it is complete.
#ifndef PERIGEE_WORKER_SESSION_TENSOR_UPLOAD_H_
#define PERIGEE_WORKER_SESSION_TENSOR_UPLOAD_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/v1/worker.pb.h"
#include "worker/ops/tensor_spec.h"
#include "worker/ops/tensor_store.h"
#include "worker/session/session_buffer.h"

namespace perigee {

// From one thread at a time. Between calls it holds no lock and no memory of the buffer, so the
// buffer may close at any time; the next call then fails with its reason.
class TensorUpload {
 public:
  // Checks everything that can be checked and only then takes memory. Weights of the layer are
  // version 0 from here on. INVALID_ARGUMENT: dtype, shape or size do not fit, saying what was
  // expected; RESOURCE_EXHAUSTED; otherwise SessionBuffer::Enter, WeightLedger::Begin.
  static absl::StatusOr<std::unique_ptr<TensorUpload>> Begin(std::shared_ptr<SessionBuffer> buffer,
                                                             const v1::TensorTarget& target,
                                                             const v1::TensorHeader& header);
  // Without Finish: everything written is forgotten, but for gradients.
  ~TensorUpload();
  TensorUpload(const TensorUpload&) = delete;
  TensorUpload& operator=(const TensorUpload&) = delete;

  // INVALID_ARGUMENT: more bytes than the header announced.
  absl::Status Append(absl::string_view bytes);
  // INVALID_ARGUMENT: fewer bytes than announced. From here on the tensor has its name, or the
  // layer its version if this was its last matrix.
  absl::Status Finish();

  uint64_t written_bytes() const { return written_bytes_; }

 private:
  TensorUpload(std::shared_ptr<SessionBuffer> buffer, const v1::TensorTarget& target,
               TensorSpec spec);
  absl::Status BeginTensor(SessionBuffer::Access& access);
  absl::Status BeginWeights(SessionBuffer::Access& access);
  absl::Status BeginGradients() const;
  std::byte* Destination(const SessionBuffer::Access& access) const;

  const std::shared_ptr<SessionBuffer> buffer_;
  const v1::TensorTarget target_;
  const TensorSpec spec_;
  std::shared_ptr<StoredTensor> tensor_;  // of a named tensor
  bool loading_weights_ = false;
  uint64_t written_bytes_ = 0;
};

}  // namespace perigee

#endif  // PERIGEE_WORKER_SESSION_TENSOR_UPLOAD_H_
