// Named private tensors of one buffer on this rank: inputs that clients write, outputs that
// programs make. A tensor is put under its name only when it is complete, so a name always means
// one whole tensor; whoever reads an older one under the same name notices that it has gone.
#ifndef PERIGEE_WORKER_OPS_TENSOR_STORE_H_
#define PERIGEE_WORKER_OPS_TENSOR_STORE_H_

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "worker/ops/byte_budget.h"
#include "worker/ops/tensor_spec.h"

namespace perigee {

// Names that one buffer keeps.
inline constexpr size_t kMaxTensors = 1024;

// Memory of one tensor, and the share of the budget that it takes.
class StoredTensor {
 public:
  // RESOURCE_EXHAUSTED: the budget or the backend has too little left.
  static absl::StatusOr<std::shared_ptr<StoredTensor>> Allocate(Backend& backend,
                                                                ByteBudget& budget,
                                                                const TensorSpec& spec);
  // The same memory as another tensor, which loses it. The specs are equal.
  static std::shared_ptr<StoredTensor> Reuse(StoredTensor& old);

  const TensorSpec& spec() const { return spec_; }
  std::byte* data() const { return memory_ ? memory_->data() : nullptr; }  // null: 0 bytes

 private:
  StoredTensor(TensorSpec spec, ByteBudget::Share share, std::unique_ptr<Memory> memory)
      : spec_(std::move(spec)), share_(std::move(share)), memory_(std::move(memory)) {}

  const TensorSpec spec_;
  ByteBudget::Share share_;
  std::unique_ptr<Memory> memory_;
};

// Not thread-safe: the buffer's lock, or its running program, guards it.
class TensorStore {
 public:
  // Both outlive the store.
  TensorStore(Backend& backend, ByteBudget& budget) : backend_(backend), budget_(budget) {}

  // A tensor without a name yet.
  absl::StatusOr<std::shared_ptr<StoredTensor>> Allocate(const TensorSpec& spec) const {
    return StoredTensor::Allocate(backend_, budget_, spec);
  }
  // Replaces what had the name. RESOURCE_EXHAUSTED: too many names.
  absl::Status Put(const std::string& name, std::shared_ptr<StoredTensor> tensor);
  // STALE_OBJECT: nothing, or nothing whole, has the name.
  absl::StatusOr<std::shared_ptr<StoredTensor>> Find(const std::string& name) const;

  // A tensor for a program to write, which the caller puts under the name when it is written. Until
  // then the name has nothing (and says why: `reason`); memory of the old one is used again where
  // it fits and nobody else holds it.
  absl::StatusOr<std::shared_ptr<StoredTensor>> TakeForOutput(const std::string& name,
                                                              const TensorSpec& spec,
                                                              const std::string& reason);
  // The name has nothing from now on.
  void MarkUndefined(const std::string& name, const std::string& reason) {
    entries_[name] = Entry{nullptr, reason};
  }
  size_t size() const { return entries_.size(); }
  void Clear() { entries_.clear(); }

 private:
  struct Entry {
    std::shared_ptr<StoredTensor> tensor;  // null: undefined
    std::string undefined_reason;
  };
  absl::Status CheckRoom(const std::string& name) const;

  Backend& backend_;
  ByteBudget& budget_;
  std::map<std::string, Entry> entries_;
};

}  // namespace perigee

#endif  // PERIGEE_WORKER_OPS_TENSOR_STORE_H_
