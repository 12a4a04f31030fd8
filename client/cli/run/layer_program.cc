#include "client/cli/run/layer_program.h"

namespace perigee {
namespace {

constexpr const char* kPlan = "plan";
constexpr const char* kTarget = "target";
constexpr const char* kSource = "source";

void AddDispatch(v1::Program& program) {
  auto* dispatch = program.add_operations()->mutable_dispatch();
  dispatch->set_hidden(kHiddenTensor);
  dispatch->set_topk_experts(kTopkExpertsTensor);
  dispatch->set_route_weights(kRouteWeightsTensor);
  dispatch->set_plan(kPlan);
}

// overlapped: all that is not rows is sent beside them, in a program that is ordered by waits.
void AddPublication(v1::Program& program, bool overlapped) {
  auto* prepare = program.add_operations()->mutable_prepare_dispatch();
  prepare->set_topk_experts(kTopkExpertsTensor);
  prepare->set_target(kTarget);
  auto* metadata = program.add_operations()->mutable_prepare_publication();
  metadata->set_target(kTarget);
  metadata->set_route_weights(kRouteWeightsTensor);
  auto* store = program.add_operations()->mutable_store_rows();
  store->set_target(kTarget);
  store->set_hidden(kHiddenTensor);
  auto* publish = program.add_operations()->mutable_publish();
  publish->set_target(kTarget);
  publish->set_plan(kPlan);
  if (!overlapped) return;
  program.mutable_operations(1)->add_waits_for(0);
  program.mutable_operations(2)->add_waits_for(0);
  program.mutable_operations(3)->add_waits_for(1);
  program.mutable_operations(3)->add_waits_for(2);
}

void AddSource(v1::Program& program) {
  auto* prepare = program.add_operations()->mutable_prepare_source();
  prepare->set_topk_experts(kTopkExpertsTensor);
  prepare->set_hidden(kHiddenTensor);
  prepare->set_route_weights(kRouteWeightsTensor);
  prepare->set_source(kSource);
  auto* materialise = program.add_operations()->mutable_materialise();
  materialise->set_source(kSource);
  materialise->set_plan(kPlan);
}

void AddRows(v1::Program& program, DispatchPath path) {
  switch (path) {
    case DispatchPath::kOrdinary:
      return AddDispatch(program);
    case DispatchPath::kDirect:
    case DispatchPath::kDirectOverlapped:
      return AddPublication(program, path == DispatchPath::kDirectOverlapped);
    case DispatchPath::kPull:
      return AddSource(program);
  }
}

// Orders the program by waits, from `first` on by the list.
void WaitInOrder(v1::Program& program, int first) {
  program.set_ordered_by_waits(true);
  for (int index = first; index < program.operations_size(); ++index) {
    program.mutable_operations(index)->add_waits_for(index - 1);
  }
}

}  // namespace

v1::Program LayerProgram(int32_t layer, uint64_t weights_version, int32_t iterations,
                         DispatchPath path) {
  v1::Program program;
  program.set_iterations(iterations);
  AddRows(program, path);
  const int rows = program.operations_size();
  auto* prefetch = program.add_operations()->mutable_prefetch_weights();
  prefetch->set_plan(kPlan);
  prefetch->set_layer(layer);
  prefetch->set_weights_version(weights_version);
  auto* experts = program.add_operations()->mutable_run_experts();
  experts->set_plan(kPlan);
  experts->set_layer(layer);
  experts->set_weights_version(weights_version);
  experts->set_apply_route_weights(true);
  auto* combine = program.add_operations()->mutable_combine();
  combine->set_plan(kPlan);
  combine->set_output(kOutputTensor);
  // Whatever waits for the one before it begins no earlier than it does in a list, but for a
  // prefetch behind the dispatch that makes its plan: that one begins beside the movement of the
  // rows.
  if (path == DispatchPath::kOrdinary || path == DispatchPath::kDirectOverlapped) {
    WaitInOrder(program, rows);
  }
  return program;
}

}  // namespace perigee
