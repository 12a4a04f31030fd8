#include "client/cli/bench/path_programs.h"

#include "absl/strings/str_cat.h"
#include "client/cli/bench/bench_programs.h"
#include "client/cli/bench/program_builder.h"

namespace perigee {
namespace {

// Over the inputs in an iteration, back to back: each round has produced rows of its own.
constexpr int32_t kRounds = 2;
constexpr char kTarget[] = "target";
constexpr char kSource[] = "source";

std::string PlanOf(ProducerPath path, int32_t input) {
  return absl::StrCat("plan_", PathFigure(path), input);
}

std::string PullPlan(int32_t input) { return absl::StrCat("plan_pull", input); }

// One input's way. Where the program is ordered by waits, an operation waits for the one before it
// unless it says otherwise.
class PathBuilder {
 public:
  PathBuilder(ProducerPath path, ProgramBuilder& builder) : path_(path), builder_(builder) {
    builder.program().set_ordered_by_waits(path == ProducerPath::kDirectOverlapped);
  }

  v1::ProgramOperation* Add() {
    v1::ProgramOperation* const operation = builder_.Add();
    const int index = builder_.program().operations_size() - 1;
    if (builder_.program().ordered_by_waits() && index > 0) operation->add_waits_for(index - 1);
    return operation;
  }

  // Returns the index of the producer. `output`: of the producer, where it is not direct.
  int AddPath(int32_t input, const std::string& output) {
    if (path_ == ProducerPath::kOrdinary) {
      const int produces = AddProducer(input);
      builder_.program().mutable_operations(produces)->mutable_produce()->set_output(output);
      v1::DispatchOperation* dispatch = Add()->mutable_dispatch();
      dispatch->set_hidden(output);
      dispatch->set_topk_experts(BenchRoutes(input));
      dispatch->set_route_weights(BenchWeights(input));
      dispatch->set_plan(PlanOf(path_, input));
      return produces;
    }
    v1::PrepareDispatchOperation* prepare = Add()->mutable_prepare_dispatch();
    prepare->set_topk_experts(BenchRoutes(input));
    prepare->set_target(kTarget);
    const int planned = builder_.program().operations_size() - 1;
    if (path_ == ProducerPath::kDirectOverlapped) AddMetadata(input);
    const int produces = AddProducer(input);
    v1::ProgramOperation* producer = builder_.program().mutable_operations(produces);
    producer->mutable_produce()->set_target(kTarget);
    if (path_ == ProducerPath::kDirect) AddMetadata(input);
    v1::ProgramOperation* publishes = Add();
    publishes->mutable_publish()->set_target(kTarget);
    publishes->mutable_publish()->set_plan(PlanOf(path_, input));
    if (path_ == ProducerPath::kDirectOverlapped) {
      producer->set_waits_for(0, planned);
      publishes->add_waits_for(planned + 1);
    }
    return produces;
  }

  void AddPoison(int32_t input) {
    v1::DispatchOperation* dispatch = Add()->mutable_dispatch();
    dispatch->set_hidden(kBenchPoison);
    dispatch->set_topk_experts(BenchRoutes(input));
    dispatch->set_plan("plan_poison");
  }

  void AddCombine(int32_t input) {
    v1::CombineOperation* combine = Add()->mutable_combine();
    combine->set_plan(PlanOf(path_, input));
    combine->set_output(PathOutput(path_, input));
  }

 private:
  int AddProducer(int32_t input) {
    v1::ProduceOperation* produce = Add()->mutable_produce();
    produce->set_a(BenchFactor(input));
    produce->set_b(kBenchMatrix);
    return builder_.program().operations_size() - 1;
  }
  void AddMetadata(int32_t input) {
    v1::PreparePublicationOperation* prepare = Add()->mutable_prepare_publication();
    prepare->set_target(kTarget);
    prepare->set_route_weights(BenchWeights(input));
  }

  const ProducerPath path_;
  ProgramBuilder& builder_;
};

v1::PrepareSourceOperation* AddPull(ProgramBuilder& builder, int32_t input) {
  v1::PrepareSourceOperation* prepare = builder.Add()->mutable_prepare_source();
  prepare->set_topk_experts(BenchRoutes(input));
  prepare->set_source(kSource);
  v1::MaterialiseOperation* materialise = builder.Add()->mutable_materialise();
  materialise->set_source(kSource);
  materialise->set_plan(PullPlan(input));
  return prepare;
}

std::string ProducedName(int32_t index) { return absl::StrCat("produced", index); }

}  // namespace

const char* PathFigure(ProducerPath path) {
  switch (path) {
    case ProducerPath::kOrdinary:
      return "produce_dispatch";
    case ProducerPath::kDirect:
      return "direct";
    case ProducerPath::kDirectOverlapped:
      return "direct_overlapped";
  }
  return "";
}

std::string BenchFactor(int32_t input) { return absl::StrCat("factor", input); }

std::string PathOutput(ProducerPath path, int32_t input) {
  return absl::StrCat("output_", PathFigure(path), input);
}

BenchProgram ProducerProgram(ProducerPath path, int32_t inputs) {
  ProgramBuilder builder;
  PathBuilder paths(path, builder);
  for (int32_t input = 0; input < inputs; ++input) {
    paths.Add()->mutable_barrier();
    const int begin = builder.program().operations_size();
    const int produces = paths.AddPath(input, ProducedName(input));
    builder.Time(PathFigure(path), builder.program().operations_size() - begin);
    builder.TimeOne(path == ProducerPath::kOrdinary ? "produce" : "produce_direct", produces);
  }
  return builder.Take();
}

BackToBackProgram BackToBackProducer(ProducerPath path, int32_t inputs) {
  ProgramBuilder builder;
  PathBuilder paths(path, builder);
  const int32_t count = kRounds * inputs;
  for (int32_t i = 0; i < count; ++i) paths.AddPath(i % inputs, ProducedName(i));
  return {absl::StrCat(PathFigure(path), "_back_to_back"), builder.Take().program, count};
}

v1::Program ProducerCombineProgram(ProducerPath path, int32_t inputs) {
  ProgramBuilder builder;
  PathBuilder paths(path, builder);
  for (int32_t input = 0; input < inputs; ++input) {
    paths.AddPoison(input);
    paths.AddPath(input, ProducedName(input));
    paths.AddCombine(input);
  }
  return builder.Take().program;
}

std::string PullOutput(int32_t input) { return absl::StrCat("output_pull", input); }

BenchProgram PullProgram(int32_t inputs) {
  ProgramBuilder builder;
  for (int32_t input = 0; input < inputs; ++input) {
    builder.AddBarrier();
    AddPull(builder, input);
    builder.Time("pull", 2);
    builder.TimeOne("prepare_source", builder.program().operations_size() - 2);
    builder.TimeOne("materialise", builder.program().operations_size() - 1);
  }
  return builder.Take();
}

BackToBackProgram BackToBackPull(int32_t inputs) {
  ProgramBuilder builder;
  const int32_t count = kRounds * inputs;
  for (int32_t i = 0; i < count; ++i) AddPull(builder, i % inputs);
  return {"pull_back_to_back", builder.Take().program, count};
}

v1::Program PullCombineProgram(int32_t inputs) {
  ProgramBuilder builder;
  for (int32_t input = 0; input < inputs; ++input) {
    v1::PrepareSourceOperation* prepare = AddPull(builder, input);
    prepare->set_hidden(BenchHidden(input));
    prepare->set_route_weights(BenchWeights(input));
    v1::CombineOperation* combine = builder.Add()->mutable_combine();
    combine->set_plan(PullPlan(input));
    combine->set_output(PullOutput(input));
  }
  return builder.Take().program;
}

}  // namespace perigee
