#include "server/groups/program_outputs.h"

#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace perigee {
namespace {

struct Output {
  const char* operation;
  const char* field;
  const std::string& name;
  bool readable;  // by the operations after it
};

std::vector<Output> OutputsOf(const v1::ProgramOperation& operation) {
  if (operation.has_dispatch()) {
    const v1::DispatchOperation& dispatch = operation.dispatch();
    return {{"dispatch", "rows_output", dispatch.rows_output(), true},
            {"dispatch", "row_weights_output", dispatch.row_weights_output(), true}};
  }
  if (operation.has_combine()) {
    const v1::CombineOperation& combine = operation.combine();
    return {{"combine", "output", combine.output(), false},
            {"combine", "route_weights_output", combine.route_weights_output(), false}};
  }
  if (operation.has_produce() && operation.produce().has_output()) {
    return {{"produce", "output", operation.produce().output(), true}};
  }
  return {};
}

void AddInputs(const v1::ProgramOperation& operation, std::set<std::string>& inputs) {
  inputs.insert({operation.dispatch().hidden(), operation.dispatch().topk_experts(),
                 operation.dispatch().route_weights(), operation.combine().rows(),
                 operation.combine().row_weights(), operation.prepare_dispatch().topk_experts(),
                 operation.prepare_publication().route_weights(), operation.store_rows().hidden(),
                 operation.prepare_source().topk_experts(), operation.prepare_source().hidden(),
                 operation.prepare_source().route_weights(), operation.produce().a(),
                 operation.produce().b()});
}

}  // namespace

absl::Status CheckProgramOutputs(const v1::Program& program) {
  std::set<std::string> all, until, outputs;
  for (const v1::ProgramOperation& operation : program.operations()) AddInputs(operation, all);
  for (int index = 0; index < program.operations_size(); ++index) {
    const v1::ProgramOperation& operation = program.operations(index);
    AddInputs(operation, until);
    for (const Output& output : OutputsOf(operation)) {
      if (output.name.empty()) continue;
      const auto refused = [&](const char* why) {
        return absl::InvalidArgumentError(absl::StrCat("operation ", index, " (", output.operation,
                                                       "): ", output.field, " '", output.name,
                                                       "' is ", why));
      };
      if (!output.readable && all.count(output.name) > 0) return refused("also an input");
      if (output.readable && until.count(output.name) > 0) {
        return refused("also an input before it is written");
      }
      if (!outputs.insert(output.name).second) return refused("an output already");
    }
  }
  return absl::OkStatus();
}

}  // namespace perigee
