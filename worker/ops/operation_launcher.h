// Launches one operation of a program on a rank's data path: looks its objects up by name, and
// writes down what the operation did to them. What they then have to be: rank_operations.h.
#ifndef PERIGEE_WORKER_OPS_OPERATION_LAUNCHER_H_
#define PERIGEE_WORKER_OPS_OPERATION_LAUNCHER_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "proto/v1/program.pb.h"
#include "worker/ops/error_report.h"
#include "worker/ops/program_check.h"
#include "worker/ops/rank_operations.h"
#include "worker/ops/tensor_store.h"

namespace perigee {

class OperationLauncher {
 public:
  explicit OperationLauncher(const ProgramSite& site)
      : site_(site), operations_(site), source_before_(site.objects.source().source) {}

  // Memory for every output of a checked program. Until an output is written, its name has nothing.
  absl::Status TakeOutputs(const v1::Program& program, uint64_t program_id);

  // Where the data path queues, returns before the operation has ended; else a failure without a
  // record is a refusal: nothing was touched, and no other rank knows of it yet. `sequence` is 0
  // for local operations. beside: of a prefetch_weights that what is launched up to the next Join
  // does not wait for, or of a prepare_publication up to its publish.
  Failure Launch(const v1::ProgramOperation& operation, Sequence sequence, bool beside = false);
  Failure Join() { return operations_.Join(); }
  // Ahead of a probe_copy that is collective: when all ranks have come to it.
  Failure EnterProbe(Sequence sequence) { return operations_.EnterProbe(sequence); }
  // Takes this rank's part in an operation that it does not launch. OK when all have been told.
  Failure Decline(const v1::ProgramOperation& operation, Sequence sequence);

  // Waits for what has been launched since the last call; of a data path that queues nothing, there
  // is nothing to wait for. After a failure nothing of it counts: plans, rows and outputs are gone.
  Failure Settle();

  // The program has failed: what it has not published will not be, and the source view that it has
  // made is over, and its slots are free. Ranks may have stopped at different operations.
  void GiveUp();

  // What the last dispatch or publication did; none before there is one, or where it cannot be
  // read.
  absl::optional<v1::PlanSummary> SummariseLastPlan() const;

 private:
  struct DispatchTensors {
    std::shared_ptr<StoredTensor> hidden, topk_experts,
        route_weights;  // the latter two may be null
    DispatchInput input;
  };

  TensorSpec SpecOf(const v1::Program& program, const OutputTensor& output) const;
  struct CombineTensors {
    std::shared_ptr<StoredTensor> rows, row_weights;  // null: those in the shard
  };

  Failure Dispatch(const v1::DispatchOperation& operation, Sequence sequence);
  Failure Prefetch(const v1::PrefetchWeightsOperation& operation, Sequence sequence, bool beside);
  Failure RunExperts(const v1::RunExpertsOperation& operation);
  Failure Combine(const v1::CombineOperation& operation, Sequence sequence);
  Failure ReduceGradients(const v1::ReduceGradientsOperation& operation, Sequence sequence);
  Failure ProbeCopy(const v1::ProbeCopyOperation& operation);

  Failure PrepareDispatch(const v1::PrepareDispatchOperation& operation, Sequence sequence);
  Failure PreparePublication(const v1::PreparePublicationOperation& operation, bool beside);
  Failure StoreRows(const v1::StoreRowsOperation& operation);
  Failure Produce(const v1::ProduceOperation& operation);
  Failure Publish(const v1::PublishOperation& operation, Sequence sequence);

  // With rows in slots (launch_rings.cc).
  Failure DispatchIntoSlot(const v1::DispatchOperation& operation, Sequence sequence,
                           const DispatchTensors& inputs, PlanPtr saved);
  Failure RunExpertsOfSlot(const v1::RunExpertsOperation& operation, const PlanPtr& plan);
  Failure CombineOfSlot(const v1::CombineOperation& operation, Sequence sequence,
                        const PlanPtr& plan, const CombineOutput& output);

  Failure PrepareSource(const v1::PrepareSourceOperation& operation, Sequence sequence);
  Failure Materialise(const v1::MaterialiseOperation& operation, Sequence sequence);

  // A tensor of `tokens` rows, or any number where that is -1.
  absl::StatusOr<std::shared_ptr<StoredTensor>> FindInput(const std::string& name,
                                                          v1::TensorDtype dtype, int64_t tokens,
                                                          int64_t width) const;
  absl::StatusOr<ProductInput> FindFactors(const v1::ProduceOperation& operation) const;
  absl::StatusOr<std::shared_ptr<StoredTensor>> FindInput(const std::string& name,
                                                          const TensorSpec& expected) const;
  absl::StatusOr<DispatchTensors> FindInputs(const v1::DispatchOperation& operation) const;
  absl::StatusOr<CombineTensors> FindRows(const v1::CombineOperation& operation) const;
  // Of rows that lie in the shard by it; and of none yet.
  void KeepMadePlan(const std::string& name, PlanPtr plan, int32_t token_count);
  void KeepPlanAlone(const std::string& name, PlanPtr plan, int32_t token_count);
  // Memory of an output that the program has; null where there is no name.
  std::byte* OutputOf(const std::string& name) const;
  // The operation has written its outputs, as far as is known; or it has ended early.
  void NoteOutputs(const std::vector<std::string>& names);
  void SpoilOutputs(const std::vector<std::string>& names, const std::string& why);

  // What has been noted as done while it may still run.
  struct Unsettled {
    bool rows = false;
    std::vector<std::string> plans;
    std::vector<std::string> outputs;
    std::vector<KeptSource> sources;  // that were kept before each that was prepared
  };

  const ProgramSite site_;
  RankOperations operations_;
  Unsettled unsettled_;
  const SourcePtr source_before_;  // that lived when the program began
  std::map<std::string, std::shared_ptr<StoredTensor>> outputs_;
  // By the names that the program gives them.
  std::map<std::string, RingSlot> dispatch_output_slots_, expert_output_slots_;
  PlanPtr last_plan_;
  int32_t last_token_count_ = 0;
};

}  // namespace perigee

#endif  // PERIGEE_WORKER_OPS_OPERATION_LAUNCHER_H_
