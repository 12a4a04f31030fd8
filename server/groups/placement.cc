#include "server/groups/placement.h"

#include <algorithm>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"

namespace perigee {
namespace {

using HostWorkers = std::map<std::string, std::vector<std::string>>;

// READY workers of `backend` by host, in order of name.
HostWorkers ReadyByHost(const std::string& backend, const std::vector<v1::Worker>& workers) {
  HostWorkers ready;
  for (const v1::Worker& worker : workers) {
    if (worker.state() == v1::Worker::READY && worker.backend() == backend) {
      ready[worker.host()].push_back(worker.name());
    }
  }
  return ready;
}

absl::Status TooFew(int32_t ranks, const std::string& backend, const HostWorkers& ready,
                    const std::vector<v1::Worker>& workers) {
  size_t ready_count = 0;
  size_t most = 0;
  for (const auto& [host, names] : ready) {
    ready_count += names.size();
    most = std::max(most, names.size());
  }
  const auto in_state = [&](v1::Worker::State state) {
    return std::count_if(workers.begin(), workers.end(), [&](const v1::Worker& worker) {
      return worker.backend() == backend && worker.state() == state;
    });
  };
  std::string message = absl::StrCat("needed ", ranks, " READY workers of backend ", backend,
                                     " on one host; there are ", ready_count);
  if (most < ready_count) absl::StrAppend(&message, ", at most ", most, " on one host");
  absl::StrAppend(&message, " (", in_state(v1::Worker::ASSIGNED), " in other groups, ",
                  in_state(v1::Worker::LOST), " lost)");
  return absl::ResourceExhaustedError(message);
}

absl::StatusOr<const v1::Worker*> FindReady(const std::string& name, const std::string& backend,
                                            const std::vector<v1::Worker>& workers) {
  const auto found = std::find_if(workers.begin(), workers.end(),
                                  [&](const v1::Worker& w) { return w.name() == name; });
  if (found == workers.end()) return absl::NotFoundError(absl::StrCat("no worker '", name, "'"));
  if (found->backend() != backend) {
    return absl::FailedPreconditionError(
        absl::StrCat(name, " has backend ", found->backend(), ", the group asks for ", backend));
  }
  if (found->state() != v1::Worker::READY) {
    return absl::FailedPreconditionError(absl::StrCat(
        name, " is ", v1::Worker::State_Name(found->state()),
        found->group().empty() ? "" : absl::StrCat(" (", found->group(), ")"), ", expected READY"));
  }
  return &*found;
}

absl::StatusOr<std::vector<std::string>> PlaceWanted(int32_t ranks, const std::string& backend,
                                                     const std::vector<std::string>& wanted,
                                                     const std::vector<v1::Worker>& workers) {
  const std::set<std::string> different(wanted.begin(), wanted.end());
  if (wanted.size() != static_cast<size_t>(ranks) || different.size() != wanted.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(wanted.size(), " workers are named, ", different.size(),
                     " of them different; expected ", ranks, " different ones, one per rank"));
  }
  std::string host;
  for (const std::string& name : wanted) {
    const auto worker = FindReady(name, backend, workers);
    if (!worker.ok()) return worker.status();
    if (&name == &wanted.front()) host = (*worker)->host();
    if ((*worker)->host() != host) {
      return absl::FailedPreconditionError(absl::StrCat(
          name, " is on ", (*worker)->host(), ", expected ", host, " as ", wanted.front()));
    }
  }
  return wanted;
}

// The workers of one host, as replacements.
class Replacements {
 public:
  Replacements(const Survivors& survivors, const std::vector<std::string>& ready,
               const std::vector<v1::Worker>& workers)
      : transport_(survivors.transport),
        workers_(workers),
        names_(survivors.workers),
        free_(ready.begin(), ready.end()) {}

  bool Take(const RankWorker& rank, const std::string& name) {
    if (free_.count(name) == 0) return false;
    names_.push_back(name);
    if (!CheckLinks(transport_, names_, workers_).ok()) {
      names_.pop_back();
      return false;
    }
    free_.erase(name);
    chosen_.push_back({rank.rank, name});
    return true;
  }
  bool TakeAny(const RankWorker& rank) {
    const std::set<std::string> free = free_;
    return std::any_of(free.begin(), free.end(),
                       [&](const std::string& name) { return Take(rank, name); });
  }
  const std::vector<RankWorker>& chosen() const { return chosen_; }

 private:
  const std::string transport_;
  const std::vector<v1::Worker>& workers_;
  std::vector<std::string> names_;  // of all ranks so far
  std::set<std::string> free_;
  std::vector<RankWorker> chosen_;
};

}  // namespace

absl::StatusOr<std::vector<std::string>> PlaceRanks(int32_t ranks, const std::string& backend,
                                                    const std::vector<std::string>& wanted,
                                                    const std::vector<v1::Worker>& workers) {
  if (!wanted.empty()) return PlaceWanted(ranks, backend, wanted, workers);
  HostWorkers ready = ReadyByHost(backend, workers);
  for (auto& [host, names] : ready) {
    if (names.size() < static_cast<size_t>(ranks)) continue;
    names.resize(static_cast<size_t>(ranks));
    return names;
  }
  return TooFew(ranks, backend, ready, workers);
}

absl::Status CheckLinks(const std::string& transport, const std::vector<std::string>& names,
                        const std::vector<v1::Worker>& workers) {
  std::map<std::string, v1::Gpu> gpus;
  for (const v1::Worker& worker : workers) gpus[worker.name()] = worker.gpu();
  for (size_t from = 0; from < names.size(); ++from) {
    for (size_t to = 0; to < names.size(); ++to) {
      const v1::Gpu& own = gpus[names[from]];
      const std::string& other = gpus[names[to]].uuid();
      if (from == to || own.uuid().empty() || other.empty()) continue;
      const std::string ranks =
          absl::StrCat("rank ", from, " (", names[from], ") and rank ", to, " (", names[to], ")");
      if (transport == "nccl" && own.uuid() == other) {
        return absl::FailedPreconditionError(
            absl::StrCat(ranks, " have one GPU, and NCCL takes one for each rank"));
      }
      const auto& unreachable = own.unreachable();
      if (transport == "nccl" ||
          std::find(unreachable.begin(), unreachable.end(), other) == unreachable.end()) {
        continue;
      }
      return absl::FailedPreconditionError(
          absl::StrCat("the GPUs of ", ranks,
                       " cannot use each other's memory, as transport nvlink needs it; transport "
                       "nccl takes such ranks"));
    }
  }
  return absl::OkStatus();
}

absl::optional<std::vector<RankWorker>> PlaceReplacements(const std::vector<RankWorker>& lost,
                                                          const std::string& backend,
                                                          const Survivors& survivors,
                                                          const std::vector<v1::Worker>& workers) {
  for (const auto& [host, ready] : ReadyByHost(backend, workers)) {
    if (!survivors.host.empty() && host != survivors.host) continue;
    Replacements replacements(survivors, ready, workers);
    std::vector<RankWorker> others;
    for (const RankWorker& rank : lost) {
      if (!replacements.Take(rank, rank.worker)) others.push_back(rank);
    }
    const bool all = std::all_of(others.begin(), others.end(), [&](const RankWorker& rank) {
      return replacements.TakeAny(rank);
    });
    if (all) return replacements.chosen();
  }
  return absl::nullopt;
}

}  // namespace perigee
