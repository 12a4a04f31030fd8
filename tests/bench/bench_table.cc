#include "tests/bench/bench_table.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>

namespace perigee {
namespace {

std::string Processor() {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line)) {
    const size_t colon = line.find(": ");
    if (line.rfind("model name", 0) == 0 && colon != std::string::npos) {
      return line.substr(colon + 2);
    }
  }
  return "unknown processor";
}

std::string Commit() {
  if (const char* given = std::getenv("PERIGEE_COMMIT")) return given;
  const char* const checkout = std::getenv("BUILD_WORKSPACE_DIRECTORY");
  if (checkout == nullptr || chdir(checkout) != 0) return "unknown";
  FILE* const git = popen("git describe --always --dirty", "r");
  char text[64] = {};
  const bool read = git != nullptr && std::fgets(text, sizeof(text), git) != nullptr;
  if (git != nullptr) pclose(git);
  std::string commit = read ? text : "unknown";
  while (!commit.empty() && commit.back() == '\n') commit.pop_back();
  return commit;
}

absl::Duration At(const std::vector<absl::Duration>& sorted, double share) {
  return sorted[static_cast<size_t>(share * static_cast<double>(sorted.size() - 1))];
}

}  // namespace

void PrintCircumstances() {
#ifdef NDEBUG
  const char* const build = "optimised";
#else
  const char* const build = "with assertions";
#endif
  std::printf("machine  %s, %ld cores\nbuild    gcc %s, %s\ncommit   %s\n", Processor().c_str(),
              sysconf(_SC_NPROCESSORS_ONLN), __VERSION__, build, Commit().c_str());
  std::fflush(stdout);
}

void PrintTimesHeader() {
  std::printf("%-52s %9s %9s %9s %9s\n", "us", "p50", "p90", "p99", "max");
}

void PrintTimes(const std::string& what, std::vector<absl::Duration> times) {
  std::sort(times.begin(), times.end());
  const auto at = [&](double share) { return absl::ToDoubleMicroseconds(At(times, share)); };
  std::printf("%-52s %9.2f %9.2f %9.2f %9.2f\n", what.c_str(), at(0.5), at(0.9), at(0.99), at(1));
  std::fflush(stdout);
}

absl::Duration Median(std::vector<absl::Duration> times) {
  std::sort(times.begin(), times.end());
  return At(times, 0.5);
}

}  // namespace perigee
