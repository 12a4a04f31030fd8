// Runs one GroupMachine in a test: keeps what it sends and finishes, answers where told to.
#ifndef PERIGEE_SERVER_GROUPS_GROUP_HARNESS_H_
#define PERIGEE_SERVER_GROUPS_GROUP_HARNESS_H_

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "server/groups/group_machine.h"

namespace perigee {

class GroupHarness {
 public:
  static constexpr const char* kGroup = "tenants/default/groups/g";
  static constexpr uint64_t kSerials = 8;

  GroupHarness() : machine(kGroup, {"host", "nvlink"}, GroupTimes(), NextBytes()) {}

  static std::string BufferNamed(const std::string& id) {
    return absl::StrCat(kGroup, "/buffers/", id);
  }
  // Rank `rank` on workers/w{rank}, in its `life`th process.
  static v1::GroupMember MakeMember(int32_t rank, int life = 1) {
    v1::GroupMember member;
    member.set_rank(rank);
    member.set_worker(absl::StrCat("workers/w", rank));
    member.set_incarnation(absl::StrCat("life", life, "-of-", rank));
    return member;
  }

  void Do(const GroupEvent& event) {
    for (GroupEffect& effect : machine.Step(event, now)) {
      if (auto* send = std::get_if<SendCommand>(&effect)) sent.push_back(*send);
      if (std::holds_alternative<TakeGeneration>(effect)) ++generations_wanted;
      if (auto* take = std::get_if<TakeBufferId>(&effect))
        buffer_ids_wanted.push_back(take->buffer);
      if (auto* finish = std::get_if<FinishCall>(&effect)) {
        EXPECT_EQ(finished.count(finish->call), 0u) << "call " << finish->call << " ended twice";
        finished[finish->call] = finish->result;
      }
      if (auto* progress = std::get_if<SendProgress>(&effect)) {
        EXPECT_EQ(finished.count(progress->call), 0u) << "progress after the end";
        messages[progress->call].push_back(progress->message);
      }
      if (auto* take = std::get_if<TakeSerials>(&effect)) serials_wanted.push_back(*take);
      if (auto* record = std::get_if<RecordIssue>(&effect)) to_record.push_back(*record);
      if (std::holds_alternative<WorkersReleased>(effect)) released = true;
      if (std::holds_alternative<GroupRemoved>(effect)) removed = true;
      effects.push_back(std::move(effect));
    }
  }
  void Wait(absl::Duration duration) {
    now.monotonic += duration;
    now.wall += duration;
    Do(TimePassed{});
  }

  // Answers a command that was sent; it is not outstanding any more.
  void Answer(const SendCommand& command, const v1::RankStatus& status = v1::RankStatus(),
              const v1::ProgramProgress& progress = v1::ProgramProgress()) {
    CommandAnswered answer{command.token, {}};
    *answer.result.mutable_status() = status;
    if (command.command.has_execute_program()) *answer.result.mutable_progress() = progress;
    answer.result.set_allocated_bytes(1000 + command.rank);
    if (command.command.has_allocate_buffer()) {
      answer.result.set_rendezvous(absl::StrCat("of rank ", command.rank));
    }
    Do(answer);
  }
  // The outstanding commands of a kind, taken.
  std::vector<SendCommand> Take(v1::WorkerCommand::CommandCase kind) {
    std::vector<SendCommand> taken;
    std::deque<SendCommand> rest;
    for (SendCommand& command : sent) {
      (command.command.command_case() == kind ? taken.emplace_back() : rest.emplace_back()) =
          std::move(command);
    }
    sent = std::move(rest);
    return taken;
  }
  void AnswerAll(v1::WorkerCommand::CommandCase kind) {
    for (const SendCommand& command : Take(kind)) Answer(command);
  }
  // Gives numbers and answers everything but programs, until nothing more is asked.
  void Settle() {
    for (bool any = true; any;) {
      any = false;
      if (generations_wanted > 0) {
        --generations_wanted;
        any = true;
        Do(GenerationTaken{Generation(++last_generation), MakeFirstTokens()});
      }
      if (!buffer_ids_wanted.empty()) {
        const std::string buffer = buffer_ids_wanted.front();
        buffer_ids_wanted.pop_front();
        any = true;
        Do(BufferIdTaken{buffer, BufferId(++last_buffer_id)});
      }
      if (!serials_wanted.empty()) {
        any = true;
        GiveSerials();
      }
      if (!to_record.empty()) {
        any = true;
        Record(absl::OkStatus());
      }
      for (size_t i = 0; i < sent.size(); ++i) {
        if (sent[i].command.has_execute_program()) continue;
        const SendCommand command = sent[i];
        sent.erase(sent.begin() + static_cast<std::ptrdiff_t>(i));
        Answer(command);
        any = true;
        break;
      }
    }
  }

  // Serials of the store, kSerials at a time.
  SerialRange NextSerials() {
    last_serial += kSerials;
    return {last_serial - kSerials + 1, kSerials};
  }
  std::vector<FirstTokens> MakeFirstTokens() {
    std::vector<FirstTokens> tokens(static_cast<size_t>(machine.Describe().ranks()));
    for (FirstTokens& first : tokens)
      first = {TokenKey{static_cast<unsigned char>(++keys)}, NextSerials()};
    return tokens;
  }
  void GiveSerials(const absl::Status& status = absl::OkStatus()) {
    ASSERT_FALSE(serials_wanted.empty());
    const TakeSerials take = serials_wanted.front();
    serials_wanted.pop_front();
    using Taken = absl::StatusOr<SerialRange>;
    Do(SerialsTaken{take.rank, take.holder, status.ok() ? Taken(NextSerials()) : Taken(status)});
  }
  void Record(const absl::Status& status) {
    ASSERT_FALSE(to_record.empty());
    const CallId call = to_record.front().call;
    to_record.pop_front();
    Do(IssueRecorded{call, status});
  }

  void Create(int32_t ranks, CallId call = 1) {
    GroupCreated created{call, {}};
    for (int32_t rank = 0; rank < ranks; ++rank) created.members.push_back(MakeMember(rank));
    Do(created);
  }
  BufferCreated MakeBuffer(const std::string& id, CallId call) {
    BufferCreated created{call, {}};
    created.buffer.set_name(BufferNamed(id));
    created.buffer.mutable_shape()->set_layers(1);
    return created;
  }
  // An ACTIVE group with an ACTIVE buffer "b"; calls 1 and 2 are used.
  void Start(int32_t ranks) {
    Create(ranks);
    Settle();
    Do(MakeBuffer("b", 2));
    Settle();
    ASSERT_EQ(machine.Describe().state(), v1::Group::ACTIVE);
    ASSERT_TRUE(finished.at(2).status.ok()) << finished.at(2).status;
    effects.clear();
  }
  void Submit(CallId call, const std::string& buffer = "b", uint64_t generation = 0) {
    ProgramSubmitted submitted{call, BufferNamed(buffer), Generation(generation), {}};
    submitted.program.add_operations()->mutable_barrier();
    Do(submitted);
  }
  void Lose(int32_t rank, int life = 1) {
    const v1::GroupMember member = MakeMember(rank, life);
    Do(MemberLost{member.worker(), member.incarnation(), "its connection broke"});
  }

  v1::Group::State state() const { return machine.Describe().state(); }
  const v1::Buffer& buffer(const std::string& id) const {
    return *machine.buffers().Find(BufferNamed(id));
  }
  template <typename Effect>
  std::vector<Effect> Seen() const {
    std::vector<Effect> seen;
    for (const GroupEffect& effect : effects) {
      if (const auto* match = std::get_if<Effect>(&effect)) seen.push_back(*match);
    }
    return seen;
  }

  GroupMachine machine;
  Moment now{absl::Hours(1), absl::UnixEpoch()};
  std::deque<SendCommand> sent;  // outstanding
  int generations_wanted = 0;
  uint64_t last_generation = 0;
  std::deque<std::string> buffer_ids_wanted;
  uint64_t last_buffer_id = 0;
  std::deque<TakeSerials> serials_wanted;
  std::deque<RecordIssue> to_record;
  uint64_t last_serial = 0;
  int keys = 0;
  std::map<CallId, CallResult> finished;
  std::map<CallId, std::vector<v1::ExecuteProgramResponse>> messages;
  bool released = false;
  bool removed = false;
  GroupEffects effects;  // all, in order

 private:
  static RandomSource NextBytes() {
    return [next = uint64_t{0}](size_t) mutable { return absl::StrCat("ticket", ++next); };
  }
};

inline v1::RankStatus Failed(absl::StatusCode code, const std::string& reason,
                             const std::string& message) {
  v1::RankStatus status;
  status.set_code(static_cast<int32_t>(code));
  status.set_reason(reason);
  status.set_message(message);
  return status;
}

}  // namespace perigee

#endif  // PERIGEE_SERVER_GROUPS_GROUP_HARNESS_H_
