// What an all-to-all by NCCL takes: every rank sends each other rank the rows of those of its
// tokens that have experts there, each row once, as dispatch moves them and combine moves them
// back. Planning, packing, expansion and sums would come on top.
#include <algorithm>
#include <cstdio>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "kernels/device/device_info.h"
#include "kernels/device/nccl_library.h"
#include "tests/contract/test_data.h"
#include "tests/device/nccl_rank.h"

namespace perigee {
namespace {

constexpr char kUsage[] =
    "usage: nccl_bench\n\n"
    "Measures an all-to-all of rows by NCCL between ranks on every CUDA device of this machine, at "
    "a\n"
    "few shapes with random routes, checks what arrived, and prints a table and a line of JSON "
    "for\n"
    "each. Exit status 0: all bytes were right; 2: no device, no NCCL, or wrong use.\n";
constexpr int kWarmUps = 3;
constexpr int kRuns = 10;
constexpr uint64_t kSeed = 1;

struct Shape {
  int32_t tokens;
  int32_t hidden;
  int32_t topk;
  int32_t experts;
};
constexpr Shape kShapes[] = {{4096, 7168, 8, 256}, {8192, 7168, 8, 256}, {128, 7168, 8, 256}};

using Ranks = std::vector<std::unique_ptr<NcclRank>>;

// Calls body(rank) for each, on a thread of its own; the first error.
absl::Status OnAll(int ranks, const std::function<absl::Status(int rank)>& body) {
  std::vector<absl::Status> statuses(ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] { statuses[rank] = body(rank); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& status : statuses) {
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

// Rows by rank and destination, each token once per destination, experts at their homes.
Traffic TrafficOf(const Shape& shape, int ranks) {
  Geometry geometry;
  geometry.ranks = ranks;
  geometry.experts = shape.experts / ranks * ranks;
  geometry.tokens = shape.tokens;
  geometry.topk = shape.topk;
  std::mt19937_64 random(kSeed);
  const GroupInput group = PlainGroup(random, geometry);
  Traffic traffic;
  traffic.row_bytes = static_cast<size_t>(shape.hidden) * sizeof(BFloat16);
  traffic.rows.assign(ranks, std::vector<int64_t>(ranks, 0));
  auto route = group.topk_experts.begin();
  for (int token = 0; token < ranks * shape.tokens; ++token) {
    std::vector<bool> goes_to(ranks, false);
    for (int32_t k = 0; k < shape.topk; ++k) goes_to[geometry.home_rank(*route++)] = true;
    for (int to = 0; to < ranks; ++to) traffic.rows[token / shape.tokens][to] += goes_to[to];
  }
  return traffic;
}

// Of the rank that sends most to others.
size_t MostSentBytes(const Traffic& traffic) {
  size_t most = 0;
  for (int from = 0; from < traffic.ranks(); ++from) {
    size_t bytes = 0;
    for (int to = 0; to < traffic.ranks(); ++to) {
      if (to != from) bytes += traffic.BytesOf(from, to);
    }
    most = std::max(most, bytes);
  }
  return most;
}

// The median over the runs of the slowest rank's time.
absl::Duration MedianOfSlowest(const std::vector<std::vector<absl::Duration>>& times) {
  std::vector<absl::Duration> slowest;
  for (int run = kWarmUps; run < kWarmUps + kRuns; ++run) {
    absl::Duration most;
    for (const auto& of_rank : times) most = std::max(most, of_rank[run]);
    slowest.push_back(most);
  }
  std::sort(slowest.begin(), slowest.end());
  return (slowest[(kRuns - 1) / 2] + slowest[kRuns / 2]) / 2;
}

absl::StatusOr<std::string> MeasureShape(const Shape& shape, Ranks& ranks) {
  const int count = static_cast<int>(ranks.size());
  const Traffic traffic = TrafficOf(shape, count);
  absl::Status status = OnAll(count, [&](int rank) { return ranks[rank]->Prepare(traffic); });
  if (!status.ok()) return status;
  std::vector<std::vector<absl::Duration>> times(count);
  status = OnAll(count, [&](int rank) {
    absl::StatusOr<std::vector<absl::Duration>> measured = ranks[rank]->Exchange(kWarmUps + kRuns);
    if (measured.ok()) times[rank] = *std::move(measured);
    return measured.status();
  });
  if (status.ok()) {
    status = OnAll(count, [&](int rank) { return ranks[rank]->Check(traffic); });
  }
  if (!status.ok()) return status;
  const double microseconds = absl::ToDoubleMicroseconds(MedianOfSlowest(times));
  const size_t bytes = MostSentBytes(traffic);
  const double rate = static_cast<double>(bytes) / 1e3 / microseconds;
  absl::PrintF("%6d %6d %3d %4d %14d %10.1f %8.1f\n", shape.tokens, shape.hidden, shape.topk,
               shape.experts, bytes, microseconds, rate);
  return absl::StrFormat(
      "{\"ranks\": %d, \"tokens\": %d, \"hidden\": %d, \"topk\": %d, \"experts\": %d, "
      "\"most_bytes_sent_to_others\": %d, \"us\": %.1f, \"gb_s\": %.1f}",
      count, shape.tokens, shape.hidden, shape.topk, shape.experts, bytes, microseconds, rate);
}

absl::Status MeasureAll(const NcclLibrary& nccl, int count) {
  const auto id = NcclCommunicator::NewId(nccl.functions());
  if (!id.ok()) return id.status();
  Ranks ranks;
  for (int rank = 0; rank < count; ++rank) ranks.push_back(std::make_unique<NcclRank>(rank));
  absl::Status status = OnAll(count, [&](int rank) { return ranks[rank]->Join(nccl, *id, count); });
  if (!status.ok()) return status;
  absl::PrintF("%6s %6s %3s %4s %14s %10s %8s\n", "S", "H", "K", "E", "bytes sent", "us", "GB/s");
  std::vector<std::string> json;
  for (const Shape& shape : kShapes) {
    const absl::StatusOr<std::string> line = MeasureShape(shape, ranks);
    if (!line.ok()) return line.status();
    json.push_back(*line);
  }
  for (const std::string& line : json) std::printf("%s\n", line.c_str());
  return OnAll(count, [&](int rank) { return ranks[rank]->Leave(); });
}

int Main(const std::vector<std::string>& args) {
  if (!args.empty()) {
    const bool help = args[0] == "--help" || args[0] == "-h";
    std::fprintf(help ? stdout : stderr, "%s", kUsage);
    return help ? 0 : 2;
  }
  const CudaDevices devices = QueryCudaDevices();
  std::printf("nccl_bench: %s\n", DescribeCudaDevices(devices).c_str());
  if (devices.devices.empty()) return 2;
  const auto nccl = NcclLibrary::Open();
  if (!nccl.ok()) {
    std::fprintf(stderr, "nccl_bench: %s\n", nccl.status().ToString().c_str());
    return 2;
  }
  if (devices.devices.size() == 1) std::printf("One device: nothing is sent to others.\n");
  std::printf(
      "NCCL %s, %zu ranks, random routes, median of %d; bytes: to others, of the rank that "
      "sends most\n",
      (*nccl)->version_text().c_str(), devices.devices.size(), kRuns);
  const absl::Status status = MeasureAll(**nccl, static_cast<int>(devices.devices.size()));
  if (status.ok()) return 0;
  std::fprintf(stderr, "nccl_bench: %s\n", status.ToString().c_str());
  return 1;
}

}  // namespace
}  // namespace perigee

int main(int argc, char** argv) {
  return perigee::Main(std::vector<std::string>(argv + 1, argv + argc));
}
