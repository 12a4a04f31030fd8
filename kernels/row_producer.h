// A producer of rows that a backend brings along, for tests and benchmarks: a product of matrices
// with two epilogues. One leaves the rows in this rank's memory, for a dispatch to move; the other
// writes each straight to its places by a target (kernels/direct_publication.h). The rows have the
// same bits either way.
#ifndef PERIGEE_KERNELS_ROW_PRODUCER_H_
#define PERIGEE_KERNELS_ROW_PRODUCER_H_

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/common/bfloat16.h"
#include "kernels/direct_publication.h"

namespace perigee {

// out [n, H] = a [n, C] x b [C, H], summed in fp32 and rounded once. a, b and out do not overlap
// each other or the shard.
struct ProductInput {
  const BFloat16* a = nullptr;
  const BFloat16* b = nullptr;
  int32_t depth = 0;        // C, a positive multiple of 8
  int32_t token_count = 0;  // n of S
};

// A side of a DataPath: threads, order and errors are those of its operations, among which both are
// local ones. A product's bits depend on a, b and the backend alone.
class RowProducer {
 public:
  virtual ~RowProducer() = default;

  // Into output [n, H].
  virtual absl::Status Produce(const ProductInput& input, BFloat16* output) = 0;
  // To the places of the target's tokens, which are n: a token's row goes to its primary row on
  // each rank. As StoreRows, of the rows that Produce would have left.
  virtual absl::Status ProduceInto(const ProductInput& input, const TargetPtr& target) = 0;
};

}  // namespace perigee

#endif  // PERIGEE_KERNELS_ROW_PRODUCER_H_
