#include "server/groups/program_check.h"

#include <algorithm>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "server/groups/program_outputs.h"

namespace perigee {
namespace {

constexpr int kMaxOperations = 1024;
constexpr int32_t kMaxIterations = 1000000000;
constexpr int32_t kMaxKeptIterations = 10000;
constexpr int64_t kMaxKeptDurations = 100000;
constexpr size_t kMaxNameBytes = 64;  // as the workers have it

bool MayBeInName(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-' || c == '.' ||
         c == '/';
}

// Checks one operation; everything it says begins with "operation 3 (combine): ".
class OperationCheck {
 public:
  OperationCheck(int index, const char* kind, const v1::BufferShape& shape)
      : where_(absl::StrCat("operation ", index, " (", kind, "): ")), shape_(shape) {}

  OperationCheck& Named(absl::string_view field, const std::string& name) {
    if (name.empty()) Refuse(absl::StrCat(field, " is empty, expected a name"));
    return AtMost(field, name);
  }
  OperationCheck& MayBeNamed(absl::string_view field, const std::string& name) {
    return AtMost(field, name);
  }
  OperationCheck& HasWeights(int32_t layer, uint64_t version) {
    if (shape_.layers() == 0) {
      Refuse("the buffer keeps no weights (layers is 0)");
    } else if (layer < 0 || layer >= shape_.layers()) {
      Refuse(absl::StrCat("layer is ", layer, ", expected 0 to ", shape_.layers() - 1));
    }
    if (version == 0) Refuse("weights_version is 0, expected the version that was written");
    return *this;
  }
  OperationCheck& ComputesWithWeights() {
    const auto format = shape_.weight_format();
    if (format != v1::BufferShape::WEIGHT_FORMAT_UNSPECIFIED &&
        format != v1::BufferShape::WEIGHT_FORMAT_BFLOAT16) {
      Refuse("the buffer's weights are not bf16: workers move them only");
    }
    return *this;
  }
  // Where one is set the other is, too.
  OperationCheck& Needs(absl::string_view field, const std::string& name, absl::string_view other,
                        const std::string& needed) {
    if (name.empty() || !needed.empty()) return *this;
    Refuse(absl::StrCat(field, " is set, expected ", other, " with it"));
    return *this;
  }
  OperationCheck& OneOf(absl::string_view field, const std::string& name, absl::string_view other,
                        const std::string& other_name) {
    if (name.empty() || other_name.empty()) return *this;
    Refuse(absl::StrCat(field, " and ", other, " are both set, expected one of them"));
    return *this;
  }
  // Of prepare_publication.
  OperationCheck& HasTokens(int tokens, int32_t ranks, int32_t iterations) {
    if (tokens != 0 && tokens != ranks) {
      Refuse(absl::StrCat("tokens has ", tokens, " of them, expected none or one of each of ",
                          ranks, " ranks"));
    } else if (tokens != 0 && iterations > 1) {
      Refuse(absl::StrCat("tokens are given and iterations is ", iterations,
                          ", expected 1: each is good once"));
    }
    return *this;
  }
  OperationCheck& HasSource() {
    if (!shape_.source_storage()) Refuse("the buffer has no source storage");
    return *this;
  }
  // How many rows there are to copy the workers know.
  OperationCheck& CopiesRows(const v1::ProbeCopyOperation& probe, int32_t ranks) {
    if (probe.to_next_rank() + probe.alone() + (probe.rows_size() > 0) > 1) {
      Refuse("more than one of to_next_rank, alone and rows is set, expected one at most");
    } else if (probe.rows_size() != 0 && probe.rows_size() != ranks) {
      Refuse(absl::StrCat("rows has ", probe.rows_size(), " values, expected none or ", ranks,
                          ", one for each rank"));
    }
    return *this;
  }
  OperationCheck& HasGradients(int32_t layer) {
    if (!shape_.gradients()) {
      Refuse("the buffer keeps no gradients");
    } else if (layer < 0 || layer >= shape_.layers()) {
      Refuse(absl::StrCat("layer is ", layer, ", expected 0 to ", shape_.layers() - 1));
    }
    return *this;
  }
  const absl::Status& status() const { return status_; }

 private:
  OperationCheck& AtMost(absl::string_view field, const std::string& name) {
    if (name.size() > kMaxNameBytes) {
      Refuse(absl::StrCat(field, " has ", name.size(), " bytes, expected at most ", kMaxNameBytes));
    } else if (!std::all_of(name.begin(), name.end(), MayBeInName)) {
      Refuse(absl::StrCat(field, " is '", absl::CHexEscape(name),
                          "', expected letters, digits or _ - . /"));
    }
    return *this;
  }
  void Refuse(absl::string_view why) {
    if (status_.ok()) status_ = absl::InvalidArgumentError(absl::StrCat(where_, why));
  }

  const std::string where_;
  const v1::BufferShape& shape_;
  absl::Status status_;
};

// What the program runs on.
struct ProgramPlace {
  const v1::BufferShape& shape;
  int32_t ranks;
  int32_t iterations;
};

absl::Status CheckDispatch(int index, const v1::DispatchOperation& operation,
                           const v1::BufferShape& shape) {
  OperationCheck check(index, "dispatch", shape);
  check.Named("hidden", operation.hidden());
  check.MayBeNamed("route_weights", operation.route_weights());
  if (operation.saved_plan().empty()) {
    check.Named("topk_experts", operation.topk_experts());
    check.Named("plan", operation.plan());
  }
  check.MayBeNamed("saved_plan", operation.saved_plan());
  check.MayBeNamed("rows_output", operation.rows_output());
  check.MayBeNamed("row_weights_output", operation.row_weights_output());
  check.MayBeNamed("slot", operation.slot());
  return check.OneOf("plan", operation.plan(), "saved_plan", operation.saved_plan())
      .Needs("row_weights_output", operation.row_weights_output(), "route_weights",
             operation.route_weights())
      .status();
}

absl::Status CheckCombine(int index, const v1::CombineOperation& combine,
                          const v1::BufferShape& shape) {
  return OperationCheck(index, "combine", shape)
      .Named("plan", combine.plan())
      .Named("output", combine.output())
      .MayBeNamed("route_weights_output", combine.route_weights_output())
      .MayBeNamed("rows", combine.rows())
      .MayBeNamed("row_weights", combine.row_weights())
      .MayBeNamed("slot", combine.slot())
      .Needs("row_weights", combine.row_weights(), "route_weights_output",
             combine.route_weights_output())
      .status();
}

// Of the steps of a direct publication.
absl::Status CheckPublication(int index, const v1::ProgramOperation& operation,
                              const ProgramPlace& place) {
  const v1::BufferShape& shape = place.shape;
  switch (operation.operation_case()) {
    case v1::ProgramOperation::kPrepareDispatch:
      return OperationCheck(index, "prepare_dispatch", shape)
          .Named("topk_experts", operation.prepare_dispatch().topk_experts())
          .Named("target", operation.prepare_dispatch().target())
          .status();
    case v1::ProgramOperation::kPreparePublication:
      return OperationCheck(index, "prepare_publication", shape)
          .Named("target", operation.prepare_publication().target())
          .MayBeNamed("route_weights", operation.prepare_publication().route_weights())
          .HasTokens(operation.prepare_publication().tokens_size(), place.ranks, place.iterations)
          .status();
    case v1::ProgramOperation::kStoreRows:
      return OperationCheck(index, "store_rows", shape)
          .Named("target", operation.store_rows().target())
          .Named("hidden", operation.store_rows().hidden())
          .status();
    case v1::ProgramOperation::kPublish:
      return OperationCheck(index, "publish", shape)
          .Named("target", operation.publish().target())
          .Named("plan", operation.publish().plan())
          .status();
    default:
      return absl::OkStatus();
  }
}

// Of an owner-sharded source.
absl::Status CheckSource(int index, const v1::ProgramOperation& operation,
                         const v1::BufferShape& shape) {
  if (operation.has_materialise()) {
    return OperationCheck(index, "materialise", shape)
        .Named("source", operation.materialise().source())
        .Named("plan", operation.materialise().plan())
        .HasSource()
        .status();
  }
  const v1::PrepareSourceOperation& prepare = operation.prepare_source();
  return OperationCheck(index, "prepare_source", shape)
      .Named("topk_experts", prepare.topk_experts())
      .Named("source", prepare.source())
      .MayBeNamed("hidden", prepare.hidden())
      .MayBeNamed("route_weights", prepare.route_weights())
      .MayBeNamed("plan", prepare.plan())
      .HasSource()
      .status();
}

absl::Status CheckProduce(int index, const v1::ProduceOperation& operation,
                          const v1::BufferShape& shape) {
  OperationCheck check(index, "produce", shape);
  check.Named("a", operation.a()).Named("b", operation.b());
  if (operation.has_target()) return check.Named("target", operation.target()).status();
  return check.Named("output", operation.output()).status();
}

absl::Status CheckOperation(int index, const v1::ProgramOperation& operation,
                            const ProgramPlace& place) {
  const v1::BufferShape& shape = place.shape;
  switch (operation.operation_case()) {
    case v1::ProgramOperation::kDispatch:
      return CheckDispatch(index, operation.dispatch(), shape);
    case v1::ProgramOperation::kPrefetchWeights: {
      const auto& prefetch = operation.prefetch_weights();
      return OperationCheck(index, "prefetch_weights", shape)
          .Named("plan", prefetch.plan())
          .HasWeights(prefetch.layer(), prefetch.weights_version())
          .status();
    }
    case v1::ProgramOperation::kRunExperts: {
      const auto& run = operation.run_experts();
      return OperationCheck(index, "run_experts", shape)
          .Named("plan", run.plan())
          .MayBeNamed("slot", run.slot())
          .MayBeNamed("output_slot", run.output_slot())
          .ComputesWithWeights()
          .HasWeights(run.layer(), run.weights_version())
          .status();
    }
    case v1::ProgramOperation::kCombine:
      return CheckCombine(index, operation.combine(), shape);
    case v1::ProgramOperation::kReduceGradients:
      return OperationCheck(index, "reduce_gradients", shape)
          .Named("plan", operation.reduce_gradients().plan())
          .HasGradients(operation.reduce_gradients().layer())
          .status();
    case v1::ProgramOperation::kPrepareDispatch:
    case v1::ProgramOperation::kPreparePublication:
    case v1::ProgramOperation::kStoreRows:
    case v1::ProgramOperation::kPublish:
      return CheckPublication(index, operation, place);
    case v1::ProgramOperation::kPrepareSource:
    case v1::ProgramOperation::kMaterialise:
      return CheckSource(index, operation, shape);
    case v1::ProgramOperation::kProduce:
      return CheckProduce(index, operation.produce(), shape);
    case v1::ProgramOperation::kProbeCopy:
      return OperationCheck(index, "probe_copy", shape)
          .CopiesRows(operation.probe_copy(), place.ranks)
          .status();
    case v1::ProgramOperation::kBarrier:
      return absl::OkStatus();
    case v1::ProgramOperation::OPERATION_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "operation ", index,
      " is not set, expected dispatch, prefetch_weights, run_experts, combine, "
      "barrier, probe_copy, reduce_gradients, prepare_dispatch, "
      "prepare_publication, store_rows, publish, prepare_source, materialise or produce"));
}

absl::Status CheckKeptDurations(const v1::Program& program) {
  if (!program.keep_durations()) return absl::OkStatus();
  const int64_t durations = int64_t{program.iterations()} * program.operations_size();
  if (program.iterations() <= kMaxKeptIterations && durations <= kMaxKeptDurations) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("keep_durations with ", program.iterations(), " iterations of ",
                   program.operations_size(), " operations, expected at most ", kMaxKeptIterations,
                   " iterations and ", kMaxKeptDurations, " durations"));
}

absl::Status CheckTimedIterations(const v1::Program& program) {
  if (!program.time_iterations()) return absl::OkStatus();
  if (program.keep_durations()) {
    return absl::InvalidArgumentError(
        "keep_durations and time_iterations are both set, expected at most one of them");
  }
  if (program.iterations() <= kMaxKeptIterations) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("time_iterations with ", program.iterations(),
                                                 " iterations, expected at most ",
                                                 kMaxKeptIterations));
}

absl::Status CheckWaits(int index, const v1::Program& program) {
  for (const int32_t earlier : program.operations(index).waits_for()) {
    const auto refused = [&](const std::string& expected) {
      return absl::InvalidArgumentError(
          absl::StrCat("operation ", index, ": waits_for has ", earlier, ", expected ", expected));
    };
    if (!program.ordered_by_waits()) return refused("ordered_by_waits to be set then");
    if (earlier < 0 || earlier >= index) return refused("an operation that comes before it");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckProgram(const v1::Program& program, const v1::BufferShape& shape, int32_t ranks) {
  if (program.operations_size() < 1 || program.operations_size() > kMaxOperations) {
    return absl::InvalidArgumentError(absl::StrCat("the program has ", program.operations_size(),
                                                   " operations, expected 1 to ", kMaxOperations));
  }
  if (program.iterations() < 0 || program.iterations() > kMaxIterations) {
    return absl::InvalidArgumentError(
        absl::StrCat("iterations is ", program.iterations(), ", expected 0 to ", kMaxIterations));
  }
  if (const absl::Status kept = CheckKeptDurations(program); !kept.ok()) return kept;
  if (const absl::Status timed = CheckTimedIterations(program); !timed.ok()) return timed;
  for (int i = 0; i < program.operations_size(); ++i) {
    absl::Status valid =
        CheckOperation(i, program.operations(i), {shape, ranks, program.iterations()});
    if (valid.ok()) valid = CheckWaits(i, program);
    if (!valid.ok()) return valid;
  }
  return CheckProgramOutputs(program);
}

}  // namespace perigee
