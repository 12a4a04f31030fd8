#include <cuda_runtime_api.h>

#include "kernels/cuda/dispatch_kernel.cuh"
#include "kernels/cuda/dispatch_launch.h"
#include "kernels/cuda/expand_kernel.cuh"
#include "kernels/cuda/load_kernels.cuh"
#include "kernels/cuda/publish_kernel.cuh"
#include "kernels/cuda/source_kernel.cuh"

namespace perigee {
namespace {

MoverShape ShapeOf(const PathView& path, int32_t stages) {
  return MoverShape::Of(path.row_bytes(), kDispatchSharedBytes, stages);
}

}  // namespace

int LaunchDispatch(const LaunchTarget& target, const PathView& path, const OperationMark& mark,
                   const EntryArguments& entry, const PlanningArguments& planning,
                   const SendArguments& send) {
  return LaunchDependent(target, DispatchKernel, target.sms, kDispatchThreads, kDispatchSharedBytes,
                         path, mark, entry, planning, send, ShapeOf(path, kSendStages));
}

int LaunchDispatchWithPlan(const LaunchTarget& target, const PathView& path,
                           const OperationMark& mark, const EntryArguments& entry,
                           const SendArguments& send) {
  return LaunchDependent(target, DispatchWithPlanKernel, target.sms, kDispatchThreads,
                         kDispatchSharedBytes, path, mark, entry, send, ShapeOf(path, kSendStages));
}

int LaunchKeep(const LaunchTarget& target, const PathView& path, const OperationMark& mark,
               const SendArguments& send) {
  return LaunchDependent(target, KeepKernel, target.sms, kDispatchThreads, kDispatchSharedBytes,
                         path, mark, send, ShapeOf(path, kSendStages));
}

int LaunchExpand(const LaunchTarget& target, const PathView& path, const OperationMark& mark,
                 const PlanView& plan, bool own_too) {
  const MoverShape shape = ShapeOf(path, kExpandStages);
  return LaunchDependent(target, ExpandKernel, target.sms, shape.warps * kWarp,
                         shape.shared_bytes(), path, mark, plan, own_too, shape);
}

int LaunchPlan(const LaunchTarget& target, const PathView& path, const OperationMark& mark,
               const EntryArguments& entry, const PlanningArguments& planning) {
  return LaunchDependent(target, PlanKernel, target.sms, kDispatchThreads, kDispatchSharedBytes,
                         path, mark, entry, planning);
}

int LaunchSendRoutes(const LaunchTarget& target, const PathView& path, const SendArguments& send) {
  return LaunchDependent(target, SendRoutesKernel, target.sms, kDispatchThreads, 0, path, send);
}

int LaunchStoreRows(const LaunchTarget& target, const PathView& path, const OperationMark& mark,
                    const SendArguments& send) {
  const MoverShape shape = ShapeOf(path, kSendStages);
  return LaunchDependent(target, StoreRowsKernel, target.sms, shape.warps * kWarp,
                         shape.shared_bytes(), path, mark, send, shape);
}

int LaunchPublish(const LaunchTarget& target, const PathView& path, const OperationMark& mark,
                  const EntryArguments& entry, const PlanView& plan, bool expands_here) {
  return LaunchDependent(target, PublishKernel, target.sms, kDispatchThreads, kDispatchSharedBytes,
                         path, mark, entry, plan, expands_here, ShapeOf(path, kExpandStages));
}

int LaunchPrepareSource(const LaunchTarget& target, const PathView& path, const OperationMark& mark,
                        const EntryArguments& entry, const PlanningArguments& planning,
                        const SourceLists& source) {
  return LaunchDependent(target, PrepareSourceKernel, target.sms, kDispatchThreads,
                         kDispatchSharedBytes, path, mark, entry, planning, source);
}

int LaunchMaterialise(const LaunchTarget& target, const PathView& path, const OperationMark& mark,
                      const EntryArguments& entry, const PlanView& plan,
                      const SourceLists& source) {
  return LaunchDependent(target, MaterialiseKernel, target.sms, kDispatchThreads,
                         kDispatchSharedBytes, path, mark, entry, plan, source,
                         ShapeOf(path, kSendStages));
}

int LaunchStoreSource(const LaunchTarget& target, const PathView& path,
                      const StoreSourceArguments& store) {
  StoreSourceKernel<<<target.sms, kRowThreads, 0, target.stream>>>(path, store);
  return cudaGetLastError();
}

int LaunchCopyUsedRows(const LaunchTarget& target, const PathView& path, const PlanView& plan,
                       const CopyArguments& copy) {
  if (copy.rows_to == nullptr && copy.weights_to == nullptr) return 0;
  CopyUsedRowsKernel<<<target.sms, kRowThreads, 0, target.stream>>>(path, plan, copy);
  return cudaGetLastError();
}

int LaunchCopyPlan(const LaunchTarget& target, const PathView& path, const OperationMark& mark,
                   const PlanView& plan, const PlanArrays& to) {
  CopyPlanKernel<<<target.sms, kRowThreads, 0, target.stream>>>(path, mark, plan, to);
  return cudaGetLastError();
}

int LoadDispatchKernels() {
  const int error = AllowSharedMemory(kDispatchSharedBytes, DispatchKernel, DispatchWithPlanKernel,
                                      KeepKernel, ExpandKernel, PlanKernel, StoreRowsKernel,
                                      PublishKernel, PrepareSourceKernel, MaterialiseKernel);
  if (error != 0) return error;
  return LoadKernels(DispatchKernel, DispatchWithPlanKernel, KeepKernel, ExpandKernel, PlanKernel,
                     SendRoutesKernel, StoreRowsKernel, PublishKernel, PrepareSourceKernel,
                     MaterialiseKernel, StoreSourceKernel, CopyUsedRowsKernel, CopyPlanKernel);
}

}  // namespace perigee
