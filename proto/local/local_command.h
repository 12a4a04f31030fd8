// What a local client asks of its worker, as both see it, and as it travels in an entry of the
// command ring. Tensors are not named: each has its place in the memory that came with the
// attachment. Plans have ids that the client chooses; they live in the attachment.
#ifndef PERIGEE_PROTO_LOCAL_LOCAL_COMMAND_H_
#define PERIGEE_PROTO_LOCAL_LOCAL_COMMAND_H_

#include <cstdint>
#include <variant>

#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "kernels/common/ids.h"
#include "proto/local/command_page.h"
#include "proto/support/publication_token.h"

namespace perigee {

enum class CommandKind : uint32_t {
  kEmpty = 1,
  kDispatch = 2,
  kDispatchWithPlan = 3,
  kPrefetchWeights = 4,
  kRunExperts = 5,
  kCombine = 6,
  kBarrier = 7,
  kReleasePlan = 8,
  kClonePlan = 9,
  kReduceGradients = 10,
  kPrepareDispatch = 11,
  kPreparePublication = 12,
  kStoreRows = 13,
  kPublish = 14,
  kPrepareSource = 15,
  kMaterialise = 16,
  kReleaseSlot = 17,
};

// Bits of CommandEntry.flags.
// Route weights take part: travel with the rows (dispatch), scale them (run_experts) or are
// gathered (combine).
inline constexpr uint32_t kCommandRouteWeights = 1u << 0;
// Not to be begun before the command's word in CommandPage::ready says that its inputs are there.
inline constexpr uint32_t kCommandAwaitsInputs = 1u << 1;
// With kCommandRouteWeights, of combine: the client has written the route weights in the shard
// itself.
inline constexpr uint32_t kCommandOwnWeights = 1u << 2;
// Of prepare_publication: the client brings a publication token (CommandPage::tokens).
inline constexpr uint32_t kCommandToken = 1u << 3;
// Of prepare_source: the tokens in the arena are copied into the source shard.
inline constexpr uint32_t kCommandHidden = 1u << 4;
// Of a dispatch: its rows go to an output slot; of run_experts and combine: they are in one.
inline constexpr uint32_t kCommandSlot = 1u << 5;
// Of run_experts: its results go to an expert-output slot; of release_slot: it is one.
inline constexpr uint32_t kCommandExpertOutput = 1u << 6;
// Of release_slot: SlotRead::kByStream, kByGraph.
inline constexpr uint32_t kCommandReadByStream = 1u << 7;
inline constexpr uint32_t kCommandReadByGraph = 1u << 8;
// Of combine: the client has written the rows in the shard itself.
inline constexpr uint32_t kCommandOwnRows = 1u << 9;

// Chosen by the client; 0 is none.
using LocalPlanId = StrongInt<struct LocalPlanIdTag, uint64_t>;

// Of a dispatch into an output slot: whichever is next in turn.
inline constexpr int32_t kAnySlot = -1;

// Does nothing: to measure the way there and back.
struct LocalEmpty {
  friend bool operator==(const LocalEmpty&, const LocalEmpty&) = default;
};
// Collective. The first token_count rows of the tokens, routes and weights in the arena.
struct LocalDispatch {
  LocalPlanId plan;         // that the plan made here is kept under, replacing an older one
  int32_t token_count = 0;  // in [0, S]; may differ between ranks
  bool route_weights = false;
  // The rows go to the next dispatch-output slot in turn, kAnySlot, or to this one, if that is the
  // next; none: to the shard. The completion says which slot was taken. Its identity is the
  // sequence of the dispatch.
  absl::optional<int32_t> slot = absl::nullopt;
  friend bool operator==(const LocalDispatch&, const LocalDispatch&) = default;
};
// Collective. The same by an earlier plan; the routes are not read.
struct LocalDispatchWithPlan {
  LocalPlanId plan;
  int32_t token_count = 0;
  bool route_weights = false;
  absl::optional<int32_t> slot = absl::nullopt;
  friend bool operator==(const LocalDispatchWithPlan&, const LocalDispatchWithPlan&) = default;
};
// Collective.
struct LocalPrefetchWeights {
  LocalPlanId plan;
  int32_t layer = 0;             // in [0, layers)
  uint64_t weights_version = 0;  // that every home rank must hold; not 0
  friend bool operator==(const LocalPrefetchWeights&, const LocalPrefetchWeights&) = default;
};
// Local. Reads the rows in the shard and writes the results over them; or reads those of a
// dispatch-output slot, which it releases, and writes the results to the shard or to the next
// expert-output slot, which the completion names.
struct LocalRunExperts {
  LocalPlanId plan;
  int32_t layer = 0;
  uint64_t weights_version = 0;
  bool route_weights = false;
  absl::optional<LocalSlot> slot = absl::nullopt;
  bool output_slot = false;  // only with slot
  friend bool operator==(const LocalRunExperts&, const LocalRunExperts&) = default;
};
// Collective. Sums the rows in the shard into the tokens out, and with route_weights gathers the
// shard's route weights into the weights out. Changes the shard's rows. Rows of an expert-output
// slot it brings there first, and releases the slot.
struct LocalCombine {
  LocalPlanId plan;
  bool route_weights = false;  // not with slot
  bool own_weights = false;    // with route_weights: not those that a dispatch has left there
  // The client has written all rows itself: the shard need not hold those of the plan. Not with
  // slot.
  bool own_rows = false;
  absl::optional<LocalSlot> slot = absl::nullopt;
  friend bool operator==(const LocalCombine&, const LocalCombine&) = default;
};
// Collective.
struct LocalBarrier {
  friend bool operator==(const LocalBarrier&, const LocalBarrier&) = default;
};
// Local.
struct LocalReleasePlan {
  LocalPlanId plan;
  friend bool operator==(const LocalReleasePlan&, const LocalReleasePlan&) = default;
};
// Local. Keeps the plan of `source` under `plan` too, replacing an older one.
struct LocalClonePlan {
  LocalPlanId plan;
  LocalPlanId source;
  friend bool operator==(const LocalClonePlan&, const LocalClonePlan&) = default;
};

// Collective. The gradients of a layer, which lie in the memory that came with the attachment.
struct LocalReduceGradients {
  LocalPlanId plan;
  int32_t layer = 0;  // in [0, layers)
  friend bool operator==(const LocalReduceGradients&, const LocalReduceGradients&) = default;
};

// The steps of a direct publication (docs/publication.md). Its target goes by the number of the
// plan that it will be, from prepare_dispatch to publish; there is one at a time.
//
// Collective. Plans by the first token_count rows of the routes in the arena.
struct LocalPrepareDispatch {
  LocalPlanId plan;
  int32_t token_count = 0;  // in [0, S]; may differ between ranks
  friend bool operator==(const LocalPrepareDispatch&, const LocalPrepareDispatch&) = default;
};
// Local. Sends the first rows of the route weights in the arena, or none.
struct LocalPreparePublication {
  LocalPlanId plan;
  bool route_weights = false;
  // Spent by publish; none: the rank draws one of its own.
  absl::optional<PublicationTokenBytes> token;
  friend bool operator==(const LocalPreparePublication&, const LocalPreparePublication&) = default;
};
// Local. Copies the first rows of the tokens in the arena to their places, as a producer would.
struct LocalStoreRows {
  LocalPlanId plan;
  friend bool operator==(const LocalStoreRows&, const LocalStoreRows&) = default;
};
// Collective. The target becomes a plan, replacing an older one of its number.
struct LocalPublish {
  LocalPlanId plan;
  friend bool operator==(const LocalPublish&, const LocalPublish&) = default;
};

// The steps of an owner-sharded source (docs/source.md), of a buffer that has one.
//
// Collective. Plans by the first token_count rows of the routes in the arena, and makes a source
// view, which goes by the plan's number; there is one at a time. The plan is good from here on.
struct LocalPrepareSource {
  LocalPlanId plan;         // that the plan made here is kept under, replacing an older one
  int32_t token_count = 0;  // in [0, S]; may differ between ranks
  // Whether the first rows of the tokens and of the route weights in the arena are copied into the
  // source shard first; what is not lies there already. May differ between ranks of one machine.
  bool hidden = false;
  bool route_weights = false;
  friend bool operator==(const LocalPrepareSource&, const LocalPrepareSource&) = default;
};
// Collective. Fetches the rows and weights of the plan's source view: what dispatch leaves is
// there.
struct LocalMaterialise {
  LocalPlanId plan;
  friend bool operator==(const LocalMaterialise&, const LocalMaterialise&) = default;
};

enum class LocalRing : uint32_t { kDispatchOutput, kExpertOutput };
// Where the last read of a released slot stands (docs/rings.md). Whoever says that it is over does
// so behind the end of the slot's dispatch.
enum class SlotRead : uint32_t {
  kOver,      // it is a command before this one, or of the client's own and has ended
  kByStream,  // it is over when CommandPage::read says so
  kByGraph,   // when CommandPage::replayed does
};
// Local. Nothing behind it waits for the last read but a dispatch that takes the slot again.
struct LocalReleaseSlot {
  LocalSlot slot;
  LocalRing ring = LocalRing::kDispatchOutput;
  SlotRead read = SlotRead::kOver;  // of an expert-output slot always
  // Of kByStream: which of CommandPage::read it is, in [0, kReadWords); of each release another
  // one, in turn, so that marks that nobody has looked at yet lie apart.
  int32_t word = 0;
  friend bool operator==(const LocalReleaseSlot&, const LocalReleaseSlot&) = default;
};

// In the order of CommandKind.
using LocalOperation =
    std::variant<LocalEmpty, LocalDispatch, LocalDispatchWithPlan, LocalPrefetchWeights,
                 LocalRunExperts, LocalCombine, LocalBarrier, LocalReleasePlan, LocalClonePlan,
                 LocalReduceGradients, LocalPrepareDispatch, LocalPreparePublication,
                 LocalStoreRows, LocalPublish, LocalPrepareSource, LocalMaterialise,
                 LocalReleaseSlot>;

struct LocalCommand {
  Sequence sequence;  // of a collective operation; 0 for a local one
  LocalOperation operation;
  bool awaits_inputs = false;
  friend bool operator==(const LocalCommand&, const LocalCommand&) = default;
};

CommandKind KindOf(const LocalOperation& operation);
// Whether all ranks take part, so that it has a sequence.
bool IsCollective(CommandKind kind);
// empty, dispatch, dispatch_with_plan, prefetch_weights, ...; "unknown" for what is none.
const char* CommandName(CommandKind kind);

// What a command may say, known to the worker.
struct CommandLimits {
  Generation generation;
  Sequence next_sequence;  // of the next collective operation
  int32_t tokens = 0;      // S
  int32_t layers = 0;      // 0: the buffer keeps no weights
  bool gradients = false;  // whether it keeps gradients
  bool source = false;     // whether it has source storage
};

// position is left 0. A local operation's sequence is written as 0. A publication token is not in
// the entry. An index that no slot can have becomes another such.
CommandEntry EncodeCommand(const LocalCommand& command, Generation generation);

// `entry` and `token`, which is there exactly where the entry says so, are private copies. What the
// token's bytes are, and which slots there are, is not looked at here. INVALID_ARGUMENT: an unknown
// kind or flag, a field out of its range or not 0 where the kind has no use for it;
// FAILED_PRECONDITION: another generation, or another sequence than the next. The message names the
// command, the field, and what was expected.
absl::StatusOr<LocalCommand> DecodeCommand(
    const CommandEntry& entry, const CommandLimits& limits,
    const absl::optional<PublicationTokenBytes>& token = absl::nullopt);

// Whether the entry takes a sequence, refused or not: its client counts it as a collective
// operation, and so do the clients of the other ranks, whose workers are to be told.
bool TakesSequence(const CommandEntry& entry);

}  // namespace perigee

#endif  // PERIGEE_PROTO_LOCAL_LOCAL_COMMAND_H_
