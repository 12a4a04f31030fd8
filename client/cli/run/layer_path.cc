#include "client/cli/run/layer_path.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"

namespace perigee {
namespace {

constexpr DispatchPath kPaths[] = {DispatchPath::kOrdinary, DispatchPath::kDirect,
                                   DispatchPath::kDirectOverlapped, DispatchPath::kPull};

}  // namespace

std::vector<std::string> LayerPathNames() {
  std::vector<std::string> names = {kAutoPath};
  for (const DispatchPath path : kPaths) names.push_back(PathName(path));
  return names;
}

absl::StatusOr<LayerPath> ReadLayerPath(const std::string& name, const std::string& table_path) {
  if (name == kAutoPath) {
    absl::StatusOr<PathTable> table = PathTable::Read(table_path);
    if (!table.ok()) return table.status();
    return LayerPath{DispatchPath::kOrdinary, *std::move(table), /*asked_for=*/false};
  }
  for (const DispatchPath path : kPaths) {
    if (name == PathName(path)) return LayerPath{path, absl::nullopt, /*asked_for=*/true};
  }
  return absl::InvalidArgumentError(absl::StrCat("there is no path '", name.substr(0, 80), "'"));
}

absl::StatusOr<PathMachine> MachineOf(Client& client, const v1::Group& group) {
  PathMachine machine;
  machine.backend = group.backend();
  if (!group.transport().empty()) machine.transport = group.transport();
  std::set<std::string> gpus;
  for (const auto& member : group.members()) {
    const auto worker = client.GetWorker(member.worker());
    if (!worker.ok()) return worker.status();
    if (machine.device.empty()) machine.device = worker->device();
    gpus.insert(worker->gpu().uuid());
  }
  machine.devices = std::max(1, static_cast<int32_t>(gpus.size()));
  return machine;
}

PathChoice ChooseLayerPath(const LayerPath& path, const PathMachine& machine,
                           const LayerInput& input, const LayerBuffer& buffer) {
  if (path.asked_for) return {path.path, "it was asked for", PathBasis::kAskedFor, ""};
  if (!path.table) {
    return {path.path, "it is the default, and no path was asked for", PathBasis::kDefault, ""};
  }
  PathQuery query;
  query.machine = machine;
  query.shape = {static_cast<int32_t>(input.tokens() / buffer.ranks),
                 input.hidden(),
                 input.topk(),
                 input.experts(),
                 buffer.ranks,
                 buffer.token_padding,
                 buffer.slots,
                 0};
  const TensorView routes = input.ForRank(0, 1).topk_experts;
  query.home_imbalance = HomeImbalanceOf(
      {reinterpret_cast<const int32_t*>(routes.data.data()), routes.data.size() / sizeof(int32_t)},
      input.experts(), buffer.ranks);
  query.consumer_reads_peers = machine.transport == "nvlink";
  return ChoosePath(*path.table, query);
}

}  // namespace perigee
