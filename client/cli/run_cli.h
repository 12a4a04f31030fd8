// Runs the `perigee` binary as a child process, for tests. The test needs data = [":perigee"].
#ifndef PERIGEE_CLIENT_CLI_RUN_CLI_H_
#define PERIGEE_CLIENT_CLI_RUN_CLI_H_

#include <string>
#include <vector>

namespace perigee {

struct CliResult {
  int status = -1;  // exit status; 128 + the number of the signal that ended it
  std::string out;
  std::string err;
};

// Waits until it has ended; the test's own time limit bounds that.
CliResult RunCli(const std::vector<std::string>& args);

// Number of lines of a text whose lines all end.
int LineCount(const std::string& text);

}  // namespace perigee

#endif  // PERIGEE_CLIENT_CLI_RUN_CLI_H_
