#include "client/cli/bench/bench_session.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cli/bench/bench_data.h"
#include "client/cli/bench/bench_reference.h"
#include "client/cli/bench/bench_tensor.h"
#include "client/lib/path_selector.h"

namespace perigee {
namespace {

constexpr int64_t kCheckedTokens = 16;  // of each input, on rank 0
constexpr float kWeightScale = 0.02F;
// Tensors of a run, for DeriveSeed.
constexpr uint64_t kHiddenTensor = 0;
constexpr uint64_t kRouteWeightsTensor = 2000;
constexpr uint64_t kWeightsTensor = 3000;

// Sample by sample.
std::vector<int64_t> Difference(const std::vector<int64_t>& whole_ns,
                                const std::vector<int64_t>& part_ns) {
  std::vector<int64_t> difference_ns;
  for (size_t i = 0; i < whole_ns.size(); ++i) difference_ns.push_back(whole_ns[i] - part_ns[i]);
  return difference_ns;
}

}  // namespace

BenchSession::BenchSession(Client& client, const BenchOptions& options, std::stop_token stop)
    : client_(client), options_(options), stop_(std::move(stop)) {}

absl::Status BenchSession::Create() {
  auto group = client_.CreateGroup(
      {.ranks = options_.ranks, .backend = options_.backend, .transport = options_.transport});
  if (!group.ok()) return group.status();
  group_ = *std::move(group);
  const auto worker = client_.GetWorker(group_.members(0).worker());
  if (!worker.ok()) return worker.status();
  device_ = worker->device();
  return absl::OkStatus();
}

absl::Status BenchSession::Delete() {
  if (group_.name().empty()) return absl::OkStatus();
  const absl::Status status = client_.DeleteGroup(group_.name());
  return absl::IsNotFound(status) ? absl::OkStatus() : status;
}

absl::StatusOr<ShapeResult> BenchSession::Measure(const BenchShape& shape) {
  Bench bench;
  bench.shape = shape;
  bench.result.shape = shape;
  auto routes = BenchRouteInputs(options_.routes, shape, options_.ranks, options_.inputs);
  if (!routes.ok()) return routes.status();
  bench.routes = *std::move(routes);
  for (const std::vector<int32_t>& routes : bench.routes) {
    auto plan = PlanGroup(GeometryOf(shape, options_.ranks), routes, {});
    if (!plan.ok()) return plan.status();
    bench.plans.push_back(*std::move(plan));
  }

  bench.result.home_imbalance = 0;
  for (const std::vector<int32_t>& routes : bench.routes) {
    bench.result.home_imbalance += HomeImbalanceOf(routes, shape.experts, options_.ranks) /
                                   static_cast<double>(bench.routes.size());
  }
  if (options_.what == "rings") return MeasureRings(bench);
  absl::Status status = CreateBuffer(bench);
  if (!status.ok()) return status;
  RankTensors tensors(group_, bench.buffer, stop_);
  status = WriteInputs(bench, tensors);
  if (status.ok()) status = MeasureWanted(bench, tensors);
  if (!status.ok()) return status;
  if (status = client_.DeleteBuffer(bench.buffer); !status.ok()) return status;
  return std::move(bench.result);
}

absl::Status BenchSession::MeasureWanted(Bench& bench, RankTensors& tensors) {
  if (options_.what == "direct") return MeasureDirect(bench, tensors);
  if (options_.what == "pull") return MeasurePull(bench, tensors);
  return MeasureOperations(bench, tensors);
}

absl::Status BenchSession::MeasureOperations(Bench& bench, RankTensors& tensors) {
  const bool experts = WantsWeights(bench.shape);
  absl::Status status = MeasureCopy(bench);
  if (status.ok()) status = MeasureDispatch(bench);
  if (status.ok()) status = MeasureCombine(bench, tensors);
  if (status.ok() && options_.what == "staged") status = MeasureStaged(bench, tensors);
  if (status.ok() && experts) status = LoadWeights(bench, tensors);
  if (status.ok() && options_.what == "prefetch") status = MeasurePrefetch(bench);
  if (status.ok() && options_.what == "reduce") status = MeasureReduce(bench);
  if (status.ok() && experts && options_.wants("layer")) status = MeasureLayer(bench);
  return status;
}

absl::Status BenchSession::CreateBuffer(Bench& bench) {
  const BenchShape& shape = bench.shape;
  BufferOptions buffer;
  buffer.shape.set_tokens(shape.tokens);
  buffer.shape.set_hidden(shape.hidden);
  buffer.shape.set_topk(shape.topk);
  buffer.shape.set_experts(shape.experts);
  buffer.shape.set_slots(shape.slots_of(options_.ranks));
  buffer.shape.set_token_padding(shape.token_padding);
  buffer.shape.set_source_storage(options_.what == "pull");
  if (WantsWeights(shape)) {
    buffer.shape.set_intermediate(shape.intermediate);
    buffer.shape.set_layers(kBenchLayer + 1);
    buffer.shape.set_gradients(options_.what == "reduce");
  }
  buffer.shape.set_dispatch_output_slots(bench.dispatch_output_slots);
  buffer.shape.set_expert_output_slots(bench.expert_output_slots);
  buffer.sms = options_.sms;
  buffer.local_sms = options_.local_sms;
  buffer.programmatic_launch = options_.programmatic_launch;
  buffer.high_priority_stream = options_.high_priority_stream;
  const auto created = client_.CreateBuffer(group_.name(), buffer);
  if (!created.ok()) return created.status();
  bench.buffer = created->name();
  return absl::OkStatus();
}

bool BenchSession::WantsWeights(const BenchShape& shape) const {
  const bool wanted = options_.wants("layer") || options_.what == "prefetch" ||
                      options_.what == "reduce" || options_.what == "rings";
  return wanted && shape.intermediate > 0;
}

std::vector<BFloat16> BenchSession::Hidden(const Bench& bench, int32_t input, RankId rank,
                                           int64_t tokens) const {
  return RandomBFloat16(DeriveSeed(options_.seed, kHiddenTensor + input, rank.value),
                        static_cast<size_t>(tokens) * bench.shape.hidden, 1);
}

absl::Status BenchSession::WriteInputs(const Bench& bench, RankTensors& tensors) const {
  const int64_t tokens = bench.shape.tokens;
  const int64_t topk = bench.shape.topk;
  const size_t routes = static_cast<size_t>(tokens) * topk;
  return tensors.ForEachRank([&](RankId rank) {
    absl::Status status;
    for (int32_t input = 0; input < options_.inputs && status.ok(); ++input) {
      const std::vector<float> weights =
          RandomWeights(DeriveSeed(options_.seed, kRouteWeightsTensor + input, rank.value), routes);
      const absl::Span<const int32_t> all = bench.routes[input];
      // Of a producer's rows nobody writes any.
      if (options_.what != "direct") {
        const std::vector<BFloat16> hidden = Hidden(bench, input, rank, tokens);
        status = tensors.Write(
            rank, BenchHidden(input),
            View<BFloat16>(v1::TENSOR_DTYPE_BFLOAT16, {tokens, bench.shape.hidden}, hidden));
        if (!status.ok()) break;
      }
      status = tensors.Write(rank, BenchRoutes(input),
                             View<int32_t>(v1::TENSOR_DTYPE_INT32, {tokens, topk},
                                           all.subspan(rank.value * routes, routes)));
      if (!status.ok()) break;
      status = tensors.Write(rank, BenchWeights(input),
                             View<float>(v1::TENSOR_DTYPE_FLOAT32, {tokens, topk}, weights));
    }
    return status;
  });
}

// The three kinds of matrices have the same values: what they are does not matter here.
absl::Status BenchSession::LoadWeights(const Bench& bench, RankTensors& tensors) const {
  const BenchShape& shape = bench.shape;
  const std::vector<BFloat16> values = RandomBFloat16(
      DeriveSeed(options_.seed, kWeightsTensor, 0),
      static_cast<size_t>(shape.experts) * shape.hidden * shape.intermediate, kWeightScale);
  const TensorView in = View<BFloat16>(v1::TENSOR_DTYPE_BFLOAT16,
                                       {shape.experts, shape.hidden, shape.intermediate}, values);
  const TensorView out = View<BFloat16>(v1::TENSOR_DTYPE_BFLOAT16,
                                        {shape.experts, shape.intermediate, shape.hidden}, values);
  return tensors.LoadLayer(kBenchLayer, kBenchWeightsVersion, {in, in, out});
}

absl::StatusOr<ProgramMonitor> BenchSession::Run(const Bench& bench, const v1::Program& program) {
  ProgramMonitor monitor(options_.ranks);
  absl::Status status = client_.ExecuteProgram(
      bench.buffer, Generation(group_.generation()), program,
      [&](const v1::ExecuteProgramResponse& message) { monitor.Update(message); });
  if (!status.ok()) return status;
  return monitor;
}

absl::StatusOr<std::vector<std::vector<int64_t>>> BenchSession::Execute(const Bench& bench,
                                                                        const BenchProgram& program,
                                                                        int32_t warmup,
                                                                        int32_t iterations) {
  v1::Program run = program.program;
  run.set_iterations(warmup + iterations);
  run.set_keep_durations(true);
  const auto monitor = Run(bench, run);
  if (!monitor.ok()) return monitor.status();
  std::vector<std::vector<int64_t>> times_ns;
  for (const TimedOperation& timed : program.timed) {
    const auto ranks_ns = TimesOf(timed, monitor->timings(), warmup, iterations);
    if (!ranks_ns.ok()) return ranks_ns.status();
    times_ns.push_back(SlowestOfRanks(*ranks_ns));
  }
  return times_ns;
}

absl::StatusOr<std::vector<int64_t>> BenchSession::Execute(const Bench& bench,
                                                           const BackToBackProgram& program) {
  v1::Program run = program.program;
  run.set_iterations(options_.warmup + options_.iterations);
  run.set_time_iterations(true);
  const auto monitor = Run(bench, run);
  if (!monitor.ok()) return monitor.status();
  const auto ranks_ns =
      TimesOf(program, monitor->iterations_ns(), options_.warmup, options_.iterations);
  if (!ranks_ns.ok()) return ranks_ns.status();
  return SlowestOfRanks(*ranks_ns);
}

void BenchSession::Add(Bench& bench, const std::string& name, const std::vector<int64_t>& times_ns,
                       absl::optional<MovedBytes> bytes) const {
  OperationResult operation{name, SpreadOf(times_ns), bytes, absl::nullopt};
  if (bytes) operation.floor = FloorOf(*bytes, bench.result.copy, options_.memory, options_.ranks);
  bench.result.operations.push_back(std::move(operation));
}

absl::Status BenchSession::MeasureCopy(Bench& bench) {
  CopyTimes& copy = bench.result.copy;
  copy.rank_bytes = bench.plan().geometry().logical_rows() / 2 * bench.shape.row_bytes();
  auto times_ns = Execute(bench, CopyProgram(/*to_next_rank=*/false));
  if (!times_ns.ok()) return times_ns.status();
  copy.own_us = SpreadOf((*times_ns)[0]).median_us;
  if (options_.ranks == 1) return absl::OkStatus();
  times_ns = Execute(bench, CopyProgram(/*to_next_rank=*/true));
  if (!times_ns.ok()) return times_ns.status();
  copy.link_us = SpreadOf((*times_ns)[0]).median_us;
  if (options_.memory == RankMemory::kOneForEach) return absl::OkStatus();
  times_ns = Execute(bench, CopyAloneProgram());
  if (!times_ns.ok()) return times_ns.status();
  copy.alone_us = SpreadOf((*times_ns)[0]).median_us;
  return absl::OkStatus();
}

absl::Status BenchSession::MeasureDispatch(Bench& bench) {
  const BenchProgram plans = DispatchProgram(options_.inputs);
  if (!options_.wants("dispatch") && !options_.wants("plan")) {
    return Execute(bench, plans, 0, 1).status();  // the plans are needed
  }
  const auto with_planning = Execute(bench, plans);
  if (!with_planning.ok()) return with_planning.status();
  const auto by_saved_plan = Execute(bench, SavedPlanProgram(options_.inputs));
  if (!by_saved_plan.ok()) return by_saved_plan.status();
  const std::vector<int64_t>& planned_ns = (*with_planning)[0];
  const std::vector<int64_t>& saved_ns = (*by_saved_plan)[0];
  if (options_.wants("plan")) {
    Add(bench, "plan", Difference(planned_ns, saved_ns), absl::nullopt);
  }
  const MovedBytes bytes = DispatchBytes(bench.plan(), bench.shape.row_bytes());
  Add(bench, "dispatch", planned_ns, bytes);
  Add(bench, "dispatch_saved_plan", saved_ns, bytes);
  return MeasureDispatchBackToBack(bench);
}

absl::Status BenchSession::MeasureDispatchBackToBack(Bench& bench) {
  const BackToBackProgram program = BackToBackDispatch(options_.inputs);
  const auto planned_ns = Execute(bench, program);
  if (!planned_ns.ok()) return planned_ns.status();
  Add(bench, program.name, *planned_ns, DispatchBytes(bench.plan(), bench.shape.row_bytes()));
  absl::Status status = MeasureSavedPlanBackToBack(bench);
  if (!status.ok() || !options_.wants("plan")) return status;
  Add(bench, "plan_back_to_back", Difference(*planned_ns, bench.saved_plan_back_to_back_ns),
      absl::nullopt);
  return absl::OkStatus();
}

absl::Status BenchSession::MeasureSavedPlanBackToBack(Bench& bench) {
  const BackToBackProgram program = BackToBackSavedPlan(options_.inputs);
  auto times_ns = Execute(bench, program);
  if (!times_ns.ok()) return times_ns.status();
  Add(bench, program.name, *times_ns, DispatchBytes(bench.plan(), bench.shape.row_bytes()));
  bench.saved_plan_back_to_back_ns = *std::move(times_ns);
  return absl::OkStatus();
}

absl::Status BenchSession::MeasureCombine(Bench& bench, RankTensors& tensors) {
  const BenchProgram program = CombineProgram(options_.inputs);
  const bool wanted = options_.wants("combine");
  const auto times_ns = wanted ? Execute(bench, program) : Execute(bench, program, 0, 1);
  if (!times_ns.ok()) return times_ns.status();
  absl::Status status = CheckOutputs(bench, tensors);
  if (!status.ok() || !wanted) return status;
  Add(bench, "combine", (*times_ns)[0], CombineBytes(bench.plan(), bench.shape.row_bytes()));
  status = MeasureStepBackToBack(bench);
  return status.ok() ? CheckOutputs(bench, tensors) : status;
}

absl::Status BenchSession::MeasureStepBackToBack(Bench& bench) {
  if (bench.saved_plan_back_to_back_ns.empty()) {
    if (absl::Status status = MeasureSavedPlanBackToBack(bench); !status.ok()) return status;
  }
  const BackToBackProgram program = BackToBackStep(options_.inputs);
  const auto step_ns = Execute(bench, program);
  if (!step_ns.ok()) return step_ns.status();
  Add(bench, program.name, *step_ns, StepBytes(bench.plan(), bench.shape.row_bytes()));
  Add(bench, "combine_back_to_back", Difference(*step_ns, bench.saved_plan_back_to_back_ns),
      CombineBytes(bench.plan(), bench.shape.row_bytes()));
  return absl::OkStatus();
}

absl::Status BenchSession::MeasureStaged(Bench& bench, RankTensors& tensors) {
  const auto times_ns = Execute(bench, StagedProgram());
  if (!times_ns.ok()) return times_ns.status();
  const int64_t row_bytes = bench.shape.row_bytes();
  Add(bench, "dispatch_staged", (*times_ns)[0], StagedDispatchBytes(bench.plan(), row_bytes));
  Add(bench, "combine_staged", (*times_ns)[1], StagedCombineBytes(bench.plan(), row_bytes));
  return CheckOutputs(bench, tensors);
}

// Of rank 0, what the last iteration left.
absl::Status BenchSession::CheckOutputs(Bench& bench, RankTensors& tensors) const {
  const BenchShape& shape = bench.shape;
  const int64_t tokens = std::min<int64_t>(kCheckedTokens, shape.tokens);
  for (int32_t input = 0; input < options_.inputs; ++input) {
    const auto output = tensors.Read(RankId(0), BenchOutput(input));
    if (!output.ok()) return output.status();
    const std::vector<int64_t> expected = {shape.tokens, shape.hidden};
    if (output->dtype != v1::TENSOR_DTYPE_BFLOAT16 || output->shape != expected) {
      return absl::InternalError(
          absl::StrCat("the output of rank 0 is ", DescribeTensor(output->dtype, output->shape)));
    }
    const absl::Span<const BFloat16> combined(
        reinterpret_cast<const BFloat16*>(output->data.data()),
        output->data.size() / sizeof(BFloat16));
    bench.result.checked_tokens += tokens;
    bench.result.mismatched_elements += CountMismatches(
        Hidden(bench, input, RankId(0), tokens), bench.plans[input].dst_of(RankId(0)), combined,
        shape.hidden, shape.topk, bench.plan().geometry().logical_rows());
  }
  return absl::OkStatus();
}

}  // namespace perigee
