#include "proto/local/local_command.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace perigee {
namespace {

constexpr uint32_t kFirstKind = static_cast<uint32_t>(CommandKind::kEmpty);
constexpr uint32_t kLastKind = static_cast<uint32_t>(CommandKind::kReleaseSlot);
static_assert(std::variant_size_v<LocalOperation> == kLastKind - kFirstKind + 1);

bool IsKnown(uint32_t kind) { return kind >= kFirstKind && kind <= kLastKind; }

uint16_t Flags(bool route_weights) { return route_weights ? kCommandRouteWeights : 0; }

int16_t IndexInEntry(int32_t index) {
  const bool fits = index >= INT16_MIN && index <= INT16_MAX;
  return static_cast<int16_t>(fits ? index : INT16_MIN);
}

// Writes what one operation uses.
struct Encoder {
  CommandEntry& entry;

  void operator()(const LocalEmpty&) const {}
  void operator()(const LocalDispatch& dispatch) const { Dispatch(dispatch); }
  void operator()(const LocalDispatchWithPlan& dispatch) const { Dispatch(dispatch); }
  void operator()(const LocalPrefetchWeights& prefetch) const { Weights(prefetch); }
  void operator()(const LocalRunExperts& run) const {
    Weights(run);
    entry.flags = Flags(run.route_weights);
    if (run.slot) Slot(*run.slot);
    if (run.output_slot) entry.flags |= kCommandExpertOutput;
  }
  void operator()(const LocalCombine& combine) const {
    entry.plan = combine.plan.value;
    entry.flags = Flags(combine.route_weights);
    if (combine.own_rows) entry.flags |= kCommandOwnRows;
    if (combine.slot) Slot(*combine.slot);
    if (combine.route_weights && combine.own_weights) entry.flags |= kCommandOwnWeights;
  }
  void operator()(const LocalBarrier&) const {}
  void operator()(const LocalReleasePlan& release) const { entry.plan = release.plan.value; }
  void operator()(const LocalClonePlan& clone) const {
    entry.plan = clone.plan.value;
    entry.source_plan = clone.source.value;
  }

  void operator()(const LocalReduceGradients& reduce) const {
    entry.plan = reduce.plan.value;
    entry.layer = reduce.layer;
  }
  void operator()(const LocalPrepareDispatch& prepare) const {
    entry.plan = prepare.plan.value;
    entry.token_count = prepare.token_count;
  }
  void operator()(const LocalPreparePublication& prepare) const {
    entry.plan = prepare.plan.value;
    entry.flags = Flags(prepare.route_weights);
    if (prepare.token) entry.flags |= kCommandToken;
  }
  void operator()(const LocalStoreRows& store) const { entry.plan = store.plan.value; }
  void operator()(const LocalPublish& publish) const { entry.plan = publish.plan.value; }
  void operator()(const LocalPrepareSource& prepare) const {
    Rows(prepare);
    if (prepare.hidden) entry.flags |= kCommandHidden;
  }
  void operator()(const LocalMaterialise& materialise) const {
    entry.plan = materialise.plan.value;
  }
  void operator()(const LocalReleaseSlot& release) const {
    Name(release.slot);
    if (release.ring == LocalRing::kExpertOutput) entry.flags |= kCommandExpertOutput;
    if (release.read == SlotRead::kByStream) {
      entry.flags |= kCommandReadByStream;
      entry.token_count = release.word;
    }
    if (release.read == SlotRead::kByGraph) entry.flags |= kCommandReadByGraph;
  }

  template <typename Operation>
  void Rows(const Operation& operation) const {
    entry.plan = operation.plan.value;
    entry.token_count = operation.token_count;
    entry.flags = Flags(operation.route_weights);
  }
  template <typename Operation>
  void Dispatch(const Operation& dispatch) const {
    Rows(dispatch);
    if (!dispatch.slot) return;
    entry.flags |= kCommandSlot;
    entry.slot = IndexInEntry(*dispatch.slot);
  }
  void Slot(const LocalSlot& slot) const {
    entry.flags |= kCommandSlot;
    Name(slot);
  }
  void Name(const LocalSlot& slot) const {
    entry.slot = IndexInEntry(slot.index);
    entry.source_plan = slot.identity;
  }
  template <typename Operation>
  void Weights(const Operation& operation) const {
    entry.plan = operation.plan.value;
    entry.layer = operation.layer;
    entry.weights_version = operation.weights_version;
  }
};

SlotRead ReadOf(const CommandEntry& entry) {
  if ((entry.flags & kCommandReadByStream) != 0) return SlotRead::kByStream;
  return (entry.flags & kCommandReadByGraph) != 0 ? SlotRead::kByGraph : SlotRead::kOver;
}

// The operation that an entry of a known kind says, unchecked.
LocalOperation Read(const CommandEntry& entry, const absl::optional<PublicationTokenBytes>& token) {
  const LocalPlanId plan(entry.plan);
  const auto has = [&entry](uint32_t flag) { return (entry.flags & flag) != 0; };
  const bool weighted = has(kCommandRouteWeights);
  const LocalSlot slot{entry.slot, entry.source_plan};
  absl::optional<LocalSlot> named;
  if (has(kCommandSlot)) named = slot;
  absl::optional<int32_t> choice;
  if (has(kCommandSlot)) choice = entry.slot;
  switch (static_cast<CommandKind>(entry.kind)) {
    case CommandKind::kEmpty:
      return LocalEmpty{};
    case CommandKind::kDispatch:
      return LocalDispatch{plan, entry.token_count, weighted, choice};
    case CommandKind::kDispatchWithPlan:
      return LocalDispatchWithPlan{plan, entry.token_count, weighted, choice};
    case CommandKind::kPrefetchWeights:
      return LocalPrefetchWeights{plan, entry.layer, entry.weights_version};
    case CommandKind::kRunExperts:
      return LocalRunExperts{plan,     entry.layer, entry.weights_version,
                             weighted, named,       has(kCommandExpertOutput)};
    case CommandKind::kCombine:
      return LocalCombine{plan, weighted, has(kCommandOwnWeights), has(kCommandOwnRows), named};
    case CommandKind::kBarrier:
      return LocalBarrier{};
    case CommandKind::kReleasePlan:
      return LocalReleasePlan{plan};
    case CommandKind::kClonePlan:
      return LocalClonePlan{plan, LocalPlanId(entry.source_plan)};
    case CommandKind::kReduceGradients:
      return LocalReduceGradients{plan, entry.layer};
    case CommandKind::kPrepareDispatch:
      return LocalPrepareDispatch{plan, entry.token_count};
    case CommandKind::kPreparePublication:
      return LocalPreparePublication{plan, weighted, token};
    case CommandKind::kStoreRows:
      return LocalStoreRows{plan};
    case CommandKind::kPublish:
      return LocalPublish{plan};
    case CommandKind::kPrepareSource:
      return LocalPrepareSource{plan, entry.token_count, has(kCommandHidden), weighted};
    case CommandKind::kMaterialise:
      return LocalMaterialise{plan};
    case CommandKind::kReleaseSlot:
      return LocalReleaseSlot{
          slot, has(kCommandExpertOutput) ? LocalRing::kExpertOutput : LocalRing::kDispatchOutput,
          ReadOf(entry), entry.token_count};
  }
  return LocalEmpty{};
}

class Checker {
 public:
  Checker(const CommandEntry& entry, const CommandLimits& limits)
      : entry_(entry), limits_(limits) {}

  absl::Status Check() const {
    const CommandKind kind = static_cast<CommandKind>(entry_.kind);
    absl::Status status = CheckDate(kind);
    if (!status.ok()) return status;
    switch (kind) {
      case CommandKind::kEmpty:
      case CommandKind::kBarrier:
        return absl::OkStatus();
      case CommandKind::kReleaseSlot:
        return CheckRelease();
      case CommandKind::kDispatch:
      case CommandKind::kDispatchWithPlan:
        status = CheckChoice();
        if (status.ok()) status = InRange("token_count", entry_.token_count, limits_.tokens);
        break;
      case CommandKind::kPrepareDispatch:
        status = InRange("token_count", entry_.token_count, limits_.tokens);
        break;
      case CommandKind::kPrepareSource:
        status = CheckSource();
        if (status.ok()) status = InRange("token_count", entry_.token_count, limits_.tokens);
        break;
      case CommandKind::kMaterialise:
        status = CheckSource();
        break;
      case CommandKind::kPrefetchWeights:
        status = CheckWeights();
        break;
      case CommandKind::kRunExperts:
        status = CheckWeights();
        if (status.ok() && Has(kCommandExpertOutput) && !Has(kCommandSlot)) {
          status = Invalid("output_slot", "set", "a slot that its rows are in");
        }
        break;
      case CommandKind::kReduceGradients:
        status = CheckGradients();
        break;
      case CommandKind::kClonePlan:
        status = NotZero("source_plan", entry_.source_plan);
        break;
      case CommandKind::kCombine:
        status = CheckCombine();
        break;
      case CommandKind::kReleasePlan:
      case CommandKind::kPreparePublication:
      case CommandKind::kStoreRows:
      case CommandKind::kPublish:
        break;
    }
    return status.ok() ? NotZero("plan", entry_.plan) : status;
  }

  // Fields that an entry of this kind has no use for: what it says must be all that there is.
  absl::Status CheckUnused(const CommandEntry& meant) const {
    const struct {
      const char* name;
      uint64_t found, meant;
    } fields[] = {
        {"flags", entry_.flags, meant.flags},
        {"slot", static_cast<uint16_t>(entry_.slot), static_cast<uint16_t>(meant.slot)},
        {"plan", entry_.plan, meant.plan},
        {"source_plan", entry_.source_plan, meant.source_plan},
        {"weights_version", entry_.weights_version, meant.weights_version},
        {"token_count", static_cast<uint32_t>(entry_.token_count),
         static_cast<uint32_t>(meant.token_count)},
        {"layer", static_cast<uint32_t>(entry_.layer), static_cast<uint32_t>(meant.layer)},
    };
    for (const auto& field : fields) {
      if (field.found != field.meant) {
        return Invalid(field.name, absl::StrCat(field.found), absl::StrCat(field.meant));
      }
    }
    return absl::OkStatus();
  }

 private:
  absl::Status CheckDate(CommandKind kind) const {
    if (entry_.generation != limits_.generation.value) {
      return absl::FailedPreconditionError(absl::StrCat(Who(), " carries generation ",
                                                        entry_.generation, "; generation ",
                                                        limits_.generation.value, " lives"));
    }
    const uint64_t expected = IsCollective(kind) ? limits_.next_sequence.value : 0;
    if (entry_.sequence == expected) return absl::OkStatus();
    if (expected == 0) return Invalid("sequence", absl::StrCat(entry_.sequence), "0");
    return absl::FailedPreconditionError(
        absl::StrCat(Who(), " carries sequence ", entry_.sequence, ", the next one is ", expected));
  }

  absl::Status CheckWeights() const {
    if (limits_.layers == 0) {
      return absl::InvalidArgumentError(absl::StrCat(Who(), ": the buffer keeps no weights"));
    }
    absl::Status status = InRange("layer", entry_.layer, limits_.layers - 1);
    return status.ok() ? NotZero("weights_version", entry_.weights_version) : status;
  }

  absl::Status CheckSource() const {
    if (limits_.source) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(Who(), ": the buffer has no source storage"));
  }

  bool Has(uint32_t flag) const { return (entry_.flags & flag) != 0; }

  absl::Status CheckChoice() const {
    if (!Has(kCommandSlot) || entry_.slot >= kAnySlot) return absl::OkStatus();
    return Invalid("slot", absl::StrCat(entry_.slot), "-1 or an index");
  }
  absl::Status CheckRelease() const {
    const bool by_stream = Has(kCommandReadByStream), by_graph = Has(kCommandReadByGraph);
    if (by_stream && by_graph) return Invalid("read", "by a stream and by a graph", "one of them");
    if (by_stream) {
      const auto last = static_cast<int32_t>(kReadWords) - 1;
      if (absl::Status status = InRange("word", entry_.token_count, last); !status.ok()) {
        return status;
      }
    }
    if (!Has(kCommandExpertOutput) || (!by_stream && !by_graph)) return absl::OkStatus();
    return Invalid("read", "to be told", "over, as an expert-output slot is read by commands");
  }
  absl::Status CheckCombine() const {
    if (!Has(kCommandSlot)) return absl::OkStatus();
    if (Has(kCommandOwnRows)) return Invalid("own_rows", "set", "rows of the slot or one's own");
    if (!Has(kCommandRouteWeights)) return absl::OkStatus();
    return Invalid("route_weights", "set", "none, as an expert-output slot has no weights");
  }

  absl::Status CheckGradients() const {
    if (!limits_.gradients) {
      return absl::InvalidArgumentError(absl::StrCat(Who(), ": the buffer keeps no gradients"));
    }
    return InRange("layer", entry_.layer, limits_.layers - 1);
  }

  absl::Status InRange(const char* field, int32_t value, int32_t last) const {
    if (value >= 0 && value <= last) return absl::OkStatus();
    return Invalid(field, absl::StrCat(value), absl::StrCat("0 to ", last));
  }
  absl::Status NotZero(const char* field, uint64_t value) const {
    return value != 0 ? absl::OkStatus() : Invalid(field, "0", "another number");
  }
  absl::Status Invalid(const char* field, const std::string& found,
                       const std::string& expected) const {
    return absl::InvalidArgumentError(
        absl::StrCat(Who(), ": ", field, " is ", found, ", expected ", expected));
  }
  std::string Who() const {
    return absl::StrCat("command ", entry_.position, " (",
                        CommandName(static_cast<CommandKind>(entry_.kind)), ")");
  }

  const CommandEntry& entry_;
  const CommandLimits& limits_;
};

}  // namespace

CommandKind KindOf(const LocalOperation& operation) {
  return static_cast<CommandKind>(kFirstKind + operation.index());
}

CommandEntry EncodeCommand(const LocalCommand& command, Generation generation) {
  CommandEntry entry;
  const CommandKind kind = KindOf(command.operation);
  entry.kind = static_cast<uint32_t>(kind);
  entry.generation = generation.value;
  if (IsCollective(kind)) entry.sequence = command.sequence.value;
  std::visit(Encoder{entry}, command.operation);
  if (command.awaits_inputs) entry.flags |= kCommandAwaitsInputs;
  return entry;
}

absl::StatusOr<LocalCommand> DecodeCommand(const CommandEntry& entry, const CommandLimits& limits,
                                           const absl::optional<PublicationTokenBytes>& token) {
  if (!IsKnown(entry.kind)) {
    return absl::InvalidArgumentError(absl::StrCat("command ", entry.position, ": kind is ",
                                                   entry.kind, ", expected ", kFirstKind, " to ",
                                                   kLastKind));
  }
  const bool awaits_inputs = (entry.flags & kCommandAwaitsInputs) != 0;
  const LocalCommand command{Sequence(entry.sequence), Read(entry, token), awaits_inputs};
  const Checker checker(entry, limits);
  absl::Status status = checker.Check();
  if (status.ok()) status = checker.CheckUnused(EncodeCommand(command, limits.generation));
  if (!status.ok()) return status;
  return command;
}

bool TakesSequence(const CommandEntry& entry) {
  return IsKnown(entry.kind) && IsCollective(static_cast<CommandKind>(entry.kind));
}

}  // namespace perigee
