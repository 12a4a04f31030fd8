// The part of the C interface about streams of the GPU, since version 2; perigee.h brings it along.
//
// For PERIGEE_MEMORY_CUDA, FAILED_PRECONDITION else. stream: a cudaStream_t or CUstream of the
// attachment's device; NULL: the legacy default stream. None of these waits for the device.
#ifndef PERIGEE_CLIENT_LIB_PERIGEE_STREAMS_H_
#define PERIGEE_CLIENT_LIB_PERIGEE_STREAMS_H_

#include <stdint.h>

#include "client/lib/perigee_error.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct perigee_attachment perigee_attachment;  // of perigee.h

// The next command handed over begins when all that `stream` has been given so far has ended. Where
// it has not in half the buffer's operation timeout, the command ends with DEADLINE_EXCEEDED.
int perigee_follow_stream(perigee_attachment* attachment, void* stream, perigee_error* error);
// What `stream` is given from here on waits until the command has ended, well or not (perigee_wait
// tells), or the attachment has. OUT_OF_RANGE with the reason UNKNOWN_COMMAND: it has not been
// handed over.
int perigee_hold_stream(perigee_attachment* attachment, void* stream, uint64_t command,
                        perigee_error* error);
// Since version 3. Remembers how far `stream` has come, in the place of what was remembered before;
// the stream may go afterwards.
int perigee_mark_stream(perigee_attachment* attachment, void* stream, perigee_error* error);
// Since version 3. What `stream` is given from here on waits for what was remembered; for nothing,
// where nothing was.
int perigee_hold_for_mark(perigee_attachment* attachment, void* stream, perigee_error* error);
// Copies in the order of the stream, between addresses of the device and of the host.
int perigee_copy(perigee_attachment* attachment, void* stream, void* to, const void* from,
                 uint64_t bytes, perigee_error* error);
// done: 1 where all that `stream` has been given has ended, else 0.
int perigee_stream_done(perigee_attachment* attachment, void* stream, int32_t* done,
                        perigee_error* error);
// Zeroed memory of the device, given back by perigee_free: any number of bytes but 0. It may
// outlive the attachment.
int perigee_allocate(perigee_attachment* attachment, uint64_t bytes, void** memory,
                     perigee_error* error);
// NULL is fine. Waits for the device.
void perigee_free(void* memory);

#ifdef __cplusplus
}  // extern "C"
#endif

#endif  // PERIGEE_CLIENT_LIB_PERIGEE_STREAMS_H_
