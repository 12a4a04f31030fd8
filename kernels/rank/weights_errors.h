// What is said when home blocks or slots hold other expert weights than an operation wants, the
// same on every backend.
#ifndef PERIGEE_KERNELS_RANK_WEIGHTS_ERRORS_H_
#define PERIGEE_KERNELS_RANK_WEIGHTS_ERRORS_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "kernels/layout/operation.h"
#include "kernels/layout/weights_layout.h"

namespace perigee {

struct WantedWeights {
  int32_t layer = 0;
  uint64_t version = 0;
};

// "home rank 3 holds layer 1 version 7, expected layer 1 version 8"
std::string DescribeStaleHome(int32_t home, const HomeHeader& held, const WantedWeights& wanted);
// kStaleWeights, without the identity and place that Progress::Fail fills in.
ErrorRecord StaleHomeRecord(int32_t home, const HomeHeader& held, const WantedWeights& wanted);
// FAILED_PRECONDITION: found before anything was written.
absl::Status SlotRefused(int32_t slot, const SlotTag& held, const SlotTag& wanted);

// What a prefetch tells the others that it moves.
constexpr Dtype DtypeOf(WeightFormat format) {
  return format == WeightFormat::k8Bit    ? Dtype::k8Bit
         : format == WeightFormat::kMxfp4 ? Dtype::kMxfp4
                                          : Dtype::kBFloat16;
}

// The error of a reduction that has ended behind its entry barrier, with what it leaves behind.
absl::Status WithUndefinedSums(const absl::Status& status, int32_t layer);

}  // namespace perigee

#endif  // PERIGEE_KERNELS_RANK_WEIGHTS_ERRORS_H_
