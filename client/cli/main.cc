// `perigee`: one command with subcommands, each in a file of its own.
#include <iostream>
#include <string>
#include <vector>

#include "client/cli/bench/bench_command.h"
#include "client/cli/cluster/supervise_command.h"
#include "client/cli/command.h"
#include "client/cli/doctor/doctor_command.h"
#include "client/cli/estimate_command.h"
#include "client/cli/get_command.h"
#include "client/cli/metrics_command.h"
#include "client/cli/nearest_name.h"
#include "client/cli/output.h"
#include "client/cli/plan_command.h"
#include "client/cli/run/run_command.h"
#include "client/cli/tokens_command.h"
#include "client/cli/up_command.h"

namespace perigee {
namespace {

constexpr const Command* kCommands[] = {
    &kRunCommand,     &kBenchCommand, &kUpCommand,       &kDoctorCommand,
    &kGetCommand,     &kListCommand,  &kDescribeCommand, &kTokensCommand,
    &kMetricsCommand, &kPlanCommand,  &kEstimateCommand,
};

std::string HelpText() {
  std::string text =
      "An expert-parallel service: plans, runs and inspects mixture-of-experts groups.\n\n"
      "Usage: perigee COMMAND [FLAGS]\n\n";
  TextTable table({"COMMAND", ""});
  for (const Command* command : kCommands) table.AddRow({command->name, command->summary});
  text += table.ToString();
  text +=
      "\n'perigee COMMAND --help' says more about one. Results go to stdout, messages to\n"
      "stderr. Exit status: 0 done, 1 failed, 2 wrong use.\n";
  return text;
}

int WrongUse(const std::string& message) {
  std::cerr << "perigee: " << message << "\nTry 'perigee --help'.\n";
  return kWrongUse;
}

int UnknownCommand(const std::string& name) {
  std::vector<std::string> names;
  for (const Command* command : kCommands) names.push_back(command->name);
  const std::string nearest = NearestName(name, names);
  return WrongUse("unknown command '" + name.substr(0, 80) + "'" +
                  (nearest.empty() ? "" : ", did you mean '" + nearest + "'?"));
}

int Run(const std::vector<std::string>& args) {
  if (args.empty()) return WrongUse("a command is missing");
  if (args[0] == "--help" || args[0] == "-h" || args[0] == "help") return PrintResult(HelpText());
  for (const Command* command : kCommands) {
    if (args[0] == command->name) return command->run({args.begin() + 1, args.end()});
  }
  if (args[0] == kSuperviseCommand.name)
    return kSuperviseCommand.run({args.begin() + 1, args.end()});
  return UnknownCommand(args[0]);
}

}  // namespace
}  // namespace perigee

int main(int argc, char** argv) { return perigee::Run({argv + 1, argv + argc}); }
