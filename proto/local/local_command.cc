#include "proto/local/local_command.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace perigee {
namespace {

constexpr uint32_t kFirstKind = static_cast<uint32_t>(CommandKind::kEmpty);
constexpr uint32_t kLastKind = static_cast<uint32_t>(CommandKind::kMaterialise);
static_assert(std::variant_size_v<LocalOperation> == kLastKind - kFirstKind + 1);

bool IsKnown(uint32_t kind) { return kind >= kFirstKind && kind <= kLastKind; }

uint32_t Flags(bool route_weights) { return route_weights ? kCommandRouteWeights : 0; }

// Writes what one operation uses.
struct Encoder {
  CommandEntry& entry;

  void operator()(const LocalEmpty&) const {}
  void operator()(const LocalDispatch& dispatch) const { Rows(dispatch); }
  void operator()(const LocalDispatchWithPlan& dispatch) const { Rows(dispatch); }
  void operator()(const LocalPrefetchWeights& prefetch) const { Weights(prefetch); }
  void operator()(const LocalRunExperts& run) const {
    Weights(run);
    entry.flags = Flags(run.route_weights);
  }
  void operator()(const LocalCombine& combine) const {
    entry.plan = combine.plan.value;
    entry.flags = Flags(combine.route_weights);
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

  template <typename Dispatch>
  void Rows(const Dispatch& dispatch) const {
    entry.plan = dispatch.plan.value;
    entry.token_count = dispatch.token_count;
    entry.flags = Flags(dispatch.route_weights);
  }
  template <typename Operation>
  void Weights(const Operation& operation) const {
    entry.plan = operation.plan.value;
    entry.layer = operation.layer;
    entry.weights_version = operation.weights_version;
  }
};

// The operation that an entry of a known kind says, unchecked.
LocalOperation Read(const CommandEntry& entry, const absl::optional<PublicationTokenBytes>& token) {
  const LocalPlanId plan(entry.plan);
  const bool weighted = (entry.flags & kCommandRouteWeights) != 0;
  switch (static_cast<CommandKind>(entry.kind)) {
    case CommandKind::kEmpty:
      return LocalEmpty{};
    case CommandKind::kDispatch:
      return LocalDispatch{plan, entry.token_count, weighted};
    case CommandKind::kDispatchWithPlan:
      return LocalDispatchWithPlan{plan, entry.token_count, weighted};
    case CommandKind::kPrefetchWeights:
      return LocalPrefetchWeights{plan, entry.layer, entry.weights_version};
    case CommandKind::kRunExperts:
      return LocalRunExperts{plan, entry.layer, entry.weights_version, weighted};
    case CommandKind::kCombine:
      return LocalCombine{plan, weighted, (entry.flags & kCommandOwnWeights) != 0};
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
      return LocalPrepareSource{plan, entry.token_count, (entry.flags & kCommandHidden) != 0,
                                weighted};
    case CommandKind::kMaterialise:
      return LocalMaterialise{plan};
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
      case CommandKind::kDispatch:
      case CommandKind::kDispatchWithPlan:
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
      case CommandKind::kRunExperts:
        status = CheckWeights();
        break;
      case CommandKind::kReduceGradients:
        status = CheckGradients();
        break;
      case CommandKind::kClonePlan:
        status = NotZero("source_plan", entry_.source_plan);
        break;
      case CommandKind::kCombine:
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

bool IsCollective(CommandKind kind) {
  switch (kind) {
    case CommandKind::kDispatch:
    case CommandKind::kDispatchWithPlan:
    case CommandKind::kPrefetchWeights:
    case CommandKind::kCombine:
    case CommandKind::kBarrier:
    case CommandKind::kReduceGradients:
    case CommandKind::kPrepareDispatch:
    case CommandKind::kPublish:
    case CommandKind::kPrepareSource:
    case CommandKind::kMaterialise:
      return true;
    case CommandKind::kEmpty:
    case CommandKind::kRunExperts:
    case CommandKind::kReleasePlan:
    case CommandKind::kClonePlan:
    case CommandKind::kPreparePublication:
    case CommandKind::kStoreRows:
      return false;
  }
  return false;
}

const char* CommandName(CommandKind kind) {
  switch (kind) {
    case CommandKind::kEmpty:
      return "empty";
    case CommandKind::kDispatch:
      return "dispatch";
    case CommandKind::kDispatchWithPlan:
      return "dispatch_with_plan";
    case CommandKind::kPrefetchWeights:
      return "prefetch_weights";
    case CommandKind::kRunExperts:
      return "run_experts";
    case CommandKind::kCombine:
      return "combine";
    case CommandKind::kBarrier:
      return "barrier";
    case CommandKind::kReleasePlan:
      return "release_plan";
    case CommandKind::kClonePlan:
      return "clone_plan";
    case CommandKind::kReduceGradients:
      return "reduce_gradients";
    case CommandKind::kPrepareDispatch:
      return "prepare_dispatch";
    case CommandKind::kPreparePublication:
      return "prepare_publication";
    case CommandKind::kStoreRows:
      return "store_rows";
    case CommandKind::kPublish:
      return "publish";
    case CommandKind::kPrepareSource:
      return "prepare_source";
    case CommandKind::kMaterialise:
      return "materialise";
  }
  return "unknown";
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
