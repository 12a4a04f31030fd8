#include "worker/ops/program_check.h"

#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "worker/ops/failure_reason.h"

namespace perigee {
namespace {

using Kind = v1::ProgramOperation;

absl::Status CheckOptionalName(absl::string_view what, const std::string& name) {
  return name.empty() ? absl::OkStatus() : CheckObjectName(what, name);
}

absl::Status CheckWeights(int32_t layer, uint64_t version, const BufferShape& shape) {
  if (!shape.has_weights()) return absl::InvalidArgumentError("the buffer keeps no weights");
  if (layer < 0 || layer >= shape.layers) {
    return absl::InvalidArgumentError(
        absl::StrCat("layer is ", layer, ", the buffer has ", shape.layers));
  }
  if (version == 0) return absl::InvalidArgumentError("weights_version is 0");
  return absl::OkStatus();
}

absl::Status Check(const v1::ReduceGradientsOperation& reduce, const BufferShape& shape) {
  absl::Status status = CheckObjectName("plan", reduce.plan());
  if (!status.ok()) return status;
  if (!shape.gradients) return absl::InvalidArgumentError("the buffer keeps no gradients");
  if (reduce.layer() >= 0 && reduce.layer() < shape.layers) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("layer is ", reduce.layer(), ", the buffer has ", shape.layers));
}

absl::Status Check(const v1::ProbeCopyOperation& probe, const BufferShape& shape) {
  // To the next rank: it would lose rows that it believes to have.
  if (probe.to_next_rank() + probe.alone() + (probe.rows_size() > 0) > 1) {
    return absl::InvalidArgumentError(
        "more than one of to_next_rank, alone and rows is set, expected one at most");
  }
  const int32_t ranks = shape.geometry.ranks;
  if (probe.rows_size() != 0 && probe.rows_size() != ranks) {
    return absl::InvalidArgumentError(absl::StrCat("rows has ", probe.rows_size(),
                                                   " values, expected none or ", ranks,
                                                   ", one for each rank"));
  }
  const int64_t half = shape.geometry.logical_rows() / 2;
  for (const int64_t rows : probe.rows()) {
    if (rows >= 0 && rows <= half) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("rows has ", rows, ", expected 0 to NvS / 2, which is ", half));
  }
  return absl::OkStatus();
}

absl::Status Check(const v1::DispatchOperation& dispatch) {
  absl::Status status = CheckObjectName("hidden", dispatch.hidden());
  if (status.ok()) status = CheckOptionalName("route_weights", dispatch.route_weights());
  if (status.ok()) status = CheckOptionalName("rows_output", dispatch.rows_output());
  if (status.ok()) status = CheckOptionalName("row_weights_output", dispatch.row_weights_output());
  if (!status.ok()) return status;
  if (!dispatch.row_weights_output().empty() && dispatch.route_weights().empty()) {
    return absl::InvalidArgumentError("row_weights_output is set, expected route_weights with it");
  }
  if (dispatch.saved_plan().empty()) {
    status = CheckObjectName("topk_experts", dispatch.topk_experts());
    return status.ok() ? CheckObjectName("plan", dispatch.plan()) : status;
  }
  if (!dispatch.plan().empty()) {
    return absl::InvalidArgumentError("plan and saved_plan are both set, expected one of them");
  }
  return CheckObjectName("saved_plan", dispatch.saved_plan());
}

absl::Status Check(const v1::CombineOperation& combine) {
  absl::Status status = CheckObjectName("plan", combine.plan());
  if (status.ok()) status = CheckObjectName("output", combine.output());
  if (!status.ok()) return status;
  status = CheckOptionalName("route_weights_output", combine.route_weights_output());
  if (status.ok()) status = CheckOptionalName("rows", combine.rows());
  if (status.ok()) status = CheckOptionalName("row_weights", combine.row_weights());
  if (!status.ok() || combine.row_weights().empty()) return status;
  if (!combine.route_weights_output().empty()) return absl::OkStatus();
  return absl::InvalidArgumentError("row_weights is set, expected route_weights_output with it");
}

absl::Status Check(const v1::PrepareDispatchOperation& prepare) {
  absl::Status status = CheckObjectName("topk_experts", prepare.topk_experts());
  return status.ok() ? CheckObjectName("target", prepare.target()) : status;
}

absl::Status Check(const v1::PreparePublicationOperation& prepare, const BufferShape& shape) {
  absl::Status status = CheckObjectName("target", prepare.target());
  if (status.ok()) status = CheckOptionalName("route_weights", prepare.route_weights());
  const int tokens = prepare.tokens_size();
  if (!status.ok() || tokens == 0 || tokens == shape.geometry.ranks) return status;
  return absl::InvalidArgumentError(absl::StrCat("there are ", tokens,
                                                 " tokens, expected none or one of each of ",
                                                 shape.geometry.ranks, " ranks"));
}

absl::Status Check(const v1::StoreRowsOperation& store) {
  absl::Status status = CheckObjectName("target", store.target());
  return status.ok() ? CheckObjectName("hidden", store.hidden()) : status;
}

absl::Status Check(const v1::PublishOperation& publish) {
  absl::Status status = CheckObjectName("target", publish.target());
  return status.ok() ? CheckObjectName("plan", publish.plan()) : status;
}

absl::Status CheckSource(const BufferShape& shape) {
  if (shape.source_storage) return absl::OkStatus();
  return absl::InvalidArgumentError("the buffer has no source storage");
}

absl::Status Check(const v1::PrepareSourceOperation& prepare, const BufferShape& shape) {
  absl::Status status = CheckObjectName("topk_experts", prepare.topk_experts());
  if (status.ok()) status = CheckObjectName("source", prepare.source());
  if (status.ok()) status = CheckOptionalName("hidden", prepare.hidden());
  if (status.ok()) status = CheckOptionalName("route_weights", prepare.route_weights());
  if (status.ok()) status = CheckOptionalName("plan", prepare.plan());
  return status.ok() ? CheckSource(shape) : status;
}

absl::Status Check(const v1::MaterialiseOperation& materialise, const BufferShape& shape) {
  absl::Status status = CheckObjectName("source", materialise.source());
  if (status.ok()) status = CheckObjectName("plan", materialise.plan());
  return status.ok() ? CheckSource(shape) : status;
}

absl::Status Check(const v1::ProduceOperation& produce) {
  absl::Status status = CheckObjectName("a", produce.a());
  if (status.ok()) status = CheckObjectName("b", produce.b());
  if (!status.ok()) return status;
  if (produce.has_target()) return CheckObjectName("target", produce.target());
  return CheckObjectName("output", produce.output());
}

absl::Status CheckOperation(const v1::ProgramOperation& operation, const BufferShape& shape) {
  absl::Status status;
  switch (operation.operation_case()) {
    case Kind::kDispatch:
      return Check(operation.dispatch());
    case Kind::kPrefetchWeights:
      status = CheckObjectName("plan", operation.prefetch_weights().plan());
      if (!status.ok()) return status;
      return CheckWeights(operation.prefetch_weights().layer(),
                          operation.prefetch_weights().weights_version(), shape);
    case Kind::kRunExperts:
      status = CheckObjectName("plan", operation.run_experts().plan());
      if (!status.ok()) return status;
      if (shape.weight_format != WeightFormat::kBFloat16) {
        return absl::InvalidArgumentError(
            "the buffer's weights are not bf16: workers move them only");
      }
      return CheckWeights(operation.run_experts().layer(),
                          operation.run_experts().weights_version(), shape);
    case Kind::kCombine:
      return Check(operation.combine());
    case Kind::kReduceGradients:
      return Check(operation.reduce_gradients(), shape);
    case Kind::kPrepareDispatch:
      return Check(operation.prepare_dispatch());
    case Kind::kPreparePublication:
      return Check(operation.prepare_publication(), shape);
    case Kind::kStoreRows:
      return Check(operation.store_rows());
    case Kind::kPublish:
      return Check(operation.publish());
    case Kind::kPrepareSource:
      return Check(operation.prepare_source(), shape);
    case Kind::kMaterialise:
      return Check(operation.materialise(), shape);
    case Kind::kProduce:
      return Check(operation.produce());
    case Kind::kProbeCopy:
      return Check(operation.probe_copy(), shape);
    case Kind::kBarrier:
      break;
    case Kind::OPERATION_NOT_SET:
      return absl::InvalidArgumentError("no operation is set, or one that is unknown here");
  }
  return absl::OkStatus();
}

// Of the first `count` operations.
std::set<std::string> InputsOf(const v1::Program& program, int count) {
  std::set<std::string> inputs;
  for (int index = 0; index < count; ++index) {
    const v1::ProgramOperation& operation = program.operations(index);
    inputs.insert(operation.dispatch().hidden());
    inputs.insert(operation.dispatch().topk_experts());
    inputs.insert(operation.dispatch().route_weights());
    inputs.insert(operation.prepare_dispatch().topk_experts());
    inputs.insert(operation.prepare_publication().route_weights());
    inputs.insert(operation.store_rows().hidden());
    inputs.insert(operation.combine().rows());
    inputs.insert(operation.combine().row_weights());
    inputs.insert(operation.prepare_source().topk_experts());
    inputs.insert(operation.prepare_source().hidden());
    inputs.insert(operation.prepare_source().route_weights());
    inputs.insert(operation.produce().a());
    inputs.insert(operation.produce().b());
  }
  return inputs;
}

absl::Status CheckKeptDurations(const v1::Program& program) {
  if (!program.keep_durations()) return absl::OkStatus();
  const int64_t durations = int64_t{program.iterations()} * program.operations_size();
  if (program.iterations() <= kMaxKeptIterations && durations <= kMaxKeptDurations) {
    return absl::OkStatus();
  }
  return InvalidProgram(absl::StrCat("keep_durations with ", program.iterations(),
                                     " iterations of ", program.operations_size(),
                                     " operations, expected at most ", kMaxKeptIterations,
                                     " iterations and ", kMaxKeptDurations, " durations"));
}

absl::Status CheckTimedIterations(const v1::Program& program) {
  if (!program.time_iterations()) return absl::OkStatus();
  if (program.keep_durations()) {
    return InvalidProgram(
        "keep_durations and time_iterations are both set, expected at most one of them");
  }
  if (program.iterations() <= kMaxKeptIterations) return absl::OkStatus();
  return InvalidProgram(absl::StrCat("time_iterations with ", program.iterations(),
                                     " iterations, expected at most ", kMaxKeptIterations));
}

// An output is memory of its own: written by one operation, and read by none, but for what produce
// and dispatch make: that is for operations after it.
absl::Status CheckOutputs(const v1::Program& program, const BufferShape& shape) {
  std::set<std::string> outputs;
  for (const OutputTensor& output : OutputsOf(program, shape)) {
    const int reads =
        output.readable_after ? *output.readable_after + 1 : program.operations_size();
    if (InputsOf(program, reads).count(output.name) > 0) {
      return InvalidProgram(absl::StrCat("output '", output.name, "' is also an input",
                                         output.readable_after ? " before it is written" : ""));
    }
    if (!outputs.insert(output.name).second) {
      return InvalidProgram(absl::StrCat("output '", output.name, "' is named twice"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckProgram(const v1::Program& program, const BufferShape& shape) {
  if (program.operations_size() == 0) return InvalidProgram("the program has no operations");
  if (program.operations_size() > kMaxProgramOperations) {
    return InvalidProgram(absl::StrCat("the program has ", program.operations_size(),
                                       " operations, expected at most ", kMaxProgramOperations));
  }
  if (program.iterations() < 0) {
    return InvalidProgram(absl::StrCat("iterations is ", program.iterations()));
  }
  if (absl::Status status = CheckKeptDurations(program); !status.ok()) return status;
  if (absl::Status status = CheckTimedIterations(program); !status.ok()) return status;
  for (int index = 0; index < program.operations_size(); ++index) {
    const v1::ProgramOperation& operation = program.operations(index);
    absl::Status status = CheckOperation(operation, shape);
    if (status.ok() && program.iterations() > 1 &&
        operation.prepare_publication().tokens_size() > 0) {
      status = absl::InvalidArgumentError(
          absl::StrCat("iterations is ", program.iterations(),
                       ", expected 1 where tokens are given: each is ", "good once"));
    }
    if (!status.ok()) {
      return InvalidProgram(absl::StrCat("operation ", index, " (", OperationName(operation),
                                         "): ", status.message()));
    }
  }
  return CheckOutputs(program, shape);
}

bool IsCollective(const v1::ProgramOperation& operation, Transport transport) {
  if (operation.has_probe_copy()) {
    return transport == Transport::kNccl && operation.probe_copy().to_next_rank();
  }
  return !operation.has_run_experts() && !operation.has_prepare_publication() &&
         !operation.has_store_rows() && !operation.has_produce();
}

const char* OperationName(const v1::ProgramOperation& operation) {
  switch (operation.operation_case()) {
    case Kind::kDispatch:
      return "dispatch";
    case Kind::kPrefetchWeights:
      return "prefetch_weights";
    case Kind::kRunExperts:
      return "run_experts";
    case Kind::kCombine:
      return "combine";
    case Kind::kBarrier:
      return "barrier";
    case Kind::kProbeCopy:
      return "probe_copy";
    case Kind::kReduceGradients:
      return "reduce_gradients";
    case Kind::kPrepareDispatch:
      return "prepare_dispatch";
    case Kind::kPreparePublication:
      return "prepare_publication";
    case Kind::kStoreRows:
      return "store_rows";
    case Kind::kPublish:
      return "publish";
    case Kind::kPrepareSource:
      return "prepare_source";
    case Kind::kMaterialise:
      return "materialise";
    case Kind::kProduce:
      return "produce";
    case Kind::OPERATION_NOT_SET:
      break;
  }
  return "none";
}

std::vector<OutputTensor> OutputsOf(const v1::Program& program, const BufferShape& shape) {
  const int64_t tokens = shape.geometry.tokens;
  const TensorSpec hidden = MakeTensorSpec(v1::TENSOR_DTYPE_BFLOAT16, {tokens, shape.hidden});
  const TensorSpec weights =
      MakeTensorSpec(v1::TENSOR_DTYPE_FLOAT32, {tokens, shape.geometry.topk});
  std::vector<OutputTensor> outputs;
  const auto add = [&](const std::string& name, const TensorSpec& spec,
                       absl::optional<int> readable_after = absl::nullopt) {
    if (!name.empty()) outputs.push_back({name, spec, readable_after});
  };
  for (int index = 0; index < program.operations_size(); ++index) {
    const v1::ProgramOperation& operation = program.operations(index);
    if (operation.has_produce() && !operation.produce().has_target()) {
      add(operation.produce().output(), hidden, index);
    }
    add(operation.dispatch().rows_output(), RowsSpec(shape), index);
    add(operation.dispatch().row_weights_output(), RowWeightsSpec(shape), index);
    add(operation.combine().output(), hidden);
    add(operation.combine().route_weights_output(), weights);
  }
  return outputs;
}

}  // namespace perigee
