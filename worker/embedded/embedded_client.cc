#include "worker/embedded/embedded_client.h"

#include <thread>
#include <utility>

#include "kernels/layout/client_arena.h"
#include "kernels/layout/gradients_layout.h"
#include "kernels/layout/shard_layout.h"
#include "proto/local/spin_budget.h"
#include "proto/support/clock.h"
#include "worker/ops/failure_reason.h"

namespace perigee {

absl::StatusOr<EmbeddedAttachment> EmbeddedLink::Attach(
    absl::FunctionRef<absl::StatusOr<EmbeddedAttachment>()> call) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (ended_) return absl::UnavailableError("the worker has been shut down");
  return call();
}

void EmbeddedLink::End() {
  std::lock_guard<std::mutex> lock(mutex_);
  ended_ = true;
}

void EmbeddedLink::Stop(Attachment& attachment) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (ended_) return;
  attachment.Stop({absl::CancelledError("the client has detached"), kReasonCancelled, true, {}});
}

absl::StatusOr<std::unique_ptr<RankClient>> EmbeddedClient::Create(
    EmbeddedAttachment attachment, std::shared_ptr<EmbeddedLink> link) {
  std::unique_ptr<EmbeddedClient> client(
      new EmbeddedClient(attachment.attachment, std::move(link), attachment.shape));
  if (absl::Status status = client->Map(attachment); !status.ok()) return status;
  return std::unique_ptr<RankClient>(std::move(client));
}

EmbeddedClient::EmbeddedClient(std::shared_ptr<Attachment> attachment,
                               std::shared_ptr<EmbeddedLink> link, const BufferShape& shape)
    : attachment_(std::move(attachment)), link_(std::move(link)), shape_(shape) {}

EmbeddedClient::~EmbeddedClient() { (void)Detach(); }

absl::Status EmbeddedClient::MapRegions(EmbeddedAttachment& attachment) {
  const AttachReply& reply = attachment.reply;
  if (reply.device_uuid[0] != '\0') {
    absl::StatusOr<SharedDevice> device = FindSharedDevice(reply.device_uuid);
    if (!device.ok()) return device.status();
    device_ = *std::move(device);
  }
  for (const auto& [part, region] :
       {std::pair{AttachPart::kArena, &arena_}, std::pair{AttachPart::kShardRows, &rows_},
        std::pair{AttachPart::kGradients, &gradients_}, std::pair{AttachPart::kSlots, &slots_},
        std::pair{AttachPart::kSource, &source_}}) {
    const size_t index = static_cast<size_t>(part);
    if (reply.size_bytes[index] == 0) continue;
    absl::StatusOr<SharedRegion> mapped = SharedRegion::Map(
        std::move(attachment.descriptors[index]), reply.size_bytes[index], device_,
        /*read_only=*/part == AttachPart::kSlots);
    if (!mapped.ok()) return mapped.status();
    *region = *std::move(mapped);
  }
  if (!shape_.peer_store) return absl::OkStatus();
  absl::StatusOr<PeerRows> peers = PeerRows::Map(
      std::move(attachment.peers), identity_.rank,
      reply.size_bytes[static_cast<size_t>(AttachPart::kShardRows)], reply.rows_offset, device_);
  if (!peers.ok()) return peers.status();
  peers_ = *std::move(peers);
  return absl::OkStatus();
}

absl::Status EmbeddedClient::Map(EmbeddedAttachment& attachment) {
  const AttachReply& reply = attachment.reply;
  constexpr auto kPage = static_cast<size_t>(AttachPart::kCommandPage);
  absl::StatusOr<SharedMapping> mapped =
      SharedMapping::Map(std::move(attachment.descriptors[kPage]), reply.size_bytes[kPage]);
  if (!mapped.ok()) return mapped.status();
  page_ = *std::move(mapped);
  const absl::StatusOr<CommandPage*> page = OpenCommandPage(page_.memory());
  if (!page.ok()) return page.status();
  identity_ = IdentityOf(**page);
  if (absl::Status status = MapRegions(attachment); !status.ok()) return status;
  const Geometry& geometry = shape_.geometry;
  memory_ = ArenaMemory(geometry, shape_.hidden,
                        ClientArenaLayout::Create(geometry, shape_.hidden, kHostGranularityBytes)
                            .View(arena_.data()));
  std::byte* const shard = rows_.data();
  const size_t rows = static_cast<size_t>(geometry.logical_rows());
  memory_.rows = {reinterpret_cast<BFloat16*>(shard + reply.rows_offset), rows * shape_.hidden};
  memory_.row_weights = {reinterpret_cast<float*>(shard + reply.row_weights_offset), rows};
  if (shape_.gradients) {
    memory_.gradients = {
        GradientBlockLayout::Create({shape_.hidden, shape_.intermediate}, geometry.slots,
                                    geometry.experts_per_rank(), shape_.layers),
        gradients_.data()};
  }
  const WeightsShape weights = shape_.weights();
  memory_.slots = {weights, WeightsLayout::Slots(weights, geometry.slots), slots_.data()};
  if (shape_.source_storage) {
    const absl::StatusOr<AccessSet> access = AccessSet::Parse(reply.source_access);
    if (!access.ok()) return access.status();
    memory_.source = SourceAt(geometry, shape_.hidden, source_.data(), *access);
  }
  if (device_) memory_.device = device_->index;
  memory_.peer_rows = peers_.rows(memory_.rows.data());
  memory_.peer_access = kFullAccess;
  memory_.output_slots =
      OutputSlotsAt(geometry, shape_.hidden, shape_.dispatch_output_slots, memory_.rows.data());
  CommandProducerOptions options;
  options.spin = SpinBudget(static_cast<int>(std::thread::hardware_concurrency()),
                            static_cast<int>(geometry.ranks));
  producer_.emplace(**page, RealClock(), std::move(options));
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> EmbeddedClient::SubmitProgram(
    absl::Span<const LocalOperation> operations) {
  if (!attachment_) return absl::FailedPreconditionError("this client has detached");
  return producer_->SubmitProgram(operations);
}

absl::StatusOr<StreamLink*> EmbeddedClient::Link() {
  if (!attachment_) return absl::FailedPreconditionError("this client has detached");
  if (!device_) {
    return absl::FailedPreconditionError(
        "the attachment's memory is the host's: no stream uses it");
  }
  if (stream_link_ == nullptr) {
    const absl::StatusOr<CommandPage*> page = OpenCommandPage(page_.memory());
    if (!page.ok()) return page.status();
    absl::StatusOr<std::unique_ptr<StreamLink>> link =
        StreamLink::Create(device_->index, page_.memory(), **page, /*connection=*/-1);
    if (!link.ok()) return link.status();
    stream_link_ = *std::move(link);
  }
  return stream_link_.get();
}

absl::StatusOr<uint64_t> EmbeddedClient::SubmitProgramBehind(
    CUstream_st* stream, absl::Span<const LocalOperation> operations) {
  const absl::StatusOr<StreamLink*> link = Link();
  if (!link.ok()) return link.status();
  return (*link)->SubmitBehind(stream, *producer_, operations);
}

absl::Status EmbeddedClient::MakeWait(CUstream_st* stream, uint64_t command) {
  const absl::StatusOr<StreamLink*> link = Link();
  return link.ok() ? (*link)->AwaitCommand(stream, command) : link.status();
}

absl::StatusOr<uint64_t> EmbeddedClient::ReleaseSlotBehind(CUstream_st* stream,
                                                           const LocalSlot& slot) {
  absl::Status status = CheckOutputSlot(memory_.output_slots.size(), slot.index);
  if (!status.ok()) return status;
  const absl::StatusOr<StreamLink*> link = Link();
  if (!link.ok()) return link.status();
  return (*link)->ReleaseBehind(stream, *producer_, slot);
}

absl::Status EmbeddedClient::CaptureSlotRead(CUstream_st* stream, int32_t index) {
  absl::Status status = CheckOutputSlot(memory_.output_slots.size(), index);
  if (!status.ok()) return status;
  if (device_ && stream_link_ == nullptr) return NoStreamBefore();
  const absl::StatusOr<StreamLink*> link = Link();
  return link.ok() ? (*link)->CaptureRead(stream, index) : link.status();
}

absl::StatusOr<LocalCompletion> EmbeddedClient::Wait(uint64_t command, absl::Duration timeout) {
  if (!attachment_) return absl::FailedPreconditionError("this client has detached");
  return producer_->Wait(command, timeout);
}

absl::optional<LocalCompletion> EmbeddedClient::End() {
  return attachment_ ? producer_->End() : absl::nullopt;
}

absl::Status EmbeddedClient::Detach() {
  if (!attachment_) return absl::OkStatus();
  link_->Stop(*attachment_);
  attachment_->AwaitEnd();
  attachment_.reset();
  if (stream_link_ != nullptr) stream_link_->LetGo();
  absl::Status status;
  // A page that streams have used stays as it is: the device may still look at it.
  if (stream_link_ == nullptr) status.Update(page_.MakePrivate());
  for (SharedRegion* region : {&arena_, &rows_, &gradients_, &slots_, &source_}) {
    status.Update(region->MakePrivate());
  }
  status.Update(peers_.MakePrivate());
  return status;
}

}  // namespace perigee
