#include "client/lib/tensor_transfer.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/lib/grpc_call.h"
#include "client/lib/idle_watch.h"
#include "proto/support/defaults.h"

namespace perigee {
namespace {

constexpr absl::Duration kStallTimeout = absl::Seconds(30);

absl::Status Stalled() {
  return absl::UnavailableError(
      absl::StrCat("the worker has not answered for ", absl::FormatDuration(kStallTimeout)));
}

// Checks the announcement of a tensor and makes room for it.
absl::StatusOr<Tensor> Announced(const v1::TensorHeader& header) {
  Tensor tensor;
  tensor.dtype = header.dtype();
  tensor.shape.assign(header.shape().begin(), header.shape().end());
  const int64_t bytes = TensorBytes(tensor.dtype, tensor.shape);
  if (bytes < 0 || static_cast<uint64_t>(bytes) != header.size_bytes()) {
    return absl::DataLossError(absl::StrCat("the worker announced ", header.size_bytes(),
                                            " bytes for ",
                                            DescribeTensor(tensor.dtype, tensor.shape)));
  }
  tensor.data.resize(bytes);
  return tensor;
}

// Collects the messages of a ReadTensor stream.
class Collector {
 public:
  absl::Status Take(const v1::ReadTensorResponse& message) {
    if (!announced_) {
      auto tensor = Announced(message.header());
      if (!tensor.ok()) return tensor.status();
      tensor_ = *std::move(tensor);
      announced_ = true;
    }
    const std::string& data = message.data();
    if (data.size() > tensor_.data.size() - received_) {
      return absl::DataLossError(absl::StrCat("the worker sent more than the ", tensor_.data.size(),
                                              " bytes it announced"));
    }
    std::copy_n(reinterpret_cast<const std::byte*>(data.data()), data.size(),
                tensor_.data.begin() + static_cast<std::ptrdiff_t>(received_));
    received_ += data.size();
    return absl::OkStatus();
  }

  absl::StatusOr<Tensor> Finish() {
    if (!announced_ || received_ != tensor_.data.size()) {
      return absl::DataLossError(
          absl::StrCat("the worker sent ", received_, " of ", tensor_.data.size(), " bytes"));
    }
    return std::move(tensor_);
  }

 private:
  Tensor tensor_;
  size_t received_ = 0;
  bool announced_ = false;
};

}  // namespace

absl::Status WriteTensor(v1::WorkerService::StubInterface& worker, const v1::TensorTarget& target,
                         const TensorView& tensor, const std::stop_token& stop) {
  if (TensorBytes(tensor.dtype, tensor.shape) != static_cast<int64_t>(tensor.data.size())) {
    return absl::InvalidArgumentError(absl::StrCat(DescribeTensor(tensor.dtype, tensor.shape),
                                                   " does not have ", tensor.data.size(),
                                                   " bytes"));
  }
  GrpcCall call(stop, absl::InfiniteDuration());
  IdleWatch watch(kStallTimeout, [&call] { call.context()->TryCancel(); });
  v1::WriteTensorResponse response;
  const auto stream = worker.WriteTensor(call.context(), &response);

  v1::WriteTensorRequest message;
  *message.mutable_target() = target;
  message.mutable_header()->set_dtype(tensor.dtype);
  for (const int64_t size : tensor.shape) message.mutable_header()->add_shape(size);
  message.mutable_header()->set_size_bytes(tensor.data.size());
  bool open = stream->Write(message);
  for (size_t sent = 0; open && sent < tensor.data.size();) {
    const auto chunk = tensor.data.subspan(sent, kTensorChunkBytes);
    message.Clear();
    message.set_data(chunk.data(), chunk.size());
    open = stream->Write(message);
    sent += chunk.size();
    watch.Alive();
  }
  // Where the worker ended the stream early, Finish says why.
  if (open) stream->WritesDone();
  const absl::Status status = call.Outcome(stream->Finish());
  return watch.expired() ? Stalled() : status;
}

absl::StatusOr<Tensor> ReadTensor(v1::WorkerService::StubInterface& worker,
                                  const v1::TensorTarget& target, const std::stop_token& stop) {
  GrpcCall call(stop, absl::InfiniteDuration());
  IdleWatch watch(kStallTimeout, [&call] { call.context()->TryCancel(); });
  v1::ReadTensorRequest request;
  *request.mutable_target() = target;
  const auto stream = worker.ReadTensor(call.context(), request);

  Collector collector;
  absl::Status malformed;
  v1::ReadTensorResponse message;
  while (stream->Read(&message)) {
    watch.Alive();
    if (!malformed.ok()) continue;
    malformed = collector.Take(message);
    if (!malformed.ok()) call.context()->TryCancel();
  }
  const absl::Status status = call.Outcome(stream->Finish());
  if (watch.expired()) return Stalled();
  if (!malformed.ok()) return malformed;
  if (!status.ok()) return status;
  return collector.Finish();
}

}  // namespace perigee
