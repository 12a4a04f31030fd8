// `perigee bench`: how long planning, dispatch, combine and a whole layer take on a cluster, held
// against copies of the same bytes in the same run.
#ifndef PERIGEE_CLIENT_CLI_BENCH_BENCH_COMMAND_H_
#define PERIGEE_CLIENT_CLI_BENCH_BENCH_COMMAND_H_

#include "client/cli/command.h"

namespace perigee {

extern const Command kBenchCommand;

}  // namespace perigee

#endif  // PERIGEE_CLIENT_CLI_BENCH_BENCH_COMMAND_H_
