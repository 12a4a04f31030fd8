#include "client/cli/bench/bench_command.h"

#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/cli/bench/bench_choice.h"
#include "client/cli/bench/bench_flags.h"
#include "client/cli/bench/bench_report.h"
#include "client/cli/bench/bench_session.h"
#include "client/cli/cluster/interrupt.h"
#include "client/cli/cluster/local_cluster.h"
#include "client/cli/coordinator_address.h"
#include "client/cli/output.h"
#include "client/cli/run/watch.h"
#include "client/lib/client.h"
#include "client/lib/group_error.h"
#include "client/lib/path_table.h"
#include "client/lib/path_table_update.h"

namespace perigee {
namespace {

constexpr const char* kName = "bench";

void Tell(const std::string& line) { std::cerr << absl::StrCat(line, "\n") << std::flush; }

int Fail(const absl::Status& status) {
  if (const auto error = GroupErrorOf(status)) {
    for (const v1::RankStatus& rank : error->ranks()) {
      if (rank.code() != 0) Tell(DescribeRank(rank));
    }
  }
  PrintFailure(kName, absl::IsCancelled(status) ? absl::CancelledError("cancelled") : status);
  return kFailed;
}

absl::Status MeasureAll(BenchSession& session, const BenchRequest& request, BenchResult& result) {
  if (absl::Status status = session.Create(); !status.ok()) return status;
  result.device = session.device();
  for (const BenchShape& shape : request.shapes) {
    absl::StatusOr<ShapeResult> measured = session.Measure(shape);
    if (!measured.ok()) return measured.status();
    result.shapes.push_back(*std::move(measured));
  }
  return absl::OkStatus();
}

// OK where there is no such file yet.
absl::Status CheckTable(const std::string& path) {
  const absl::Status status = PathTable::Read(path).status();
  return absl::IsNotFound(status) ? absl::OkStatus() : status;
}

// Adds what was measured to the table that is there by now.
absl::Status Calibrate(const std::string& path, const BenchResult& result) {
  std::vector<PathCell> cells;
  for (const ShapeResult& shape : result.shapes) {
    if (auto cell = CellOf(result, shape)) cells.push_back(*std::move(cell));
  }
  return AddToPathTable(path, cells);
}

// On the cluster at `address`; own_cluster is null where that is another's.
int BenchOn(const std::string& address, LocalCluster* own_cluster, int interrupt_fd,
            const BenchFlags& given, const BenchRequest& request) {
  std::stop_source stop;
  const RunWatch watch(interrupt_fd, own_cluster, stop, Tell);
  auto client = Client::Connect({.address = address, .stop = stop.get_token()});
  if (!client.ok()) return Fail(client.status());
  BenchSession session(**client, request.options, stop.get_token());
  BenchResult result;
  result.options = request.options;
  result.solo = given.solo;
  const absl::Status measured = MeasureAll(session, request, result);
  // A group of a cluster that goes with this command needs no closing after a failure.
  if (measured.ok() || own_cluster == nullptr) {
    const absl::Status deleted = session.Delete();
    if (!deleted.ok()) Tell(absl::StrCat("the group was not removed: ", deleted.message()));
  }
  if (!measured.ok()) return Fail(measured);
  // First: a table that cannot be written does not cost what was measured.
  const int printed = PrintResult(given.json ? BenchJson(result) : BenchText(result));
  if (!result.passes()) return kFailed;
  if (given.calibrate.empty()) return printed;
  const absl::Status kept = Calibrate(given.calibrate, result);
  return kept.ok() ? printed : Fail(kept);
}

int BenchOnOwnCluster(int interrupt_fd, const BenchFlags& given, const BenchRequest& request) {
  SupervisorOptions cluster_options = given.cluster;
  cluster_options.restart = false;
  auto cluster = LocalCluster::Start(cluster_options);
  absl::Status status = cluster.status();
  if (status.ok()) status = (*cluster)->WaitUntilReady(interrupt_fd);
  if (!status.ok()) {
    Fail(status);
    return absl::IsInvalidArgument(status) ? kWrongUse : kFailed;
  }
  return BenchOn((*cluster)->coordinator(), cluster->get(), interrupt_fd, given, request);
}

// Whether the trace fits every shape, before anything is started.
absl::Status CheckTrace(const BenchRequest& request) {
  if (request.options.routes.trace.empty()) return absl::OkStatus();
  for (const BenchShape& shape : request.shapes) {
    const auto routes = BenchRouteInputs(request.options.routes, shape, request.options.ranks, 1);
    if (!routes.ok()) return routes.status();
  }
  return absl::OkStatus();
}

int RunBench(const std::vector<std::string>& args) {
  BenchFlags given;
  FlagSet flags(kName, "Measures operations of a cluster, held against copies of their bytes.");
  DeclareBenchFlags(flags, given);
  if (const auto status = flags.ParseOrExit(args)) return *status;
  const std::string address = CoordinatorAddress(given.address);
  const absl::StatusOr<BenchRequest> request = ParseBenchRequest(flags, given, address);
  if (!request.ok()) return flags.WrongUse(request.status().message());
  if (const absl::Status trace = CheckTrace(*request); !trace.ok()) {
    return absl::IsFailedPrecondition(trace) ? flags.WrongUse(trace.message())
                                             : PrintFailure(kName, trace);
  }
  if (!given.calibrate.empty()) {
    const absl::Status table = CheckTable(given.calibrate);
    if (!table.ok()) return PrintFailure(kName, table);
  }
  // Before anything starts a thread: signals are blocked in all of them, and the cluster's
  // supervisor is forked from a process that has only one.
  const auto interrupts = TakeInterrupts();
  if (!interrupts.ok()) return PrintFailure(kName, interrupts.status());
  if (address.empty()) return BenchOnOwnCluster(interrupts->get(), given, *request);
  return BenchOn(address, nullptr, interrupts->get(), given, *request);
}

}  // namespace

const Command kBenchCommand = {kName, "measure operations beside copies of the same bytes",
                               RunBench};

}  // namespace perigee
