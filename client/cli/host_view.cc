#include "client/cli/host_view.h"

#include <algorithm>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"

namespace perigee {
namespace {

std::string ShortName(const v1::Worker& worker) {
  return std::string(absl::StripPrefix(worker.name(), "workers/"));
}

bool HasGpu(const v1::Worker& worker) { return !worker.gpu().uuid().empty(); }

// How `from`'s GPU gets at the memory of `to`'s.
std::string Reach(const v1::Worker& from, const v1::Worker& to) {
  if (!HasGpu(from) || !HasGpu(to) || from.name() == to.name()) return "-";
  const v1::Gpu& gpu = from.gpu();
  if (gpu.uuid() == to.gpu().uuid()) return "same GPU";
  const auto has = [&](const auto& uuids) {
    return std::find(uuids.begin(), uuids.end(), to.gpu().uuid()) != uuids.end();
  };
  if (has(gpu.peers())) return "yes";
  return has(gpu.unreachable()) ? "no" : "unknown";
}

double LinkRate(const v1::Gpu& gpu) { return gpu.nvlink_megabytes_per_second() / 1e3; }

std::string LinksOf(const v1::Gpu& gpu) {
  if (gpu.nvlinks() == 0) return "none";
  if (gpu.nvlink_megabytes_per_second() == 0) return absl::StrCat(gpu.nvlinks());
  return absl::StrFormat("%d of %.1f GB/s", gpu.nvlinks(), LinkRate(gpu));
}

std::string OrUnknown(const std::string& text) { return text.empty() ? "unknown" : text; }

// All that the workers tell, each once.
std::set<std::string> Gpus(const HostView& host) {
  std::set<std::string> uuids;
  for (const v1::Worker& worker : host.workers) {
    if (HasGpu(worker)) uuids.insert(worker.gpu().uuid());
  }
  return uuids;
}

template <typename Uuids>
std::vector<std::string> ToVector(const Uuids& uuids) {
  return std::vector<std::string>(uuids.begin(), uuids.end());
}

}  // namespace

absl::StatusOr<std::vector<HostView>> HostsOf(const std::vector<v1::Worker>& workers,
                                              const std::string& name) {
  std::map<std::string, HostView> hosts;
  for (const v1::Worker& worker : workers) {
    if (worker.state() == v1::Worker::LOST) continue;
    HostView& host = hosts[worker.host()];
    host.name = worker.host();
    host.workers.push_back(worker);
  }
  std::vector<HostView> found;
  std::vector<std::string> names;
  for (const auto& [host_name, host] : hosts) {
    names.push_back(host_name);
    if (name.empty() || name == host_name) found.push_back(host);
  }
  if (!found.empty() || name.empty()) return found;
  return absl::NotFoundError(absl::StrCat("no worker is on ", name, "; workers are on: ",
                                          names.empty() ? "none" : absl::StrJoin(names, ", ")));
}

std::vector<std::string> TableHeader(const HostView&) { return {"NAME", "WORKERS", "GPUS"}; }

std::vector<std::string> TableRow(const HostView& host) {
  return {host.name, absl::StrCat(host.workers.size()), absl::StrCat(Gpus(host).size())};
}

std::string DescribeHost(const HostView& host) {
  std::vector<std::string> header = {"WORKER", "GPU", "PCI", "DRIVER", "NVLINKS", "MPS"};
  for (const v1::Worker& worker : host.workers) {
    if (HasGpu(worker)) header.push_back(absl::StrCat("REACHES ", ShortName(worker)));
  }
  TextTable table(header);
  std::vector<std::string> without;
  for (const v1::Worker& worker : host.workers) {
    if (!HasGpu(worker)) {
      without.push_back(absl::StrCat(ShortName(worker), " (backend ", worker.backend(), ")"));
      continue;
    }
    const v1::Gpu& gpu = worker.gpu();
    std::vector<std::string> row = {ShortName(worker), gpu.name(),
                                    gpu.pci(),         OrUnknown(gpu.driver()),
                                    LinksOf(gpu),      gpu.mps() ? "on" : "off"};
    for (const v1::Worker& other : host.workers) {
      if (HasGpu(other)) row.push_back(Reach(worker, other));
    }
    table.AddRow(row);
  }
  std::string text = absl::StrCat(host.name, "\n");
  if (without.size() < host.workers.size()) absl::StrAppend(&text, table.ToString());
  if (!without.empty()) {
    absl::StrAppend(&text, "no GPU is known of: ", absl::StrJoin(without, ", "), "\n");
  }
  return text;
}

void WriteJson(const HostView& host, JsonWriter& json) {
  json.BeginObject();
  json.Field("name", host.name);
  json.Key("workers");
  json.BeginArray();
  for (const v1::Worker& worker : host.workers) {
    json.BeginObject();
    json.Field("worker", worker.name());
    json.Field("backend", worker.backend());
    json.Key("gpu");
    if (HasGpu(worker)) {
      const v1::Gpu& gpu = worker.gpu();
      json.BeginObject();
      json.Field("uuid", gpu.uuid());
      json.Field("name", gpu.name());
      json.Field("pci", gpu.pci());
      json.Field("driver", gpu.driver());
      json.Field("mps", gpu.mps());
      json.Field("nvlinks", int32_t{gpu.nvlinks()});
      json.Field("nvlink_gigabytes_per_second", LinkRate(gpu));
      json.ArrayField("peers", ToVector(gpu.peers()));
      json.ArrayField("unreachable", ToVector(gpu.unreachable()));
      json.EndObject();
    } else {
      json.Null();
    }
    json.EndObject();
  }
  json.EndArray();
  json.EndObject();
}

}  // namespace perigee
