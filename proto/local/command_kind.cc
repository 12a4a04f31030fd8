// What every kind of command is called, and which of them all ranks take part in.
#include "proto/local/local_command.h"

namespace perigee {

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
    case CommandKind::kReleaseSlot:
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
    case CommandKind::kReleaseSlot:
      return "release_slot";
  }
  return "unknown";
}

}  // namespace perigee
