#include "worker/attach/attachment.h"

#include <sys/prctl.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "kernels/common/check.h"
#include "kernels/mapping_access.h"
#include "proto/local/spin_budget.h"
#include "proto/support/control_group.h"
#include "proto/support/defaults.h"
#include "worker/ops/failure_reason.h"

namespace perigee {
namespace {

// Waits for commands are this long at a time; each ends at once when the attachment does.
constexpr absl::Duration kIdleSlice = absl::Minutes(1);
constexpr absl::Duration kLookAgain = absl::Milliseconds(20);
// While operations are under way the thread looks at the device without a pause for so long, if
// there are cores for that, and then with pauses.
constexpr absl::Duration kDeviceSpin = absl::Milliseconds(10);
constexpr absl::Duration kLookAtDevice = absl::Microseconds(20);
constexpr unsigned long kSleepSlackNs = 1000;

absl::Duration SpinOf(const GroupView& group) {
  // All ranks are on this machine.
  return SpinBudget(UsableCpus(), static_cast<int>(group.workers.size()));
}

}  // namespace

absl::StatusOr<std::shared_ptr<Attachment>> Attachment::Create(
    const GroupView& group, std::shared_ptr<SessionBuffer> buffer, Sequence first_sequence,
    const SessionEnvironment& environment, std::function<void()> on_change) {
  absl::StatusOr<ClientMemory> memory =
      ClientMemory::Allocate(environment.backend, environment.tensor_budget, buffer->shape());
  if (!memory.ok()) return memory.status();
  std::shared_ptr<Attachment> attachment(new Attachment(group, buffer, first_sequence, environment,
                                                        *std::move(memory), std::move(on_change)));
  if (absl::Status status = buffer->AddGuest(attachment); !status.ok()) {
    attachment->finished_ = true;
    return status;
  }
  attachment->executor_.emplace(
      attachment->group_, buffer->site(), attachment->memory_->arena(), first_sequence,
      environment.clock, [consumer = &*attachment->consumer_](const LocalReleaseSlot& release) {
        return consumer->TakeRead(release);
      });
  return attachment;
}

Attachment::Attachment(const GroupView& group, std::shared_ptr<SessionBuffer> buffer,
                       Sequence first_sequence, const SessionEnvironment& environment,
                       ClientMemory memory, std::function<void()> on_change)
    : group_(group),
      buffer_(std::move(buffer)),
      environment_(environment),
      on_change_(std::move(on_change)),
      memory_(std::move(memory)) {
  const CommandPageIdentity identity{group.generation, buffer_->config().id, group.rank,
                                     static_cast<int32_t>(group.workers.size()), first_sequence};
  consumer_.emplace(FormatCommandPage(memory_->page(), identity), environment.clock,
                    CommandConsumerOptions{.spin = SpinOf(group_)});
  if (SpinOf(group_) > absl::ZeroDuration()) device_spin_ = kDeviceSpin;
}

Attachment::~Attachment() { PERIGEE_CHECK(finished_ && !thread_.joinable()); }

AttachReply Attachment::reply() const {
  AttachReply reply;
  reply.size_bytes[static_cast<size_t>(AttachPart::kCommandPage)] = memory_->page().size();
  reply.size_bytes[static_cast<size_t>(AttachPart::kArena)] = memory_->arena_bytes();
  const ShardPlace shard = buffer_->shard_place();
  reply.size_bytes[static_cast<size_t>(AttachPart::kShardRows)] = shard.size_bytes;
  reply.size_bytes[static_cast<size_t>(AttachPart::kGradients)] =
      buffer_->gradients_place().size_bytes;
  reply.size_bytes[static_cast<size_t>(AttachPart::kSlots)] = buffer_->slots_place().size_bytes;
  const PartPlace source = buffer_->source_place();
  reply.size_bytes[static_cast<size_t>(AttachPart::kSource)] = source.size_bytes;
  if (source.size_bytes > 0) {
    kFullAccess.ToString().copy(reply.source_access, kAccessBytes - 1);
  }
  reply.rows_offset = shard.rows_offset;
  reply.row_weights_offset = shard.row_weights_offset;
  reply.peers = static_cast<uint32_t>(buffer_->peer_rows_descriptors().size());
  const std::string device = environment_.backend.info().device_uuid;
  device.copy(reply.device_uuid, kDeviceUuidBytes - 1);
  return reply;
}

std::vector<int> Attachment::descriptors() const {
  std::vector<int> descriptors = {memory_->page_descriptor(), memory_->arena_descriptor(),
                                  buffer_->shard_place().descriptor};
  for (const PartPlace& part :
       {buffer_->gradients_place(), buffer_->slots_place(), buffer_->source_place()}) {
    if (part.size_bytes > 0) descriptors.push_back(part.descriptor);
  }
  const std::vector<int> peers = buffer_->peer_rows_descriptors();
  descriptors.insert(descriptors.end(), peers.begin(), peers.end());
  return descriptors;
}

bool Attachment::Start() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (stopped_) return false;
  started_ = true;
  thread_ = std::thread([this] { Serve(); });
  return true;
}

void Attachment::Stop(StopReason reason) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (stopped_) return;
    StopLocked(std::move(reason));
  }
  on_change_();
}

void Attachment::StopLocked(StopReason reason) {
  PERIGEE_CHECK(!reason.status.ok());
  stopped_ = std::move(reason);
  stopped_at_ = environment_.clock.Monotonic();
  consumer_->Interrupt();
}

// Advance, which is then called again and again, sees the client wait.
void Attachment::StopBeyond(Sequence last, StopReason reason) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (beyond_ && beyond_->value <= last.value) return;
    beyond_ = last;
    beyond_reason_ = std::move(reason);
  }
  on_change_();
}

bool Attachment::IsBeyond(uint64_t sequence) const {
  return !stopped_ && beyond_ && sequence > beyond_->value;
}

void Attachment::Abort(const absl::Status& aborted, absl::Span<const int32_t> lost_ranks) {
  Stop({aborted, kReasonGenerationAborted, false, {lost_ranks.begin(), lost_ranks.end()}});
}

void Attachment::Serve() {
  // Short sleeps are short.
  (void)prctl(PR_SET_TIMERSLACK, kSleepSlackNs);
  while (!executor_->fatal()) {
    if (taking_) TakeCommand();
    // A dispatch under way may wait for a reader of a client that has gone, and all ranks for it.
    if (consumer_->interrupted()) executor_->EndReads();
    executor_->PassReads();
    const bool news = CompleteEnded();
    if (!taking_ && executor_->idle()) break;
    if (!news && (taken_ || !executor_->idle())) Pause();
  }
  EndOperations();
  PublishEnd();
  {
    std::lock_guard<std::mutex> lock(mutex_);
    left_ = true;
  }
  on_change_();
}

void Attachment::TakeCommand() {
  if (!taken_) {
    const bool waits = executor_->idle();
    absl::StatusOr<absl::optional<CommandEntry>> next =
        waits ? consumer_->Next(kIdleSlice) : consumer_->TryNext();
    if (absl::IsDeadlineExceeded(next.status())) return;
    // CANCELLED: Stop has its reason already.
    if (!next.ok()) Stop({next.status(), kReasonInvalidProgram, false, {}});
    if (!next.ok()) taking_ = false;
    if (!next.ok() || !next->has_value()) return;
    taken_ = **next;
    last_news_ = environment_.clock.Monotonic();
  }
  BeginCommand();
}

void Attachment::BeginCommand() {
  taking_ = !consumer_->interrupted();
  const bool ready = consumer_->InputsReady(*taken_);
  const absl::Duration limit = buffer_->config().operation_timeout / 2;
  // The stream may wait for a command ahead: the time runs when none is under way any more.
  const bool late =
      !ready && executor_->idle() && environment_.clock.Monotonic() - last_news_ > limit;
  if (!taking_ || (!ready && !late)) return;
  if (TakesSequence(*taken_)) {
    std::lock_guard<std::mutex> lock(mutex_);
    // Before it is begun the others need not know of it: the generation lives.
    if (IsBeyond(executor_->last_sequence().value + 1)) StopLocked(beyond_reason_);
    taking_ = !stopped_;
  }
  if (!taking_) return;
  if (!operating_) {
    // Aborted: Stop has its reason already.
    operating_ = taking_ = buffer_->BeginGuestOperation().ok();
    if (!taking_) return;
  }
  if (ready) {
    executor_->Begin(*taken_, consumer_->TokenOf(*taken_));
  } else {
    executor_->Refuse(*taken_, absl::DeadlineExceededError(absl::StrCat(
                                   "the client's stream has not brought the inputs in ",
                                   absl::FormatDuration(limit))));
  }
  taken_.reset();
  last_news_ = environment_.clock.Monotonic();
}

bool Attachment::CompleteEnded() {
  bool any = false;
  while (absl::optional<LocalCompletion> completion = executor_->TakeEnded()) {
    any = true;
    if (executor_->idle()) EndOperations();
    ++environment_.operations_done;
    if (!completion->status.ok()) {
      // An abort has been told to this attachment by now.
      std::lock_guard<std::mutex> lock(mutex_);
      if (stopped_) completion->lost = stopped_->lost;
    }
    const bool fatal = executor_->fatal().has_value();
    if (fatal) Stop({completion->status, completion->reason, false, completion->lost});
    consumer_->Complete(*std::move(completion));
    if (fatal) break;
  }
  if (any) last_news_ = environment_.clock.Monotonic();
  return any;
}

void Attachment::Pause() {
  const absl::Duration quiet = environment_.clock.Monotonic() - last_news_;
  if (quiet < device_spin_) {
    SpinPause();
  } else {
    absl::SleepFor(kLookAtDevice);
  }
}

void Attachment::EndOperations() {
  if (std::exchange(operating_, false)) buffer_->EndGuestOperation();
}

void Attachment::PublishEnd() {
  LocalCompletion why;
  why.generation = group_.generation;
  why.rank = group_.rank.value;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    PERIGEE_CHECK(stopped_.has_value());
    why.status = stopped_->status;
    why.reason = stopped_->word;
    why.lost = stopped_->lost;
  }
  consumer_->End(why);
}

absl::optional<AttachmentEnd> Attachment::Advance(absl::Duration now) {
  bool gives_back = false;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (IsBeyond(executor_->in_collective())) StopLocked(beyond_reason_);
    if (finished_ || !stopped_) return absl::nullopt;
    gives_back = !started_ || left_;
    const uint64_t sequence = executor_->in_collective();
    if (!gives_back) {
      if (reported_ || sequence == 0 || now < stopped_at_ + kClientLeaveGrace) return absl::nullopt;
      reported_ = true;
      AttachmentEnd early = DescribeEnd();
      early.status = LeftOperation(sequence);
      early.end.set_last_sequence(sequence);
      return early;
    }
  }
  GiveBack();
  std::lock_guard<std::mutex> lock(mutex_);
  finished_ = true;
  changed_.notify_all();
  if (std::exchange(reported_, true)) return absl::nullopt;
  return DescribeEnd();
}

void Attachment::GiveBack() {
  if (thread_.joinable()) thread_.join();
  executor_->Clear();
  memory_.reset();
  // Last: a session that finds no guest takes all of it to be given back.
  buffer_->RemoveGuest();
}

v1::RankStatus Attachment::LeftOperation(uint64_t sequence) const {
  return ToRankStatus(group_,
                      {WithReason(absl::AbortedError(absl::StrCat(
                                      "its client left in the middle of the operation of sequence ",
                                      sequence, ": ", stopped_->status.message())),
                                  kReasonClientLost),
                       absl::nullopt});
}

AttachmentEnd Attachment::DescribeEnd() const {
  AttachmentEnd described;
  described.status.set_rank(group_.rank.value);
  described.status.set_worker(group_.workers[group_.rank.value]);
  if (left_ && executor_->fatal()) {
    described.status = *executor_->fatal();
  } else if (stopped_->word == kReasonGenerationAborted) {
    described.status =
        ToRankStatus(group_, {WithReason(stopped_->status, stopped_->word), absl::nullopt});
  }
  described.end.set_attached(started_);
  described.end.set_orderly(stopped_->orderly);
  // While the thread runs, its sequences are its own.
  if (left_) described.end.set_last_sequence(started_ ? executor_->last_sequence().value : 0);
  described.end.set_reason(std::string(stopped_->status.message()));
  return described;
}

absl::Duration Attachment::NextDeadline() const {
  std::lock_guard<std::mutex> lock(mutex_);
  if (!stopped_ && started_ && beyond_) return environment_.clock.Monotonic() + kLookAgain;
  const bool waits = stopped_ && started_ && !left_ && !reported_;
  if (!waits) return absl::InfiniteDuration();
  // A command that had just been taken may turn out to be a collective one.
  return std::max(stopped_at_ + kClientLeaveGrace, environment_.clock.Monotonic() + kLookAgain);
}

bool Attachment::finished() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return finished_;
}

void Attachment::AwaitEnd() {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [this] { return finished_; });
}

}  // namespace perigee
