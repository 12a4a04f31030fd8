// One attachment of a local client, from the moment that its ticket is good to its end: the memory
// that the two share, and the thread that executes the client's commands.
//
//   Create -> Start (a client has come) -> Stop, whoever is first with a reason -> Advance, until
//   the thread has left and everything is given back
#ifndef PERIGEE_WORKER_ATTACH_ATTACHMENT_H_
#define PERIGEE_WORKER_ATTACH_ATTACHMENT_H_

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "proto/local/attach_message.h"
#include "proto/local/command_consumer.h"
#include "proto/v1/command.pb.h"
#include "worker/attach/client_memory.h"
#include "worker/attach/local_executor.h"
#include "worker/ops/group_view.h"
#include "worker/session/session.h"
#include "worker/session/session_buffer.h"

namespace perigee {

// Why an attachment ends.
struct StopReason {
  absl::Status status;  // what the client is told; not OK
  std::string word;     // as RankStatus.reason
  // The client left by itself, or was asked to; else it has gone, or cannot go on.
  bool orderly = false;
  std::vector<int32_t> lost;  // ranks that the group lost, if that is why
};

struct AttachmentEnd {
  v1::RankStatus status;  // as ServeClientCommand is answered
  v1::ClientEnd end;
};

// Thread-safe. Create, Start and Advance: from one thread at a time.
class Attachment final : public BufferGuest {
 public:
  // Allocates, and reserves the buffer. Errors: ClientMemory::Allocate, SessionBuffer::AddGuest.
  // `on_change` is called when Advance has something to do, from any thread; it neither blocks nor
  // calls back. The environment outlives the attachment.
  static absl::StatusOr<std::shared_ptr<Attachment>> Create(const GroupView& group,
                                                            std::shared_ptr<SessionBuffer> buffer,
                                                            Sequence first_sequence,
                                                            const SessionEnvironment& environment,
                                                            std::function<void()> on_change);
  ~Attachment() override;

  // What the client is sent: the descriptors of PartsOf(reply), and of its peers' rows.
  AttachReply reply() const;
  std::vector<int> descriptors() const;
  const BufferShape& shape() const { return buffer_->shape(); }

  // Serves the client from now on. False: it has been stopped meanwhile.
  bool Start();
  // Ends it; only the first reason counts. Never blocks.
  void Stop(StopReason reason);
  // Ends it as soon as its client waits for, or submits, a collective operation behind this
  // sequence: another rank takes part in no more.
  void StopBeyond(Sequence last, StopReason reason);
  // Takes the steps towards its end that are due: the answer, once there is one, and once only. It
  // comes before the end where the client has left in the middle of a collective operation: the
  // generation has to end, and that ends the operation.
  absl::optional<AttachmentEnd> Advance(absl::Duration now);
  // When Advance is due without a change; infinite: not.
  absl::Duration NextDeadline() const;
  // Everything is given back.
  bool finished() const;

  void Abort(const absl::Status& aborted, absl::Span<const int32_t> lost_ranks) override;
  void AwaitEnd() override;

 private:
  Attachment(const GroupView& group, std::shared_ptr<SessionBuffer> buffer, Sequence first_sequence,
             const SessionEnvironment& environment, ClientMemory memory,
             std::function<void()> on_change);
  void Serve();
  // Takes the next command and begins it, once its inputs are there. Blocks for a while where
  // nothing is under way.
  void TakeCommand();
  void BeginCommand();
  // With mutex_ held: whether what begins at this sequence waits for a rank that has left; 0: none.
  bool IsBeyond(uint64_t sequence) const;
  void StopLocked(StopReason reason);
  // How what has ended did; false where nothing has.
  bool CompleteEnded();
  // Between looks at the device and at the client's words.
  void Pause();
  void EndOperations();
  void PublishEnd();
  void GiveBack();
  AttachmentEnd DescribeEnd() const;  // mutex_ is held
  v1::RankStatus LeftOperation(uint64_t sequence) const;

  const GroupView group_;
  const std::shared_ptr<SessionBuffer> buffer_;
  const SessionEnvironment& environment_;
  const std::function<void()> on_change_;
  absl::optional<ClientMemory> memory_;
  absl::optional<CommandConsumer> consumer_;
  absl::optional<LocalExecutor> executor_;  // once the buffer is reserved

  // Of the thread that serves.
  bool taking_ = true;                  // whether more commands are taken
  bool operating_ = false;              // has the buffer for its operations
  absl::optional<CommandEntry> taken_;  // and not begun
  absl::Duration last_news_;
  absl::Duration device_spin_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool started_ = false;  // guarded by mutex_, as all below
  absl::optional<StopReason> stopped_;
  absl::Duration stopped_at_;
  absl::optional<Sequence> beyond_;  // of StopBeyond
  StopReason beyond_reason_;
  bool left_ = false;  // the thread takes no more commands
  bool reported_ = false;
  bool finished_ = false;
  std::thread thread_;  // of Start and Advance
};

}  // namespace perigee

#endif  // PERIGEE_WORKER_ATTACH_ATTACHMENT_H_
