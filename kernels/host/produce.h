// The producer of the host backend. Contract: kernels/row_producer.h.
#ifndef PERIGEE_KERNELS_HOST_PRODUCE_H_
#define PERIGEE_KERNELS_HOST_PRODUCE_H_

#include "absl/status/status.h"
#include "kernels/host/host_rank.h"
#include "kernels/row_producer.h"

namespace perigee {

absl::Status HostProduce(HostRank& rank, const ProductInput& input, BFloat16* output);
absl::Status HostProduceInto(HostRank& rank, const ProductInput& input, const TargetPtr& target);

}  // namespace perigee

#endif  // PERIGEE_KERNELS_HOST_PRODUCE_H_
