// What BenchSession measures of rings of output slots: the same micro-batches with their outputs in
// the shard, in memory of each one's own, and in slots that are used in turn.
#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "client/cli/bench/bench_session.h"

namespace perigee {
namespace {

int64_t DifferentElements(const std::string& some, const std::string& others) {
  if (some.size() != others.size()) return static_cast<int64_t>(some.size() / sizeof(BFloat16));
  int64_t different = 0;
  for (size_t at = 0; at < some.size(); at += sizeof(BFloat16)) {
    different += std::memcmp(&some[at], &others[at], sizeof(BFloat16)) != 0 ? 1 : 0;
  }
  return different;
}

}  // namespace

absl::Status BenchSession::MeasureRing(Bench& bench, RingResult ring,
                                       std::vector<std::string>& outputs) {
  bench.dispatch_output_slots = ring.dispatch_output_slots;
  bench.expert_output_slots = ring.expert_output_slots;
  absl::Status status = CreateBuffer(bench);
  if (!status.ok()) return status;
  RankTensors tensors(group_, bench.buffer, stop_);
  status = WriteInputs(bench, tensors);
  if (status.ok()) status = LoadWeights(bench, tensors);
  if (!status.ok()) return status;
  const auto buffer = client_.GetBuffer(bench.buffer);
  if (!buffer.ok()) return buffer.status();
  ring.output_bytes = buffer->rank_bytes_size() > 0 ? buffer->rank_bytes(0) : 0;
  const MicroBatches batches = {options_.inputs, options_.micro_batches, ring.pending,
                                ring.dispatch_output_slots > 0, ring.expert_output_slots > 0};
  const auto times_ns = Execute(bench, MicroBatchProgram(ring.name, batches));
  if (!times_ns.ok()) return times_ns.status();
  ring.times = SpreadOf(*times_ns);
  for (int32_t i = 0; i < options_.micro_batches; ++i) {
    const auto output = tensors.Read(RankId(0), BenchOutput(i));
    if (!output.ok()) return output.status();
    outputs.emplace_back(reinterpret_cast<const char*>(output->data.data()), output->data.size());
  }
  bench.result.rings.push_back(std::move(ring));
  return client_.DeleteBuffer(bench.buffer);
}

absl::StatusOr<ShapeResult> BenchSession::MeasureRings(Bench& bench) {
  const int32_t slots = options_.output_slots;
  const int32_t pending = std::min(slots, options_.micro_batches) - 1;
  const RingResult ways[] = {
      {.name = "one_by_one"},
      {.name = "memory_of_each",
       .pending = pending,
       .dispatch_output_slots = options_.micro_batches},
      {.name = "ring", .pending = pending, .dispatch_output_slots = slots},
      {.name = "ring_of_both",
       .pending = pending,
       .dispatch_output_slots = slots,
       .expert_output_slots = 1},
  };
  std::vector<std::string> wanted;
  for (const RingResult& way : ways) {
    std::vector<std::string> outputs;
    absl::Status status = MeasureRing(bench, way, outputs);
    if (!status.ok()) return status;
    if (wanted.empty()) {
      wanted = std::move(outputs);
      continue;
    }
    for (size_t i = 0; i < wanted.size(); ++i) {
      bench.result.checked_tokens += bench.shape.tokens;
      bench.result.mismatched_elements += DifferentElements(outputs[i], wanted[i]);
    }
  }
  const int64_t without = bench.result.rings[0].output_bytes;
  for (RingResult& ring : bench.result.rings) ring.output_bytes -= without;
  return std::move(bench.result);
}

}  // namespace perigee
