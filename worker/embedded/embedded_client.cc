#include "worker/embedded/embedded_client.h"

#include <thread>
#include <utility>

#include "kernels/layout/client_arena.h"
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

absl::Status EmbeddedClient::Map(EmbeddedAttachment& attachment) {
  for (const auto& [part, mapping] :
       {std::pair{AttachPart::kCommandPage, &page_}, std::pair{AttachPart::kArena, &arena_},
        std::pair{AttachPart::kShardRows, &shard_}}) {
    const size_t index = static_cast<size_t>(part);
    absl::StatusOr<SharedMapping> mapped = SharedMapping::Map(
        std::move(attachment.descriptors[index]), attachment.reply.size_bytes[index]);
    if (!mapped.ok()) return mapped.status();
    *mapping = *std::move(mapped);
  }
  const absl::StatusOr<CommandPage*> page = OpenCommandPage(page_.memory());
  if (!page.ok()) return page.status();
  identity_ = IdentityOf(**page);
  const Geometry& geometry = shape_.geometry;
  memory_ = ArenaMemory(geometry, shape_.hidden,
                        ClientArenaLayout::Create(geometry, shape_.hidden, kHostGranularityBytes)
                            .View(arena_.memory().data()));
  std::byte* const shard = shard_.memory().data();
  const size_t rows = static_cast<size_t>(geometry.logical_rows());
  memory_.rows = {reinterpret_cast<BFloat16*>(shard + attachment.reply.rows_offset),
                  rows * shape_.hidden};
  memory_.row_weights = {reinterpret_cast<float*>(shard + attachment.reply.row_weights_offset),
                         rows};
  CommandProducerOptions options;
  options.spin = SpinBudget(static_cast<int>(std::thread::hardware_concurrency()),
                            static_cast<int>(geometry.ranks));
  producer_.emplace(**page, RealClock(), std::move(options));
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> EmbeddedClient::Submit(const LocalOperation& operation) {
  if (!attachment_) return absl::FailedPreconditionError("this client has detached");
  return producer_->Submit(operation);
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
  absl::Status status;
  for (SharedMapping* mapping : {&page_, &arena_, &shard_}) status.Update(mapping->MakePrivate());
  return status;
}

}  // namespace perigee
