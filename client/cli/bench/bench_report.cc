#include "client/cli/bench/bench_report.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cli/bench/bench_choice.h"
#include "client/cli/bench/bench_wire.h"
#include "client/cli/output.h"

namespace perigee {
namespace {

bool Shares(const BenchOptions& options) { return options.memory == RankMemory::kOneForAll; }

double FloorOverMedian(const OperationResult& operation) {
  return operation.times.median_us > 0 ? operation.floor->us / operation.times.median_us : 0;
}

std::string Microseconds(double us) { return absl::StrFormat("%.1f us", us); }
std::string Megabytes(int64_t bytes) {
  return absl::StrFormat("%.2f MB", static_cast<double>(bytes) / 1e6);
}

std::string Heading(const BenchResult& result) {
  const BenchOptions& options = result.options;
  std::string text = absl::StrCat(options.ranks, options.ranks == 1 ? " rank" : " ranks", " (",
                                  options.backend, " backend, ", result.device, ")");
  if (options.ranks > 1) {
    absl::StrAppend(&text, Shares(options) ? " that share its memory" : ", a device each");
  }
  if (options.transport == "nccl") absl::StrAppend(&text, ", over NCCL");
  if (options.backend == "cuda") {
    const auto sms = [](int32_t count) {
      return count == 0 ? std::string("default") : absl::StrCat(count);
    };
    absl::StrAppend(&text, ", SMs ", sms(options.sms), ", local SMs ", sms(options.local_sms));
  }
  absl::StrAppend(&text, "\n", options.iterations, " iterations of ", options.inputs,
                  " inputs after ", options.warmup, " to warm up, routes ");
  if (options.routes.all_remote) {
    absl::StrAppend(&text, "to other ranks in turn");
  } else if (options.routes.trace.empty()) {
    absl::StrAppend(&text, "random");
    if (options.routes.skew) absl::StrAppend(&text, " of skew ", *options.routes.skew);
  } else {
    absl::StrAppend(&text, "of ", options.routes.trace);
    if (options.routes.layer) absl::StrAppend(&text, ", layer ", *options.routes.layer);
  }
  return absl::StrCat(text, ", seed ", options.seed, "\n");
}

std::vector<std::string> TableRow(const OperationResult& operation, bool shares) {
  const Spread& times = operation.times;
  std::vector<std::string> row = {operation.name, Microseconds(times.median_us),
                                  absl::StrFormat("%.1f-%.1f us", times.p25_us, times.p75_us)};
  if (!operation.bytes) {
    row.resize(shares ? 7 : 8, "-");
    return row;
  }
  if (shares) {
    row.push_back(Megabytes(operation.bytes->total_bytes));
  } else {
    row.push_back(Megabytes(operation.bytes->max_local_bytes));
    row.push_back(Megabytes(operation.bytes->max_link_bytes));
  }
  row.push_back(Microseconds(operation.floor->us));
  row.push_back(operation.floor->bound);
  row.push_back(absl::StrFormat("%.3f", FloorOverMedian(operation)));
  return row;
}

std::string OperationTable(const ShapeResult& shape, bool shares) {
  std::vector<std::string> header = {"OPERATION", "MEDIAN", "P25-P75"};
  if (shares) {
    header.push_back("BYTES");
  } else {
    header.insert(header.end(), {"LOCAL BYTES", "LINK BYTES"});
  }
  header.insert(header.end(), {"FLOOR", "BOUND", "FLOOR/MEDIAN"});
  TextTable table(header);
  for (const OperationResult& operation : shape.operations) {
    table.AddRow(TableRow(operation, shares));
  }
  return table.ToString();
}

std::string RingTable(const ShapeResult& shape) {
  TextTable table({"OUTPUTS", "PENDING", "DISPATCH SLOTS", "EXPERT SLOTS", "BYTES A RANK",
                   "MICRO-BATCH", "P25-P75"});
  for (const RingResult& ring : shape.rings) {
    table.AddRow({ring.name, absl::StrCat(ring.pending), absl::StrCat(ring.dispatch_output_slots),
                  absl::StrCat(ring.expert_output_slots), Megabytes(ring.output_bytes),
                  Microseconds(ring.times.median_us),
                  absl::StrFormat("%.1f-%.1f us", ring.times.p25_us, ring.times.p75_us)});
  }
  return table.ToString();
}

std::string CopyLine(const ShapeResult& shape, const BenchOptions& options) {
  const CopyTimes& copy = shape.copy;
  if (copy.rank_bytes == 0) return "";
  std::string text = absl::StrFormat("Copy of %s on each rank: %s, %.1f GB/s read and written%s",
                                     Megabytes(copy.rank_bytes), Microseconds(copy.own_us),
                                     CopyGbPerSecond(copy, options.memory, options.ranks),
                                     Shares(options) && options.ranks > 1 ? " by all" : "");
  if (copy.alone_us > 0) {
    absl::StrAppendFormat(&text, "; by rank 0 alone: %s, %.1f GB/s", Microseconds(copy.alone_us),
                          AloneGbPerSecond(copy));
  }
  if (copy.link_us > 0) {
    absl::StrAppendFormat(&text, "; to the next rank: %s, %.1f GB/s of each",
                          Microseconds(copy.link_us), LinkGbPerSecond(copy));
  }
  return absl::StrCat(text, ".\n");
}

std::string PathCheckLine(const ShapeResult& shape) {
  if (shape.mismatched_elements == 0) {
    return absl::StrCat("Combined rows of rank 0 are those of ordinary dispatches, bit by bit, in ",
                        FormatCount(shape.checked_tokens), " tokens.\n");
  }
  return absl::StrCat("FAIL: ", FormatCount(shape.mismatched_elements),
                      " elements of the combined rows of rank 0 are not those of ordinary "
                      "dispatches, in ",
                      FormatCount(shape.checked_tokens), " tokens.\n");
}

std::string RingCheckLine(const ShapeResult& shape) {
  if (shape.mismatched_elements == 0) {
    return absl::StrCat("Combined rows of rank 0 are those of one_by_one, bit by bit, in ",
                        FormatCount(shape.checked_tokens), " tokens.\n");
  }
  return absl::StrCat("FAIL: ", FormatCount(shape.mismatched_elements),
                      " elements of the combined rows of rank 0 are not those of one_by_one, in ",
                      FormatCount(shape.checked_tokens), " tokens.\n");
}

std::string CheckLine(const ShapeResult& shape, const BenchOptions& options) {
  if (options.measures_paths()) return PathCheckLine(shape);
  if (!shape.rings.empty()) return RingCheckLine(shape);
  if (shape.mismatched_elements == 0) {
    return absl::StrCat("Combined rows of ", shape.checked_tokens,
                        " tokens of rank 0 are as computed here, bit by bit.\n");
  }
  return absl::StrCat("FAIL: ", FormatCount(shape.mismatched_elements),
                      " elements of the combined rows of ", shape.checked_tokens,
                      " tokens of rank 0 are not as computed here.\n");
}

// Where another path than the ordinary one was measured.
absl::optional<PathCell> PathCellOf(const BenchResult& result, const ShapeResult& shape) {
  absl::optional<PathCell> cell = CellOf(result, shape);
  if (cell && !cell->costs.direct_us && !cell->costs.pull_us) return absl::nullopt;
  return cell;
}

std::string ChoiceLine(const BenchResult& result, const ShapeResult& shape) {
  const auto cell = PathCellOf(result, shape);
  if (!cell) return "";
  const PathChoice choice = ChoiceOf(*cell);
  return absl::StrCat("A selector takes ", PathName(choice.path), ": ", choice.reason, ".\n");
}

// What the names of the rows do not say.
std::string Footnotes(const BenchOptions& options) {
  if (options.what == "rings") {
    return absl::StrCat("\nTimes of the slowest rank: an iteration of ", options.micro_batches,
                        " micro-batches, divided by their number. BYTES: what outputs take besides "
                        "the shard.\nmemory_of_each: no output's memory is used again, as where "
                        "an allocator cannot know that it is free.\n");
  }
  std::string text = "\nTimes of the slowest rank.";
  if (!options.measures_paths()) absl::StrAppend(&text, " FLOOR: the bytes at the copy's rate.");
  if (options.wants("plan")) {
    absl::StrAppend(&text, " plan: dispatch less dispatch_saved_plan, on the same inputs.");
  }
  if (options.what != "layer" && options.what != "prefetch" && options.what != "reduce") {
    absl::StrAppend(&text,
                    "\n_back_to_back: an iteration of several one behind the other, divided by "
                    "their number; without that: single ones behind a barrier.");
  }
  if (options.what == "direct") {
    absl::StrAppend(&text,
                    "\nproduce_dispatch: rows into the rank's memory, and dispatched; direct: "
                    "straight to their places, then all that is not rows; direct_overlapped: that "
                    "beside the producer. produce, produce_direct: the producer of these.");
  }
  if (options.what == "pull") {
    absl::StrAppend(&text,
                    "\npull: prepare_source and materialise, of rows that lie in the source shards "
                    "already.");
  }
  if (options.wants("combine")) {
    absl::StrAppend(&text,
                    "\nstep: dispatch_saved_plan and combine; combine_back_to_back: "
                    "step_back_to_back less dispatch_saved_plan_back_to_back.");
  }
  return absl::StrCat(text, "\n");
}

template <typename Value>
void WriteOptional(const char* key, const absl::optional<Value>& value, JsonWriter& json) {
  json.Key(key);
  if (value) {
    json.Value(*value);
  } else {
    json.Null();
  }
}

void WriteOptions(const BenchResult& result, JsonWriter& json) {
  const BenchOptions& options = result.options;
  json.Field("what", options.what);
  json.Field("device", result.device);
  json.Field("backend", options.backend);
  json.Field("transport", options.transport);
  json.Field("ranks", options.ranks);
  json.Field("solo", result.solo);
  json.Field("shared_memory", Shares(options));
  json.Field("sms", options.sms);
  json.Field("local_sms", options.local_sms);
  json.Field("programmatic_launch", options.programmatic_launch);
  json.Field("high_priority_stream", options.high_priority_stream);
  json.Field("iterations", options.iterations);
  json.Field("warmup", options.warmup);
  json.Field("inputs", options.inputs);
  if (options.what == "rings") {
    json.Field("micro_batches", options.micro_batches);
    json.Field("output_slots", options.output_slots);
  }
  json.Field("seed", options.seed);
  json.Key("trace");
  if (options.routes.trace.empty()) {
    json.Null();
  } else {
    json.Value(options.routes.trace);
  }
  WriteOptional("layer", options.routes.layer, json);
  WriteOptional("skew", options.routes.skew, json);
  json.Field("depth", options.depth);
}

void WriteShape(const BenchShape& shape, int32_t ranks, JsonWriter& json) {
  json.Field("shape", FormatBenchShape(shape));
  json.Field("tokens", shape.tokens);
  json.Field("hidden", shape.hidden);
  json.Field("topk", shape.topk);
  json.Field("experts", shape.experts);
  json.Field("slots", shape.slots_of(ranks));
  json.Field("token_padding", shape.token_padding);
  json.Field("intermediate", shape.intermediate);
}

// Null where it is 0: not measured.
void WriteMeasured(const char* key, double value, JsonWriter& json) {
  json.Key(key);
  if (value > 0) {
    json.Value(value);
  } else {
    json.Null();
  }
}

void WriteCopy(const CopyTimes& copy, const BenchOptions& options, JsonWriter& json) {
  json.Key("copy");
  if (copy.rank_bytes == 0) return json.Null();
  json.BeginObject();
  json.Field("rank_bytes", copy.rank_bytes);
  json.Field("own_us", copy.own_us);
  json.Field("own_gb_per_s", CopyGbPerSecond(copy, options.memory, options.ranks));
  WriteMeasured("to_next_rank_us", copy.link_us, json);
  WriteMeasured("to_next_rank_gb_per_s", LinkGbPerSecond(copy), json);
  WriteMeasured("alone_us", copy.alone_us, json);
  WriteMeasured("alone_gb_per_s", AloneGbPerSecond(copy), json);
  json.EndObject();
}

void WriteRing(const RingResult& ring, JsonWriter& json) {
  json.BeginObject();
  json.Field("outputs", ring.name);
  json.Field("pending", ring.pending);
  json.Field("dispatch_output_slots", ring.dispatch_output_slots);
  json.Field("expert_output_slots", ring.expert_output_slots);
  json.Field("output_bytes_per_rank", ring.output_bytes);
  json.Field("samples", ring.times.samples);
  json.Field("median_us", ring.times.median_us);
  json.Field("p25_us", ring.times.p25_us);
  json.Field("p75_us", ring.times.p75_us);
  json.Field("min_us", ring.times.min_us);
  json.Field("max_us", ring.times.max_us);
  json.EndObject();
}

void WriteOperation(const OperationResult& operation, JsonWriter& json) {
  const Spread& times = operation.times;
  json.BeginObject();
  json.Field("operation", operation.name);
  json.Field("samples", times.samples);
  json.Field("median_us", times.median_us);
  json.Field("p25_us", times.p25_us);
  json.Field("p75_us", times.p75_us);
  json.Field("min_us", times.min_us);
  json.Field("max_us", times.max_us);
  json.Field("mean_us", times.mean_us);
  json.Field("sd_us", times.sd_us);
  if (operation.bytes) {
    json.Field("total_bytes", operation.bytes->total_bytes);
    json.Field("max_local_bytes", operation.bytes->max_local_bytes);
    json.Field("max_link_bytes", operation.bytes->max_link_bytes);
    json.Field("max_rank_bytes", operation.bytes->max_rank_bytes);
    json.Field("floor_us", operation.floor->us);
    json.Field("floor_bound", operation.floor->bound);
    json.Field("floor_over_median", FloorOverMedian(operation));
  } else {
    for (const char* key : {"total_bytes", "max_local_bytes", "max_link_bytes", "max_rank_bytes",
                            "floor_us", "floor_bound", "floor_over_median"}) {
      json.Key(key);
      json.Null();
    }
  }
  json.EndObject();
}

// Null where no path but the ordinary one was measured.
void WriteChoice(const BenchResult& result, const ShapeResult& shape, JsonWriter& json) {
  const auto cell = PathCellOf(result, shape);
  json.Key("choice");
  if (!cell) return json.Null();
  const PathChoice choice = ChoiceOf(*cell);
  json.BeginObject();
  json.Field("path", PathName(choice.path));
  json.Field("reason", choice.reason);
  json.EndObject();
}

}  // namespace

std::string BenchText(const BenchResult& result) {
  std::string text = Heading(result);
  for (const ShapeResult& shape : result.shapes) {
    if (!shape.rings.empty()) {
      absl::StrAppend(&text, "\n", FormatBenchShape(shape.shape), "\n", RingTable(shape),
                      CheckLine(shape, result.options));
      continue;
    }
    absl::StrAppend(&text, "\n", FormatBenchShape(shape.shape), "\n",
                    OperationTable(shape, Shares(result.options)), CopyLine(shape, result.options),
                    WireLine(result.options, shape), CheckLine(shape, result.options),
                    ChoiceLine(result, shape));
  }
  return absl::StrCat(text, Footnotes(result.options));
}

std::string BenchJson(const BenchResult& result) {
  JsonWriter json;
  json.BeginObject();
  WriteOptions(result, json);
  json.Key("shapes");
  json.BeginArray();
  for (const ShapeResult& shape : result.shapes) {
    json.BeginObject();
    WriteShape(shape.shape, result.options.ranks, json);
    json.Field("home_imbalance", shape.home_imbalance);
    if (shape.rings.empty()) WriteCopy(shape.copy, result.options, json);
    WriteWire(result.options, shape, json);
    json.Key("operations");
    json.BeginArray();
    for (const OperationResult& operation : shape.operations) WriteOperation(operation, json);
    json.EndArray();
    if (!shape.rings.empty()) {
      json.Key("rings");
      json.BeginArray();
      for (const RingResult& ring : shape.rings) WriteRing(ring, json);
      json.EndArray();
    }
    json.Field("checked_tokens", shape.checked_tokens);
    json.Field("mismatched_elements", shape.mismatched_elements);
    WriteChoice(result, shape, json);
    json.EndObject();
  }
  json.EndArray();
  json.Field("result", result.passes() ? "PASS" : "FAIL");
  json.EndObject();
  return json.ToString();
}

}  // namespace perigee
