// A subcommand of `perigee` and the exit statuses they all share.
#ifndef PERIGEE_CLIENT_CLI_COMMAND_H_
#define PERIGEE_CLIENT_CLI_COMMAND_H_

#include <string>
#include <vector>

namespace perigee {

inline constexpr int kDone = 0;
inline constexpr int kFailed = 1;
inline constexpr int kWrongUse = 2;

// To add one: declare it in a header of its own (`extern const Command kGetCommand;` in
// get_command.h) and name it in the table of main.cc.
struct Command {
  const char* name;
  const char* summary;  // one line, for `perigee --help`
  // args: what follows the subcommand's name. Results go to stdout, messages to stderr. Returns the
  // exit status.
  int (*run)(const std::vector<std::string>& args);
};

}  // namespace perigee

#endif  // PERIGEE_CLIENT_CLI_COMMAND_H_
