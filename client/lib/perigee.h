// The C interface of Perigee's client library, libperigee.so: what a framework process on a
// worker's machine needs to share memory with that worker and to run its operations. Plain C,
// stable: what is here keeps its meaning and layout; later versions add functions, and fields at
// the end of structs that carry their size.
//
//   cluster      a connection to the coordinator: makes groups and buffers, loads expert weights
//   attachment   one process's way to one rank of a buffer. The tensors of an operation lie in
//                shared memory, where perigee_memory says; a command starts the operation and
//                takes about a microsecond, a wait ends with its outcome.
//
// Every function that can fail returns a code, PERIGEE_OK or another, and says more in `error`,
// which may be NULL. A call with a NULL handle or output is PERIGEE_INVALID_ARGUMENT. Strings that
// go in end with a zero; those that come out as well.
//
// Threads: a cluster may be used from any; an attachment from one at a time. A process that forks
// uses neither in the child. Every call is bounded in time.
#ifndef PERIGEE_CLIENT_LIB_PERIGEE_H_
#define PERIGEE_CLIENT_LIB_PERIGEE_H_

#include <stdint.h>

#include "client/lib/perigee_error.h"
#include "client/lib/perigee_rings.h"
#include "client/lib/perigee_streams.h"

#ifdef __cplusplus
extern "C" {
#endif

// Grows with every addition.
#define PERIGEE_API_VERSION 8
// That the library was built with.
uint32_t perigee_api_version(void);

// ---- Cluster ----

typedef struct perigee_cluster perigee_cluster;

// The letters are those of docs/planning.md.
typedef struct perigee_buffer_shape {
  uint32_t struct_bytes;   // sizeof(perigee_buffer_shape), by the caller
  int32_t tokens;          // S, of one rank
  int32_t hidden;          // H, a multiple of 8
  int32_t topk;            // K
  int32_t experts;         // E, a multiple of R
  int32_t slots;           // B, prefetch slots of one rank; -1: E / R
  int32_t token_padding;   // P; 0: 128
  int32_t intermediate;    // H', a multiple of 8; 0: the buffer keeps no weights
  int32_t layers;          // 0 exactly where H' is
  int32_t gradients;       // since version 2: whether gradients are kept; needs layers and B >= E/R
  int32_t weight_format;   // since version 4: PERIGEE_WEIGHTS_...
  int32_t weight_scales;   // since version 4: whether block scales come with them; not with bf16
  int32_t refetch;         // since version 4: programs only, whether stale slots are fetched again
  int32_t peer_store;      // since version 5: whether clients get other ranks' rows
  int32_t source_storage;  // since version 6: whether there is an owner-sharded source
  int32_t dispatch_output_slots;  // since version 7: 0: none (perigee_rings.h)
  int32_t expert_output_slots;    // since version 7: 0: none
  // Since version 8; 0 in each is the default. Milliseconds that an operation waits for other
  // ranks, at most an hour, by default 10 s; and the first one of each generation, by default 30 s.
  int32_t operation_timeout_ms;
  int32_t warmup_timeout_ms;
  // Since version 8, of backend cuda. SMs of kernels that reach other ranks, by default the
  // worker's choice, and of those that stay in the rank's own memory, by default all.
  int32_t sms;
  int32_t local_sms;
  int32_t no_programmatic_launch;  // whether kernels are launched when those before have ended
  int32_t high_priority_stream;    // whether they go before those of other streams
} perigee_buffer_shape;

// What an element of the weights is, since version 4. Workers compute with bf16 alone: weights of
// the others they keep and prefetch, for experts that the process computes. 8 bit: one byte, of any
// meaning; scales are fp32, of 128 x 128 elements each. MXFP4: two in a byte; scales are one byte
// each (e8m0), of 32 elements of a row.
enum { PERIGEE_WEIGHTS_BF16 = 0, PERIGEE_WEIGHTS_8BIT = 1, PERIGEE_WEIGHTS_MXFP4 = 2 };

// address: HOST:PORT of the coordinator.
int perigee_connect(const char* address, perigee_cluster** cluster, perigee_error* error);
// NULL is fine.
void perigee_disconnect(perigee_cluster* cluster);

// Returns when the group is ACTIVE. group_id: NULL or "", or what its name is to end with. backend:
// "host" or "cuda". name: of PERIGEE_NAME_BYTES, the full one on return.
int perigee_create_group(perigee_cluster* cluster, const char* group_id, int32_t ranks,
                         const char* backend, char* name, perigee_error* error);
// Returns when the buffer is ACTIVE. name: as above.
int perigee_create_buffer(perigee_cluster* cluster, const char* group, const char* buffer_id,
                          const perigee_buffer_shape* shape, char* name, perigee_error* error);
// Waits for the programs that run, then gives all its memory back.
int perigee_delete_group(perigee_cluster* cluster, const char* group, perigee_error* error);
int perigee_delete_buffer(perigee_cluster* cluster, const char* buffer, perigee_error* error);

// One layer's experts, all of them; row-major. In bf16, or in the buffer's format: then gate, up
// and down point to bytes, [.., H'] or [.., H' / 2] of them.
typedef struct perigee_weights {
  uint32_t struct_bytes;  // sizeof(perigee_weights), by the caller
  int32_t experts;        // E
  int32_t hidden;         // H
  int32_t intermediate;   // H'
  const uint16_t* gate;   // [E, H, H']
  const uint16_t* up;     // [E, H, H']
  const uint16_t* down;   // [E, H', H]
  int32_t format;         // since version 4: PERIGEE_WEIGHTS_...
  // Since version 4, where the buffer has weight_scales, else NULL. Of a matrix [rows, columns]: of
  // 8 bit float [E, rows / 128, columns / 128], of MXFP4 bytes [E, rows, columns / 32], rounded up.
  const void* gate_scales;
  const void* up_scales;
  const void* down_scales;
} perigee_weights;

// Gives every rank its home experts' weights of one layer, and returns when they are there.
// version: not 0; operations name it. INVALID_ARGUMENT: E, H, H' or the format is not the buffer's,
// or scales are missing or too much.
int perigee_load_weights(perigee_cluster* cluster, const char* buffer, int32_t layer,
                         uint64_t version, const perigee_weights* weights, perigee_error* error);

// Since version 4. Publication tokens of one rank of a buffer, in the generation that lives: each
// is the right to publish once, at that rank (docs/publication.md), and good for an hour at most.
// Keep them secret.
#define PERIGEE_TOKEN_BYTES 96
// tokens: room for `count` tokens of PERIGEE_TOKEN_BYTES, 1 to 1024 of them. FAILED_PRECONDITION:
// group or buffer is not ACTIVE.
int perigee_issue_tokens(perigee_cluster* cluster, const char* buffer, int32_t rank, int32_t count,
                         uint8_t* tokens, perigee_error* error);

// ---- Attachment: perigee_attachment ----

// Where an attachment's memory is.
enum { PERIGEE_MEMORY_HOST = 0, PERIGEE_MEMORY_CUDA = 1 };
#define PERIGEE_DEVICE_UUID_BYTES 48

// What the process shares with its worker. All of it belongs to the attachment and is gone after
// perigee_detach; until then it may be touched at any time, also after a failure.
typedef struct perigee_memory {
  uint32_t struct_bytes;  // sizeof(perigee_memory), by the caller; version 1's is taken, too
  int32_t rank;
  int32_t ranks;  // R
  int32_t tokens;
  int32_t hidden;
  int32_t topk;
  int32_t experts;
  int32_t slots;
  int32_t token_padding;
  int32_t intermediate;
  int32_t layers;
  uint64_t generation;
  int64_t rows;  // NvS
  // Read by operations, from the command to its end.
  uint16_t* input_tokens;      // [S, H] bf16
  int32_t* input_routes;       // [S, K] experts, -1: masked
  float* input_route_weights;  // [S, K]
  // Written by combine.
  const uint16_t* output_tokens;      // [S, H] bf16
  const float* output_route_weights;  // [S, K]
  // The shard: written by dispatch, then the process's own until the next operation on it.
  uint16_t* shard_rows;        // [NvS, H] bf16
  float* shard_route_weights;  // [NvS]
  // The plan of the last dispatch, prepare_dispatch or prepare_source that made one.
  const int32_t* plan_dst;               // [S, K]
  const int32_t* plan_cu_seqlens;        // [E + B]
  const int32_t* plan_zero_fill_ranges;  // [E + B, 2]
  const int32_t* plan_experts_to_copy;   // [R, B]
  const int32_t* plan_load;              // [R] rows that each rank computes
  const int32_t* plan_home_load;         // [R]
  // Since version 2. With PERIGEE_MEMORY_CUDA all pointers above are addresses of the device.
  int32_t kind;                                 // PERIGEE_MEMORY_...
  int32_t device;                               // CUDA's index in this process; -1: the host
  char device_uuid[PERIGEE_DEVICE_UUID_BYTES];  // "GPU-..."; empty: the host
} perigee_memory;

// Attaches to one rank of an ACTIVE buffer, whose worker runs on this machine. While any rank is
// attached the group runs no programs. All ranks attach before the first collective operation.
// FAILED_PRECONDITION: a program runs, or the rank is attached already; or the worker's memory is
// on a GPU that this process does not see.
int perigee_attach(perigee_cluster* cluster, const char* buffer, int32_t rank,
                   perigee_attachment** attachment, perigee_error* error);
// Leaves in good order, and returns when the worker has let go; wait for what is under way before.
// From here on the addresses of the memory hold zeroes and are this process's own (on a GPU the
// same little memory shows all over them, and no work of the device uses them while this runs);
// commands fail. Once is enough.
int perigee_leave(perigee_attachment* attachment, perigee_error* error);
// Leaves if that has not been done, and gives the memory back. NULL is fine.
void perigee_detach(perigee_attachment* attachment);

// FAILED_PRECONDITION: the memory is a GPU's, and the caller's struct is version 1's, which cannot
// say so.
int perigee_get_memory(perigee_attachment* attachment, perigee_memory* memory,
                       perigee_error* error);

// Since version 2. The gradients of a buffer that keeps them, float32, in the shapes of the
// weights. As the memory above; the process adds to the slots between operations, in the order of
// plan_experts_to_copy.
typedef struct perigee_gradients {
  uint32_t struct_bytes;  // sizeof(perigee_gradients), by the caller
  int32_t home_experts;   // E / R
  float* home_gate;       // [E/R, H, H'] of this rank's own experts
  float* home_up;         // [E/R, H, H']
  float* home_down;       // [E/R, H', H]
  float* slot_gate;       // [B, H, H'] of the experts in this rank's slots, whatever the layer
  float* slot_up;         // [B, H, H']
  float* slot_down;       // [B, H', H]
} perigee_gradients;

// FAILED_PRECONDITION: the buffer keeps none.
int perigee_get_gradients(perigee_attachment* attachment, int32_t layer,
                          perigee_gradients* gradients, perigee_error* error);

// Since version 4. The weights in this rank's prefetch slots, of whatever layer and version was
// brought there last, in the buffer's format, for experts that the process computes. For reading;
// as the memory above, in the order of plan_experts_to_copy.
typedef struct perigee_slots {
  uint32_t struct_bytes;    // sizeof(perigee_slots), by the caller
  int32_t slots;            // B
  int32_t format;           // PERIGEE_WEIGHTS_...
  int32_t scales;           // whether there are any
  const void* gate;         // [B, H, H'] bf16 or bytes, or [B, H, H' / 2] bytes
  const void* up;           // the same
  const void* down;         // [B, H', H], or [B, H', H / 2] bytes
  const void* gate_scales;  // as perigee_weights has them; NULL without scales
  const void* up_scales;
  const void* down_scales;
} perigee_slots;

// FAILED_PRECONDITION: the buffer keeps no weights, or has no slots.
int perigee_get_slots(perigee_attachment* attachment, perigee_slots* slots, perigee_error* error);

// Since version 5, of a buffer with peer_store. [NvS, H] bf16: the rows in the shard of any rank,
// for loads, stores and bulk copies of a producer between perigee_prepare_dispatch's end and
// perigee_publish; at other times it is another's memory. As the memory above. FAILED_PRECONDITION:
// the buffer has no peer_store; INVALID_ARGUMENT: there is no such rank.
int perigee_peer_rows(perigee_attachment* attachment, int32_t rank, uint16_t** rows,
                      perigee_error* error);

// Commands. Each returns when it has been handed to the worker, `command` being its number, and
// runs behind those before it. Collective ones are given in the same order on every rank.
// RESOURCE_EXHAUSTED: 64 are under way. Plans are kept under numbers that the caller chooses, not
// 0; they die with the attachment. What an operation does: docs/operations.md.

// Does nothing.
int perigee_empty(perigee_attachment* attachment, uint64_t* command, perigee_error* error);
// Collective. The first token_count rows of the input; keeps the plan, replacing one of that
// number. use_weights: whether route weights travel.
int perigee_dispatch(perigee_attachment* attachment, uint64_t plan, int32_t token_count,
                     int32_t use_weights, uint64_t* command, perigee_error* error);
// Collective. By a plan made before; routes are not read.
int perigee_dispatch_with_plan(perigee_attachment* attachment, uint64_t plan, int32_t token_count,
                               int32_t use_weights, uint64_t* command, perigee_error* error);
// Collective.
int perigee_prefetch_weights(perigee_attachment* attachment, uint64_t plan, int32_t layer,
                             uint64_t version, uint64_t* command, perigee_error* error);
// Over the rows in the shard. use_weights: scales each row by its route weight.
int perigee_run_experts(perigee_attachment* attachment, uint64_t plan, int32_t layer,
                        uint64_t version, int32_t use_weights, uint64_t* command,
                        perigee_error* error);
// Since version 2, for perigee_combine: the process has written the shard's route weights itself.
#define PERIGEE_OWN_WEIGHTS 2
// Collective. Sums the rows in the shard into the output; use_weights: gathers the shard's route
// weights, too: those that a dispatch left there, or with PERIGEE_OWN_WEIGHTS whatever is there.
// Changes the rows in the shard.
int perigee_combine(perigee_attachment* attachment, uint64_t plan, int32_t use_weights,
                    uint64_t* command, perigee_error* error);
// Collective. Since version 2. Adds the gradients that slots of all ranks hold for this rank's own
// experts to these, in the same order on every run, and clears the slots of this rank that the plan
// uses.
int perigee_reduce_gradients(perigee_attachment* attachment, uint64_t plan, int32_t layer,
                             uint64_t* command, perigee_error* error);
// Collective.
int perigee_barrier(perigee_attachment* attachment, uint64_t* command, perigee_error* error);
int perigee_release_plan(perigee_attachment* attachment, uint64_t plan, uint64_t* command,
                         perigee_error* error);
// Keeps the plan of `source` under `plan`, too.
int perigee_clone_plan(perigee_attachment* attachment, uint64_t plan, uint64_t source,
                       uint64_t* command, perigee_error* error);

// Direct publication, since version 4 (docs/publication.md): a dispatch in two phases, with the
// process as the producer of the rows between them. The target goes by the number of the plan that
// it will be; there is one at a time. It is over when it is published, when another operation
// writes the shard, when an operation ends early, when its token turns out to be no good, and with
// the attachment. FAILED_PRECONDITION with the reason STALE_OBJECT: there is no such target, or it
// is not as far; with PUBLICATION_PENDING: a publication is prepared, and nothing else may write
// the shard; PERMISSION_DENIED: the token is refused, and the reason says why: STALE_GENERATION,
// WRONG_RANK, FORGED, WRONG_BUFFER, UNKNOWN, EXPIRED or SPENT.

// Collective. Plans by the first token_count rows of the input routes; when it has ended, the
// memory's plan_* have the plan. What lay in the shard is gone. Row plan_dst[i] % NvS of rank
// plan_dst[i] / NvS is that of route i, where plan_dst[i] >= 0; other routes get theirs from it
// when all is published.
int perigee_prepare_dispatch(perigee_attachment* attachment, uint64_t plan, int32_t token_count,
                             uint64_t* command, perigee_error* error);
// Local, and the process may write rows meanwhile. Sends all but rows; use_weights: whether route
// weights travel. token: of PERIGEE_TOKEN_BYTES, for perigee_publish to spend; NULL: the rank draws
// one of its own.
int perigee_prepare_publication(perigee_attachment* attachment, uint64_t plan, int32_t use_weights,
                                const uint8_t* token, uint64_t* command, perigee_error* error);
// Local. Copies the input tokens to their places, on whatever rank. Rows of this rank, and with
// peer_store of any, the process may write itself, behind it or instead of it, where it leaves none
// out.
int perigee_store_rows(perigee_attachment* attachment, uint64_t plan, uint64_t* command,
                       perigee_error* error);
// Collective. Waits for every rank's rows, and keeps the plan. Spends the token, whatever becomes
// of it then.
int perigee_publish(perigee_attachment* attachment, uint64_t plan, uint64_t* command,
                    perigee_error* error);

// Programs, since version 5: commands that are handed over together, as those of a step are. What
// is given between begin and submit is kept; each command has its number at once, which nobody can
// wait for yet. A stream that is followed meanwhile is followed by the first of them; there is one.
// FAILED_PRECONDITION: one has begun already. A stream to be followed is forgotten.
int perigee_begin_program(perigee_attachment* attachment, perigee_error* error);
// Hands all of it to the worker, which is woken once, or nothing, whatever becomes of this process.
// The commands run in their order, and each has its own end. Where one fails, those behind it that
// need what it would have made are refused; on a GPU so are all that are launched already: reason
// DECLINED, they have moved nothing. RESOURCE_EXHAUSTED: there is not room for all of them yet.
// After a failure the program is as it was.
int perigee_submit_program(perigee_attachment* attachment, perigee_error* error);
// Forgets it: no command of it runs, and their numbers are given again. Nothing where none has
// begun.
int perigee_drop_program(perigee_attachment* attachment, perigee_error* error);

// An owner-sharded source, since version 6 (docs/source.md), of a buffer with source_storage.
#define PERIGEE_ACCESS_BYTES 40
typedef struct perigee_source {       // this rank's source shard: every rank may fetch from it
  uint32_t struct_bytes;              // sizeof(perigee_source), by the caller
  char access[PERIGEE_ACCESS_BYTES];  // what is legal there: "load, store, bulk_copy, atomics"
  uint16_t* tokens;                   // [S, H] bf16
  float* route_weights;               // [S, K]
} perigee_source;
// needed: what the caller does there, in those words, or NULL. INVALID_ARGUMENT: less is legal.
int perigee_get_source(perigee_attachment* attachment, const char* needed, perigee_source* source,
                       perigee_error* error);
// Collective. Plans by the first token_count rows of the input routes, and makes the plan's source
// view; the last view is over. What is not copied from the input lies in the source shard.
int perigee_prepare_source(perigee_attachment* attachment, uint64_t plan, int32_t token_count,
                           int32_t copy_tokens, int32_t copy_weights, uint64_t* command,
                           perigee_error* error);
// Collective. Fetches by the plan's view: as dispatch leaves the shard. STALE_OBJECT: it is over.
int perigee_materialise(perigee_attachment* attachment, uint64_t plan, uint64_t* command,
                        perigee_error* error);

// Waits until a command has ended, and returns how: its failure is the call's. duration_ns, which
// may be NULL: how long the worker took. DEADLINE_EXCEEDED with the reason UNDER_WAY: it has not
// ended in timeout_ns. OUT_OF_RANGE with the reason UNKNOWN_COMMAND: nothing was handed over under
// that number, or 64 commands have ended since. UNAVAILABLE: the worker has gone or has ended the
// attachment; no command ends any more.
int perigee_wait(perigee_attachment* attachment, uint64_t command, int64_t timeout_ns,
                 int64_t* duration_ns, perigee_error* error);

#ifdef __cplusplus
}  // extern "C"
#endif

#endif  // PERIGEE_CLIENT_LIB_PERIGEE_H_
