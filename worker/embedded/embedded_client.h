// The client of a rank in the process of its embedded worker: a command ring as local clients have
// it, and mappings of its own of what it shares with the worker.
#ifndef PERIGEE_WORKER_EMBEDDED_EMBEDDED_CLIENT_H_
#define PERIGEE_WORKER_EMBEDDED_EMBEDDED_CLIENT_H_

#include <memory>
#include <mutex>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "client/lib/peer_rows.h"
#include "client/lib/rank_client.h"
#include "client/lib/shared_region.h"
#include "client/lib/stream_link.h"
#include "proto/local/command_producer.h"
#include "proto/local/shared_mapping.h"
#include "worker/attach/attach_server.h"

namespace perigee {

// Between an embedded worker and its clients, whichever of them ends first. Thread-safe.
class EmbeddedLink {
 public:
  // Calls the worker; UNAVAILABLE once it has ended.
  absl::StatusOr<EmbeddedAttachment> Attach(
      absl::FunctionRef<absl::StatusOr<EmbeddedAttachment>()> call);
  // The worker ends all attachments itself from here on.
  void End();
  // In good order, where the worker still lives.
  void Stop(Attachment& attachment);

 private:
  std::mutex mutex_;
  bool ended_ = false;  // guarded by mutex_
};

class EmbeddedClient final : public RankClient {
 public:
  // Errors: FindSharedDevice, SharedRegion::Map; the attachment is then over.
  static absl::StatusOr<std::unique_ptr<RankClient>> Create(EmbeddedAttachment attachment,
                                                            std::shared_ptr<EmbeddedLink> link);
  ~EmbeddedClient() override;

  const Geometry& geometry() const override { return shape_.geometry; }
  int32_t hidden_size() const override { return shape_.hidden; }
  RankId rank() const override { return identity_.rank; }
  Generation generation() const override { return identity_.generation; }
  RankMemory memory() const override { return memory_; }

  absl::StatusOr<uint64_t> SubmitProgram(absl::Span<const LocalOperation> operations) override;
  absl::StatusOr<LocalCompletion> Wait(uint64_t command, absl::Duration timeout) override;
  absl::optional<LocalCompletion> End() override;
  absl::StatusOr<uint64_t> SubmitProgramBehind(
      CUstream_st* stream, absl::Span<const LocalOperation> operations) override;
  absl::Status MakeWait(CUstream_st* stream, uint64_t command) override;
  absl::StatusOr<uint64_t> ReleaseSlotBehind(CUstream_st* stream, const LocalSlot& slot) override;
  absl::Status CaptureSlotRead(CUstream_st* stream, int32_t index) override;
  absl::Status Detach() override;

 private:
  EmbeddedClient(std::shared_ptr<Attachment> attachment, std::shared_ptr<EmbeddedLink> link,
                 const BufferShape& shape);
  absl::Status Map(EmbeddedAttachment& attachment);
  absl::Status MapRegions(EmbeddedAttachment& attachment);
  // FAILED_PRECONDITION: detached, or the memory is the host's.
  absl::StatusOr<StreamLink*> Link();

  std::shared_ptr<Attachment> attachment_;  // null: detached
  const std::shared_ptr<EmbeddedLink> link_;
  const BufferShape shape_;
  SharedMapping page_;
  absl::optional<SharedDevice> device_;  // of the memory below; none: the host's
  SharedRegion arena_, rows_;
  SharedRegion gradients_, slots_, source_;  // empty where there are none
  PeerRows peers_;                           // likewise
  CommandPageIdentity identity_;
  RankMemory memory_;
  absl::optional<CommandProducer> producer_;
  std::unique_ptr<StreamLink> stream_link_;  // once a stream is used
};

}  // namespace perigee

#endif  // PERIGEE_WORKER_EMBEDDED_EMBEDDED_CLIENT_H_
