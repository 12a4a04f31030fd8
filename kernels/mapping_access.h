// What kind of access is legal on memory as it is mapped for a consumer. No kernel is assumed to be
// safe on peers' memory: one that is handed a mapping says first what it does there.
#ifndef PERIGEE_KERNELS_MAPPING_ACCESS_H_
#define PERIGEE_KERNELS_MAPPING_ACCESS_H_

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace perigee {

enum class Access : uint32_t {
  kLoad = 1u << 0,      // loads by threads
  kStore = 1u << 1,     // stores by threads
  kBulkCopy = 1u << 2,  // asynchronous copies of whole 16 byte pieces: into what may be stored to,
                        // out of what may be loaded
  kAtomics = 1u << 3,   // read-modify-write at the scope of the whole machine
};

class AccessSet {
 public:
  constexpr AccessSet() = default;
  constexpr AccessSet(std::initializer_list<Access> access) {
    for (const Access one : access) bits_ |= static_cast<uint32_t>(one);
  }
  constexpr bool Has(Access access) const { return (bits_ & static_cast<uint32_t>(access)) != 0; }
  constexpr bool HasAll(AccessSet other) const { return (other.bits_ & ~bits_) == 0; }
  friend constexpr bool operator==(AccessSet, AccessSet) = default;

  // "load, bulk_copy"; "nothing" where it is empty. These words are part of the wire.
  std::string ToString() const {
    std::string text;
    const auto add = [&](Access access, absl::string_view name) {
      if (Has(access)) absl::StrAppend(&text, text.empty() ? "" : ", ", name);
    };
    add(Access::kLoad, "load");
    add(Access::kStore, "store");
    add(Access::kBulkCopy, "bulk_copy");
    add(Access::kAtomics, "atomics");
    return text.empty() ? "nothing" : text;
  }
  // What ToString has made. INVALID_ARGUMENT, naming the word, where one means nothing.
  static absl::StatusOr<AccessSet> Parse(absl::string_view text) {
    AccessSet set;
    if (text == "nothing") return set;
    for (const absl::string_view word : absl::StrSplit(text, ", ")) {
      const AccessSet one = word == "load"        ? AccessSet{Access::kLoad}
                            : word == "store"     ? AccessSet{Access::kStore}
                            : word == "bulk_copy" ? AccessSet{Access::kBulkCopy}
                            : word == "atomics"   ? AccessSet{Access::kAtomics}
                                                  : AccessSet();
      if (one == AccessSet()) {
        return absl::InvalidArgumentError(absl::StrCat(
            "'", word, "' is no way of access, expected load, store, bulk_copy or atomics"));
      }
      set.bits_ |= one.bits_;
    }
    return set;
  }

 private:
  uint32_t bits_ = 0;
};

// Of memory that a peer maps for reading, and of memory that may be written, too.
inline constexpr AccessSet kReadAccess = {Access::kLoad, Access::kBulkCopy};
inline constexpr AccessSet kFullAccess = {Access::kLoad, Access::kStore, Access::kBulkCopy,
                                          Access::kAtomics};

// allowed [R] of each rank's `what`. INVALID_ARGUMENT, naming the rank, what its mapping allows and
// what a consumer needs, where that is more.
inline absl::Status CheckAccess(absl::string_view what, const std::vector<AccessSet>& allowed,
                                AccessSet needed) {
  for (size_t rank = 0; rank < allowed.size(); ++rank) {
    if (allowed[rank].HasAll(needed)) continue;
    return absl::InvalidArgumentError(absl::StrCat("the mapping of ", what, " of rank ", rank,
                                                   " allows ", allowed[rank].ToString(),
                                                   ", the consumer needs ", needed.ToString()));
  }
  return absl::OkStatus();
}

}  // namespace perigee

#endif  // PERIGEE_KERNELS_MAPPING_ACCESS_H_
