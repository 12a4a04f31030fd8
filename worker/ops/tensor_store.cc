#include "worker/ops/tensor_store.h"

#include "absl/strings/str_cat.h"
#include "worker/ops/failure_reason.h"

namespace perigee {

absl::StatusOr<std::shared_ptr<StoredTensor>> StoredTensor::Allocate(Backend& backend,
                                                                     ByteBudget& budget,
                                                                     const TensorSpec& spec) {
  absl::StatusOr<ByteBudget::Share> share = budget.Take(spec.size_bytes);
  if (!share.ok()) return share.status();
  std::unique_ptr<Memory> memory;
  if (spec.size_bytes > 0) {
    absl::StatusOr<std::unique_ptr<Memory>> allocated = backend.AllocatePrivate(spec.size_bytes);
    if (!allocated.ok()) return allocated.status();
    memory = *std::move(allocated);
  }
  return std::shared_ptr<StoredTensor>(
      new StoredTensor(spec, *std::move(share), std::move(memory)));
}

std::shared_ptr<StoredTensor> StoredTensor::Reuse(StoredTensor& old) {
  return std::shared_ptr<StoredTensor>(
      new StoredTensor(old.spec_, std::move(old.share_), std::move(old.memory_)));
}

absl::Status TensorStore::CheckRoom(const std::string& name) const {
  if (entries_.count(name) > 0 || entries_.size() < kMaxTensors) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("tensor '", name, "' cannot be kept: there are ", kMaxTensors, " already"));
}

absl::Status TensorStore::Put(const std::string& name, std::shared_ptr<StoredTensor> tensor) {
  if (absl::Status status = CheckRoom(name); !status.ok()) return status;
  entries_[name] = Entry{std::move(tensor), ""};
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<StoredTensor>> TensorStore::Find(const std::string& name) const {
  const auto found = entries_.find(name);
  if (found == entries_.end()) {
    return StaleObject(absl::StrCat("there is no tensor '", name,
                                    "' in this generation: it was never written, or it died with "
                                    "an earlier one"));
  }
  if (!found->second.tensor) {
    return StaleObject(
        absl::StrCat("tensor '", name, "' is undefined: ", found->second.undefined_reason));
  }
  return found->second.tensor;
}

absl::StatusOr<std::shared_ptr<StoredTensor>> TensorStore::TakeForOutput(
    const std::string& name, const TensorSpec& spec, const std::string& reason) {
  if (absl::Status status = CheckRoom(name); !status.ok()) return status;
  Entry& entry = entries_[name];
  const std::shared_ptr<StoredTensor> old = std::move(entry.tensor);
  entry = Entry{nullptr, reason};
  if (old && old.use_count() == 1 && old->spec() == spec) return StoredTensor::Reuse(*old);
  return Allocate(spec);
}

}  // namespace perigee
