// What `perigee bench` prints.
#ifndef PERIGEE_CLIENT_CLI_BENCH_BENCH_REPORT_H_
#define PERIGEE_CLIENT_CLI_BENCH_BENCH_REPORT_H_

#include <string>

#include "client/cli/bench/bench_result.h"

namespace perigee {

std::string BenchText(const BenchResult& result);
// docs/cli.md names the keys.
std::string BenchJson(const BenchResult& result);

}  // namespace perigee

#endif  // PERIGEE_CLIENT_CLI_BENCH_BENCH_REPORT_H_
