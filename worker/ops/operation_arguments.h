// What the launches of single operations share.
#ifndef PERIGEE_WORKER_OPS_OPERATION_ARGUMENTS_H_
#define PERIGEE_WORKER_OPS_OPERATION_ARGUMENTS_H_

#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/types/optional.h"
#include "worker/ops/error_report.h"
#include "worker/ops/tensor_store.h"

namespace perigee {

// Found before anything was touched.
inline Failure Refused(absl::Status status) { return Failure{std::move(status), absl::nullopt}; }

// Null where there is no tensor.
template <typename Element>
Element* Elements(const std::shared_ptr<StoredTensor>& tensor) {
  return tensor ? reinterpret_cast<Element*>(tensor->data()) : nullptr;
}

}  // namespace perigee

#endif  // PERIGEE_WORKER_OPS_OPERATION_ARGUMENTS_H_
