// How a stream of this process's GPU and the commands of an attachment wait for each other without
// the host: by words of the command page, which the GPU sees.
#ifndef PERIGEE_CLIENT_LIB_STREAM_LINK_H_
#define PERIGEE_CLIENT_LIB_STREAM_LINK_H_

#include <cstdint>
#include <memory>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/device/caller_stream.h"
#include "proto/local/command_page.h"
#include "proto/local/command_producer.h"
#include "proto/local/local_command.h"
#include "proto/local/wait_limit.h"

namespace perigee {

// Streams that wait are let go when the worker says so, and when it has gone, which a thread sees
// by the connection. From one thread at a time.
class StreamLink {
 public:
  // `page` lies in `memory`, all of it, and outlives the link, as does the connection; -1: there is
  // none, the worker being this process.
  static absl::StatusOr<std::unique_ptr<StreamLink>> Create(int device,
                                                            absl::Span<std::byte> memory,
                                                            CommandPage& page, int connection);
  ~StreamLink();
  StreamLink(const StreamLink&) = delete;
  StreamLink& operator=(const StreamLink&) = delete;

  // The first operation is begun when all that the stream has been given so far has ended. Its
  // command's number; errors as CommandProducer::SubmitProgram, and where the stream cannot be
  // used.
  absl::StatusOr<uint64_t> SubmitBehind(CUstream_st* stream, CommandProducer& producer,
                                        absl::Span<const LocalOperation> operations) const;
  // What the stream is given from here on waits for the command's end.
  absl::Status AwaitCommand(CUstream_st* stream, uint64_t command) const;
  // Releases a dispatch-output slot that there is; its last read is over when all that the stream
  // has been given so far has ended. Errors as SubmitBehind.
  absl::StatusOr<uint64_t> ReleaseBehind(CUstream_st* stream, CommandProducer& producer,
                                         const LocalSlot& slot);
  // Puts the mark of a captured read of the slot into the stream.
  absl::Status CaptureRead(CUstream_st* stream, int32_t index) const;
  // No stream waits from here on. The connection is not looked at any more. Idempotent.
  void LetGo();

 private:
  StreamLink(std::unique_ptr<RegisteredMemory> words, CommandPage& page, int connection);
  void Watch(int connection) const;

  const std::unique_ptr<RegisteredMemory> words_;
  CommandPage& page_;
  int32_t next_read_word_ = 0;
  Interrupt stop_;
  std::thread watcher_;
};

}  // namespace perigee

#endif  // PERIGEE_CLIENT_LIB_STREAM_LINK_H_
