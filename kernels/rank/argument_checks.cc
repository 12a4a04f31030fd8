#include "kernels/rank/argument_checks.h"

#include <initializer_list>
#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/layout/source_layout.h"
#include "kernels/plan/validate.h"
#include "kernels/rank/ring_options.h"

namespace perigee {
namespace {

static_assert(kControlPeers == kMaxRanks);

constexpr int kMaxThreads = 1024;

absl::Status CheckIdentity(const DataPathOptions& options) {
  const int32_t ranks = options.geometry.ranks;
  if (options.rank.value < 0 || options.rank.value >= ranks) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank is ", options.rank.value, ", expected 0 to ", ranks - 1));
  }
  if (options.buffer.value == 0 || options.generation.value == 0) {
    return absl::InvalidArgumentError(absl::StrCat("buffer is ", options.buffer.value,
                                                   ", generation ", options.generation.value,
                                                   ", expected neither to be 0"));
  }
  return absl::OkStatus();
}

absl::Status CheckShards(const DataPathOptions& options, size_t granularity_bytes) {
  if (options.shards.size() != static_cast<size_t>(options.geometry.ranks)) {
    return absl::InvalidArgumentError(absl::StrCat("there are ", options.shards.size(),
                                                   " shards, expected ", options.geometry.ranks));
  }
  if (!options.shard_rows.empty() && options.shard_rows.size() != options.shards.size()) {
    return absl::InvalidArgumentError(absl::StrCat("rows are apart of ", options.shard_rows.size(),
                                                   " shards, expected ", options.shards.size()));
  }
  for (size_t rank = 0; rank < options.shards.size(); ++rank) {
    const auto is_place = [&](const std::byte* part) {
      const auto address = reinterpret_cast<uintptr_t>(part);
      return address != 0 && address % granularity_bytes == 0;
    };
    if (!is_place(options.shards[rank])) {
      return absl::InvalidArgumentError(
          absl::StrCat("shard of rank ", rank, " is null or not page aligned"));
    }
    if (options.shard_rows.empty() || is_place(options.shard_rows[rank])) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("rows of the shard of rank ", rank, " are null or not page aligned"));
  }
  return absl::OkStatus();
}

absl::Status CheckSources(const DataPathOptions& options, size_t granularity_bytes) {
  if (options.sources.empty()) return absl::OkStatus();
  if (options.transport != Transport::kNvlink) {
    return absl::InvalidArgumentError(
        "source shards are given, transport nccl has none: peers cannot read them");
  }
  if (options.sources.size() != static_cast<size_t>(options.geometry.ranks)) {
    return absl::InvalidArgumentError(absl::StrCat("there are ", options.sources.size(),
                                                   " source shards, expected none or ",
                                                   options.geometry.ranks));
  }
  for (size_t rank = 0; rank < options.sources.size(); ++rank) {
    const auto address = reinterpret_cast<uintptr_t>(options.sources[rank]);
    if (address != 0 && address % granularity_bytes == 0) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("source shard of rank ", rank, " is null or not page aligned"));
  }
  return absl::OkStatus();
}

absl::Status CheckLive(const char* what, Sequence held, Sequence wanted) {
  if (held == wanted) return absl::OkStatus();
  const std::string holder =
      held.value == 0 ? std::string("no plan") : absl::StrCat("the plan of sequence ", held.value);
  return absl::InvalidArgumentError(
      absl::StrCat("the shard holds ", what, " of ", holder, ", expected the plan of sequence ",
                   wanted.value, ": a later operation has overwritten or consumed them"));
}

// A source is either the shard's own rows (or row weights), holding those of the plan, or memory
// outside the shard.
absl::Status CheckRowsSource(const RankShape& shape, const PlanFacts& plan, const BFloat16* rows) {
  if (rows == shape.own().rows) return CheckLive("rows", shape.live.rows, plan.tag.sequence);
  return CheckOutsideShard(shape, "rows", rows, shape.row_bytes(plan.used_rows));
}

absl::Status CheckWeightsSource(const RankShape& shape, const PlanFacts& plan,
                                const float* row_weights) {
  if (row_weights == nullptr) return absl::OkStatus();
  if (row_weights == shape.own().row_weights) {
    return CheckLive("row weights", shape.live.weights, plan.tag.sequence);
  }
  return CheckOutsideShard(shape, "row weights", row_weights, plan.used_rows * sizeof(float));
}

absl::Status CheckCombinedWeights(const RankShape& shape, const PlanFacts& plan,
                                  const CombineInput& input) {
  if (!input.own_weights) return CheckWeightsSource(shape, plan, input.row_weights);
  if (input.row_weights == shape.own().row_weights) return absl::OkStatus();
  return absl::InvalidArgumentError("own weights are not those in the shard");
}

absl::Status CheckCombinedRows(const RankShape& shape, const PlanFacts& plan,
                               const CombineInput& input) {
  if (!input.own_rows) return CheckRowsSource(shape, plan, input.rows);
  if (input.rows == shape.own().rows) return absl::OkStatus();
  return absl::InvalidArgumentError("own rows are not those in the shard");
}

absl::Status FirstError(std::initializer_list<absl::Status> checks) {
  for (const absl::Status& check : checks) {
    if (!check.ok()) return check;
  }
  return absl::OkStatus();
}

absl::Status CheckDispatchMemory(const RankShape& shape, const DispatchInput& input,
                                 const DispatchOutput& output) {
  if (input.token_count > 0 && input.hidden == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("hidden is null, expected ", input.token_count, " tokens"));
  }
  return FirstError({
      CheckShardFree(shape),
      CheckOutsideShard(shape, "hidden", input.hidden, shape.row_bytes(input.token_count)),
      CheckDispatchOutput(shape, output),
  });
}

absl::Status CheckShape(const char* what, const RankShape& shape, const WeightsShape& matrices) {
  if (matrices.hidden != shape.hidden) {
    return absl::InvalidArgumentError(absl::StrCat(what, " have hidden size ", matrices.hidden,
                                                   ", the buffer has ", shape.hidden));
  }
  if (matrices.intermediate <= 0 || matrices.intermediate % 8 != 0) {
    return absl::InvalidArgumentError(absl::StrCat(what, " have intermediate size ",
                                                   matrices.intermediate,
                                                   ", expected a positive multiple of 8"));
  }
  return absl::OkStatus();
}

const char* FormatName(WeightFormat format) {
  return format == WeightFormat::k8Bit ? "8-bit" : "MXFP4";
}

std::string DescribeOwner(RankId rank, BufferId buffer, Generation generation) {
  return absl::StrCat("rank ", rank.value, ", buffer ", buffer.value, ", generation ",
                      generation.value);
}

}  // namespace

absl::Status CheckDataPathOptions(const DataPathOptions& options, size_t granularity_bytes) {
  if (absl::Status status = ValidateGeometry(options.geometry); !status.ok()) return status;
  if (options.hidden <= 0 || options.hidden % 8 != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("hidden size is ", options.hidden, ", expected a positive multiple of 8"));
  }
  if (options.intermediate < 0 || options.intermediate % 8 != 0) {
    return absl::InvalidArgumentError(absl::StrCat("intermediate size is ", options.intermediate,
                                                   ", expected a multiple of 8, or 0"));
  }
  if (options.threads < 1 || options.threads > kMaxThreads) {
    return absl::InvalidArgumentError(
        absl::StrCat("threads is ", options.threads, ", expected 1 to ", kMaxThreads));
  }
  if (options.sms < 0 || options.local_sms < 0) {
    return absl::InvalidArgumentError(absl::StrCat("SMs of a buffer is ", options.sms, ", local ",
                                                   options.local_sms, ", expected 0 or more"));
  }
  if (options.operation_timeout <= absl::ZeroDuration()) {
    return absl::InvalidArgumentError(absl::StrCat("operation timeout is ",
                                                   absl::FormatDuration(options.operation_timeout),
                                                   ", expected more than 0"));
  }
  if (options.warmup_timeout < absl::ZeroDuration()) {
    return absl::InvalidArgumentError(absl::StrCat("warm-up timeout is ",
                                                   absl::FormatDuration(options.warmup_timeout),
                                                   ", expected 0 or more"));
  }
  if (absl::Status status = CheckRingOptions(options); !status.ok()) return status;
  if (absl::Status status = CheckIdentity(options); !status.ok()) return status;
  if (absl::Status status = CheckShards(options, granularity_bytes); !status.ok()) return status;
  return CheckSources(options, granularity_bytes);
}

RankShape MakeRankShape(const DataPathOptions& options) {
  RankShape shape;
  shape.geometry = options.geometry;
  shape.hidden = options.hidden;
  shape.rank = options.rank;
  shape.buffer = options.buffer;
  shape.generation = options.generation;
  const int32_t slots = options.rings.dispatch_slots;
  shape.layout = ShardLayout::Create(options.geometry, options.hidden, slots);
  shape.slot_shards.resize(slots);
  shape.slot_live.resize(slots);
  for (size_t rank = 0; rank < options.shards.size(); ++rank) {
    std::byte* const words = options.shards[rank];
    std::byte* const rows =
        options.shard_rows.empty() ? words + shape.layout.rows : options.shard_rows[rank];
    shape.shards.push_back(shape.layout.View(words, rows));
    for (int32_t slot = 0; slot < slots; ++slot) {
      shape.slot_shards[slot].push_back(shape.layout.SlotView(words, rows, slot));
    }
  }
  const SourceLayout source = SourceLayout::Create(options.geometry, options.hidden);
  for (std::byte* const base : options.sources) shape.sources.push_back(source.View(base));
  return shape;
}

absl::Status CheckFreshShard(const RankShape& shape, uint64_t arrival) {
  if (arrival == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("shard of rank ", shape.rank.value, " has been used up to sequence ",
                   PositionSequence(arrival), ", expected zeroed memory"));
}

absl::Status CheckPlanOwner(const RankShape& shape, const ObjectTag& tag, RankId made_by) {
  if (made_by == shape.rank && tag.buffer == shape.buffer && tag.generation == shape.generation) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "plan is of ", DescribeOwner(made_by, tag.buffer, tag.generation), ", expected one of ",
      DescribeOwner(shape.rank, shape.buffer, shape.generation)));
}

// Where [data, data + bytes) meets this rank's shard an operation would overwrite it while it reads
// it.
absl::Status CheckOutsideShard(const RankShape& shape, const char* what, const void* data,
                               size_t bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(data);
  const auto meets = [&](const void* part, size_t part_bytes) {
    const auto first = reinterpret_cast<uintptr_t>(part);
    return bytes > 0 && begin + bytes > first && begin < first + part_bytes;
  };
  if (!meets(shape.own().control, shape.layout.words_bytes()) &&
      !meets(shape.shard_rows(), shape.layout.rows_bytes())) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat(what, " lies in the shard that the operation uses; expected other memory"));
}

absl::Status CheckShardFree(const RankShape& shape) {
  if (!shape.shard_live().prepared) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the publication of the target of sequence ", shape.shard_live().target.value,
                   " is prepared: until it is published nothing else may write the shard"));
}

absl::Status CheckProbedRows(const RankShape& shape, int64_t rows) {
  const int64_t half = shape.logical_rows() / 2;
  if (rows >= 0 && rows <= half) return CheckShardFree(shape);
  return absl::InvalidArgumentError(
      absl::StrCat("the copy has ", rows, " rows, expected 0 to NvS / 2, which is ", half));
}

absl::Status CheckDispatchOutput(const RankShape& shape, const DispatchOutput& output) {
  return FirstError({
      CheckOutsideShard(shape, "output rows", output.rows,
                        output.rows ? shape.row_bytes(shape.logical_rows()) : 0),
      CheckOutsideShard(shape, "output row weights", output.row_weights,
                        output.row_weights ? shape.logical_rows() * sizeof(float) : 0),
  });
}

absl::Status CheckDispatch(const RankShape& shape, const DispatchInput& input,
                           const DispatchOutput& output) {
  absl::Status status = ValidateTokenCount(shape.geometry, shape.rank, input.token_count);
  if (!status.ok()) return status;
  if (input.token_count > 0 && input.topk_experts == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("topk_experts is null, expected routes of ", input.token_count, " tokens"));
  }
  return CheckDispatchMemory(shape, input, output);
}

absl::Status CheckDispatchWithPlan(const RankShape& shape, const PlanFacts& plan,
                                   const DispatchInput& input, const DispatchOutput& output) {
  if (input.token_count != plan.token_count) {
    return absl::InvalidArgumentError(absl::StrCat("token count of rank ", shape.rank.value, " is ",
                                                   input.token_count, ", its plan has ",
                                                   plan.token_count));
  }
  return CheckDispatchMemory(shape, input, output);
}

absl::Status CheckWeights(const RankShape& shape, const ExpertWeights& weights) {
  if (absl::Status status = CheckShape("weights", shape, weights.shape); !status.ok()) {
    return status;
  }
  if (weights.shape.scales && weights.shape.format == WeightFormat::kBFloat16) {
    return absl::InvalidArgumentError("weights in bf16 have scales, expected none");
  }
  if (weights.version == 0) {
    return absl::InvalidArgumentError("weights version is 0, which means that none are loaded");
  }
  if (weights.home.size() != shape.shards.size()) {
    return absl::InvalidArgumentError(absl::StrCat("weights have ", weights.home.size(),
                                                   " home blocks, expected one of each of ",
                                                   shape.shards.size(), " ranks"));
  }
  for (size_t home = 0; home < weights.home.size(); ++home) {
    if (weights.home[home] != nullptr) continue;
    return absl::InvalidArgumentError(absl::StrCat("home block of rank ", home, " is null"));
  }
  if (shape.geometry.slots > 0 && weights.slots == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("slot block is null, expected ", shape.geometry.slots, " slots"));
  }
  return absl::OkStatus();
}

absl::Status CheckGradients(const RankShape& shape, const ExpertGradients& gradients) {
  const int32_t home_experts = shape.geometry.experts_per_rank();
  if (shape.geometry.slots < home_experts) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the buffer has B = ", shape.geometry.slots, " slots per rank, expected at least E/R = ",
        home_experts, ": remote experts without a slot have no gradients"));
  }
  if (absl::Status status = CheckShape("gradients", shape, gradients.shape); !status.ok()) {
    return status;
  }
  if (gradients.home_gate == nullptr || gradients.home_up == nullptr ||
      gradients.home_down == nullptr) {
    return absl::InvalidArgumentError(
        "home gradients: gate, up or down is null, expected all three");
  }
  if (gradients.slots.size() != shape.shards.size()) {
    return absl::InvalidArgumentError(absl::StrCat("gradients have ", gradients.slots.size(),
                                                   " slot blocks, expected one of each of ",
                                                   shape.shards.size(), " ranks"));
  }
  for (size_t rank = 0; rank < gradients.slots.size(); ++rank) {
    if (gradients.slots[rank] != nullptr) continue;
    return absl::InvalidArgumentError(absl::StrCat("slot gradients of rank ", rank, " are null"));
  }
  if (gradients.own_slots == nullptr) {
    return absl::InvalidArgumentError("own slot gradients are null");
  }
  return absl::OkStatus();
}

absl::Status CheckRunExperts(const RankShape& shape, const PlanFacts& plan,
                             const ExpertWeights& weights, const RunExpertsInput& input) {
  if (input.rows == nullptr) return absl::InvalidArgumentError("rows is null");
  if (input.output == nullptr) return absl::InvalidArgumentError("output is null");
  const size_t bytes = shape.row_bytes(plan.used_rows);
  const auto rows = reinterpret_cast<uintptr_t>(input.rows);
  const auto output = reinterpret_cast<uintptr_t>(input.output);
  if (rows != output && rows < output + bytes && output < rows + bytes) {
    return absl::InvalidArgumentError(
        "output overlaps rows, expected the same address or other memory");
  }
  if (weights.shape.format != WeightFormat::kBFloat16) {
    return absl::InvalidArgumentError(
        absl::StrCat("weights are ", FormatName(weights.shape.format), ", expected bf16"));
  }
  return FirstError({
      CheckWeights(shape, weights),
      CheckRowsSource(shape, plan, input.rows),
      CheckWeightsSource(shape, plan, input.row_weights),
      input.output == shape.shard_rows() ? CheckShardFree(shape)
                                         : CheckOutsideShard(shape, "output", input.output, bytes),
  });
}

absl::Status CheckCombine(const RankShape& shape, const PlanFacts& plan, const CombineInput& input,
                          const CombineOutput& output) {
  if (input.rows == nullptr) return absl::InvalidArgumentError("rows is null");
  const bool has_tokens = shape.geometry.tokens > 0;
  if (has_tokens && output.hidden == nullptr) {
    return absl::InvalidArgumentError("output hidden is null");
  }
  if (has_tokens && (input.row_weights == nullptr) != (output.route_weights == nullptr)) {
    return absl::InvalidArgumentError(
        "row weights and output route weights: one is null, expected both or none");
  }
  return FirstError({
      CheckShardFree(shape),
      CheckCombinedRows(shape, plan, input),
      CheckCombinedWeights(shape, plan, input),
      CheckOutsideShard(shape, "output hidden", output.hidden,
                        shape.row_bytes(shape.geometry.tokens)),
      CheckOutsideShard(shape, "output route weights", output.route_weights,
                        output.route_weights ? shape.geometry.routes() * sizeof(float) : 0),
  });
}

}  // namespace perigee
