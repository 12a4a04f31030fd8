#include "worker/ops/operation_launcher.h"

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/common/check.h"
#include "worker/ops/failure_reason.h"
#include "worker/ops/operation_arguments.h"
#include "worker/ops/plan_summary.h"
#include "worker/ops/program_check.h"

namespace perigee {
namespace {

// The names that are given.
std::vector<std::string> Named(std::initializer_list<std::string> names) {
  std::vector<std::string> named;
  for (const std::string& name : names) {
    if (!name.empty()) named.push_back(name);
  }
  return named;
}

std::string EndedEarly(absl::string_view operation, Sequence sequence) {
  return absl::StrCat("the ", operation, " of sequence ", sequence.value, " ended early");
}

bool WritesShard(const v1::ProgramOperation& operation) {
  const bool dispatches = operation.has_dispatch() && operation.dispatch().slot().empty();
  return dispatches || operation.has_combine() || operation.has_prepare_dispatch() ||
         operation.has_publish() || operation.has_materialise();
}

}  // namespace

// As many rows as what they are produced from, where that is sound; if not, the operation is
// refused.
TensorSpec OperationLauncher::SpecOf(const v1::Program& program, const OutputTensor& output) const {
  if (!output.readable_after) return output.spec;
  const v1::ProgramOperation& operation = program.operations(*output.readable_after);
  if (!operation.has_produce()) return output.spec;
  absl::StatusOr<std::shared_ptr<StoredTensor>> a = site_.tensors.Find(operation.produce().a());
  // What an operation before it writes is taken already.
  const auto written = outputs_.find(operation.produce().a());
  if (written != outputs_.end()) a = written->second;
  if (!a.ok() || (*a)->spec().shape[0] > site_.shape.geometry.tokens) return output.spec;
  return MakeTensorSpec(output.spec.dtype, {(*a)->spec().shape[0], output.spec.shape[1]});
}

absl::Status OperationLauncher::TakeOutputs(const v1::Program& program, uint64_t program_id) {
  const std::string reason = absl::StrCat("program ", program_id, " has not written it");
  for (const OutputTensor& output : OutputsOf(program, site_.shape)) {
    absl::StatusOr<std::shared_ptr<StoredTensor>> tensor =
        site_.tensors.TakeForOutput(output.name, SpecOf(program, output), reason);
    if (!tensor.ok()) return tensor.status();
    outputs_[output.name] = *std::move(tensor);
  }
  return absl::OkStatus();
}

Failure OperationLauncher::Launch(const v1::ProgramOperation& operation, Sequence sequence,
                                  bool beside) {
  switch (operation.operation_case()) {
    case v1::ProgramOperation::kDispatch:
      return Dispatch(operation.dispatch(), sequence);
    case v1::ProgramOperation::kPrefetchWeights:
      return Prefetch(operation.prefetch_weights(), sequence, beside);
    case v1::ProgramOperation::kRunExperts:
      return RunExperts(operation.run_experts());
    case v1::ProgramOperation::kCombine:
      return Combine(operation.combine(), sequence);
    case v1::ProgramOperation::kBarrier:
      return operations_.Barrier(sequence);
    case v1::ProgramOperation::kReduceGradients:
      return ReduceGradients(operation.reduce_gradients(), sequence);
    case v1::ProgramOperation::kProbeCopy:
      return ProbeCopy(operation.probe_copy());
    case v1::ProgramOperation::kPrepareDispatch:
      return PrepareDispatch(operation.prepare_dispatch(), sequence);
    case v1::ProgramOperation::kPreparePublication:
      return PreparePublication(operation.prepare_publication(), beside);
    case v1::ProgramOperation::kStoreRows:
      return StoreRows(operation.store_rows());
    case v1::ProgramOperation::kPublish:
      return Publish(operation.publish(), sequence);
    case v1::ProgramOperation::kPrepareSource:
      return PrepareSource(operation.prepare_source(), sequence);
    case v1::ProgramOperation::kMaterialise:
      return Materialise(operation.materialise(), sequence);
    case v1::ProgramOperation::kProduce:
      return Produce(operation.produce());
    case v1::ProgramOperation::OPERATION_NOT_SET:
      break;
  }
  return Refused(absl::InternalError("an operation that was not checked"));
}

// The next program is then refused on every rank alike.
Failure OperationLauncher::Decline(const v1::ProgramOperation& operation, Sequence sequence) {
  return operations_.Decline(sequence, WritesShard(operation));
}

void OperationLauncher::GiveUp() {
  operations_.DropTarget();
  operations_.DropSlots();
  if (site_.objects.source().source != source_before_) site_.objects.DropSource();
}

Failure OperationLauncher::Settle() {
  if (!site_.data_path.queues()) return Failure();
  const Unsettled launched = std::exchange(unsettled_, Unsettled());
  Failure failure = operations_.Left(site_.data_path.Synchronize());
  if (failure.status.ok()) return failure;
  if (launched.rows) site_.objects.RowsUndefined(site_.objects.last_sequence());
  for (const std::string& plan : launched.plans) site_.objects.ForgetPlan(plan);
  site_.objects.KeepLivingSource(launched.sources);
  const std::string why = absl::StrCat("an operation up to sequence ",
                                       site_.objects.last_sequence().value, " ended early");
  SpoilOutputs(launched.outputs, why);
  if (!failure.record && failure.status.code() == absl::StatusCode::kFailedPrecondition) {
    failure.status = WithReason(failure.status, kReasonStaleWeights);
  }
  return failure;
}

absl::StatusOr<std::shared_ptr<StoredTensor>> OperationLauncher::FindInput(
    const std::string& name, const TensorSpec& expected) const {
  absl::StatusOr<std::shared_ptr<StoredTensor>> tensor = site_.tensors.Find(name);
  if (!tensor.ok() || (*tensor)->spec() == expected) return tensor;
  return StaleObject(absl::StrCat("tensor '", name, "' is ", Describe((*tensor)->spec()),
                                  ", expected ", Describe(expected)));
}

absl::StatusOr<std::shared_ptr<StoredTensor>> OperationLauncher::FindInput(const std::string& name,
                                                                           v1::TensorDtype dtype,
                                                                           int64_t tokens,
                                                                           int64_t width) const {
  if (tokens < 0) {
    absl::StatusOr<std::shared_ptr<StoredTensor>> tensor = site_.tensors.Find(name);
    if (!tensor.ok()) return tensor;
    tokens = std::min<int64_t>((*tensor)->spec().shape[0], site_.shape.geometry.tokens);
  }
  return FindInput(name, MakeTensorSpec(dtype, {tokens, width}));
}

absl::StatusOr<OperationLauncher::DispatchTensors> OperationLauncher::FindInputs(
    const v1::DispatchOperation& operation) const {
  DispatchTensors found;
  int64_t tokens = -1;
  const auto find = [&](const std::string& name, v1::TensorDtype dtype, int64_t width) {
    auto tensor = FindInput(name, dtype, tokens, width);
    if (tensor.ok()) tokens = (*tensor)->spec().shape[0];
    return tensor;
  };
  absl::StatusOr<std::shared_ptr<StoredTensor>> tensor =
      find(operation.hidden(), v1::TENSOR_DTYPE_BFLOAT16, site_.shape.hidden);
  if (!tensor.ok()) return tensor.status();
  found.hidden = *std::move(tensor);
  if (operation.saved_plan().empty()) {
    tensor = find(operation.topk_experts(), v1::TENSOR_DTYPE_INT32, site_.shape.geometry.topk);
    if (!tensor.ok()) return tensor.status();
    found.topk_experts = *std::move(tensor);
  }
  if (!operation.route_weights().empty()) {
    tensor = find(operation.route_weights(), v1::TENSOR_DTYPE_FLOAT32, site_.shape.geometry.topk);
    if (!tensor.ok()) return tensor.status();
    found.route_weights = *std::move(tensor);
  }
  found.input = {Elements<BFloat16>(found.hidden), Elements<int32_t>(found.topk_experts),
                 Elements<float>(found.route_weights), static_cast<int32_t>(tokens)};
  return found;
}

Failure OperationLauncher::Dispatch(const v1::DispatchOperation& operation, Sequence sequence) {
  absl::StatusOr<DispatchTensors> inputs = FindInputs(operation);
  if (!inputs.ok()) return Refused(inputs.status());
  const bool plans = operation.saved_plan().empty();
  if (plans) {
    absl::Status status = site_.objects.CheckPlanRoom(operation.plan());
    if (!status.ok()) return Refused(status);
  }
  absl::StatusOr<PlanPtr> plan = plans ? PlanPtr() : site_.objects.FindPlan(operation.saved_plan());
  if (!plan.ok()) return Refused(plan.status());
  if (!operation.slot().empty()) {
    return DispatchIntoSlot(operation, sequence, *inputs, *std::move(plan));
  }
  DispatchOutput output;
  output.rows = reinterpret_cast<BFloat16*>(OutputOf(operation.rows_output()));
  output.row_weights = reinterpret_cast<float*>(OutputOf(operation.row_weights_output()));
  const auto outputs = Named({operation.rows_output(), operation.row_weights_output()});
  RankOperations::Dispatched dispatched = operations_.Dispatch(
      sequence, inputs->input, inputs->route_weights != nullptr, *std::move(plan), output);
  if (!dispatched.plan) {
    if (dispatched.failure.record) SpoilOutputs(outputs, EndedEarly("dispatch", sequence));
    return std::move(dispatched.failure);
  }
  NoteOutputs(outputs);
  if (plans) {
    KeepMadePlan(operation.plan(), std::move(dispatched.plan), inputs->input.token_count);
    return Failure();
  }
  unsettled_.rows = true;
  last_plan_ = std::move(dispatched.plan);
  last_token_count_ = inputs->input.token_count;
  return Failure();
}

void OperationLauncher::KeepMadePlan(const std::string& name, PlanPtr plan, int32_t token_count) {
  unsettled_.rows = true;
  KeepPlanAlone(name, std::move(plan), token_count);
}

void OperationLauncher::KeepPlanAlone(const std::string& name, PlanPtr plan, int32_t token_count) {
  site_.objects.KeepPlan(name, plan);
  unsettled_.plans.push_back(name);
  last_plan_ = std::move(plan);
  last_token_count_ = token_count;
}

Failure OperationLauncher::Prefetch(const v1::PrefetchWeightsOperation& operation,
                                    Sequence sequence, bool beside) {
  absl::StatusOr<PlanPtr> plan = site_.objects.FindPlan(operation.plan());
  if (!plan.ok()) return Refused(plan.status());
  return operations_.Prefetch(sequence, *plan, operation.layer(), operation.weights_version(),
                              beside);
}

Failure OperationLauncher::RunExperts(const v1::RunExpertsOperation& operation) {
  absl::StatusOr<PlanPtr> plan = site_.objects.FindPlan(operation.plan());
  if (!plan.ok()) return Refused(plan.status());
  if (!operation.slot().empty()) return RunExpertsOfSlot(operation, *plan);
  Failure failure = operations_.RunExperts(*plan, operation.layer(), operation.weights_version(),
                                           operation.apply_route_weights());
  if (failure.status.ok()) unsettled_.rows = true;
  return failure;
}

absl::StatusOr<OperationLauncher::CombineTensors> OperationLauncher::FindRows(
    const v1::CombineOperation& operation) const {
  CombineTensors found;
  if (!operation.rows().empty()) {
    auto tensor = FindInput(operation.rows(), RowsSpec(site_.shape));
    if (!tensor.ok()) return tensor.status();
    found.rows = *std::move(tensor);
  }
  if (!operation.row_weights().empty()) {
    auto tensor = FindInput(operation.row_weights(), RowWeightsSpec(site_.shape));
    if (!tensor.ok()) return tensor.status();
    found.row_weights = *std::move(tensor);
  }
  return found;
}

Failure OperationLauncher::Combine(const v1::CombineOperation& operation, Sequence sequence) {
  absl::StatusOr<PlanPtr> plan = site_.objects.FindPlan(operation.plan());
  if (!plan.ok()) return Refused(plan.status());
  const absl::StatusOr<CombineTensors> tensors = FindRows(operation);
  if (!tensors.ok()) return Refused(tensors.status());
  CombineInput input;
  input.rows = Elements<BFloat16>(tensors->rows);
  input.row_weights = Elements<float>(tensors->row_weights);
  CombineOutput output;
  output.hidden = reinterpret_cast<BFloat16*>(OutputOf(operation.output()));
  output.route_weights = reinterpret_cast<float*>(OutputOf(operation.route_weights_output()));
  const auto outputs = Named({operation.output(), operation.route_weights_output()});
  Failure failure = operation.slot().empty() ? operations_.Combine(sequence, *plan, input, output)
                                             : CombineOfSlot(operation, sequence, *plan, output);
  if (failure.status.ok()) {
    unsettled_.rows = true;
    NoteOutputs(outputs);
  } else if (failure.record) {
    SpoilOutputs(outputs, EndedEarly("combine", sequence));
  }
  return failure;
}

Failure OperationLauncher::ReduceGradients(const v1::ReduceGradientsOperation& operation,
                                           Sequence sequence) {
  absl::StatusOr<PlanPtr> plan = site_.objects.FindPlan(operation.plan());
  if (!plan.ok()) return Refused(plan.status());
  return operations_.ReduceGradients(sequence, *plan, operation.layer());
}

Failure OperationLauncher::ProbeCopy(const v1::ProbeCopyOperation& operation) {
  const RankId rank = site_.memory.rank();
  int64_t rows = site_.shape.geometry.logical_rows() / 2;
  if (operation.rows_size() > 0) rows = operation.rows(rank.value);
  if (operation.alone() && rank != RankId(0)) rows = 0;
  Failure failure = operations_.ProbeCopy(
      operation.to_next_rank() ? CopyProbe::kNextRank : CopyProbe::kOwnShard, rows);
  if (rows > 0 && (failure.status.ok() || failure.record)) unsettled_.rows = true;
  return failure;
}

std::byte* OperationLauncher::OutputOf(const std::string& name) const {
  return name.empty() ? nullptr : outputs_.at(name)->data();
}

void OperationLauncher::NoteOutputs(const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    // There was room for the name when the outputs were taken.
    PERIGEE_CHECK(site_.tensors.Put(name, outputs_.at(name)).ok());
    if (site_.data_path.queues()) unsettled_.outputs.push_back(name);
  }
}

void OperationLauncher::SpoilOutputs(const std::vector<std::string>& names,
                                     const std::string& reason) {
  for (const std::string& name : names) site_.tensors.MarkUndefined(name, reason);
}

absl::optional<v1::PlanSummary> OperationLauncher::SummariseLastPlan() const {
  if (!last_plan_) return absl::nullopt;
  absl::StatusOr<PlanTensors> tensors = site_.data_path.ReadPlan(last_plan_);
  if (!tensors.ok()) return absl::nullopt;
  return SummarisePlan(*tensors, site_.shape.geometry, site_.memory.rank(), last_token_count_);
}

}  // namespace perigee
