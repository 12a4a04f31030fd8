// How fast a dispatch fills the links between ranks: of `perigee bench wire`, which has the least
// of all other work in it.
#ifndef PERIGEE_CLIENT_CLI_BENCH_BENCH_WIRE_H_
#define PERIGEE_CLIENT_CLI_BENCH_BENCH_WIRE_H_

#include <cstdint>
#include <string>

#include "absl/types/optional.h"
#include "client/cli/bench/bench_result.h"
#include "client/cli/output.h"

namespace perigee {

// Bytes a microsecond on the busiest link: what one rank sends to all others, or receives of them
// if that is more.
struct WireRates {
  int64_t link_bytes = 0;                // of a dispatch
  double dispatch_bytes_per_us = 0;      // by a saved plan, behind a barrier
  double back_to_back_bytes_per_us = 0;  // the same, one behind the other
  double copy_bytes_per_us = 0;          // of the copy to the next rank in the same run
};

// None where dispatches by a saved plan or the copy between ranks were not measured.
absl::optional<WireRates> WireRatesOf(const ShapeResult& shape);

// Of bench wire: a line for people, and the object "wire". Of all others empty, and null.
std::string WireLine(const BenchOptions& options, const ShapeResult& shape);
void WriteWire(const BenchOptions& options, const ShapeResult& shape, JsonWriter& json);

}  // namespace perigee

#endif  // PERIGEE_CLIENT_CLI_BENCH_BENCH_WIRE_H_
