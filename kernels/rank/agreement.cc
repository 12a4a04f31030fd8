#include "kernels/rank/agreement.h"

#include <cstddef>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/plan/histogram.h"

namespace perigee {
namespace {

bool Has(const RankEntry& entry, uint32_t flag) { return (entry.record.flags & flag) != 0; }

// The rank whose statement the most ranks share; of several, the lowest. -1 if all declined.
int32_t Spokesman(absl::Span<const RankEntry> entries) {
  int32_t best = -1;
  size_t best_votes = 0;
  for (size_t rank = 0; rank < entries.size(); ++rank) {
    if (Has(entries[rank], kEntryDeclined)) continue;
    size_t votes = 0;
    for (const RankEntry& other : entries) {
      const bool same = other.record.statement_hash == entries[rank].record.statement_hash;
      votes += !Has(other, kEntryDeclined) && same ? 1 : 0;
    }
    if (votes <= best_votes) continue;
    best = static_cast<int32_t>(rank);
    best_votes = votes;
  }
  return best;
}

struct Field {
  const char* name;
  std::string theirs;
  std::string ours;
};

// Every field of a statement, in the order in which people want to hear of them.
std::vector<Field> Fields(const Statement& theirs, const Statement& ours) {
  std::vector<Field> fields;
  const auto add = [&fields](const char* name, auto a, auto b) {
    fields.push_back({name, absl::StrCat(a), absl::StrCat(b)});
  };
  const OperationDescriptor& a = theirs.descriptor;
  const OperationDescriptor& b = ours.descriptor;
  add("generation", theirs.tag.generation.value, ours.tag.generation.value);
  add("buffer", theirs.tag.buffer.value, ours.tag.buffer.value);
  add("sequence", theirs.tag.sequence.value, ours.tag.sequence.value);
  add("operation", OperationName(a.operation), OperationName(b.operation));
  add("layer", a.layer, b.layer);
  add("weights version", a.weights_version, b.weights_version);
  add("plan of sequence", a.plan_sequence, b.plan_sequence);
  add("tokens", a.tokens, b.tokens);
  add("hidden", a.hidden, b.hidden);
  add("topk", a.topk, b.topk);
  add("experts", a.experts, b.experts);
  add("slots", a.slots, b.slots);
  add("token padding", a.token_padding, b.token_padding);
  add("intermediate", a.intermediate, b.intermediate);
  add("dtype", a.dtype, b.dtype);
  return fields;
}

std::string DescribeDifference(int32_t rank, const Statement& theirs, int32_t spokesman,
                               const Statement& ours) {
  std::vector<std::string> differences;
  for (const Field& field : Fields(theirs, ours)) {
    if (field.theirs == field.ours) continue;
    differences.push_back(absl::StrCat("rank ", rank, " says ", field.name, " ", field.theirs,
                                       ", rank ", spokesman, " says ", field.ours));
  }
  // Equal statements with different hashes: what one of the two stored has changed since.
  if (differences.empty()) {
    return absl::StrCat("ranks ", rank, " and ", spokesman, " gave different statement hashes");
  }
  return absl::StrJoin(differences, "; ");
}

std::string DescribeSlot(uint32_t slot) {
  return slot == 0 ? "the shard" : absl::StrCat("dispatch-output slot ", slot - 1);
}

Decision FindDisagreement(absl::Span<const RankEntry> entries) {
  const int32_t spokesman = Spokesman(entries);
  for (size_t rank = 0; rank < entries.size(); ++rank) {
    const RankEntry& entry = entries[rank];
    if (Has(entry, kEntryDeclined)) continue;
    Decision decision;
    decision.reason = AbortReason::kDisagreement;
    decision.rank = static_cast<int32_t>(rank);
    decision.expected = static_cast<int64_t>(entries[spokesman].record.statement_hash);
    decision.seen = static_cast<int64_t>(entry.record.statement_hash);
    if (decision.seen != decision.expected) {
      decision.text = DescribeDifference(decision.rank, entry.statement, spokesman,
                                         entries[spokesman].statement);
      return decision;
    }
    if (Has(entry, kEntryGathersWeights) != Has(entries[spokesman], kEntryGathersWeights)) {
      const bool gathers = Has(entry, kEntryGathersWeights);
      decision.text =
          absl::StrCat("rank ", rank, gathers ? " gathers" : " does not gather",
                       " route weights, rank ", spokesman, gathers ? " does not" : " does");
      return decision;
    }
    if (entry.record.slot != entries[spokesman].record.slot) {
      decision.text =
          absl::StrCat("rank ", rank, " writes ", DescribeSlot(entry.record.slot), ", rank ",
                       spokesman, " ", DescribeSlot(entries[spokesman].record.slot));
      return decision;
    }
  }
  return {};
}

Decision FindFlag(absl::Span<const RankEntry> entries, uint32_t flag, AbortReason reason,
                  const char* what) {
  Decision decision;
  std::vector<size_t> ranks;
  for (size_t rank = 0; rank < entries.size(); ++rank) {
    if (Has(entries[rank], flag)) ranks.push_back(rank);
  }
  if (ranks.empty()) return decision;
  decision.reason = reason;
  decision.rank = static_cast<int32_t>(ranks.front());
  decision.text =
      absl::StrCat(ranks.size() == 1 ? "rank " : "ranks ", absl::StrJoin(ranks, ", "), " ", what);
  return decision;
}

Decision FindBadRoute(absl::Span<const RankEntry> entries) {
  for (size_t rank = 0; rank < entries.size(); ++rank) {
    const RankEntry& entry = entries[rank];
    if (!Has(entry, kEntryBadRoute)) continue;
    const BadRoute route{entry.planning.bad_token, entry.planning.bad_k, entry.planning.bad_value};
    const int32_t experts = entry.statement.descriptor.experts;
    Decision decision;
    decision.reason = AbortReason::kBadRoute;
    decision.rank = static_cast<int32_t>(rank);
    decision.token = route.token;
    decision.k = route.k;
    decision.expected = experts;
    decision.seen = route.value;
    decision.text = std::string(BadRouteError(RankId(decision.rank), route, experts).message());
    return decision;
  }
  return {};
}

Decision FindOutOfStep(uint64_t sequence, absl::Span<const RankEntry> entries) {
  for (size_t rank = 0; rank < entries.size(); ++rank) {
    const uint64_t theirs = entries[rank].record.sequence;
    if (theirs == sequence) continue;
    Decision decision;
    decision.reason = AbortReason::kOutOfStep;
    decision.rank = static_cast<int32_t>(rank);
    decision.expected = static_cast<int64_t>(BarrierPosition(sequence, Phase::kEntry));
    decision.seen = static_cast<int64_t>(BarrierPosition(theirs, Phase::kEntry));
    decision.text = absl::StrCat("rank ", rank, " has nothing to say about sequence ", sequence,
                                 "; its last word was on sequence ", theirs);
    return decision;
  }
  return {};
}

}  // namespace

bool SameStatements(absl::Span<const RankEntry> entries) {
  const int32_t spokesman = Spokesman(entries);
  for (const RankEntry& entry : entries) {
    if (Has(entry, kEntryDeclined)) continue;
    if (entry.record.statement_hash != entries[spokesman].record.statement_hash) return false;
  }
  return true;
}

Decision Decide(uint64_t sequence, absl::Span<const RankEntry> entries) {
  Decision decision = FindOutOfStep(sequence, entries);
  if (decision.reason != AbortReason::kNone) return decision;
  decision = FindFlag(entries, kEntryDeclined, AbortReason::kDeclined, "declined");
  if (decision.reason != AbortReason::kNone) return decision;
  decision = FindDisagreement(entries);
  if (decision.reason != AbortReason::kNone) return decision;
  decision = FindFlag(entries, kEntryNoCredit, AbortReason::kDeclined,
                      "declined: what read its dispatch-output slot last has not ended");
  if (decision.reason != AbortReason::kNone) return decision;
  decision = FindBadRoute(entries);
  if (decision.reason != AbortReason::kNone) return decision;
  return FindFlag(entries, kEntryCancelWanted, AbortReason::kCancelled, "asked to cancel");
}

std::string OperationName(uint32_t operation) {
  switch (static_cast<Operation>(operation)) {
    case Operation::kNone:
      return "none";
    case Operation::kDispatch:
      return "dispatch";
    case Operation::kDispatchWithPlan:
      return "dispatch with a saved plan";
    case Operation::kPrefetchWeights:
      return "prefetch weights";
    case Operation::kRunExperts:
      return "run experts";
    case Operation::kReduceGradients:
      return "reduce gradients";
    case Operation::kCombine:
      return "combine";
    case Operation::kBarrier:
      return "barrier";
    case Operation::kPrepareDispatch:
      return "prepare dispatch";
    case Operation::kPreparePublication:
      return "prepare publication";
    case Operation::kStoreRows:
      return "store rows";
    case Operation::kPublish:
      return "publish";
    case Operation::kPrepareSource:
      return "prepare source";
    case Operation::kMaterialise:
      return "materialise";
    case Operation::kProduce:
      return "produce";
    case Operation::kProbeCopy:
      return "copy probe";
  }
  return absl::StrCat("operation ", operation);
}

}  // namespace perigee
