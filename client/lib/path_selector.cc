#include "client/lib/path_selector.h"

#include <algorithm>
#include <array>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace perigee {
namespace {

// Of v1::PathChoice.
constexpr size_t kMaxCellBytes = 1024;
constexpr size_t kMaxReasonBytes = 4096;

// One path, what it is held against, and what a cell says of both.
struct Candidate {
  DispatchPath path;
  absl::optional<double> PathCosts::*cost;
  absl::optional<double> PathCosts::*ordinary;
};
constexpr std::array<Candidate, 3> kCandidates = {{
    {DispatchPath::kDirect, &PathCosts::direct_us, &PathCosts::produce_dispatch_us},
    {DispatchPath::kDirectOverlapped, &PathCosts::direct_overlapped_us,
     &PathCosts::produce_dispatch_us},
    {DispatchPath::kPull, &PathCosts::pull_us, &PathCosts::dispatch_us},
}};

bool Possible(const PathQuery& query, DispatchPath path) {
  switch (path) {
    case DispatchPath::kDirect:
      return query.producer_writes_in_place;
    case DispatchPath::kDirectOverlapped:
      return query.producer_writes_in_place && query.prepares_beside;
    case DispatchPath::kPull:
      return query.consumer_reads_peers;
    case DispatchPath::kOrdinary:
      break;
  }
  return true;
}

// The cells that costs are read off: one, or two with the second's part.
struct Reading {
  const PathCell* below = nullptr;
  const PathCell* above = nullptr;
  double part_above = 0;

  // Their names within machine and shape.
  std::string Routes() const {
    const auto name = [](const PathCell& cell) {
      return absl::StrFormat("%s (home imbalance %.3g)", cell.routes, cell.home_imbalance);
    };
    return below == above ? name(*below) : absl::StrCat(name(*below), " and ", name(*above));
  }
  std::string Describe() const {
    if (below == above) return absl::StrFormat("at home imbalance %.3g", below->home_imbalance);
    return absl::StrFormat("between home imbalances %.3g and %.3g", below->home_imbalance,
                           above->home_imbalance);
  }
};

// Of cells that have both costs, by home imbalance. None: too far from all of them.
absl::optional<Reading> ReadingAt(std::vector<const PathCell*> cells, double imbalance) {
  std::sort(cells.begin(), cells.end(), [](const PathCell* a, const PathCell* b) {
    return a->home_imbalance < b->home_imbalance;
  });
  const auto is_below = [&](const PathCell* cell) { return cell->home_imbalance <= imbalance; };
  const auto above = std::partition_point(cells.begin(), cells.end(), is_below);
  const PathCell* const lower = above == cells.begin() ? nullptr : *(above - 1);
  const PathCell* const upper = above == cells.end() ? nullptr : *above;
  if (lower != nullptr && (upper == nullptr || lower->home_imbalance == imbalance)) {
    if (imbalance > lower->home_imbalance * (1 + kNearImbalance)) return absl::nullopt;
    return Reading{lower, lower, 0};
  }
  if (lower == nullptr) {
    if (upper == nullptr || imbalance < upper->home_imbalance * (1 - kNearImbalance)) {
      return absl::nullopt;
    }
    return Reading{upper, upper, 0};
  }
  return Reading{
      lower, upper,
      (imbalance - lower->home_imbalance) / (upper->home_imbalance - lower->home_imbalance)};
}

struct Verdict {
  bool faster = false;
  double saving_us = 0;
  std::string words;
};

Verdict Judge(const Candidate& candidate, const Reading& reading) {
  const auto cost = [](const PathCell& cell, absl::optional<double> PathCosts::*of) {
    return *(cell.costs.*of);
  };
  const auto read = [&](absl::optional<double> PathCosts::*of) {
    return cost(*reading.below, of) * (1 - reading.part_above) +
           cost(*reading.above, of) * reading.part_above;
  };
  const auto saves = [&](const PathCell& cell) {
    return cost(cell, candidate.cost) <= cost(cell, candidate.ordinary) * (1 - kLeastSaving);
  };
  const double path_us = read(candidate.cost);
  const double ordinary_us = read(candidate.ordinary);
  Verdict verdict;
  verdict.faster = saves(*reading.below) && saves(*reading.above);
  verdict.saving_us = ordinary_us - path_us;
  verdict.words =
      absl::StrFormat("%s takes %.1f us where ordinary takes %.1f us, %s", PathName(candidate.path),
                      path_us, ordinary_us, reading.Describe());
  return verdict;
}

std::vector<const PathCell*> CellsOf(const PathTable& table, const PathQuery& query) {
  std::vector<const PathCell*> cells;
  for (const PathCell& cell : table.cells()) {
    if (!cell.shape.recorded()) continue;
    if (cell.machine == query.machine && cell.shape == query.shape) cells.push_back(&cell);
  }
  return cells;
}

// Why there are none.
std::string NoCells(const PathTable& table, const PathQuery& query) {
  int64_t of_machine = 0;
  int64_t not_recorded = 0;
  for (const PathCell& cell : table.cells()) {
    if (cell.machine != query.machine) continue;
    ++of_machine;
    if (cell.shape == query.shape.AsNotRecorded()) ++not_recorded;
  }
  std::string text = absl::StrCat(
      "nothing was measured for ", Describe(query.shape), " on ", Describe(query.machine),
      "; of the table's ", table.cells().size(), " cells ", of_machine, " are of this machine");
  if (not_recorded > 0) {
    absl::StrAppend(&text, ", ", not_recorded,
                    " of them of this shape without its P, B and rings: to be measured again");
  }
  return text;
}

// No longer than the wire takes it, and no character in parts.
std::string Shortened(const std::string& text, size_t most) {
  if (text.size() <= most) return text;
  size_t end = most;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  return text.substr(0, end);
}

v1::PathChoice::Basis WireBasis(PathBasis basis) {
  switch (basis) {
    case PathBasis::kDefault:
      return v1::PathChoice::DEFAULT;
    case PathBasis::kAskedFor:
      return v1::PathChoice::ASKED_FOR;
    case PathBasis::kMeasured:
      return v1::PathChoice::MEASURED;
    case PathBasis::kNotMeasured:
      return v1::PathChoice::NOT_MEASURED;
  }
  return v1::PathChoice::BASIS_UNSPECIFIED;
}

}  // namespace

const char* PathName(DispatchPath path) {
  switch (path) {
    case DispatchPath::kOrdinary:
      return "ordinary";
    case DispatchPath::kDirect:
      return "direct";
    case DispatchPath::kDirectOverlapped:
      return "direct_overlapped";
    case DispatchPath::kPull:
      return "pull";
  }
  return "";
}

v1::PathChoice ToWire(const PathChoice& choice) {
  v1::PathChoice wire;
  wire.set_path(PathName(choice.path));
  wire.set_basis(WireBasis(choice.basis));
  wire.set_cell(Shortened(choice.cell, kMaxCellBytes));
  wire.set_reason(Shortened(choice.reason, kMaxReasonBytes));
  return wire;
}

PathChoice ChoosePath(const PathTable& table, const PathQuery& query) {
  if (!query.producer_writes_in_place && !query.consumer_reads_peers) {
    return {DispatchPath::kOrdinary,
            "the producer cannot write in place, and the consumer cannot read peers",
            PathBasis::kDefault, ""};
  }
  const std::vector<const PathCell*> cells = CellsOf(table, query);
  if (cells.empty()) {
    return {DispatchPath::kOrdinary, NoCells(table, query), PathBasis::kNotMeasured, ""};
  }
  PathChoice choice;
  choice.basis = PathBasis::kNotMeasured;
  double most_us = 0;
  std::vector<std::string> slower;
  for (const Candidate& candidate : kCandidates) {
    if (!Possible(query, candidate.path)) continue;
    std::vector<const PathCell*> measured;
    std::copy_if(cells.begin(), cells.end(), std::back_inserter(measured),
                 [&](const PathCell* cell) {
                   return cell->costs.*candidate.cost && cell->costs.*candidate.ordinary;
                 });
    const absl::optional<Reading> reading = ReadingAt(measured, query.home_imbalance);
    if (!reading) {
      slower.push_back(absl::StrFormat("%s was not measured near home imbalance %.3g",
                                       PathName(candidate.path), query.home_imbalance));
      continue;
    }
    const Verdict verdict = Judge(candidate, *reading);
    const std::string cell = absl::StrCat(Describe(query.shape), " on ", Describe(query.machine),
                                          ", ", reading->Routes());
    if (!verdict.faster) {
      slower.push_back(verdict.words);
      if (choice.basis == PathBasis::kNotMeasured) {
        choice = {DispatchPath::kOrdinary, "", PathBasis::kMeasured, cell};
      }
    } else if (verdict.saving_us > most_us) {
      most_us = verdict.saving_us;
      choice = {candidate.path, verdict.words, PathBasis::kMeasured, cell};
    }
  }
  if (choice.path == DispatchPath::kOrdinary) choice.reason = absl::StrJoin(slower, "; ");
  return choice;
}

double HomeImbalanceOf(absl::Span<const int32_t> topk_experts, int32_t experts, int32_t ranks) {
  std::vector<int64_t> loads(ranks);
  int64_t all = 0;
  for (const int32_t expert : topk_experts) {
    if (expert < 0) continue;
    ++loads[expert / (experts / ranks)];
    ++all;
  }
  if (all == 0) return 1;
  const int64_t most = *std::max_element(loads.begin(), loads.end());
  return static_cast<double>(most) * ranks / static_cast<double>(all);
}

}  // namespace perigee
