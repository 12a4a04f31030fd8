// Launches one operation with its arguments at hand (tensors by address, plans by handle): refuses
// dead objects before anything is touched, and writes down what the operation did to the rows in
// the shard. Programs (operation_launcher.h) and local clients look their arguments up each in
// their way and come here.
#ifndef PERIGEE_WORKER_OPS_RANK_OPERATIONS_H_
#define PERIGEE_WORKER_OPS_RANK_OPERATIONS_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/buffer_rings.h"
#include "kernels/direct_publication.h"
#include "kernels/owner_source.h"
#include "kernels/row_producer.h"
#include "worker/memory/buffer_memory.h"
#include "worker/memory/buffer_shape.h"
#include "worker/ops/error_report.h"
#include "worker/ops/objects.h"
#include "worker/ops/tensor_store.h"
#include "worker/ops/transport_counters.h"
#include "worker/publication/token_ledger.h"

namespace perigee {

// Where operations run: one buffer of this rank. Borrowed, and nobody else's meanwhile.
struct ProgramSite {
  const BufferShape& shape;
  DataPath& data_path;
  const BufferMemory& memory;
  BufferObjects& objects;
  TensorStore& tensors;
  TokenLedger* tokens = nullptr;  // null: nothing can be published directly
  // Of this rank's home weights of a layer: FAILED_PRECONDITION where they are there in part. Null:
  // nobody knows.
  std::function<absl::Status(int32_t layer)> check_home = nullptr;
  Transport transport = Transport::kNvlink;
  TransportCounters* counters = nullptr;  // null: nobody counts failures
};

// A failure without a record is a refusal: nothing was touched, and no other rank knows of it yet.
// Where the data path queues, an operation may still run when its call returns.
class RankOperations {
 public:
  explicit RankOperations(const ProgramSite& site) : site_(site) {}

  struct Dispatched {
    Failure failure;
    PlanPtr plan;  // that the rows lie by; null on failure
  };
  // By `saved`, or null: makes a plan. has_weights: route weights travel, also where this rank has
  // no tokens and so nothing to point at. output: where copies of rows and of a plan that is made
  // go.
  Dispatched Dispatch(Sequence sequence, const DispatchInput& input, bool has_weights,
                      PlanPtr saved, const DispatchOutput& output = {});

  // The steps of a direct publication, of the target kept under this name.
  Failure PrepareDispatch(Sequence sequence, const std::string& target, const TargetInput& input);
  // token: null where the rank draws one of its own. One that is no good ends the target.
  // has_weights: as of Dispatch. beside: it may go on beside what is launched up to the
  // publication.
  Failure PreparePublication(const std::string& target, const float* route_weights,
                             bool has_weights, const std::string* token, bool beside = false);
  Failure StoreRows(const std::string& target, const BFloat16* hidden);
  // A product, into memory of this rank or to the places of a target.
  Failure Produce(const ProductInput& input, BFloat16* output);
  Failure ProduceInto(const ProductInput& input, const std::string& target);
  // Spends the token. The target is over, unless there was none.
  Dispatched Publish(Sequence sequence, const std::string& target);
  // The target that lives, if one does, will not be published.
  void DropTarget();

  struct Prepared {
    Failure failure;
    SourcePtr source;  // null on failure
  };
  // Of the owner-sharded source, the view kept under this name.
  Prepared PrepareSource(Sequence sequence, const std::string& source, const SourceInput& input);
  Dispatched Materialise(Sequence sequence, const std::string& source);

  // beside: its copies may go on beside what is launched up to the next Join.
  Failure Prefetch(Sequence sequence, const PlanPtr& plan, int32_t layer, uint64_t version,
                   bool beside = false);
  Failure Join() { return Left(site_.data_path.Join()); }
  // In place.
  Failure RunExperts(const PlanPtr& plan, int32_t layer, uint64_t version, bool weighted);
  // Gathers weights where `output` has a place for them. Of `input`, null: what is in the shard.
  Failure Combine(Sequence sequence, const PlanPtr& plan, CombineInput input,
                  const CombineOutput& output);
  // The same with output slots, of a data path that has them. Dispatch takes the next one in turn;
  // RunExperts releases it, and takes one for its results or writes them to the shard; Combine
  // releases that.
  struct SlotTaken {
    Failure failure;
    PlanPtr plan = nullptr;      // of a dispatch; null on failure
    RingSlot slot = RingSlot();  // without an identity where none was taken
  };
  // wanted: refused where another one is next in turn; -1: whichever is. plan: where a copy of one
  // that is made goes.
  SlotTaken DispatchIntoSlot(Sequence sequence, const DispatchInput& input, PlanPtr saved,
                             int32_t wanted = -1, const PlanArrays& plan = {});
  SlotTaken RunExpertsOfSlot(const RingSlot& slot, const PlanPtr& plan, int32_t layer,
                             uint64_t version, bool weighted, bool into_slot);
  Failure CombineOfSlot(Sequence sequence, const PlanPtr& plan, const RingSlot& slot,
                        const CombineOutput& output);
  // Read for the last time by what was called before.
  Failure ReleaseSlot(const RingSlot& slot);
  // When the word says so; null on failure.
  struct SlotWord {
    Failure failure;
    absl::optional<ReleaseWord> word = absl::nullopt;
  };
  SlotWord ReleaseSlotByWord(const RingSlot& slot);
  // All slots are given up.
  void DropSlots();

  // Of a buffer that keeps gradients.
  Failure ReduceGradients(Sequence sequence, const PlanPtr& plan, int32_t layer);
  Failure Barrier(Sequence sequence) { return Left(site_.data_path.Barrier(sequence)); }
  // All ranks come to a copy that takes part of each: this one's ProbeCopy may follow.
  Failure EnterProbe(Sequence sequence);
  Failure ProbeCopy(CopyProbe probe, int64_t rows);

  // Takes this rank's part in an operation that it does not launch. OK when all have been told. The
  // others leave it with what it writes undefined, so this rank's is too, but for a publication
  // that is prepared: what would go over it is refused, and it can still be published.
  Failure Decline(Sequence sequence, bool writes_shard);
  // What the data path says about what has just failed.
  Failure Left(const absl::Status& status) const;

 private:
  // The data path's, or why there is none.
  absl::StatusOr<DirectPublication*> Publication() const;
  absl::StatusOr<OwnerSource*> Source() const;
  absl::StatusOr<RowProducer*> Producer() const;
  absl::StatusOr<BufferRings*> Rings() const;
  absl::StatusOr<std::string> TakeToken(const std::string* token) const;
  // Whether nothing but a publication may write the shard. One whose token is no good any more is
  // over.
  absl::Status CheckShardFree();
  ExpertWeights Weights(int32_t layer, uint64_t version) const;

  const ProgramSite site_;
};

}  // namespace perigee

#endif  // PERIGEE_WORKER_OPS_RANK_OPERATIONS_H_
