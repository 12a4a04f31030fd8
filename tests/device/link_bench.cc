// How fast the links between this machine's GPUs are, by the ways in which kernels move rows: for
// each ordered pair of devices a row of a table for each way and number of blocks, and then the
// same as lines of JSON.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "kernels/device/device_info.h"
#include "tests/device/link_device.h"

namespace perigee {
namespace {

constexpr char kUsage[] =
    "usage: link_bench [MIB]\n\n"
    "Copies MIB (default 1024) of random data from each CUDA device to each other one, checks "
    "what\n"
    "arrived, and prints the rates: one way, and each way where both go at once. On a machine "
    "with\n"
    "one device it copies within that device.\n"
    "  store      the sender's threads load and store into the receiver's memory\n"
    "  load       the receiver's threads load from the sender's memory and store\n"
    "  bulk push  the sender copies through shared memory by bulk copies\n"
    "  bulk pull  the receiver does\n"
    "Exit status 0: all bytes were right; 2: no device, or wrong use.\n";
constexpr int kWarmUps = 2;
constexpr int kRuns = 10;
constexpr int kBlocks[] = {8, 16, 24, 32, 132};

struct Method {
  const char* name;
  LinkCopy copy;
  bool pushes;  // the sender runs it
};
constexpr Method kMethods[] = {{"store", LinkCopy::kThreads, true},
                               {"load", LinkCopy::kThreads, false},
                               {"bulk push", LinkCopy::kBulk, true},
                               {"bulk pull", LinkCopy::kBulk, false}};

struct Way {
  LinkDevice* from;
  LinkDevice* to;
};

struct Row {
  int from = 0;
  int to = 0;
  const char* method = "";
  int blocks = 0;
  double one_way = 0;                // GB/s
  absl::optional<double> both_ways;  // the same way while the other goes, too
};

// Times of all ways at once, by way.
absl::StatusOr<std::vector<absl::Duration>> RunOnce(const std::vector<Way>& ways,
                                                    const Method& method, int blocks) {
  const auto runner = [&](const Way& way) { return method.pushes ? way.from : way.to; };
  for (const Way& way : ways) {
    absl::Status status = runner(way)->StartCopy(method.copy, blocks, *way.from, *way.to);
    if (!status.ok()) return status;
  }
  std::vector<absl::Duration> times;
  for (const Way& way : ways) {
    const absl::StatusOr<absl::Duration> time = runner(way)->AwaitCopy();
    if (!time.ok()) return time.status();
    times.push_back(*time);
  }
  return times;
}

// Median GB/s of each way.
absl::StatusOr<std::vector<double>> Measure(const std::vector<Way>& ways, const Method& method,
                                            int blocks, size_t bytes) {
  for (const Way& way : ways) {
    if (absl::Status status = way.to->PoisonTarget(); !status.ok()) return status;
  }
  std::vector<std::vector<absl::Duration>> times(ways.size());
  for (int run = 0; run < kWarmUps + kRuns; ++run) {
    const absl::StatusOr<std::vector<absl::Duration>> once = RunOnce(ways, method, blocks);
    if (!once.ok()) return once.status();
    if (run < kWarmUps) continue;
    for (size_t i = 0; i < ways.size(); ++i) times[i].push_back((*once)[i]);
  }
  std::vector<double> rates;
  for (size_t i = 0; i < ways.size(); ++i) {
    absl::Status status = ways[i].to->CheckTarget(*ways[i].from);
    if (!status.ok()) {
      return absl::Status(status.code(), absl::StrCat(method.name, ", ", blocks,
                                                      " blocks: ", std::string(status.message())));
    }
    std::sort(times[i].begin(), times[i].end());
    const absl::Duration median = (times[i][(kRuns - 1) / 2] + times[i][kRuns / 2]) / 2;
    rates.push_back(static_cast<double>(bytes) / absl::ToDoubleNanoseconds(median));
  }
  return rates;
}

std::string BothWays(const Row& row, const char* none) {
  return row.both_ways ? absl::StrFormat("%.1f", *row.both_ways) : none;
}

void PrintRow(const Row& row) {
  absl::PrintF("%4d %4d  %-10s %6d %12.1f %12s\n", row.from, row.to, row.method, row.blocks,
               row.one_way, BothWays(row, "-"));
  std::fflush(stdout);
}

void PrintJson(const Row& row, size_t bytes) {
  absl::PrintF(
      "{\"from\": %d, \"to\": %d, \"method\": \"%s\", \"blocks\": %d, \"bytes\": %d, "
      "\"one_way_gb_s\": %.1f, \"both_ways_gb_s\": %s}\n",
      row.from, row.to, row.method, row.blocks, bytes, row.one_way, BothWays(row, "null"));
}

// Both ways between two devices, or from one to itself; adds to the rows.
absl::Status MeasurePair(LinkDevice& first, LinkDevice& second, size_t bytes,
                         std::vector<Row>& table) {
  std::vector<Way> ways = {{&first, &second}};
  if (&first != &second) ways.push_back({&second, &first});
  for (const Method& method : kMethods) {
    for (const int blocks : kBlocks) {
      std::vector<Row> rows;
      for (const Way& way : ways) {
        const auto rate = Measure({way}, method, blocks, bytes);
        if (!rate.ok()) return rate.status();
        rows.push_back(
            {way.from->device(), way.to->device(), method.name, blocks, rate->front(), {}});
      }
      if (ways.size() > 1) {
        const auto rates = Measure(ways, method, blocks, bytes);
        if (!rates.ok()) return rates.status();
        for (size_t i = 0; i < ways.size(); ++i) rows[i].both_ways = (*rates)[i];
      }
      for (const Row& row : rows) PrintRow(row);
      table.insert(table.end(), rows.begin(), rows.end());
    }
  }
  return absl::OkStatus();
}

absl::Status MeasureAll(int devices, size_t bytes, std::vector<Row>& table) {
  std::vector<std::unique_ptr<LinkDevice>> links;
  for (int device = 0; device < devices; ++device) {
    auto link = LinkDevice::Create(device, bytes);
    if (!link.ok()) return link.status();
    links.push_back(*std::move(link));
  }
  for (const auto& link : links) {
    for (const auto& peer : links) {
      if (link == peer) continue;
      if (absl::Status status = link->Map(*peer); !status.ok()) return status;
    }
  }
  absl::PrintF("%4s %4s  %-10s %6s %12s %12s\n", "from", "to", "method", "blocks", "one way",
               "both at once");
  if (devices == 1) return MeasurePair(*links[0], *links[0], bytes, table);
  for (int first = 0; first < devices; ++first) {
    for (int second = first + 1; second < devices; ++second) {
      absl::Status status = MeasurePair(*links[first], *links[second], bytes, table);
      if (!status.ok()) return status;
    }
  }
  return absl::OkStatus();
}

int Main(const std::vector<std::string>& args) {
  size_t mib = 1024;
  if (args.size() == 1 && (args[0] == "--help" || args[0] == "-h")) {
    std::printf("%s", kUsage);
    return 0;
  }
  if (args.size() > 1 || (args.size() == 1 && (!absl::SimpleAtoi(args[0], &mib) || mib == 0))) {
    std::fprintf(stderr, "%s", kUsage);
    return 2;
  }
  const CudaDevices devices = QueryCudaDevices();
  std::printf("link_bench: %s\n", DescribeCudaDevices(devices).c_str());
  if (devices.devices.empty()) return 2;
  if (devices.devices.size() == 1) {
    std::printf("One device: copies within it, no link is measured.\n");
  }
  std::printf("GB/s of %zu MiB of random data, median of %d\n", mib, kRuns);
  std::vector<Row> table;
  const absl::Status status =
      MeasureAll(static_cast<int>(devices.devices.size()), mib << 20, table);
  for (const Row& row : table) PrintJson(row, mib << 20);
  if (status.ok()) return 0;
  std::fprintf(stderr, "link_bench: %s\n", status.ToString().c_str());
  return 1;
}

}  // namespace
}  // namespace perigee

int main(int argc, char** argv) {
  return perigee::Main(std::vector<std::string>(argv + 1, argv + argc));
}
