#include "kernels/cuda/cuda_target.h"
#include "kernels/cuda/operations.h"
#include "kernels/cuda/product_launch.h"
#include "kernels/rank/producer_checks.h"

namespace perigee {
namespace {

absl::Status CheckAddresses(const ProductInput& input) {
  absl::Status status = CheckAligned("a", input.a);
  return status.ok() ? CheckAligned("b", input.b) : status;
}

absl::Status Queue(CudaRank& rank, const ProductArguments& arguments) {
  NoteLocal(rank, Operation::kProduce);
  return LaunchStatus(rank, LaunchProduct(rank.target(), rank.view, arguments), "produce");
}

}  // namespace

absl::Status QueueProduce(CudaRank& rank, const ProductInput& input, BFloat16* output) {
  absl::Status status = rank.progress->BeginLocal(Operation::kProduce);
  if (!status.ok()) return status;
  if (status = CheckProduce(rank, input, output); !status.ok()) return status;
  if (status = CheckAddresses(input); !status.ok()) return status;
  if (status = CheckAligned("output", output); !status.ok()) return status;
  return Queue(rank, {.a = input.a,
                      .b = input.b,
                      .depth = input.depth,
                      .token_count = input.token_count,
                      .output = output});
}

absl::Status QueueProduceInto(CudaRank& rank, const ProductInput& input, const TargetPtr& handle) {
  absl::Status status = rank.progress->BeginLocal(Operation::kProduce);
  if (!status.ok()) return status;
  const auto target = CudaTargetOf(handle);
  if (!target.ok()) return target.status();
  if (status = CheckProduceInto(rank, input, (*target)->facts()); !status.ok()) return status;
  if (status = CheckAddresses(input); !status.ok()) return status;
  return Queue(rank, {.a = input.a,
                      .b = input.b,
                      .depth = input.depth,
                      .token_count = input.token_count,
                      .dst = (*target)->plan()->view().dst});
}

}  // namespace perigee
