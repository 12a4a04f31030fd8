// Random events against the group machine, and after each of them what must hold whatever happens.
// The seed is printed; PERIGEE_SEED=n runs that one again.
#include <algorithm>
#include <cstdlib>
#include <deque>
#include <iostream>
#include <iterator>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "server/groups/group_harness.h"
#include "server/groups/sequence_check.h"
#include "server/groups/token_check.h"

namespace perigee {
namespace {

constexpr int kEvents = 60000;

uint64_t Seed() {
  uint64_t seed = 0;
  const char* given = std::getenv("PERIGEE_SEED");
  if (given == nullptr || !absl::SimpleAtoi(given, &seed)) seed = std::random_device()();
  std::cout << "PERIGEE_SEED=" << seed << std::endl;
  return seed;
}

// One group from its creation to its removal, driven at random.
class Model {
 public:
  Model(std::mt19937_64& random, uint64_t& last_number)
      : random_(random), last_number_(last_number) {
    group_ = std::make_unique<GroupMachine>(GroupHarness::kGroup, GroupKind{"host", "nvlink"},
                                            GroupTimes(),
                                            [](size_t count) { return std::string(count, 't'); });
    const int ranks = Roll(1, 5);
    failure_odds_ = Roll(5, 200);
    GroupCreated created{NewCall(), {}};
    for (int rank = 0; rank < ranks; ++rank) {
      created.members.push_back(GroupHarness::MakeMember(rank, 1));
      lives_.push_back(1);
    }
    Do(created);
  }

  bool removed() const { return removed_; }
  bool all_calls_ended() const { return open_calls_.empty(); }

  void RandomEvent() {
    switch (Roll(0, 30)) {
      case 0:
        return Lose();
      case 1:
        return Do(MakeBuffer());
      case 2:
        return Do(BufferDeleted{NewCall(), BufferName()});
      case 3:
      case 4:
        return Submit();
      case 5:
        if (!open_calls_.empty()) Do(ProgramCancelled{*open_calls_.begin()});
        return;
      case 6:
        if (Roll(0, 40) == 0) Do(GroupDrained{NewCall(), Roll(0, 1) == 0});
        return;
      case 7:
        if (Roll(0, 5) == 0) Do(GenerationAborted{NewCall(), Generation(generation_), "test"});
        return;
      case 8:
        return Wait(absl::Milliseconds(Roll(1, 1000)));
      case 9:
        if (Roll(0, 5) == 0) Wait(absl::Seconds(Roll(1, 40)));
        return;
      case 10:
        return GiveNumber();
      case 11:
        return Replace();
      case 12:
        return ReportProgress();
      case 13:
      case 14:
        return Do(TicketWanted{NewCall(), BufferName(),
                               Generation(Roll(0, 2) == 0 ? generation_ : 0), Roll(-1, 4)});
      case 15:
      case 16:
        return ReportClient();
      case 17:
        return Do(TokenCheck::Want(NewCall(), BufferName(), Roll(-1, 4), Roll(1, 3)));
      case 18:
        return Do(LedgerWanted{NewCall(), Generation(generation_ - (Roll(0, 3) == 0 ? 1 : 0))});
      case 19:
        return Do(TokenCheck::Low(Roll(0, 4), generation_ - (Roll(0, 3) == 0 ? 1 : 0)));
      default:
        return AnswerOne();
    }
  }

  // Lets everything that is awaited come, and the group go: nothing may stay open.
  void Finish() {
    Do(GroupDrained{NewCall(), true});
    for (int i = 0; i < 2000 && !removed_; ++i) {
      GiveNumber();
      if (Roll(0, 3) == 0) AnswerOne();
      Wait(absl::Seconds(1));
    }
    EXPECT_TRUE(removed_) << "never closed";
    EXPECT_TRUE(open_calls_.empty()) << "a call was forgotten";
  }

 private:
  int Roll(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }
  CallId NewCall() {
    open_calls_.insert(++last_call_);
    return last_call_;
  }
  std::string BufferName() { return GroupHarness::BufferNamed(absl::StrCat("b", Roll(0, 3))); }

  BufferCreated MakeBuffer() {
    BufferCreated created{NewCall(), {}};
    created.buffer.set_name(BufferName());
    created.buffer.mutable_shape()->set_layers(1);
    return created;
  }

  void Submit() {
    ProgramSubmitted submitted{
        NewCall(), BufferName(), Generation(Roll(0, 2) == 0 ? generation_ : 0), {}};
    submitted.program.add_operations()->mutable_barrier();
    Do(submitted);
  }

  void Lose() {
    if (Roll(0, failure_odds_ / 4) != 0) return;
    const int rank = Roll(0, static_cast<int>(lives_.size()) - 1);
    const v1::GroupMember member = GroupHarness::MakeMember(rank, lives_[rank]);
    lost_.insert(rank);
    // What a lost worker was sent is never answered; what it had answered may still arrive.
    std::erase_if(sent_, [&](const SendCommand& s) { return s.rank == rank && Roll(0, 3) != 0; });
    Do(MemberLost{member.worker(), member.incarnation(), "test"});
  }

  void Replace() {
    const auto wanted = group_->ranks_wanted();
    if (wanted.empty()) return;
    MembersReplaced replaced;
    for (const RankWorker& rank : wanted) {
      EXPECT_TRUE(lost_.erase(rank.rank) == 1);
      replaced.members.push_back(GroupHarness::MakeMember(rank.rank, ++lives_[rank.rank]));
    }
    Do(replaced);
  }

  void GiveNumber() {
    if (const auto answer = publication_.StoreAnswer(Roll(0, 9) == 0)) Do(*answer);
    if (generations_wanted_ > 0) {
      --generations_wanted_;
      if (Roll(0, 9) == 0) {
        Do(GenerationTaken{absl::UnavailableError("disk")});
      } else {
        Do(GenerationTaken{Generation(++last_number_), publication_.FirstOf(lives_.size())});
      }
    }
    if (!ids_wanted_.empty()) {
      const std::string buffer = ids_wanted_.front();
      ids_wanted_.pop_front();
      if (Roll(0, 9) == 0) {
        Do(BufferIdTaken{buffer, absl::UnavailableError("disk")});
      } else {
        Do(BufferIdTaken{buffer, BufferId(++last_number_)});
      }
    }
  }

  void AnswerOne() {
    if (sent_.empty()) return;
    const size_t index = static_cast<size_t>(Roll(0, static_cast<int>(sent_.size()) - 1));
    const SendCommand command = sent_[index];
    sent_.erase(sent_.begin() + static_cast<std::ptrdiff_t>(index));
    CommandAnswered answer{command.token, {}};
    if (Roll(0, failure_odds_) == 0) {
      static const char* const kReasons[] = {"DEADLINE", "BAD_ROUTE", "GENERATION_ABORTED",
                                             "INTERNAL"};
      *answer.result.mutable_status() =
          Failed(absl::StatusCode::kInternal, kReasons[Roll(0, 3)], "test");
    }
    if (command.command.has_execute_program()) {
      const auto& execute = command.command.execute_program();
      auto* progress = answer.result.mutable_progress();
      progress->set_program_id(execute.program_id());
      progress->set_last_sequence(execute.first_sequence() + static_cast<uint64_t>(Roll(0, 3)));
      sequences_.Answered(command, progress->last_sequence());
    }
    if (command.command.has_serve_client()) EndClient(command, answer.result);
    Do(answer);
    if (Roll(0, 20) == 0) Do(answer);  // twice
  }

  void EndClient(const SendCommand& command, v1::CommandResult& result) {
    v1::ClientEnd& end = *result.mutable_client_end();
    end.set_attached(Roll(0, 3) != 0);
    end.set_orderly(Roll(0, 1) == 0);
    if (end.attached()) {
      end.set_last_sequence(command.command.serve_client().first_sequence() +
                            static_cast<uint64_t>(Roll(0, 3)));
    }
    sequences_.Answered(command, end.last_sequence());
  }

  void ReportClient() {
    ClientReported report;
    report.worker = absl::StrCat("workers/w", Roll(0, 4));
    report.report.set_attachment_id(sequences_.last_attachment() -
                                    static_cast<uint64_t>(Roll(0, 3)));
    report.report.set_state(Roll(0, 1) == 0 ? v1::ClientReport::ADMITTED
                                            : v1::ClientReport::ATTACHED);
    Do(report);
  }

  void ReportProgress() {
    ProgressReported report;
    report.worker = absl::StrCat("workers/w", Roll(0, 4));
    report.progress.set_program_id(static_cast<uint64_t>(Roll(1, 3)));
    Do(report);
  }

  void Wait(absl::Duration duration) {
    now_.monotonic += duration;
    now_.wall += duration;
    Do(TimePassed{});
  }

  void Do(const GroupEvent& event) {
    if (removed_) return;  // nobody would run it
    survivors_.clear();
    for (size_t rank = 0; rank < lives_.size(); ++rank) {
      if (lost_.count(static_cast<int>(rank)) == 0) survivors_.insert(static_cast<int>(rank));
    }
    aborted_.clear();
    fenced_ = false;
    closing_sessions_ = false;
    for (const GroupEffect& effect : group_->Step(event, now_)) {
      EXPECT_FALSE(removed_) << "an effect after the last one";
      std::visit([this](const auto& e) { See(e); }, effect);
    }
    CheckState();
  }

  void See(const SendCommand& send) {
    const auto& command = send.command;
    EXPECT_EQ(lost_.count(send.rank), 0u) << "sent to a lost rank";
    EXPECT_EQ(send.incarnation,
              GroupHarness::MakeMember(send.rank, lives_[send.rank]).incarnation());
    EXPECT_EQ(command.generation(), generation_);
    const bool ends = command.has_abort_generation() || command.has_close_session();
    EXPECT_TRUE(alive_ || ends) << "a command of an ended generation: "
                                << command.ShortDebugString();
    if (command.has_abort_generation()) aborted_.insert(send.rank);
    if (command.has_close_session()) closing_sessions_ = true;
    sequences_.Sent(send);
    publication_.See(send);
    if (send.token != 0) {
      EXPECT_TRUE(tokens_.insert(send.token).second) << "a token was used twice";
      sent_.push_back(send);
    }
  }
  void See(const TakeGeneration&) { ++generations_wanted_; }
  void See(const TakeBufferId& take) { ids_wanted_.push_back(take.buffer); }
  void See(const FinishCall& finish) {
    EXPECT_EQ(open_calls_.erase(finish.call), 1u) << "call " << finish.call << " ended twice";
    publication_.See(finish);
  }
  void See(const TakeSerials& take) { publication_.See(take); }
  void See(const RecordIssue& record) { publication_.See(record); }
  void See(const LedgerClosed& closed) {
    EXPECT_FALSE(alive_);
    publication_.See(closed);
  }
  void See(const SendProgress& progress) { EXPECT_EQ(open_calls_.count(progress.call), 1u); }
  void See(const GroupChanged&) {}
  void See(const GenerationBegan& began) {
    EXPECT_FALSE(alive_) << "two generations at once";
    EXPECT_GT(began.generation.value, generation_) << "a generation was used twice";
    EXPECT_TRUE(lost_.empty());
    generation_ = began.generation.value;
    alive_ = true;
    sequences_.GenerationBegan();
  }
  void See(const GenerationActivated& activated) {
    EXPECT_TRUE(alive_);
    EXPECT_EQ(activated.generation.value, generation_);
  }
  void See(const GenerationEnded& ended) {
    EXPECT_TRUE(alive_) << "ended twice";
    EXPECT_EQ(ended.generation.value, generation_);
    EXPECT_FALSE(ended.reason.empty());
    alive_ = false;
    fenced_ = true;
    sequences_.GenerationEnded();
  }
  void See(const WorkersReleased& released) {
    EXPECT_FALSE(alive_);
    EXPECT_EQ(released.workers.size(), lives_.size());
  }
  void See(const GroupRemoved&) { removed_ = true; }

  void CheckState() {
    const v1::Group group = group_->Describe();
    EXPECT_GE(group.version(), version_);
    version_ = group.version();
    EXPECT_EQ(group.generation(), generation_);
    EXPECT_EQ(static_cast<size_t>(group.lost_ranks_size()),
              group.state() == v1::Group::CLOSED ? static_cast<size_t>(group.lost_ranks_size())
                                                 : lost_.size());
    if (fenced_ && !closing_sessions_) {
      EXPECT_EQ(aborted_, survivors_) << "a survivor was not told";
    }
    if (group.state() == v1::Group::ACTIVE) {
      EXPECT_TRUE(lost_.empty()) << "ACTIVE with a lost rank";
      EXPECT_TRUE(alive_);
      for (const v1::Buffer& buffer : group_->buffers().List()) {
        const bool usable =
            buffer.state() == v1::Buffer::ACTIVE && buffer.generation() == generation_;
        EXPECT_TRUE(usable || buffer.state() == v1::Buffer::FAILED ||
                    buffer.state() == v1::Buffer::FORMING)
            << buffer.ShortDebugString();
      }
    }
    if (group.state() == v1::Group::FENCED) {
      EXPECT_FALSE(alive_);
      // Something ends the wait: time, a number from the store, or a worker.
      EXPECT_TRUE(group_->NextDeadline() < absl::InfiniteDuration() || generations_wanted_ > 0 ||
                  !group_->ranks_wanted().empty());
    }
    if (group.state() == v1::Group::FORMING) {
      EXPECT_LT(group_->NextDeadline(), absl::InfiniteDuration());
    }
  }

  std::mt19937_64& random_;
  uint64_t& last_number_;
  int failure_odds_ = 1;  // one of so many answers is a failure
  std::unique_ptr<GroupMachine> group_;
  Moment now_{absl::Hours(1), absl::UnixEpoch()};

  std::vector<int> lives_;  // incarnations by rank
  std::set<int> lost_;
  std::deque<SendCommand> sent_;
  std::set<CommandToken> tokens_;
  int generations_wanted_ = 0;
  std::deque<std::string> ids_wanted_;
  CallId last_call_ = 0;
  std::set<CallId> open_calls_;

  uint64_t generation_ = 0;
  bool alive_ = false;
  uint64_t version_ = 0;
  SequenceCheck sequences_;
  TokenCheck publication_;
  bool removed_ = false;

  // Of the step under way.
  std::set<int> survivors_;
  std::set<int> aborted_;
  bool fenced_ = false;
  bool closing_sessions_ = false;
};

TEST(GroupModel, WhateverHappensTheInvariantsHold) {
  const uint64_t seed = Seed();
  std::mt19937_64 random(seed);
  uint64_t last_number = 0;
  int groups = 0;
  int events = 0;
  uint64_t numbers = 0;
  while (events < kEvents && !::testing::Test::HasFailure()) {
    ++groups;
    Model model(random, last_number);
    const int length = std::uniform_int_distribution<int>(10, 600)(random);
    for (int i = 0; i < length && !model.removed(); ++i, ++events) {
      model.RandomEvent();
      if (::testing::Test::HasFailure()) break;
    }
    if (!model.removed()) model.Finish();
    EXPECT_TRUE(model.all_calls_ended());
    numbers = last_number;
  }
  // The walk must reach past the first forming, or it shows nothing.
  EXPECT_GT(numbers, static_cast<uint64_t>(2 * groups)) << "of " << groups << " groups";
}

}  // namespace
}  // namespace perigee
