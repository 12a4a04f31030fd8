// The part of the C interface about output slots (docs/rings.md), since version 7, of a buffer that
// has some; perigee.h brings it along. Each dispatch-output slot holds what one dispatch delivers
// until it is released, so that several can be pending; slots are taken in turn, by all ranks
// alike.
//
// A name that is none (the slot is over, released already, or of another ring) ends its command
// with the reason STALE_OBJECT; where the next slot in turn has not been released a command that
// takes it ends with SLOTS_IN_USE, naming how many would do. All ranks leave then, and the group
// goes on. Slots that a process has not released are free again when it has gone.
#ifndef PERIGEE_CLIENT_LIB_PERIGEE_RINGS_H_
#define PERIGEE_CLIENT_LIB_PERIGEE_RINGS_H_

#include <stdint.h>

#include "client/lib/perigee_error.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct perigee_attachment perigee_attachment;  // of perigee.h

// One taking of a slot.
typedef struct perigee_slot {
  uint64_t identity;  // of a dispatch-output slot the sequence of its dispatch; 0: none
  int32_t index;
  int32_t reserved;
} perigee_slot;

// Where a dispatch-output slot's rows are; otherwise as perigee_memory.
typedef struct perigee_output_slot {
  uint32_t struct_bytes;  // sizeof(perigee_output_slot), by the caller
  int32_t slots;          // how many dispatch-output slots the buffer has
  uint16_t* rows;         // [NvS, H] bf16
  float* route_weights;   // [NvS]
} perigee_output_slot;

// FAILED_PRECONDITION: the buffer has no slots; INVALID_ARGUMENT: none of this index.
int perigee_get_output_slot(perigee_attachment* attachment, int32_t index,
                            perigee_output_slot* slot, perigee_error* error);

// Commands, as those of perigee.h.

#define PERIGEE_ANY_SLOT (-1)
// Collective. perigee_dispatch, or perigee_dispatch_with_plan, into a slot; the shard is left
// alone. index: PERIGEE_ANY_SLOT, or the slot that must be the next in turn (else STALE_OBJECT).
// slot, of what it takes: the identity, and the index that was given. Told within a program that is
// dropped it is void: another dispatch gets the same.
int perigee_dispatch_into_slot(perigee_attachment* attachment, uint64_t plan, int32_t token_count,
                               int32_t use_weights, int32_t index, perigee_slot* slot,
                               uint64_t* command, perigee_error* error);
int perigee_dispatch_with_plan_into_slot(perigee_attachment* attachment, uint64_t plan,
                                         int32_t token_count, int32_t use_weights, int32_t index,
                                         perigee_slot* slot, uint64_t* command,
                                         perigee_error* error);
// perigee_run_experts on the rows of a dispatch-output slot, which it releases. into_slot: the
// results go to the next expert-output slot, of which perigee_taken_slot tells; else to the shard.
int perigee_run_experts_of_slot(perigee_attachment* attachment, uint64_t plan, int32_t layer,
                                uint64_t version, int32_t use_weights, const perigee_slot* slot,
                                int32_t into_slot, uint64_t* command, perigee_error* error);
// Collective. perigee_combine of the rows in an expert-output slot, which it releases.
int perigee_combine_slot(perigee_attachment* attachment, uint64_t plan, const perigee_slot* slot,
                         uint64_t* command, perigee_error* error);
// Collective. perigee_combine of rows that the process has written into the shard itself, all that
// the plan uses, whatever was there.
int perigee_combine_own_rows(perigee_attachment* attachment, uint64_t plan, int32_t use_weights,
                             uint64_t* command, perigee_error* error);

enum { PERIGEE_DISPATCH_OUTPUT = 0, PERIGEE_EXPERT_OUTPUT = 1 };  // rings
// What was given before this was the last to read the slot, and the process reads it no more.
int perigee_release_slot(perigee_attachment* attachment, int32_t ring, const perigee_slot* slot,
                         uint64_t* command, perigee_error* error);
// Of a dispatch-output slot. The last read is what `stream`, which has been held for the dispatch
// (perigee_hold_stream), has been given so far: no thread and no other command waits for it, but on
// the device a dispatch that takes the slot again, for half the buffer's operation timeout; then
// all ranks leave that. FAILED_PRECONDITION: the memory is the host's, or a program has begun.
int perigee_release_slot_behind(perigee_attachment* attachment, void* stream,
                                const perigee_slot* slot, uint64_t* command, perigee_error* error);
// For a stream that is captured: with every launch of the graph, the last read of whoever has the
// slot of this index is what the stream has been given so far. Releases nothing.
// FAILED_PRECONDITION: no stream has been used with the attachment yet (perigee_hold_stream).
int perigee_capture_slot_read(perigee_attachment* attachment, void* stream, int32_t index,
                              perigee_error* error);
// Once for each launch of such a graph, which comes behind a dispatch that has ended well.
int perigee_release_slot_replayed(perigee_attachment* attachment, const perigee_slot* slot,
                                  uint64_t* command, perigee_error* error);

// The slot that a command, which has ended well, has taken; otherwise as perigee_wait does of one
// that is under way or has failed. Identity 0: none.
int perigee_taken_slot(perigee_attachment* attachment, uint64_t command, perigee_slot* slot,
                       perigee_error* error);

#ifdef __cplusplus
}  // extern "C"
#endif

#endif  // PERIGEE_CLIENT_LIB_PERIGEE_RINGS_H_
