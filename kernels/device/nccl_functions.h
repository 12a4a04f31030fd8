// The few functions of NCCL that kernels/device calls, declared here: binaries are built on
// machines without nccl.h and run with whatever NCCL 2 is there. Its interface promises these not
// to change.
#ifndef PERIGEE_KERNELS_DEVICE_NCCL_FUNCTIONS_H_
#define PERIGEE_KERNELS_DEVICE_NCCL_FUNCTIONS_H_

#include <climits>
#include <cstddef>

struct CUstream_st;
struct ncclComm;

namespace perigee {

struct NcclUniqueId {
  char internal[128];
};
static_assert(sizeof(NcclUniqueId) == 128, "NCCL takes it by value");

// ncclResult_t, ncclDataType_t and ncclRedOp_t are C enums: ints.
constexpr int kNcclSuccess = 0;
constexpr int kNcclInProgress = 7;
constexpr int kNcclUint8 = 1;
constexpr int kNcclFloat32 = 7;
constexpr int kNcclSum = 0;

// ncclConfig_t as of the version that it names: NCCL takes what came later from its own defaults.
struct NcclConfig {
  size_t size = sizeof(NcclConfig);
  unsigned int magic = 0xcafebeef;
  unsigned int version = 21400;
  int blocking = 0;
  int undefined = INT_MIN;
};
static_assert(sizeof(NcclConfig) == 24);

struct NcclFunctions {
  int (*get_version)(int* version) = nullptr;
  const char* (*get_error_string)(int result) = nullptr;
  int (*get_unique_id)(NcclUniqueId* id) = nullptr;
  int (*comm_init_rank)(ncclComm** comm, int rank_count, NcclUniqueId id, int rank) = nullptr;
  int (*comm_init_rank_config)(ncclComm** comm, int rank_count, NcclUniqueId id, int rank,
                               NcclConfig* config) = nullptr;
  int (*comm_get_async_error)(ncclComm* comm, int* result) = nullptr;
  int (*comm_abort)(ncclComm* comm) = nullptr;
  int (*comm_destroy)(ncclComm* comm) = nullptr;
  int (*all_reduce)(const void* send, void* receive, size_t count, int type, int op, ncclComm* comm,
                    CUstream_st* stream) = nullptr;
  int (*send)(const void* from, size_t count, int type, int peer, ncclComm* comm,
              CUstream_st* stream) = nullptr;
  int (*receive)(void* to, size_t count, int type, int peer, ncclComm* comm,
                 CUstream_st* stream) = nullptr;
  int (*group_start)() = nullptr;
  int (*group_end)() = nullptr;
};

}  // namespace perigee

#endif  // PERIGEE_KERNELS_DEVICE_NCCL_FUNCTIONS_H_
