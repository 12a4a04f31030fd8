// Adds operations to a program of `perigee bench` and notes which of them count for what.
#ifndef PERIGEE_CLIENT_CLI_BENCH_PROGRAM_BUILDER_H_
#define PERIGEE_CLIENT_CLI_BENCH_PROGRAM_BUILDER_H_

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "client/cli/bench/bench_program.h"

namespace perigee {

class ProgramBuilder {
 public:
  v1::Program& program() { return built_.program; }
  v1::ProgramOperation* Add() { return built_.program.add_operations(); }
  void AddBarrier() { Add()->mutable_barrier(); }
  // The `count` operations added last are one time of `name`.
  void Time(const std::string& name, int count = 1) {
    std::vector<int>& operations = NewTime(name);
    for (int i = count; i > 0; --i) operations.push_back(built_.program.operations_size() - i);
  }
  // The operation at `index` is.
  void TimeOne(const std::string& name, int index) { NewTime(name).push_back(index); }
  BenchProgram Take() { return std::move(built_); }

 private:
  std::vector<int>& NewTime(const std::string& name) {
    auto timed = std::find_if(built_.timed.begin(), built_.timed.end(),
                              [&](const TimedOperation& known) { return known.name == name; });
    if (timed == built_.timed.end()) timed = built_.timed.insert(timed, {name, {}});
    return timed->operations.emplace_back();
  }

  BenchProgram built_;
};

}  // namespace perigee

#endif  // PERIGEE_CLIENT_CLI_BENCH_PROGRAM_BUILDER_H_
