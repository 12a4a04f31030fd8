// Elements in memory as a tensor to write.
#ifndef PERIGEE_CLIENT_CLI_BENCH_BENCH_TENSOR_H_
#define PERIGEE_CLIENT_CLI_BENCH_BENCH_TENSOR_H_

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "client/lib/tensor.h"

namespace perigee {

// Borrows the elements.
template <typename Element>
TensorView View(v1::TensorDtype dtype, std::vector<int64_t> shape,
                absl::Span<const Element> elements) {
  return TensorView{
      dtype,
      std::move(shape),
      {reinterpret_cast<const std::byte*>(elements.data()), elements.size() * sizeof(Element)}};
}

}  // namespace perigee

#endif  // PERIGEE_CLIENT_CLI_BENCH_BENCH_TENSOR_H_
