#include "client/cli/bench/bench_flags.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cli/bench/bench_data.h"
#include "client/cli/cluster/backend_flags.h"
#include "client/cli/coordinator_address.h"
#include "proto/support/defaults.h"
#include "proto/support/random.h"

namespace perigee {
namespace {

const std::vector<std::string>& Choices() {
  static const auto& choices =
      *new std::vector<std::string>{"plan",     "dispatch", "wire",   "combine", "staged", "layer",
                                    "prefetch", "reduce",   "direct", "pull",    "rings",  "all"};
  return choices;
}

bool MeasuresPaths(const std::string& what) {
  return what == "direct" || what == "pull" || what == "dispatch" || what == "all";
}

// Of wire, which has routes of its own.
std::string WireConflict(const FlagSet& flags, const BenchFlags& given) {
  if (given.solo || given.cluster.ranks < 2) return "wire needs a link, expected 2 ranks or more";
  for (const char* name : {"trace", "skew"}) {
    if (flags.given(name)) {
      return absl::StrCat("--", name, " is not for wire, whose routes all lead to other ranks");
    }
  }
  return "";
}

// Flags that cannot be given together; empty: they can.
std::string Conflict(const FlagSet& flags, const BenchFlags& given, const std::string& address) {
  for (const char* name : {"threads", "memory-handle"}) {
    if (!address.empty() && flags.given(name)) {
      return absl::StrCat("--", name, " is for a cluster of its own, not for one at an address");
    }
  }
  for (const char* name : {"micro-batches", "output-slots"}) {
    if (given.what != "rings" && flags.given(name))
      return absl::StrCat("--", name, " is for rings");
  }
  if (given.what == "rings" && given.transport == "nccl") {
    return "rings are for --transport nvlink, and the transport is nccl";
  }
  if (flags.given("layer") && given.trace.empty()) return "--layer is for --trace";
  if (given.skew && !given.trace.empty()) return "--skew is for random routes, not for --trace";
  if (flags.given("calibrate") && given.calibrate.empty()) {
    return "--calibrate is empty, expected a file";
  }
  if (flags.given("calibrate") && !MeasuresPaths(given.what)) {
    return absl::StrCat("--calibrate is for direct, pull, dispatch and all, not for ", given.what);
  }
  if (flags.given("depth") && given.what != "direct") return "--depth is for direct";
  if (given.depth % 8 != 0) {
    return absl::StrCat("--depth is ", given.depth, ", expected a multiple of 8");
  }
  if ((given.what == "direct" || given.what == "pull") && given.transport == "nccl") {
    return absl::StrCat(given.what,
                        " needs ranks that reach each other's memory, expected --transport nvlink");
  }
  if (given.what == "wire") {
    std::string conflict = WireConflict(flags, given);
    if (!conflict.empty()) return conflict;
  }
  if (flags.given("trace") && given.trace.empty()) return "--trace is empty, expected a file";
  for (const char* name : {"sms", "local-sms", "no-programmatic-launch", "high-priority"}) {
    if (given.cluster.backend != "cuda" && flags.given(name)) {
      return absl::StrCat("--", name, " is for --backend cuda, and the backend is ",
                          given.cluster.backend);
    }
  }
  return BackendFlagsConflict(flags, given.cluster, given.transport);
}

absl::StatusOr<BenchShape> CheckedShape(const std::string& text, const BenchOptions& options) {
  const auto annotated = [&text](const absl::Status& status) {
    return absl::InvalidArgumentError(absl::StrCat("--shape ", text, ": ", status.message()));
  };
  absl::StatusOr<BenchShape> shape = ParseBenchShape(text);
  if (!shape.ok()) return annotated(shape.status());
  if (absl::Status status = CheckBenchShape(*shape, options.ranks); !status.ok()) {
    return annotated(status);
  }
  const bool needs_experts = options.what == "layer" || options.what == "prefetch" ||
                             options.what == "reduce" || options.what == "rings";
  if (needs_experts && shape->intermediate == 0) {
    return annotated(absl::InvalidArgumentError(absl::StrCat(
        options.what, " needs experts, expected their inner size in the shape, such as I1024")));
  }
  if (options.what == "wire" && (shape->topk != 1 || shape->token_padding != 1)) {
    return annotated(absl::InvalidArgumentError(
        "wire is of dispatches with the least local work, expected K1 and P1"));
  }
  if (options.what == "reduce" && shape->slots_of(options.ranks) < shape->experts / options.ranks) {
    return annotated(absl::InvalidArgumentError(
        absl::StrCat("reduce needs a slot for each remote expert, expected B",
                     shape->experts / options.ranks, " or more")));
  }
  return shape;
}

}  // namespace

void DeclareBenchFlags(FlagSet& flags, BenchFlags& given) {
  flags.Positional("WHAT", absl::StrJoin(Choices(), ", "), &given.what);
  flags.RequiredList("shape", "S4096,H7168,K8,E256[,P128][,B32][,I1024]",
                     "tokens of a rank, elements of a row, routes of a token, experts, token "
                     "padding, slots of a rank, inner size of an expert; may be given repeatedly",
                     &given.shapes);
  flags.Optional("ranks", "R", "ranks of the group, and workers of its own cluster",
                 &given.cluster.ranks, 1, 128);
  flags.Boolean("solo", "a group of one rank: what operations cost where nobody is waited for",
                &given.solo);
  DeclareBackendFlags(flags, given.cluster);
  DeclareTransportFlag(flags, given.transport);
  flags.Optional("trace", "FILE", "routes from a file, as 'perigee plan' reads it; else random",
                 &given.trace);
  flags.Optional("layer", "L", "the file's topk_experts is [layers, tokens, K]: take this layer",
                 &given.layer, 0);
  flags.Optional("skew", "SIGMA",
                 "random routes to experts of lognormal popularity; 0: all equally popular",
                 &given.skew, 0, kMostSkew);
  flags.Optional("depth", "C", "direct: inner size of the producer's product", &given.depth, 8,
                 65536);
  flags.Optional("sms", "N", "backend cuda: SMs of kernels that reach other ranks; 0: the default",
                 &given.sms, 0);
  flags.Optional("local-sms", "N", "backend cuda: SMs of kernels that do not; 0: all",
                 &given.local_sms, 0);
  flags.Boolean("no-programmatic-launch",
                "backend cuda: without programmatic dependent launch of an operation's kernels",
                &given.no_programmatic_launch);
  flags.Boolean("high-priority", "backend cuda: on a stream of high priority",
                &given.high_priority);
  flags.Optional("iterations", "I", "how often each operation is measured with each input",
                 &given.iterations, 1, 1000);
  flags.Optional("warmup", "W", "iterations before those, not measured", &given.warmup, 0, 1000);
  flags.Optional("inputs", "N", "inputs that take turns", &given.inputs, 1, 8);
  flags.Optional("micro-batches", "M", "rings: layers in a row", &given.micro_batches, 1, 64);
  flags.Optional("output-slots", "N", "rings: dispatch-output slots that are used in turn",
                 &given.output_slots, 1, 64);
  flags.Optional("seed", "N", "of inputs and random routes; without it a random one", &given.seed,
                 0);
  flags.Optional("threads", "T", "threads of each worker of its own cluster",
                 &given.cluster.threads, 1, 1024);
  flags.Optional("address", "HOST:PORT",
                 absl::StrCat("coordinator to use; without it ", kAddressVariable,
                              ", without both a cluster of its own"),
                 &given.address);
  flags.Optional(
      "calibrate", "FILE",
      "keep what direct, pull, dispatch or all measure in a table of paths' costs, made where "
      "there is none",
      &given.calibrate);
  flags.Boolean("json", "print the result as JSON (keys: docs/cli.md)", &given.json);
}

absl::StatusOr<BenchRequest> ParseBenchRequest(const FlagSet& flags, const BenchFlags& given,
                                               const std::string& address) {
  if (std::find(Choices().begin(), Choices().end(), given.what) == Choices().end()) {
    return absl::InvalidArgumentError(absl::StrCat("WHAT is '", given.what.substr(0, 80),
                                                   "', expected ", absl::StrJoin(Choices(), "|")));
  }
  const std::string conflict = Conflict(flags, given, address);
  if (!conflict.empty()) return absl::InvalidArgumentError(conflict);
  BenchRequest request;
  BenchOptions& options = request.options;
  options.what = given.what;
  options.ranks = given.solo ? 1 : given.cluster.ranks;
  options.backend = given.cluster.backend;
  options.transport = given.transport;
  options.memory = options.backend == "host" || given.cluster.shared_gpu ? RankMemory::kOneForAll
                                                                         : RankMemory::kOneForEach;
  options.sms = given.sms;
  options.local_sms = given.local_sms;
  options.programmatic_launch = !given.no_programmatic_launch;
  options.high_priority_stream = given.high_priority;
  options.iterations = given.iterations;
  options.warmup = given.warmup;
  options.inputs = given.inputs;
  options.micro_batches = given.micro_batches;
  options.output_slots = given.output_slots;
  options.seed = given.seed ? *given.seed : RandomUint64() % (uint64_t{1} << 31);
  options.depth = given.depth;
  options.routes = {given.trace, given.layer, options.seed, given.skew, given.what == "wire"};
  for (const std::string& text : given.shapes) {
    absl::StatusOr<BenchShape> shape = CheckedShape(text, options);
    if (!shape.ok()) return shape.status();
    request.shapes.push_back(*shape);
  }
  return request;
}

}  // namespace perigee
