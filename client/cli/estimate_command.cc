#include "client/cli/estimate_command.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cli/flags.h"
#include "client/cli/output.h"
#include "kernels/layout/rings.h"
#include "kernels/plan/footprint.h"
#include "kernels/plan/validate.h"

namespace perigee {
namespace {

constexpr char kName[] = "estimate";

struct Options {
  FootprintShape shape;
  absl::optional<int32_t> slots;
  std::string weight_format = "bf16";
  absl::optional<int64_t> memory_bytes;
  bool json = false;
};

// What the buffers are held against.
struct Memory {
  bool per_rank = false;  // each rank has it for itself; else all ranks share it
  int64_t bytes = 0;
};

void AddFlags(FlagSet& flags, Options& options) {
  Geometry& geometry = options.shape.geometry;
  flags.Required("tokens", "S", "tokens of one rank", &geometry.tokens, 0);
  flags.Required("hidden", "H", "elements of a bf16 row, a multiple of 8", &options.shape.hidden);
  flags.Required("topk", "K", "routes of a token", &geometry.topk, 1, kMaxTopk);
  flags.Required("experts", "E", "experts of the group, a multiple of the ranks", &geometry.experts,
                 1, kMaxExperts);
  flags.Required("ranks", "R", "ranks", &geometry.ranks, 1, kMaxRanks);
  flags.Optional("slots", "B", "prefetch slots of each rank (default experts / ranks)",
                 &options.slots, 0, kMaxSlots);
  flags.Optional("token-padding", "P", "rows that a group is padded to a multiple of",
                 &geometry.token_padding, 1);
  flags.Optional("intermediate", "H'", "columns of gate and up; 0: leave expert weights out",
                 &options.shape.intermediate);
  flags.Optional("layers", "L", "layers whose weights are held", &options.shape.layers);
  flags.Choice("weight-format", {"bf16", "8bit", "mxfp4"}, "what an element of the weights is",
               &options.weight_format);
  flags.Boolean("weight-scales", "block scales come with 8bit or mxfp4 weights",
                &options.shape.weight_scales);
  flags.Boolean("gradients", "hold the gradients of these weights, too", &options.shape.gradients);
  flags.Boolean("source", "hold an owner-sharded source, too", &options.shape.source);
  flags.Optional("dispatch-output-slots", "N",
                 "areas of rows besides the shard's own (docs/rings.md)",
                 &options.shape.dispatch_output_slots, 0, kMaxRingSlots);
  flags.Optional("expert-output-slots", "N", "the same for what experts give",
                 &options.shape.expert_output_slots, 0, kMaxRingSlots);
  flags.Optional("memory", "BYTES",
                 "memory of each rank's device, such as 80GiB (default: this machine's, which all "
                 "ranks share)",
                 &options.memory_bytes);
  flags.Boolean("json", "print JSON (keys: docs/cli.md)", &options.json);
}

WeightFormat FormatOf(const std::string& name) {
  return name == "8bit"    ? WeightFormat::k8Bit
         : name == "mxfp4" ? WeightFormat::kMxfp4
                           : WeightFormat::kBFloat16;
}

// Memory of this machine, or of the container it lets us use.
int64_t MachineBytes() {
  int64_t bytes = static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  int64_t limit = 0;
  if (std::ifstream("/sys/fs/cgroup/memory.max") >> limit && limit > 0) {
    bytes = std::min(bytes, limit);
  }
  return bytes;
}

int64_t NeededBytes(const Options& options, const Footprint& footprint, const Memory& memory) {
  return footprint.forming_bytes() * (memory.per_rank ? 1 : options.shape.geometry.ranks);
}

std::string ReportText(const Options& options, const Footprint& footprint, const Memory& memory) {
  const int64_t ranks = options.shape.geometry.ranks;
  TextTable table({"buffer", "a rank", absl::StrCat("all ", ranks, " ranks")});
  const auto add = [&](const std::string& name, int64_t bytes) {
    table.AddRow({name, FormatBytes(bytes), FormatBytes(bytes * ranks)});
  };
  for (const BufferBytes& buffer : footprint.buffers) add(buffer.name, buffer.bytes);
  add("in all", footprint.rank_bytes());
  add("while a new generation forms", footprint.forming_bytes());
  const int64_t needed = NeededBytes(options, footprint, memory);
  std::string text = table.ToString();
  if (options.shape.intermediate == 0) {
    absl::StrAppend(&text, "\nexpert weights are left out (--intermediate)");
  }
  absl::StrAppendFormat(&text, "\n%s %s: %s of %s\n",
                        needed <= memory.bytes ? "fits" : "DOES NOT FIT",
                        memory.per_rank ? "the given memory of each rank"
                                        : "this machine's memory, shared by all ranks",
                        FormatBytes(needed), FormatBytes(memory.bytes));
  return text;
}

std::string ReportJson(const Options& options, const Footprint& footprint, const Memory& memory) {
  const Geometry& geometry = options.shape.geometry;
  const int64_t needed = NeededBytes(options, footprint, memory);
  JsonWriter json;
  json.BeginObject();
  json.Field("ranks", geometry.ranks);
  json.Field("experts", geometry.experts);
  json.Field("tokens", geometry.tokens);
  json.Field("topk", geometry.topk);
  json.Field("slots", geometry.slots);
  json.Field("token_padding", geometry.token_padding);
  json.Field("hidden", options.shape.hidden);
  json.Field("intermediate", options.shape.intermediate);
  json.Field("layers", options.shape.layers);
  json.Field("weight_format", options.weight_format);
  json.Field("weight_scales", options.shape.weight_scales);
  json.Field("gradients", options.shape.gradients);
  json.Field("source", options.shape.source);
  json.Field("dispatch_output_slots", options.shape.dispatch_output_slots);
  json.Field("expert_output_slots", options.shape.expert_output_slots);
  json.Key("buffer_bytes_per_rank");
  json.BeginObject();
  for (const BufferBytes& buffer : footprint.buffers) json.Field(buffer.name, buffer.bytes);
  json.EndObject();
  json.Field("shard_bytes_per_rank", footprint.shard_bytes());
  json.Field("bytes_per_rank", footprint.rank_bytes());
  json.Field("bytes_total", footprint.rank_bytes() * geometry.ranks);
  json.Field("forming_bytes_per_rank", footprint.forming_bytes());
  json.Field("forming_bytes_total", footprint.forming_bytes() * geometry.ranks);
  json.Field("memory_of", memory.per_rank ? "rank" : "machine");
  json.Field("memory_bytes", memory.bytes);
  json.Field("needed_bytes", needed);
  json.Field("fits", needed <= memory.bytes);
  json.EndObject();
  return json.ToString();
}

int RunEstimate(const std::vector<std::string>& args) {
  Options options;
  FlagSet flags(kName, "Says what memory a group would take, buffer by buffer, and if it fits.");
  AddFlags(flags, options);
  if (absl::optional<int> status = flags.ParseOrExit(args)) return *status;
  Geometry& geometry = options.shape.geometry;
  geometry.slots = options.slots.value_or(geometry.experts / geometry.ranks);
  options.shape.weight_format = FormatOf(options.weight_format);
  const absl::StatusOr<Footprint> footprint = EstimateFootprint(options.shape);
  if (!footprint.ok()) return flags.WrongUse(footprint.status().message());
  const Memory memory =
      options.memory_bytes ? Memory{true, *options.memory_bytes} : Memory{false, MachineBytes()};
  return PrintResult(options.json ? ReportJson(options, *footprint, memory)
                                  : ReportText(options, *footprint, memory));
}

}  // namespace

const Command kEstimateCommand = {kName, "estimate the memory of a group, with no service",
                                  RunEstimate};

}  // namespace perigee
