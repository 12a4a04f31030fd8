// The part of the C interface about what went wrong; perigee.h brings it along.
#ifndef PERIGEE_CLIENT_LIB_PERIGEE_ERROR_H_
#define PERIGEE_CLIENT_LIB_PERIGEE_ERROR_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// The codes of gRPC.
enum {
  PERIGEE_OK = 0,
  PERIGEE_CANCELLED = 1,
  PERIGEE_UNKNOWN = 2,
  PERIGEE_INVALID_ARGUMENT = 3,   // the request itself is wrong
  PERIGEE_DEADLINE_EXCEEDED = 4,  // a wait was over, or a rank did not arrive in time
  PERIGEE_NOT_FOUND = 5,
  PERIGEE_ALREADY_EXISTS = 6,
  PERIGEE_PERMISSION_DENIED = 7,
  PERIGEE_RESOURCE_EXHAUSTED = 8,   // too little memory, or as many commands as there can be
  PERIGEE_FAILED_PRECONDITION = 9,  // not in this state: another generation, a dead object
  PERIGEE_ABORTED = 10,
  PERIGEE_OUT_OF_RANGE = 11,
  PERIGEE_UNIMPLEMENTED = 12,
  PERIGEE_INTERNAL = 13,
  PERIGEE_UNAVAILABLE = 14,  // a rank or the worker was lost, or nobody answers
  PERIGEE_DATA_LOSS = 15,    // the shared memory holds what nobody writes
  PERIGEE_UNAUTHENTICATED = 16
};
#define PERIGEE_MESSAGE_BYTES 1024
#define PERIGEE_REASON_BYTES 24
#define PERIGEE_NAME_BYTES 256

// Ranks and sequences are -1 and 0 where none is meant.
typedef struct perigee_error {
  uint32_t struct_bytes;  // sizeof(perigee_error), by the caller; 0 is taken as version 1's
  int32_t code;
  uint64_t generation;                   // that the operation ran in
  uint64_t sequence;                     // of the operation
  uint64_t lost_ranks[2];                // bit r % 64 of word r / 64: the group lost rank r
  int32_t rank;                          // that speaks
  int32_t awaited_rank;                  // that was waited for
  int32_t token;                         // of a route that cannot be
  int32_t k;                             // likewise
  char operation[PERIGEE_REASON_BYTES];  // dispatch, combine, ...; empty where none is meant
  char reason[PERIGEE_REASON_BYTES];     // stable word: RANK_LOST, BAD_ROUTE, ...; may be empty
  char message[PERIGEE_MESSAGE_BYTES];   // one line for people
} perigee_error;

#ifdef __cplusplus
}  // extern "C"
#endif

#endif  // PERIGEE_CLIENT_LIB_PERIGEE_ERROR_H_
