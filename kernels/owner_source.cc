#include "kernels/owner_source.h"

#include "absl/strings/str_cat.h"

namespace perigee {

std::string DescribeSource(RankId rank, const ObjectTag& tag) {
  return absl::StrCat("{rank ", rank.value, ", buffer ", tag.buffer.value, ", generation ",
                      tag.generation.value, ", sequence ", tag.sequence.value, "}");
}

absl::Status SourceHandle::CheckLives() const {
  if (lives()) return absl::OkStatus();
  ObjectTag here = tag();
  here.sequence = living().sequence();
  const std::string other = here.sequence == Sequence()
                                ? std::string("none lives")
                                : absl::StrCat(DescribeSource(rank(), here), " lives");
  return absl::InvalidArgumentError(
      absl::StrCat("source view ", DescribeSource(rank(), tag()), " is dead, ", other,
                   ": a view dies with the next one that is prepared"));
}

absl::StatusOr<const SourceView*> SourceHandle::Take(AccessSet needed) const {
  if (absl::Status status = CheckLives(); !status.ok()) return status;
  if (absl::Status status = CheckAccess("the source shard", view().access, needed); !status.ok()) {
    return status;
  }
  return &view();
}

}  // namespace perigee
