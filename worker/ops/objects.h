// What lives in one buffer on this rank, and what ends what: named plans, and the rows in the
// shard. Logic only: no backend is called and no lock taken. Before a launch the Check and Find
// functions refuse what is dead, with what it carries and what lives now (STALE_OBJECT); after an
// operation the caller says what it did.
#ifndef PERIGEE_WORKER_OPS_OBJECTS_H_
#define PERIGEE_WORKER_OPS_OBJECTS_H_

#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kernels/common/ids.h"
#include "kernels/direct_publication.h"
#include "kernels/layout/operation.h"
#include "kernels/owner_source.h"

namespace perigee {

// Plans that one buffer keeps by name.
inline constexpr size_t kMaxPlans = 256;

enum class RowsState {
  kNone,          // nothing was dispatched yet
  kDispatched,    // inputs of the experts
  kExpertOutput,  // run_experts has written its results over them
  kConsumed,      // combine has summed duplicates into them
  kUndefined,     // an operation that writes them ended early
  kOverwritten,   // probe_copy has copied over them
  kTarget,        // producers may be writing them, for the target that lives
  kPrepared,      // likewise, and the target's publication has the shard for itself
};

// The rows in the shard.
struct ShardRows {
  RowsState state = RowsState::kNone;
  ObjectTag tag;             // buffer, generation, and sequence of the dispatch that wrote them
  ObjectTag plan;            // of the plan they lie by
  bool has_weights = false;  // route weights came along
  Sequence ended;            // of the operation that consumed or spoilt them
};

// A source view and the name it goes by.
struct KeptSource {
  std::string name;
  SourcePtr source;  // null: none
};

class BufferObjects {
 public:
  BufferObjects(std::string buffer_name, BufferId buffer, Generation generation);

  BufferId buffer() const { return buffer_; }

  // Whether an object of another buffer or generation is used here.
  absl::Status CheckAlive(absl::string_view object, const ObjectTag& tag) const;
  // The plan kept under `name`.
  absl::StatusOr<PlanPtr> FindPlan(const std::string& name) const;
  // Whether one more name can be kept: RESOURCE_EXHAUSTED.
  absl::Status CheckPlanRoom(const std::string& name) const;
  // Whether the rows are those that `plan` dispatched, untouched (for run_experts), or those or the
  // experts' output (for combine); with their weights where these are needed.
  absl::Status CheckRowsForExperts(const PlanHandle& plan, bool needs_weights) const;
  absl::Status CheckRowsForCombine(const PlanHandle& plan, bool needs_weights) const;

  // Whether nothing but a publication may write the shard: PUBLICATION_PENDING.
  absl::Status CheckShardFree() const;
  // The target of this name, where it lives.
  absl::StatusOr<TargetPtr> FindTarget(const std::string& name) const;
  // The token that its publication holds, where it is prepared.
  absl::StatusOr<std::string> FindPreparedToken(const std::string& name) const;
  // Of the publication that is prepared, if one is.
  const std::string& prepared_token() const { return token_; }

  // prepare_dispatch has ended well: the target takes the place of what the shard held.
  void KeepTarget(const std::string& name, TargetPtr target);
  // Of the target that lives.
  void PublicationPrepared(std::string token, bool has_weights);
  // The target that lives, if one does, is over, and the rows are undefined.
  void DropTarget();

  // The source view of this name, where it lives.
  absl::StatusOr<SourcePtr> FindSource(const std::string& name) const;
  // prepare_source has ended well: the view takes the place of the last one.
  void KeepSource(const std::string& name, SourcePtr source);
  // The view that lives, if one does, is over.
  void DropSource() { source_ = KeptSource(); }
  const KeptSource& source() const { return source_; }
  // An operation has ended early: what is kept is the newest view that lives, of the one that was
  // kept last and those that it has replaced since, oldest first.
  void KeepLivingSource(absl::Span<const KeptSource> replaced);

  // A dispatch, publication or materialisation has ended well; `plan` is what its rows lie by.
  void RowsDispatched(Sequence sequence, const ObjectTag& plan, bool has_weights);
  void RowsComputed();                    // run_experts in place
  void RowsConsumed(Sequence sequence);   // combine in place
  void RowsUndefined(Sequence sequence);  // dispatch, run_experts or combine ended early
  void RowsOverwritten(Sequence last);    // probe_copy, after this sequence
  // What was noted since has not been done.
  void RestoreRows(const ShardRows& rows) { rows_ = rows; }
  // Replaces an older plan of that name.
  void KeepPlan(const std::string& name, PlanPtr plan);
  void ForgetPlan(const std::string& name);  // its dispatch turned out to have failed

  // What the slots were last to be filled for. From the operations of programs alone, done or not,
  // so that every rank comes to the same.
  void NotePlanMade(const std::string& name, Sequence sequence);
  void NoteSourceMade(const std::string& name, Sequence sequence);
  // The plan is the view's.
  void NoteMaterialised(const std::string& source, const std::string& plan, Sequence sequence);
  void NoteSlotsFilled(const std::string& plan, int32_t layer, uint64_t version);
  bool SlotsFilledFor(const std::string& plan, int32_t layer, uint64_t version) const;
  // An operation that all ranks have left, or one of no program, may have left anything in them.
  void ForgetSlots() { slots_filled_.reset(); }

  // Last sequence that a collective operation of this buffer has used.
  Sequence last_sequence() const { return last_sequence_; }
  void UseSequence(Sequence sequence) { last_sequence_ = sequence; }

  const ShardRows& rows() const { return rows_; }
  size_t plan_count() const { return plans_.size(); }
  // Plans die before the data path that made them.
  void Clear();

 private:
  absl::Status CheckRows(const PlanHandle& plan, bool needs_weights, bool output_too) const;
  std::string DescribeLiving() const;

  struct SlotUse {
    Sequence plan;  // of its making
    int32_t layer = 0;
    uint64_t version = 0;
    friend bool operator==(const SlotUse&, const SlotUse&) = default;
  };
  SlotUse UseOf(const std::string& plan, int32_t layer, uint64_t version) const;

  const std::string buffer_name_;
  const BufferId buffer_;
  const Generation generation_;
  std::map<std::string, PlanPtr> plans_;
  ShardRows rows_;
  // Of the last prepare_dispatch; it lives while rows_ says so.
  std::string target_name_;
  TargetPtr target_;
  std::string token_;  // that its publication holds
  KeptSource source_;
  // The last that a program was to make.
  std::string source_noted_;
  Sequence source_noted_at_;
  std::map<std::string, Sequence> plans_made_;
  absl::optional<SlotUse> slots_filled_;
  Sequence last_sequence_;
};

}  // namespace perigee

#endif  // PERIGEE_WORKER_OPS_OBJECTS_H_
