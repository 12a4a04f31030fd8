// A backend for tests of everything above it: real memory with real descriptors, and data paths
// that do what the test says. Counts what is alive and notes in which order it goes.
#ifndef PERIGEE_WORKER_TESTING_FAKE_BACKEND_H_
#define PERIGEE_WORKER_TESTING_FAKE_BACKEND_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "worker/testing/fake_data_path.h"

namespace perigee {

// What happened to a backend's memory and data paths, by kind. Thread-safe.
class BackendLedger {
 public:
  void Add(const std::string& kind, int64_t change);  // notes "-kind" when something goes
  int64_t alive(const std::string& kind) const;
  std::vector<std::string> gone() const;  // kinds in the order in which they went

 private:
  mutable std::mutex mutex_;
  std::vector<std::pair<std::string, int64_t>> counts_;
  std::vector<std::string> gone_;
};

class FakeBackend final : public Backend {
 public:
  FakeBackend();

  // Kinds: "shared", "read_only", "private", "peer", "data_path". Outlives the backend.
  std::shared_ptr<BackendLedger> ledger() const { return ledger_; }
  // What it says it is; "host" at first.
  void set_name(const std::string& name) { name_ = name; }
  void set_free_bytes(uint64_t bytes) { free_bytes_ = bytes; }
  // Called when shared memory is wanted, before there is any.
  void set_on_allocate_shared(std::function<void()> hook) { on_allocate_shared_ = hook; }
  // Called with every data path made, before its first operation.
  void set_on_data_path(std::function<void(FakeDataPath&)> hook) { on_data_path_ = hook; }

  // Of the data path made last.
  const DataPathOptions& path_options() const { return path_options_; }

  // Whether local clients can attach; at first they cannot.
  void set_attachable() { attachable_ = true; }

  BackendInfo info() const override;
  absl::Status CheckAttachable() const override {
    return attachable_ ? absl::OkStatus() : Backend::CheckAttachable();
  }
  absl::StatusOr<std::unique_ptr<Memory>> AllocateShared(size_t size_bytes,
                                                         PeerAccess access) override;
  absl::StatusOr<std::unique_ptr<Memory>> AllocatePrivate(size_t size_bytes) override;
  absl::StatusOr<std::unique_ptr<Memory>> Import(int descriptor, size_t size_bytes,
                                                 PeerAccess access) override;
  absl::Status CopyIn(std::byte* to, absl::Span<const std::byte> from) override;
  absl::Status CopyOut(absl::Span<std::byte> to, const std::byte* from) override;
  absl::StatusOr<std::unique_ptr<DataPath>> CreateDataPath(const DataPathOptions& options) override;
  absl::StatusOr<std::string> NewRendezvous() override { return std::string("meet here"); }

 private:
  const std::shared_ptr<BackendLedger> ledger_;
  std::string name_ = "host";
  uint64_t free_bytes_ = uint64_t{1} << 30;
  bool attachable_ = false;
  DataPathOptions path_options_;
  std::function<void()> on_allocate_shared_;
  std::function<void(FakeDataPath&)> on_data_path_;
};

}  // namespace perigee

#endif  // PERIGEE_WORKER_TESTING_FAKE_BACKEND_H_
