#include "client/cli/run/run_command.h"

#include <iostream>

#include "client/cli/output.h"
#include "client/cli/run/layer_command.h"
#include "client/cli/run/step_command.h"

namespace perigee {
namespace {

constexpr const Command* kRuns[] = {&kRunLayerCommand, &kRunStepCommand};

int RunRun(const std::vector<std::string>& args) {
  if (!args.empty() && (args[0] == "--help" || args[0] == "-h")) {
    std::string text = "Runs something through a cluster.\n\nUsage: perigee run WHAT [FLAGS]\n\n";
    TextTable table({"WHAT", ""});
    for (const Command* run : kRuns) table.AddRow({run->name, run->summary});
    return PrintResult(text + table.ToString());
  }
  for (const Command* run : kRuns) {
    if (!args.empty() && args[0] == run->name) return run->run({args.begin() + 1, args.end()});
  }
  std::cerr << "perigee run: "
            << (args.empty() ? "what to run is missing"
                             : "cannot run '" + args[0].substr(0, 80) + "'")
            << ", expected moe-layer or moe-step\nTry 'perigee run --help'.\n";
  return kWrongUse;
}

}  // namespace

const Command kRunCommand = {
    "run", "run a layer or a training step through a cluster and check the result", RunRun};

}  // namespace perigee
