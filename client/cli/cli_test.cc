// What holds for the command as a whole, run as its users run it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/cli/command.h"
#include "client/cli/run_cli.h"

namespace perigee {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(Cli, HelpGoesToStdout) {
  for (const char* word : {"--help", "-h", "help"}) {
    const CliResult result = RunCli({word});
    EXPECT_EQ(result.status, kDone);
    EXPECT_THAT(result.out, HasSubstr("Usage: perigee COMMAND"));
    EXPECT_THAT(result.out, HasSubstr("\nplan "));
    EXPECT_THAT(result.out, HasSubstr("\nestimate "));
    EXPECT_THAT(result.err, IsEmpty());
  }
  for (const char* command : {"plan", "estimate"}) {
    const CliResult result = RunCli({command, "--help"});
    EXPECT_EQ(result.status, kDone);
    EXPECT_THAT(result.out, HasSubstr(std::string("Usage: perigee ") + command));
    EXPECT_THAT(result.err, IsEmpty());
  }
}

TEST(Cli, WrongUseIsShortAndOnStderr) {
  const std::pair<std::vector<std::string>, const char*> cases[] = {
      {{}, "perigee: a command is missing"},
      {{"paln"}, "perigee: unknown command 'paln', did you mean 'plan'?"},
      {{"frobnicate"}, "perigee: unknown command 'frobnicate'\n"},
      {{"plan"}, "perigee plan: --input is missing"},
      {{"plan", "--layr", "1"}, "perigee plan: unknown flag --layr, did you mean --layer?"},
      {{"tokens"}, "perigee tokens: what to do is missing, expected issue or ledger"},
      {{"tokens", "issue", "g/b"}, "perigee tokens issue: --rank is missing"},
      {{"tokens", "issue", "g", "--rank", "0"}, "'g' is a group, expected one of its buffers"},
      {{"tokens", "ledger", "g"}, "'g' is a group, expected one of its generations"},
      {{"estimate", "--memory", "much"}, "perigee estimate: --memory is 'much', expected a size"},
  };
  for (const auto& [args, message] : cases) {
    const CliResult result = RunCli(args);
    EXPECT_EQ(result.status, kWrongUse) << message;
    EXPECT_THAT(result.err, HasSubstr(message));
    EXPECT_LE(LineCount(result.err), 6);
    EXPECT_THAT(result.out, IsEmpty());
  }
}

}  // namespace
}  // namespace perigee
