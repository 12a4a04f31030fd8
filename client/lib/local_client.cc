#include "client/lib/local_client.h"

#include <poll.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "client/lib/attach_request.h"
#include "client/lib/weights_shape.h"
#include "kernels/layout/rings.h"
#include "kernels/layout/shard_layout.h"
#include "kernels/layout/source_layout.h"
#include "kernels/plan/validate.h"
#include "proto/local/spin_budget.h"
#include "proto/support/control_group.h"

namespace perigee {
namespace {

absl::StatusOr<Geometry> GeometryOf(const v1::AttachTicket& ticket) {
  const v1::BufferShape& shape = ticket.shape();
  const Geometry geometry{ticket.ranks(), shape.experts(), shape.tokens(),
                          shape.topk(),   shape.slots(),   shape.token_padding()};
  absl::Status status = ValidateGeometry(geometry);
  if (status.ok() && shape.hidden() <= 0) {
    status = absl::InvalidArgumentError(absl::StrCat("hidden is ", shape.hidden()));
  }
  if (status.ok() && !IsRingCount(shape.dispatch_output_slots())) {
    status = absl::InvalidArgumentError(
        absl::StrCat("dispatch_output_slots is ", shape.dispatch_output_slots()));
  }
  if (!status.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("the ticket's shape: ", status.message()));
  }
  return geometry;
}

GradientBlockLayout GradientsOf(const Geometry& geometry, const v1::BufferShape& shape) {
  if (!shape.gradients()) return GradientBlockLayout();
  return GradientBlockLayout::Create({shape.hidden(), shape.intermediate()}, geometry.slots,
                                     geometry.experts_per_rank(), shape.layers());
}

CommandPageIdentity IdentityFor(const v1::AttachTicket& ticket) {
  return {Generation(ticket.generation()), BufferId(ticket.buffer_id()), RankId(ticket.rank()),
          ticket.ranks(), Sequence(ticket.first_sequence())};
}

absl::Status CheckPlace(const char* what, uint64_t offset, uint64_t bytes, uint64_t shard_bytes) {
  if (offset % alignof(float) == 0 && offset <= shard_bytes && bytes <= shard_bytes - offset) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat(what, " of ", bytes, " bytes at ", offset, " of ", shard_bytes, " bytes"));
}

size_t SlotsBytes(const Geometry& geometry, const v1::BufferShape& shape) {
  if (shape.layers() == 0 || geometry.slots == 0) return 0;
  return WeightsLayout::Slots(WeightsShapeOf(shape), geometry.slots).size_bytes;
}

// What the worker says that it shares, against what the ticket says.
absl::Status CheckReply(const AttachReply& reply, const Geometry& geometry,
                        const v1::BufferShape& shape) {
  const int32_t hidden = shape.hidden();
  const auto bytes_of = [&](AttachPart part) {
    return reply.size_bytes[static_cast<size_t>(part)];
  };
  const uint64_t rows = static_cast<uint64_t>(geometry.logical_rows());
  const uint64_t shard_bytes = bytes_of(AttachPart::kShardRows);
  absl::Status status =
      CheckPlace("rows", reply.rows_offset, rows * hidden * sizeof(BFloat16), shard_bytes);
  if (status.ok()) {
    status = CheckPlace("row weights", reply.row_weights_offset, rows * sizeof(float), shard_bytes);
  }
  if (status.ok() && shape.dispatch_output_slots() > 0) {
    const size_t area = ShardLayout::Create(geometry, hidden).area_bytes;
    status = CheckPlace("output slots", reply.rows_offset + area,
                        area * shape.dispatch_output_slots(), shard_bytes);
  }
  const struct {
    const char* name;
    AttachPart part;
    size_t expected;
  } wholes[] = {
      {"an arena", AttachPart::kArena,
       ClientArenaLayout::Create(geometry, hidden, kHostGranularityBytes).size_bytes},
      {"gradients", AttachPart::kGradients, GradientsOf(geometry, shape).size_bytes},
      {"slots", AttachPart::kSlots, SlotsBytes(geometry, shape)},
      {"a source shard", AttachPart::kSource,
       shape.source_storage() ? SourceLayout::Create(geometry, hidden).size_bytes : 0},
  };
  for (const auto& whole : wholes) {
    if (!status.ok() || bytes_of(whole.part) == whole.expected) continue;
    status = absl::InvalidArgumentError(absl::StrCat(whole.name, " of ", bytes_of(whole.part),
                                                     " bytes, expected ", whole.expected));
  }
  const uint32_t peers = shape.peer_store() ? static_cast<uint32_t>(geometry.ranks) - 1 : 0;
  if (status.ok() && reply.peers != peers) {
    status = absl::InvalidArgumentError(
        absl::StrCat("the rows of ", reply.peers, " peers, expected ", peers));
  }
  if (status.ok()) return status;
  return absl::InvalidArgumentError(absl::StrCat("the worker shares ", status.message()));
}

}  // namespace

absl::StatusOr<std::unique_ptr<LocalClient>> LocalClient::Attach(
    const v1::AttachTicket& ticket, const LocalClientOptions& options) {
  const absl::StatusOr<Geometry> geometry = GeometryOf(ticket);
  if (!geometry.ok()) return geometry.status();
  const absl::StatusOr<AttachRequest> request = RequestFor(ticket);
  if (!request.ok()) return request.status();
  const WaitLimit limit(options.timeout);
  absl::StatusOr<UnixSocket> socket =
      UnixSocket::Connect(ticket.socket_path(), limit, ticket.worker_uid());
  if (!socket.ok()) return socket.status();
  if (absl::Status status = socket->Send(ToBytes(*request), {}, limit); !status.ok()) return status;
  absl::StatusOr<Shared> shared = Receive(*socket, *geometry, ticket, limit);
  if (!shared.ok()) return shared.status();
  const absl::StatusOr<CommandPage*> page = OpenCommandPage(shared->page.memory());
  if (!page.ok()) return page.status();
  if (IdentityOf(**page) != IdentityFor(ticket)) {
    return absl::InvalidArgumentError("the worker's command page is not for this ticket");
  }
  return std::unique_ptr<LocalClient>(
      new LocalClient(ticket, *geometry, *std::move(socket), *std::move(shared), **page, options));
}

absl::StatusOr<LocalClient::Shared> LocalClient::Receive(UnixSocket& socket,
                                                         const Geometry& geometry,
                                                         const v1::AttachTicket& ticket,
                                                         const WaitLimit& limit) {
  absl::StatusOr<SocketMessage> message =
      socket.Receive(sizeof(AttachReply), kMaxAttachDescriptors, limit);
  if (!message.ok()) return message.status();
  const absl::StatusOr<AttachReply> reply = ParseAttachReply(message->bytes);
  if (!reply.ok()) return reply.status();
  if (reply->code != 0) return absl::PermissionDeniedError("the worker refused the ticket");
  absl::Status status = CheckReply(*reply, geometry, ticket.shape());
  if (!status.ok()) return status;
  const size_t parts = PartsOf(*reply).size() + reply->peers;
  if (message->descriptors.size() != parts) {
    return absl::InvalidArgumentError(absl::StrCat("the worker sent ", message->descriptors.size(),
                                                   " descriptors, expected ", parts));
  }
  Shared shared;
  status = Map(*reply, ticket, std::move(message->descriptors), shared);
  if (!status.ok()) return status;
  return shared;
}

absl::Status LocalClient::Map(const AttachReply& reply, const v1::AttachTicket& ticket,
                              std::vector<FileDescriptor> descriptors, Shared& shared) {
  shared.rows_offset = reply.rows_offset;
  shared.row_weights_offset = reply.row_weights_offset;
  if (reply.device_uuid[0] != '\0') {
    absl::StatusOr<SharedDevice> device = FindSharedDevice(reply.device_uuid);
    if (!device.ok()) return device.status();
    shared.device = *std::move(device);
  }
  SharedRegion* const regions[kAttachParts] = {nullptr,           &shared.arena, &shared.rows,
                                               &shared.gradients, &shared.slots, &shared.source};
  if (reply.size_bytes[static_cast<size_t>(AttachPart::kSource)] > 0) {
    const absl::StatusOr<AccessSet> access = AccessSet::Parse(reply.source_access);
    if (!access.ok()) return access.status();
    shared.source_access = *access;
  }
  const std::vector<AttachPart> parts = PartsOf(reply);
  for (size_t i = 0; i < parts.size(); ++i) {
    const auto index = static_cast<size_t>(parts[i]);
    const size_t bytes = reply.size_bytes[index];
    if (parts[i] == AttachPart::kCommandPage) {
      absl::StatusOr<SharedMapping> page = SharedMapping::Map(std::move(descriptors[i]), bytes);
      if (!page.ok()) return page.status();
      shared.page = *std::move(page);
      continue;
    }
    const bool read_only =
        parts[i] == AttachPart::kSlots ||
        (parts[i] == AttachPart::kSource && !shared.source_access.Has(Access::kStore));
    absl::StatusOr<SharedRegion> region =
        SharedRegion::Map(std::move(descriptors[i]), bytes, shared.device, read_only);
    if (!region.ok()) return region.status();
    *regions[index] = *std::move(region);
  }
  if (!ticket.shape().peer_store()) return absl::OkStatus();
  descriptors.erase(descriptors.begin(), descriptors.begin() + parts.size());
  absl::StatusOr<PeerRows> peers =
      PeerRows::Map(std::move(descriptors), RankId(ticket.rank()),
                    reply.size_bytes[static_cast<size_t>(AttachPart::kShardRows)],
                    reply.rows_offset, shared.device);
  if (!peers.ok()) return peers.status();
  shared.peers = *std::move(peers);
  return absl::OkStatus();
}

LocalClient::LocalClient(const v1::AttachTicket& ticket, const Geometry& geometry,
                         UnixSocket socket, Shared shared, CommandPage& page,
                         const LocalClientOptions& options)
    : geometry_(geometry),
      hidden_size_(ticket.shape().hidden()),
      output_slots_(ticket.shape().dispatch_output_slots()),
      rank_(ticket.rank()),
      generation_(ticket.generation()),
      options_(options),
      socket_(std::move(socket)),
      shared_(std::move(shared)),
      arena_(ClientArenaLayout::Create(geometry, hidden_size_, kHostGranularityBytes)
                 .View(shared_.arena.data())),
      gradients_(GradientsOf(geometry, ticket.shape())),
      weights_(WeightsShapeOf(ticket.shape())),
      page_(page) {
  CommandProducerOptions producer;
  producer.spin = options.spin.value_or(SpinBudget(UsableCpus(), static_cast<int>(geometry.ranks)));
  producer.check_worker = [this] { return CheckWorker(); };
  producer_.emplace(page, *options.clock, std::move(producer));
}

LocalClient::~LocalClient() { (void)Detach(); }

absl::Status LocalClient::CheckWorker() const {
  // It sends nothing: what can be read is the end.
  pollfd ready{socket_->fd(), POLLIN, 0};
  if (poll(&ready, 1, 0) != 1) return absl::OkStatus();
  return absl::UnavailableError("the worker has gone, or has ended the attachment");
}

absl::Span<BFloat16> LocalClient::hidden() const {
  return {arena_.hidden, static_cast<size_t>(geometry_.tokens) * hidden_size_};
}
absl::Span<int32_t> LocalClient::topk_experts() const {
  return {arena_.topk_experts, static_cast<size_t>(geometry_.routes())};
}
absl::Span<float> LocalClient::route_weights() const {
  return {arena_.route_weights, static_cast<size_t>(geometry_.routes())};
}
absl::Span<const BFloat16> LocalClient::output() const {
  return {arena_.output, static_cast<size_t>(geometry_.tokens) * hidden_size_};
}
absl::Span<const float> LocalClient::gathered_weights() const {
  return {arena_.gathered_weights, static_cast<size_t>(geometry_.routes())};
}
absl::Span<BFloat16> LocalClient::rows() const {
  return {reinterpret_cast<BFloat16*>(shared_.rows.data() + shared_.rows_offset),
          static_cast<size_t>(geometry_.logical_rows()) * hidden_size_};
}
absl::Span<float> LocalClient::row_weights() const {
  return {reinterpret_cast<float*>(shared_.rows.data() + shared_.row_weights_offset),
          static_cast<size_t>(geometry_.logical_rows())};
}

RankGradients LocalClient::gradients() const {
  return {gradients_, gradients_.size_bytes > 0 ? shared_.gradients.data() : nullptr};
}

RankSlots LocalClient::slots() const {
  return {weights_, WeightsLayout::Slots(weights_, geometry_.slots), shared_.slots.data()};
}

RankSource LocalClient::source() const {
  if (shared_.source_access == AccessSet()) return RankSource();
  return SourceAt(geometry_, hidden_size_, shared_.source.data(), shared_.source_access);
}

absl::StatusOr<uint64_t> LocalClient::SubmitProgram(absl::Span<const LocalOperation> operations) {
  if (!socket_) return absl::FailedPreconditionError("this client has detached");
  return producer_->SubmitProgram(operations);
}

absl::StatusOr<StreamLink*> LocalClient::Link() {
  if (!socket_) return absl::FailedPreconditionError("this client has detached");
  if (!shared_.device) {
    return absl::FailedPreconditionError(
        "the attachment's memory is the host's: no stream uses it");
  }
  if (link_ == nullptr) {
    absl::StatusOr<std::unique_ptr<StreamLink>> link =
        StreamLink::Create(shared_.device->index, shared_.page.memory(), page_, socket_->fd());
    if (!link.ok()) return link.status();
    link_ = *std::move(link);
  }
  return link_.get();
}

absl::StatusOr<uint64_t> LocalClient::SubmitProgramBehind(
    CUstream_st* stream, absl::Span<const LocalOperation> operations) {
  const absl::StatusOr<StreamLink*> link = Link();
  if (!link.ok()) return link.status();
  return (*link)->SubmitBehind(stream, *producer_, operations);
}

absl::Status LocalClient::MakeWait(CUstream_st* stream, uint64_t command) {
  const absl::StatusOr<StreamLink*> link = Link();
  return link.ok() ? (*link)->AwaitCommand(stream, command) : link.status();
}

absl::StatusOr<uint64_t> LocalClient::ReleaseSlotBehind(CUstream_st* stream,
                                                        const LocalSlot& slot) {
  if (absl::Status status = CheckOutputSlot(output_slots_, slot.index); !status.ok()) return status;
  const absl::StatusOr<StreamLink*> link = Link();
  if (!link.ok()) return link.status();
  return (*link)->ReleaseBehind(stream, *producer_, slot);
}

absl::Status LocalClient::CaptureSlotRead(CUstream_st* stream, int32_t index) {
  if (absl::Status status = CheckOutputSlot(output_slots_, index); !status.ok()) return status;
  if (shared_.device && link_ == nullptr) return NoStreamBefore();
  const absl::StatusOr<StreamLink*> link = Link();
  return link.ok() ? (*link)->CaptureRead(stream, index) : link.status();
}

absl::StatusOr<LocalCompletion> LocalClient::Wait(uint64_t command, absl::Duration timeout) {
  if (!socket_) return absl::FailedPreconditionError("this client has detached");
  absl::StatusOr<LocalCompletion> completion = producer_->Wait(command, timeout);
  if (!absl::IsUnavailable(completion.status())) return completion;
  // The worker says why it ends an attachment before it ends the connection.
  absl::StatusOr<absl::optional<LocalCompletion>> last = producer_->Poll(command);
  if (!last.ok()) return last.status();
  if (last->has_value()) return **std::move(last);
  return completion;
}

absl::Status LocalClient::Detach() {
  if (!socket_) return absl::OkStatus();
  const WaitLimit limit(options_.timeout);
  absl::Status status = socket_->Send(ToBytes(DetachMessage()), {}, limit);
  // It closes the connection when it has let go of everything.
  if (status.ok()) status = socket_->Receive(1, 0, limit).status();
  if (absl::IsUnavailable(status)) status = absl::OkStatus();
  if (link_ != nullptr) link_->LetGo();
  socket_.reset();
  // A page that streams have used stays as it is: the device may still look at it.
  if (link_ == nullptr) status.Update(shared_.page.MakePrivate());
  status.Update(shared_.arena.MakePrivate());
  status.Update(shared_.rows.MakePrivate());
  status.Update(shared_.gradients.MakePrivate());
  status.Update(shared_.slots.MakePrivate());
  status.Update(shared_.peers.MakePrivate());
  status.Update(shared_.source.MakePrivate());
  return status;
}

}  // namespace perigee
