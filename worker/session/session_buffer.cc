#include "worker/session/session_buffer.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/common/check.h"
#include "kernels/link_traffic.h"
#include "proto/support/event_log.h"
#include "worker/ops/failure_reason.h"

namespace perigee {
namespace {

// What prefetch of backend cuda copies bulks of; the host copies any bytes alike.
constexpr int64_t kVectorBytes = 16;

}  // namespace

absl::StatusOr<std::shared_ptr<SessionBuffer>> SessionBuffer::Allocate(
    const SessionBufferConfig& config, Backend& backend, ByteBudget& budget,
    const Interrupt* stop) {
  absl::StatusOr<std::unique_ptr<BufferMemory>> memory =
      BufferMemory::Allocate(backend, config.shape, config.rank, stop);
  if (!memory.ok()) return memory.status();
  return std::shared_ptr<SessionBuffer>(
      new SessionBuffer(config, backend, budget, *std::move(memory)));
}

SessionBuffer::SessionBuffer(const SessionBufferConfig& config, Backend& backend,
                             ByteBudget& budget, std::unique_ptr<BufferMemory> memory)
    : config_(config),
      backend_(backend),
      memory_(std::move(memory)),
      objects_(config.name, config.id, config.generation),
      tensors_(backend, budget),
      weights_(config.shape.layers, config.shape.weight_parts()) {}

absl::Status SessionBuffer::Open(const std::string& rendezvous) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (!aborted_.ok()) return aborted_;
  if (state_ != State::kForming) {
    return absl::FailedPreconditionError(absl::StrCat(config_.name, " has been connected before"));
  }
  DataPathOptions options;
  options.geometry = config_.shape.geometry;
  options.hidden = config_.shape.hidden;
  options.rank = config_.rank;
  options.buffer = config_.id;
  options.generation = config_.generation;
  options.transport = config_.transport;
  options.rendezvous = rendezvous;
  options.shards = memory_->shards();
  options.shard_rows = memory_->shard_rows();
  options.sources = memory_->sources();
  // Programs say themselves whether rows are kept.
  options.rings = {config_.shape.dispatch_output_slots, config_.shape.expert_output_slots};
  options.operation_timeout = config_.operation_timeout;
  options.warmup_timeout = config_.warmup_timeout;
  options.threads = config_.threads;
  options.intermediate = config_.shape.weights().intermediate;
  options.sms = config_.sms;
  options.local_sms = config_.local_sms;
  options.programmatic_launch = config_.programmatic_launch;
  options.high_priority_stream = config_.high_priority_stream;
  absl::StatusOr<std::unique_ptr<DataPath>> data_path = backend_.CreateDataPath(options);
  if (!data_path.ok()) return data_path.status();
  data_path_ = *std::move(data_path);
  if (config_.counters != nullptr) config_.counters->Watch(TrafficOf(*data_path_));
  state_ = State::kOpen;
  LogSlowScales();
  return absl::OkStatus();
}

void SessionBuffer::LogSlowScales() const {
  const WeightsShape weights = config_.shape.weights();
  bool vectors = true;
  for (int part = kWeightMatrices; part < kWeightParts; ++part) {
    vectors = vectors && weights.part_bytes(part) % kVectorBytes == 0;
  }
  if (vectors || config_.shape.geometry.slots == 0 || backend_.info().name != "cuda") return;
  LogEvent(LogLevel::kInfo, "slow_scales",
           {{"buffer", config_.name},
            {"hidden", weights.hidden},
            {"intermediate", weights.intermediate},
            {"why",
             "scales of an expert's matrix that are no multiple of 16 bytes are copied byte by "
             "byte"}});
}

absl::Status SessionBuffer::CheckUsable() const {
  switch (state_) {
    case State::kForming:
      return absl::FailedPreconditionError(absl::StrCat(config_.name, " is still forming"));
    case State::kClosed:
      return closed_reason_;
    case State::kOpen:
      break;
  }
  if (!aborted_.ok()) return aborted_;
  if (guest_operates_) {
    return absl::FailedPreconditionError(
        absl::StrCat("an operation of a local client is running on ", config_.name));
  }
  if (running_program_ == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("program ", running_program_, " is running on ", config_.name));
}

absl::Status SessionBuffer::CheckReservable() const {
  if (absl::Status status = CheckUsable(); !status.ok()) return status;
  if (!guest_) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("a local client is attached to, or has a ticket for, ", config_.name));
}

absl::StatusOr<SessionBuffer::Access> SessionBuffer::Enter() {
  std::unique_lock<std::mutex> lock(mutex_);
  if (absl::Status status = CheckUsable(); !status.ok()) return status;
  return Access(std::move(lock), this);
}

void SessionBuffer::AbandonWeights(const v1::WeightTarget& target) {
  std::lock_guard<std::mutex> lock(mutex_);
  weights_.Abandon(target);
}

ProgramSite SessionBuffer::site() {
  ProgramSite site{config_.shape, *data_path_, *memory_, objects_, tensors_, config_.tokens};
  site.check_home = [this](int32_t layer) {
    std::lock_guard<std::mutex> lock(mutex_);
    return weights_.CheckComplete(layer);
  };
  site.transport = config_.transport;
  site.counters = config_.counters;
  return site;
}

absl::Status SessionBuffer::BeginProgram(uint64_t program_id) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (program_id == 0) return InvalidProgram("program_id is 0");
  if (absl::Status status = CheckReservable(); !status.ok()) return status;
  running_program_ = program_id;
  return absl::OkStatus();
}

void SessionBuffer::EndProgram() {
  std::lock_guard<std::mutex> lock(mutex_);
  running_program_ = 0;
}

absl::Status SessionBuffer::AddGuest(std::shared_ptr<BufferGuest> guest) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (absl::Status status = CheckReservable(); !status.ok()) return status;
  guest_ = std::move(guest);
  return absl::OkStatus();
}

void SessionBuffer::RemoveGuest() {
  std::lock_guard<std::mutex> lock(mutex_);
  PERIGEE_CHECK(!guest_operates_);
  guest_.reset();
}

std::shared_ptr<BufferGuest> SessionBuffer::guest() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return guest_;
}

ShardPlace SessionBuffer::shard_place() const {
  const Memory& shard = memory_->own_shard_rows();
  const auto offset = [&](const void* part) {
    return static_cast<size_t>(static_cast<const std::byte*>(part) - shard.data());
  };
  return {shard.descriptor(), shard.size_bytes(), offset(data_path_->rows()),
          offset(data_path_->row_weights())};
}

PartPlace SessionBuffer::gradients_place() const {
  const Memory* gradients = memory_->own_gradients();
  if (gradients == nullptr) return PartPlace();
  return {gradients->descriptor(), gradients->size_bytes()};
}

PartPlace SessionBuffer::slots_place() const {
  const Memory* slots = memory_->own_slots();
  return slots == nullptr ? PartPlace() : PartPlace{slots->descriptor(), slots->size_bytes()};
}

PartPlace SessionBuffer::source_place() const {
  const Memory* source = memory_->own_source();
  return source == nullptr ? PartPlace() : PartPlace{source->descriptor(), source->size_bytes()};
}

absl::Status SessionBuffer::BeginGuestOperation() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (!aborted_.ok()) return aborted_;
  PERIGEE_CHECK(state_ == State::kOpen && guest_ && !guest_operates_);
  guest_operates_ = true;
  return absl::OkStatus();
}

void SessionBuffer::EndGuestOperation() {
  std::lock_guard<std::mutex> lock(mutex_);
  guest_operates_ = false;
}

void SessionBuffer::Abort(const absl::Status& aborted, absl::Span<const int32_t> lost_ranks,
                          const std::string& reason) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (!aborted_.ok()) return;
  aborted_ = aborted;
  // A single lost rank is named by the data path itself.
  if (data_path_) data_path_->Abort(lost_ranks.size() == 1 ? lost_ranks[0] : -1, reason);
  if (guest_) guest_->Abort(aborted, lost_ranks);
}

void SessionBuffer::RequestCancel(bool wanted) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (data_path_) data_path_->RequestCancel(wanted);
}

void SessionBuffer::Close(const absl::Status& reason) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (state_ == State::kClosed) return;
  PERIGEE_CHECK(running_program_ == 0 && !guest_);
  state_ = State::kClosed;
  closed_reason_ = reason;
  objects_.Clear();
  tensors_.Clear();
  data_path_.reset();
  memory_.reset();
}

}  // namespace perigee
