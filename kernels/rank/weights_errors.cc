#include "kernels/rank/weights_errors.h"

#include "absl/strings/str_cat.h"

namespace perigee {
namespace {

std::string DescribeTag(const SlotTag& tag) {
  if (tag.version == 0) return "nothing";
  return absl::StrCat("layer ", tag.layer, " expert ", tag.expert, " version ", tag.version);
}

}  // namespace

std::string DescribeStaleHome(int32_t home, const HomeHeader& held, const WantedWeights& wanted) {
  return absl::StrCat("home rank ", home, " holds layer ", held.layer, " version ", held.version,
                      ", expected layer ", wanted.layer, " version ", wanted.version);
}

ErrorRecord StaleHomeRecord(int32_t home, const HomeHeader& held, const WantedWeights& wanted) {
  ErrorRecord record;
  record.reason = static_cast<uint32_t>(AbortReason::kStaleWeights);
  record.awaited_rank = home;
  record.expected = static_cast<int64_t>(wanted.version);
  record.seen = static_cast<int64_t>(held.version);
  return record;
}

absl::Status SlotRefused(int32_t slot, const SlotTag& held, const SlotTag& wanted) {
  return absl::FailedPreconditionError(absl::StrCat("slot ", slot, " holds ", DescribeTag(held),
                                                    ", expected ", DescribeTag(wanted)));
}

absl::Status WithUndefinedSums(const absl::Status& status, int32_t layer) {
  return absl::Status(status.code(),
                      absl::StrCat(std::string(status.message()), "; the gradient sums of layer ",
                                   layer, " are undefined now"));
}

}  // namespace perigee
