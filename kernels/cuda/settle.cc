#include "kernels/cuda/settle.h"

#include <algorithm>
#include <atomic>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "kernels/device/copy.h"
#include "kernels/rank/agreement.h"

namespace perigee {
namespace {

// Between looks at the stream once it has not emptied at once.
constexpr absl::Duration kPoll = absl::Microseconds(20);
constexpr absl::Duration kEagerWait = absl::Microseconds(200);
// For what waits for no peer: products of any size, copies, and other processes' time slices.
constexpr absl::Duration kComputeLimit = absl::Minutes(5);

std::vector<RankEntry> EntriesOf(const CudaRank& rank, const Report& report) {
  std::vector<RankEntry> entries(rank.shards.size());
  for (size_t i = 0; i < entries.size(); ++i) {
    const ReportedEntry& told = report.entries[i];
    entries[i] = {told.record, told.statement, told.planning};
  }
  return entries;
}

absl::Status Damaged(Progress& progress, const std::string& text) {
  ErrorRecord record;
  record.reason = static_cast<uint32_t>(AbortReason::kAborted);
  return progress.Fail(record, text);
}

absl::Status StaleHome(Progress& progress, const Report& report, const WantedWeights& wanted,
                       const char* note) {
  return progress.Fail(StaleHomeRecord(report.rank, report.home, wanted),
                       absl::StrCat(DescribeStaleHome(report.rank, report.home, wanted), note));
}

absl::Status StatusOf(const CudaRank& rank, const Report& report, const QueuedOperation& queued) {
  Progress& progress = *rank.progress;
  const WantedWeights& wanted = queued.weights;
  switch (static_cast<ReportKind>(report.kind)) {
    case ReportKind::kNone:
      return absl::OkStatus();
    case ReportKind::kEntries:
      return progress.Left(Decide(report.sequence, EntriesOf(rank, report)));
    case ReportKind::kDeadline:
      return progress.WaitFailed(AbortReason::kDeadline, report.rank, report.seen);
    case ReportKind::kOutOfStep:
      return progress.WaitFailed(AbortReason::kOutOfStep, report.rank, report.seen);
    case ReportKind::kAborted:
      return progress.Aborted();
    case ReportKind::kHistogram:
      return Damaged(progress,
                     absl::StrCat("rank ", report.rank, " published a histogram that is none of ",
                                  report.expected, " routes: its shard is damaged"));
    case ReportKind::kLinks:
      return Damaged(progress,
                     absl::StrCat("duplicate map is malformed at row ", report.row, ": primary ",
                                  report.primary, ", ordinal ", report.ordinal));
    case ReportKind::kDestinations:
      if (report.rank < 0) {
        return Damaged(progress, absl::StrCat("the ranks' destinations give rank ", rank.rank.value,
                                              " ", report.seen, " rows, its plan has ",
                                              report.expected, ": a source shard is damaged"));
      }
      return Damaged(progress, absl::StrCat("rank ", report.rank,
                                            " published destinations that cannot be, at row ",
                                            report.row, ": its source shard is damaged"));
    case ReportKind::kStaleHome:
      return StaleHome(progress, report, wanted, "");
    case ReportKind::kHomeChanged:
      return StaleHome(progress, report, wanted, "; it changed while it was read");
    case ReportKind::kSlotRefused:
      return SlotRefused(report.slot, report.held, report.wanted);
    case ReportKind::kHomeRefused:
      return absl::FailedPreconditionError(DescribeStaleHome(report.rank, report.home, wanted));
  }
  return absl::InternalError(absl::StrCat("unknown report ", report.kind));
}

// The place of the reported operation in `queued`; its size where it is not there.
size_t FindQueued(const CudaRank& rank, const Report& report) {
  const size_t place = report.place - rank.told;
  if (place >= rank.queued.size()) return rank.queued.size();
  const OperationMark& mark = rank.queued[place].mark;
  const bool same = mark.sequence == report.sequence && mark.operation == report.operation;
  return same ? place : rank.queued.size();
}

// Reports that are themselves why nothing can follow.
bool Breaks(ReportKind kind) {
  return kind == ReportKind::kDeadline || kind == ReportKind::kOutOfStep ||
         kind == ReportKind::kAborted || kind == ReportKind::kHistogram ||
         kind == ReportKind::kLinks || kind == ReportKind::kDestinations;
}

void NothingLives(CudaRank& rank) {
  rank.live = LiveRows();
  rank.source.Set(Sequence());
}

// Neither the failed operation nor those queued behind it have made their plans.
void VoidPlansFrom(const CudaRank& rank, size_t failed) {
  for (; failed < rank.queued.size(); ++failed) {
    if (rank.queued[failed].plan != nullptr) rank.queued[failed].plan->MakeVoid();
  }
}

// A refused run_experts has changed nothing and records nothing.
bool IsRefusal(ReportKind kind) {
  return kind == ReportKind::kSlotRefused || kind == ReportKind::kHomeRefused;
}

// What the shard holds after the failure. What was queued behind it has not touched the shard. A
// target goes with it: what was queued may have published it.
LiveRows LiveAfterFailure(ReportKind kind, const QueuedOperation& queued) {
  if (queued.live_before.target != Sequence()) return LiveRows();
  if (IsRefusal(kind)) return queued.live_before;
  const bool left_alone = kind == ReportKind::kEntries || kind == ReportKind::kStaleHome ||
                          kind == ReportKind::kHomeChanged;
  return left_alone && !queued.spoils_shard ? queued.live_before : LiveRows();
}

absl::Status Explain(CudaRank& rank, const Report& report) {
  const size_t place = FindQueued(rank, report);
  if (place == rank.queued.size()) {
    return Damaged(*rank.progress,
                   absl::StrCat("report of an operation that was not queued: ", report.operation,
                                " of sequence ", report.sequence));
  }
  const QueuedOperation& queued = rank.queued[place];
  rank.progress->Resume(Sequence(report.sequence), static_cast<Operation>(report.operation),
                        static_cast<Phase>(report.phase));
  absl::Status status = StatusOf(rank, report, queued);
  rank.live = LiveAfterFailure(static_cast<ReportKind>(report.kind), queued);
  rank.source.Set(Breaks(static_cast<ReportKind>(report.kind)) ? Sequence() : queued.source_before);
  VoidPlansFrom(rank, place);
  // At its entry a reduction has summed nothing.
  const bool summed =
      queued.sums_gradients_of >= 0 && report.phase != static_cast<uint32_t>(Phase::kEntry);
  if (summed) return WithUndefinedSums(status, queued.sums_gradients_of);
  if (!queued.consumes_rows) return status;
  return absl::Status(status.code(), absl::StrCat(std::string(status.message()),
                                                  "; the rows in the shard are undefined now"));
}

// Where it is not known how far the device has come: the sums of every reduction that was queued.
absl::Status WithAllSumsUndefined(const CudaRank& rank, absl::Status status) {
  for (const QueuedOperation& queued : rank.queued) {
    if (queued.sums_gradients_of < 0) continue;
    status = WithUndefinedSums(status, queued.sums_gradients_of);
  }
  return status;
}

// Of the operations before the first that failed; `failed` is the number of these.
absl::Status MeasureOperations(CudaRank& rank, size_t failed) {
  absl::Status status;
  for (size_t i = 0; i < rank.queued.size(); ++i) {
    QueuedOperation& queued = rank.queued[i];
    if (queued.begin == nullptr || queued.end == nullptr) continue;
    if (i < failed && status.ok()) {
      const absl::StatusOr<absl::Duration> duration = Elapsed(*queued.begin, *queued.end);
      if (duration.ok()) rank.durations.push_back(*duration);
      status = duration.status();
    }
    rank.spare_events.push_back(std::move(queued.begin));
    rank.spare_events.push_back(std::move(queued.end));
  }
  return status;
}

// Between marks, as far as the operations before them have not failed.
absl::Status MeasureMarks(CudaRank& rank, size_t failed) {
  absl::Status status;
  for (size_t i = 1; i < rank.queued_marks.size() && status.ok(); ++i) {
    const QueuedMark& end = rank.queued_marks[i];
    if (end.operations > failed) break;
    const absl::StatusOr<absl::Duration> duration =
        Elapsed(*rank.queued_marks[i - 1].event, *end.event);
    if (duration.ok()) rank.durations.push_back(*duration);
    status = duration.status();
  }
  for (QueuedMark& mark : rank.queued_marks) rank.spare_events.push_back(std::move(mark.event));
  rank.queued_marks.clear();
  return status;
}

absl::Status MeasureDurations(CudaRank& rank, size_t failed) {
  const absl::Status operations = MeasureOperations(rank, failed);
  const absl::Status marks = MeasureMarks(rank, failed);
  return operations.ok() ? marks : operations;
}

// The report has been read: new operations find a clean path, unless nothing can follow.
absl::Status ClearReport(CudaRank& rank) {
  HostPage& page = *rank.page->host();
  page.report = Report();
  if (page.broken != 0) return absl::OkStatus();
  return FillDevice(rank.device, reinterpret_cast<std::byte*>(&rank.view.state->stop), 0,
                    sizeof(rank.view.state->stop));
}

// Of the first operation queued, which has ended: whether Settle has anything to say about it.
bool HasFailed(const CudaRank& rank) {
  HostPage& page = *rank.page->host();
  if (page.broken != 0 || rank.progress->aborted()) return true;
  // Written before the operation's end.
  const uint32_t kind = std::atomic_ref<uint32_t>(page.report.kind).load(std::memory_order_acquire);
  if (kind == static_cast<uint32_t>(ReportKind::kNone)) return false;
  const size_t place = FindQueued(rank, page.report);
  return place == 0 || place == rank.queued.size();
}

}  // namespace

absl::Status WaitForStream(CudaRank& rank) {
  absl::Status status = WaitForBeside(rank);
  if (status.ok()) status = WaitForPreparation(rank);
  if (!status.ok()) {
    rank.progress->Abort(-1, std::string(status.message()));
    return status;
  }
  const absl::Duration limit =
      rank.progress->options().operation_timeout * static_cast<int64_t>(rank.queued.size() + 1) +
      rank.progress->options().warmup_timeout + kComputeLimit;
  const absl::Time start = absl::Now();
  while (true) {
    const absl::StatusOr<bool> empty = (*rank.stream)->Query();
    if (!empty.ok()) {
      rank.progress->Abort(-1, std::string(empty.status().message()));
      return empty.status();
    }
    if (*empty) return absl::OkStatus();
    const absl::Duration waited = absl::Now() - start;
    if (waited > limit) {
      const std::string text =
          absl::StrCat("the device has not ended its work in ", absl::FormatDuration(waited));
      rank.progress->Abort(-1, text);
      return absl::DeadlineExceededError(text);
    }
    if (waited > kEagerWait) absl::SleepFor(kPoll);
  }
}

absl::Status Settle(CudaRank& rank) {
  rank.durations.clear();
  rank.operations_ended = 0;
  const absl::Status waited = WaitForStream(rank);
  rank.beside.reset();
  if (absl::Status status = waited; !status.ok()) {
    // Recorded, so that the generation ends; the code says what became of the device. What is
    // queued stays noted: after a timeout the device may still use its events.
    const absl::Status aborted = rank.progress->Aborted();
    NothingLives(rank);
    VoidPlansFrom(rank, 0);
    return WithAllSumsUndefined(rank, absl::Status(status.code(), aborted.message()));
  }
  const Report& report = rank.page->host()->report;
  const auto kind = static_cast<ReportKind>(report.kind);
  absl::Status status;
  size_t failed = rank.queued.size();
  if (report.kind != static_cast<uint32_t>(ReportKind::kNone)) {
    failed = FindQueued(rank, report);
    status = Explain(rank, report);
    const absl::Status cleared = ClearReport(rank);
    if (status.ok()) status = cleared;
  } else if (!rank.queued.empty() && rank.progress->aborted()) {
    // Local operations do not look at the abort word themselves.
    status = WithAllSumsUndefined(rank, rank.progress->Aborted());
    NothingLives(rank);
    VoidPlansFrom(rank, 0);
    failed = 0;
  }
  // The path broke behind the failure told, or before these operations were queued.
  const bool untold = rank.page->host()->broken != 0 && !Breaks(kind);
  if (untold && !rank.queued.empty() && !rank.progress->aborted()) {
    status =
        Damaged(*rank.progress,
                status.ok() ? std::string("the ranks came to be at different places before it")
                            : absl::StrCat(std::string(status.message()),
                                           "; behind it the ranks came to be at different places"));
    if (kind == ReportKind::kNone) status = WithAllSumsUndefined(rank, status);
    NothingLives(rank);
    VoidPlansFrom(rank, 0);
    if (kind == ReportKind::kNone) failed = 0;
  }
  rank.operations_ended = failed;
  const absl::Status measured = MeasureDurations(rank, failed);
  rank.told += static_cast<uint32_t>(rank.queued.size());
  rank.queued.clear();
  return status.ok() ? measured : status;
}

Polled PollEnded(CudaRank& rank) {
  rank.durations.clear();
  Polled polled;
  while (!rank.queued.empty()) {
    QueuedOperation& first = rank.queued.front();
    // Without an event where its launch failed.
    const absl::StatusOr<bool> ended =
        first.end != nullptr ? first.end->Query() : absl::StatusOr<bool>(true);
    if (ended.ok() && !*ended) break;
    polled.failed = !ended.ok() || first.end == nullptr || HasFailed(rank);
    if (polled.failed) break;
    const absl::StatusOr<absl::Duration> duration = Elapsed(*first.begin, *first.end);
    rank.durations.push_back(duration.value_or(absl::ZeroDuration()));
    rank.spare_events.push_back(std::move(first.begin));
    rank.spare_events.push_back(std::move(first.end));
    rank.queued.pop_front();
    ++rank.told;
    ++polled.ended;
  }
  return polled;
}

}  // namespace perigee
