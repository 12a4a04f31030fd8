#include "worker/ops/program_waits.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "worker/ops/failure_reason.h"

namespace perigee {
namespace {

using Kind = v1::ProgramOperation;

// Something that operations share. Inputs are only read, and outputs written once.
struct Use {
  std::string what;
  bool changes = false;
};

Use ReadsPlan(const std::string& name) { return {absl::StrCat("plan '", name, "'"), false}; }
Use ReadsTensor(const std::string& name) { return {absl::StrCat("tensor '", name, "'"), false}; }
Use ChangesRows() { return {"the rows in the shard", true}; }
// Between making a target and publishing it, of what goes into the shard beside other parts.
std::vector<Use> FillsTarget(const char* part) {
  return {{"the rows in the shard", false}, {part, true}};
}

// Without a name the rows are the shard's.
Use ChangesSlot(const char* ring, const std::string& name) {
  if (name.empty()) return ChangesRows();
  return {absl::StrCat(ring, " slot '", name, "'"), true};
}

std::vector<Use> UsesOf(const v1::DispatchOperation& dispatch) {
  const bool plans = dispatch.saved_plan().empty();
  Use plan = ReadsPlan(plans ? dispatch.plan() : dispatch.saved_plan());
  plan.changes = plans;
  std::vector<Use> uses = {plan, ChangesSlot("dispatch-output", dispatch.slot()),
                           ReadsTensor(dispatch.hidden())};
  for (const std::string& output : {dispatch.rows_output(), dispatch.row_weights_output()}) {
    if (!output.empty()) uses.push_back({ReadsTensor(output).what, true});
  }
  return uses;
}

std::vector<Use> UsesOf(const v1::RunExpertsOperation& run) {
  return {ReadsPlan(run.plan()),
          {"the slots", false},
          ChangesSlot("dispatch-output", run.slot()),
          ChangesSlot("expert-output", run.output_slot())};
}

std::vector<Use> UsesOf(const v1::ProgramOperation& operation) {
  switch (operation.operation_case()) {
    case Kind::kDispatch:
      return UsesOf(operation.dispatch());
    case Kind::kPrefetchWeights:
      return {ReadsPlan(operation.prefetch_weights().plan()), {"the slots", true}};
    case Kind::kRunExperts:
      return UsesOf(operation.run_experts());
    // It sums in the shard, wherever its rows come from.
    case Kind::kCombine:
      return {ReadsPlan(operation.combine().plan()), ChangesRows(),
              ChangesSlot("expert-output", operation.combine().slot()),
              ReadsTensor(operation.combine().rows()),
              ReadsTensor(operation.combine().row_weights())};
    case Kind::kReduceGradients:
      return {ReadsPlan(operation.reduce_gradients().plan()), {"the gradients", true}};
    case Kind::kPublish: {
      Use plan = ReadsPlan(operation.publish().plan());
      plan.changes = true;
      return {plan, ChangesRows()};
    }
    case Kind::kPrepareSource: {
      std::vector<Use> uses = {{"the source", true},
                               ReadsTensor(operation.prepare_source().hidden())};
      if (operation.prepare_source().plan().empty()) return uses;
      uses.push_back(ReadsPlan(operation.prepare_source().plan()));
      uses.back().changes = true;
      return uses;
    }
    case Kind::kMaterialise: {
      Use plan = ReadsPlan(operation.materialise().plan());
      plan.changes = true;
      return {plan, {"the source", false}, ChangesRows()};
    }
    case Kind::kPreparePublication:
      return FillsTarget("the target's metadata");
    case Kind::kStoreRows: {
      std::vector<Use> uses = FillsTarget("the target's rows");
      uses.push_back(ReadsTensor(operation.store_rows().hidden()));
      return uses;
    }
    case Kind::kProduce: {
      const v1::ProduceOperation& produce = operation.produce();
      std::vector<Use> uses;
      if (produce.has_target()) uses = FillsTarget("the target's rows");
      if (produce.has_output()) uses = {{ReadsTensor(produce.output()).what, true}};
      uses.push_back(ReadsTensor(produce.a()));
      uses.push_back(ReadsTensor(produce.b()));
      return uses;
    }
    case Kind::kPrepareDispatch:
    case Kind::kProbeCopy:
      return {ChangesRows()};
    case Kind::kBarrier:
    case Kind::OPERATION_NOT_SET:
      break;
  }
  return {};
}

// What both use and one changes; null: nothing.
const Use* Shared(const std::vector<Use>& some, const std::vector<Use>& others) {
  for (const Use& one : some) {
    for (const Use& other : others) {
      if (one.what == other.what && (one.changes || other.changes)) return &one;
    }
  }
  return nullptr;
}

std::string Describe(const v1::Program& program, int index) {
  return absl::StrCat("operation ", index, " (", OperationName(program.operations(index)), ")");
}

}  // namespace

absl::StatusOr<ProgramWaits> ProgramWaits::Create(const v1::Program& program) {
  ProgramWaits waits;
  waits.in_order_ = !program.ordered_by_waits();
  waits.before_.resize(program.operations_size());
  for (int index = 0; index < program.operations_size(); ++index) {
    for (const int32_t earlier : program.operations(index).waits_for()) {
      if (waits.in_order_) {
        return InvalidProgram(absl::StrCat(Describe(program, index), " waits for operation ",
                                           earlier, ", expected ordered_by_waits to be set then"));
      }
      if (earlier < 0 || earlier >= index) {
        return InvalidProgram(absl::StrCat(Describe(program, index), " waits for operation ",
                                           earlier, ", expected one that comes before it"));
      }
      waits.before_[index] |= waits.before_[earlier];
      waits.before_[index].set(earlier);
    }
  }
  if (absl::Status status = waits.CheckShared(program); !status.ok()) return status;
  return waits;
}

absl::Status ProgramWaits::CheckShared(const v1::Program& program) const {
  if (in_order_) return absl::OkStatus();
  std::vector<std::vector<Use>> uses;
  for (int later = 0; later < program.operations_size(); ++later) {
    uses.push_back(UsesOf(program.operations(later)));
    for (int earlier = 0; earlier < later; ++earlier) {
      const Use* shared = Shared(uses[earlier], uses[later]);
      if (shared == nullptr || Waits(later, earlier)) continue;
      return InvalidProgram(absl::StrCat(Describe(program, later), " and ",
                                         Describe(program, earlier), " both use ", shared->what,
                                         ", expected the later to wait for the earlier"));
    }
  }
  return absl::OkStatus();
}

}  // namespace perigee
