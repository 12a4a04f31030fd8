#include "client/cli/bench/bench_wire.h"

#include "absl/strings/str_format.h"

namespace perigee {
namespace {

const OperationResult* Find(const ShapeResult& shape, const std::string& name) {
  for (const OperationResult& operation : shape.operations) {
    if (operation.name == name) return &operation;
  }
  return nullptr;
}

double Rate(int64_t bytes, double us) { return us > 0 ? static_cast<double>(bytes) / us : 0; }

absl::optional<WireRates> WireOf(const BenchOptions& options, const ShapeResult& shape) {
  return options.what == "wire" ? WireRatesOf(shape) : absl::nullopt;
}

}  // namespace

absl::optional<WireRates> WireRatesOf(const ShapeResult& shape) {
  const OperationResult* single = Find(shape, "dispatch_saved_plan");
  const OperationResult* stream = Find(shape, "dispatch_saved_plan_back_to_back");
  if (single == nullptr || stream == nullptr || !single->bytes || shape.copy.link_us <= 0) {
    return absl::nullopt;
  }
  WireRates rates;
  rates.link_bytes = single->bytes->max_link_bytes;
  rates.dispatch_bytes_per_us = Rate(rates.link_bytes, single->times.median_us);
  rates.back_to_back_bytes_per_us = Rate(rates.link_bytes, stream->times.median_us);
  rates.copy_bytes_per_us = Rate(shape.copy.rank_bytes, shape.copy.link_us);
  return rates;
}

std::string WireLine(const BenchOptions& options, const ShapeResult& shape) {
  const auto wire = WireOf(options, shape);
  if (!wire) return "";
  return absl::StrFormat(
      "On the busiest link, by a saved plan: %.2f MB in a dispatch, %.0f bytes/us, back to back "
      "%.0f bytes/us; the copy to the next rank %.0f bytes/us.\n",
      static_cast<double>(wire->link_bytes) / 1e6, wire->dispatch_bytes_per_us,
      wire->back_to_back_bytes_per_us, wire->copy_bytes_per_us);
}

void WriteWire(const BenchOptions& options, const ShapeResult& shape, JsonWriter& json) {
  const auto wire = WireOf(options, shape);
  json.Key("wire");
  if (!wire) return json.Null();
  json.BeginObject();
  json.Field("link_bytes", wire->link_bytes);
  json.Field("dispatch_bytes_per_us", wire->dispatch_bytes_per_us);
  json.Field("back_to_back_bytes_per_us", wire->back_to_back_bytes_per_us);
  json.Field("copy_bytes_per_us", wire->copy_bytes_per_us);
  json.EndObject();
}

}  // namespace perigee
