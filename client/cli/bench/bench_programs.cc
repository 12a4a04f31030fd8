#include "client/cli/bench/bench_programs.h"

#include <cstddef>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "client/cli/bench/program_builder.h"

namespace perigee {
namespace {

// Over the inputs in an iteration, back to back.
constexpr int32_t kRounds = 4;
constexpr int32_t kStepRounds = kRounds / 2;  // of two operations

std::string PlanName(int32_t input) { return absl::StrCat("plan", input); }

class Builder : public ProgramBuilder {
 public:
  v1::DispatchOperation* AddDispatch(int32_t input, bool saved) {
    v1::DispatchOperation* dispatch = Add()->mutable_dispatch();
    dispatch->set_hidden(BenchHidden(input));
    dispatch->set_route_weights(BenchWeights(input));
    if (saved) {
      dispatch->set_saved_plan(PlanName(input));
    } else {
      dispatch->set_topk_experts(BenchRoutes(input));
      dispatch->set_plan(PlanName(input));
    }
    return dispatch;
  }
  v1::CombineOperation* AddCombine(int32_t input, const std::string& output) {
    v1::CombineOperation* combine = Add()->mutable_combine();
    combine->set_plan(PlanName(input));
    combine->set_output(output);
    return combine;
  }
};

BackToBackProgram RoundsOfDispatch(const std::string& name, int32_t inputs, bool saved) {
  Builder builder;
  const int32_t count = kRounds * inputs;
  for (int32_t i = 0; i < count; ++i) builder.AddDispatch(i % inputs, saved);
  return {name, builder.Take().program, count};
}

void AddPrefetch(Builder& builder, int32_t input) {
  v1::PrefetchWeightsOperation* prefetch = builder.Add()->mutable_prefetch_weights();
  prefetch->set_plan(PlanName(input));
  prefetch->set_layer(kBenchLayer);
  prefetch->set_weights_version(kBenchWeightsVersion);
}

v1::RunExpertsOperation* AddExperts(Builder& builder, int32_t input) {
  AddPrefetch(builder, input);
  builder.Time("prefetch_weights");
  v1::RunExpertsOperation* experts = builder.Add()->mutable_run_experts();
  experts->set_plan(PlanName(input));
  experts->set_layer(kBenchLayer);
  experts->set_weights_version(kBenchWeightsVersion);
  experts->set_apply_route_weights(true);
  builder.Time("run_experts");
  return experts;
}

}  // namespace

std::string BenchHidden(int32_t input) { return absl::StrCat("hidden", input); }
std::string BenchRoutes(int32_t input) { return absl::StrCat("topk_experts", input); }
std::string BenchWeights(int32_t input) { return absl::StrCat("route_weights", input); }
std::string BenchOutput(int32_t input) { return absl::StrCat("output", input); }

BenchProgram DispatchProgram(int32_t inputs) {
  Builder builder;
  for (int32_t input = 0; input < inputs; ++input) {
    builder.AddBarrier();
    builder.AddDispatch(input, /*saved=*/false);
    builder.Time("dispatch");
  }
  return builder.Take();
}

BenchProgram SavedPlanProgram(int32_t inputs) {
  Builder builder;
  for (int32_t input = 0; input < inputs; ++input) {
    builder.AddBarrier();
    builder.AddDispatch(input, /*saved=*/true);
    builder.Time("dispatch_saved_plan");
  }
  return builder.Take();
}

BenchProgram CombineProgram(int32_t inputs) {
  Builder builder;
  for (int32_t input = 0; input < inputs; ++input) {
    builder.AddDispatch(input, /*saved=*/true);
    builder.AddBarrier();
    builder.AddCombine(input, BenchOutput(input));
    builder.Time("combine");
  }
  return builder.Take();
}

BenchProgram StagedProgram() {
  Builder builder;
  const std::string rows = "staged_rows";
  builder.AddBarrier();
  builder.AddDispatch(0, /*saved=*/false)->set_rows_output(rows);
  builder.Time("dispatch_staged");
  builder.AddBarrier();
  builder.AddCombine(0, BenchOutput(0))->set_rows(rows);
  builder.Time("combine_staged");
  return builder.Take();
}

BenchProgram BenchLayerProgram(int32_t inputs) {
  Builder builder;
  for (int32_t input = 0; input < inputs; ++input) {
    builder.AddBarrier();
    builder.AddDispatch(input, /*saved=*/false);
    AddExperts(builder, input);
    builder.AddCombine(input, BenchOutput(input));
    builder.Time("layer", 4);
  }
  return builder.Take();
}

BenchProgram PrefetchProgram(int32_t inputs) {
  Builder builder;
  for (int32_t input = 0; input < inputs; ++input) {
    builder.AddBarrier();
    AddPrefetch(builder, input);
    builder.Time("prefetch_weights");
    builder.AddBarrier();
    builder.AddDispatch(input, /*saved=*/false);
    AddPrefetch(builder, input);
    builder.Time("dispatch_and_prefetch", 2);
  }
  return builder.Take();
}

BenchProgram BesideProgram(int32_t inputs) {
  Builder builder;
  for (int32_t input = 0; input < inputs; ++input) {
    builder.AddBarrier();
    builder.AddDispatch(input, /*saved=*/false);
    AddPrefetch(builder, input);
    builder.Time("dispatch_beside_prefetch", 2);
  }
  BenchProgram built = builder.Take();
  built.program.set_ordered_by_waits(true);
  for (int i = 1; i < built.program.operations_size(); ++i) {
    built.program.mutable_operations(i)->add_waits_for(i - 1);
  }
  return built;
}

BenchProgram ReduceProgram(int32_t inputs) {
  Builder builder;
  for (int32_t input = 0; input < inputs; ++input) {
    builder.AddBarrier();
    v1::ReduceGradientsOperation* reduce = builder.Add()->mutable_reduce_gradients();
    reduce->set_plan(PlanName(input));
    reduce->set_layer(kBenchLayer);
    builder.Time("reduce_gradients");
  }
  return builder.Take();
}

BenchProgram CopyProgram(bool to_next_rank) {
  Builder builder;
  builder.AddBarrier();
  builder.Add()->mutable_probe_copy()->set_to_next_rank(to_next_rank);
  builder.Time("probe_copy");
  return builder.Take();
}

BenchProgram CopyAloneProgram() {
  BenchProgram program = CopyProgram(/*to_next_rank=*/false);
  program.program.mutable_operations(1)->mutable_probe_copy()->set_alone(true);
  return program;
}

BackToBackProgram BackToBackDispatch(int32_t inputs) {
  return RoundsOfDispatch("dispatch_back_to_back", inputs, /*saved=*/false);
}

BackToBackProgram BackToBackSavedPlan(int32_t inputs) {
  return RoundsOfDispatch("dispatch_saved_plan_back_to_back", inputs, /*saved=*/true);
}

BackToBackProgram BackToBackPrefetch(int32_t inputs) {
  Builder builder;
  const int32_t count = kRounds * inputs;
  for (int32_t i = 0; i < count; ++i) AddPrefetch(builder, i % inputs);
  return {"prefetch_weights_back_to_back", builder.Take().program, count};
}

BackToBackProgram BackToBackCopies(const std::vector<std::vector<int64_t>>& rows) {
  Builder builder;
  const int32_t count = kRounds * static_cast<int32_t>(rows.size());
  for (int32_t i = 0; i < count; ++i) {
    builder.AddBarrier();
    v1::ProbeCopyOperation* copy = builder.Add()->mutable_probe_copy();
    for (const int64_t of_rank : rows[i % rows.size()]) copy->add_rows(of_rank);
  }
  return {"copy_back_to_back", builder.Take().program, count};
}

BackToBackProgram BackToBackBarriers(int32_t inputs) {
  Builder builder;
  for (int32_t i = 0; i < kRounds * inputs; ++i) builder.AddBarrier();
  return {"barrier_back_to_back", builder.Take().program, kRounds * inputs};
}

BackToBackProgram BackToBackStep(int32_t inputs) {
  Builder builder;
  const int32_t count = kStepRounds * inputs;
  for (int32_t i = 0; i < count; ++i) {
    builder.AddDispatch(i % inputs, /*saved=*/true);
    builder.AddCombine(i % inputs, BenchOutput(i));  // two combines have not one output
  }
  return {"step_back_to_back", builder.Take().program, count};
}

BackToBackProgram MicroBatchProgram(const std::string& name, const MicroBatches& batches) {
  Builder builder;
  const auto dispatch = [&](int32_t i) {
    v1::DispatchOperation* added = builder.AddDispatch(i % batches.inputs, /*saved=*/false);
    added->set_plan(PlanName(i));
    if (batches.slots) added->set_slot(absl::StrCat("dispatched", i));
  };
  const auto finish = [&](int32_t i) {
    v1::RunExpertsOperation* experts = AddExperts(builder, i);
    if (batches.slots) experts->set_slot(absl::StrCat("dispatched", i));
    if (batches.expert_slots) experts->set_output_slot(absl::StrCat("computed", i));
    v1::CombineOperation* combine = builder.AddCombine(i, BenchOutput(i));
    if (batches.expert_slots) combine->set_slot(absl::StrCat("computed", i));
  };
  for (int32_t i = 0; i < batches.count + batches.pending; ++i) {
    if (i < batches.count) dispatch(i);
    if (i >= batches.pending) finish(i - batches.pending);
  }
  return {name, builder.Take().program, batches.count};
}

absl::StatusOr<std::vector<std::vector<int64_t>>> TimesOf(
    const TimedOperation& operation, const std::vector<std::vector<v1::OperationTiming>>& timings,
    int32_t warmup, int32_t iterations) {
  std::vector<std::vector<int64_t>> times_ns(timings.size());
  for (size_t rank = 0; rank < timings.size(); ++rank) {
    for (int32_t iteration = warmup; iteration < warmup + iterations; ++iteration) {
      for (const std::vector<int>& indexes : operation.operations) {
        int64_t sum_ns = 0;
        for (int index : indexes) {
          if (index >= static_cast<int>(timings[rank].size()) ||
              iteration >= timings[rank][index].duration_ns_size()) {
            return absl::InternalError(absl::StrCat("rank ", rank, " reports no time of ",
                                                    operation.name, " in iteration ", iteration + 1,
                                                    " of ", warmup + iterations));
          }
          sum_ns += timings[rank][index].duration_ns(iteration);
        }
        times_ns[rank].push_back(sum_ns);
      }
    }
  }
  return times_ns;
}

absl::StatusOr<std::vector<std::vector<int64_t>>> TimesOf(
    const BackToBackProgram& program, const std::vector<std::vector<int64_t>>& ranks_ns,
    int32_t warmup, int32_t iterations) {
  std::vector<std::vector<int64_t>> times_ns(ranks_ns.size());
  for (size_t rank = 0; rank < ranks_ns.size(); ++rank) {
    const std::vector<int64_t>& rank_ns = ranks_ns[rank];
    if (rank_ns.size() < static_cast<size_t>(warmup) + iterations) {
      return absl::InternalError(absl::StrCat("rank ", rank, " reports ", rank_ns.size(),
                                              " iterations of ", program.name, ", expected ",
                                              warmup + iterations));
    }
    for (int32_t i = warmup; i < warmup + iterations; ++i) {
      times_ns[rank].push_back(rank_ns[i] / program.count);
    }
  }
  return times_ns;
}

}  // namespace perigee
