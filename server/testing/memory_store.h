// A store without a disk.
#ifndef PERIGEE_SERVER_TESTING_MEMORY_STORE_H_
#define PERIGEE_SERVER_TESTING_MEMORY_STORE_H_

#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "server/store/store.h"

namespace perigee {

// Thread-safe.
class MemoryStore final : public Store {
 public:
  uint64_t term() const override { return 3; }
  absl::StatusOr<uint64_t> TakeBufferId() override {
    std::lock_guard lock(mutex_);
    return ++buffer_;
  }
  absl::StatusOr<OpenedGeneration> OpenGeneration(const std::string& salt, int32_t ranks,
                                                  uint64_t count) override {
    std::lock_guard lock(mutex_);
    OpenedGeneration opened{Generation(++generation_), {}};
    salts_[generation_] = salt;
    for (int32_t rank = 0; rank < ranks; ++rank) opened.serials.push_back(Next(count));
    return opened;
  }
  absl::StatusOr<SerialRange> TakeSerials(uint64_t count) override {
    std::lock_guard lock(mutex_);
    return Next(count);
  }
  absl::Status RecordIssue(const TokenIssue& issue, absl::Time, absl::Time) override {
    std::lock_guard lock(mutex_);
    if (issues_.emplace(issue.request_id, issue).second) return absl::OkStatus();
    return absl::AlreadyExistsError("tokens were issued under this request_id before");
  }
  absl::StatusOr<absl::optional<StoredIssue>> FindIssue(const std::string& request_id) override {
    std::lock_guard lock(mutex_);
    const auto found = issues_.find(request_id);
    if (found == issues_.end()) return absl::optional<StoredIssue>();
    return absl::make_optional(StoredIssue{found->second, salts_[found->second.generation.value]});
  }

 private:
  SerialRange Next(uint64_t count) {
    serial_ += count;
    return {serial_ - count + 1, count};
  }

  std::mutex mutex_;
  uint64_t generation_ = 0;
  uint64_t buffer_ = 0;
  uint64_t serial_ = 0;
  std::map<uint64_t, std::string> salts_;
  std::map<std::string, TokenIssue> issues_;
};

}  // namespace perigee

#endif  // PERIGEE_SERVER_TESTING_MEMORY_STORE_H_
