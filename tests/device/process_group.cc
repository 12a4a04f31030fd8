#include "tests/device/process_group.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <iostream>
#include <utility>

#include "kernels/device/device_info.h"

namespace perigee {
namespace {

constexpr int32_t kHidden = 64;
constexpr uint64_t kSeed = 20240229;
constexpr char kNoAnswer[] = "the query of CUDA devices ended without an answer";

// Small: without MPS a barrier costs milliseconds whatever its size.
Geometry GeometryOf(size_t ranks) {
  Geometry geometry;
  geometry.ranks = static_cast<int32_t>(ranks);
  geometry.experts = 4 * geometry.ranks;
  geometry.tokens = 24;
  geometry.topk = 3;
  geometry.slots = 2;
  geometry.token_padding = 8;
  return geometry;
}

// Why there is no CUDA device, or "". Asked in a child: a process that has used CUDA can fork none
// that does.
std::string WhyNoDevice() {
  std::array<int, 2> ends;
  if (pipe(ends.data()) != 0) return kNoAnswer;
  const pid_t pid = fork();
  if (pid == 0) {
    alarm(kChildLimitSeconds);
    const CudaDevices devices = QueryCudaDevices();
    const std::string text = devices.devices.empty() ? "-" + DescribeCudaDevices(devices) : "+";
    const bool written = write(ends[1], text.data(), text.size()) > 0;
    _exit(written ? 0 : 1);
  }
  close(ends[1]);
  std::string text;
  char byte = 0;
  while (read(ends[0], &byte, 1) == 1) text += byte;
  close(ends[0]);
  waitpid(pid, nullptr, 0);
  if (text.empty()) return kNoAnswer;
  return text.substr(1);
}

}  // namespace

void ProcessGroupTest::SetUp() {
  if (on_device()) {
    static const std::string why_not = WhyNoDevice();
    if (!why_not.empty()) GTEST_SKIP() << why_not;
  }
  // A test's own directory can have a longer name than a socket's address has room for.
  char directory[] = "/tmp/perigee-ranks-XXXXXX";
  ASSERT_NE(mkdtemp(directory), nullptr);
  directory_ = directory;
  absl::StatusOr<UnixListener> listener = UnixListener::Listen(directory_ + "/test");
  ASSERT_TRUE(listener.ok()) << listener.status();
  listener_.emplace(*std::move(listener));
}

void ProcessGroupTest::TearDown() {
  processes_.clear();
  listener_.reset();
  if (!directory_.empty()) rmdir(directory_.c_str());
}

double ProcessGroupTest::SlackMs() {
  const char* given = std::getenv("PERIGEE_DEVICE_SLACK_MS");
  return given == nullptr ? 40 : std::atof(given);
}

void ProcessGroupTest::Start(size_t count) {
  for (size_t i = 0; i < count; ++i) {
    processes_.push_back(RankProcess::Fork(*listener_, GetParam()));
    ASSERT_NE(processes_.back(), nullptr);
  }
  for (const auto& process : processes_) {
    const Answer ready = process->Receive();
    ASSERT_TRUE(ready.ok()) << ready.text();
  }
}

void ProcessGroupTest::Replace(size_t index) {
  processes_[index].reset();
  processes_[index] = RankProcess::Fork(*listener_, GetParam());
  ASSERT_NE(processes_[index], nullptr);
  const Answer ready = processes_[index]->Receive();
  ASSERT_TRUE(ready.ok()) << ready.text();
}

Members ProcessGroupTest::All() const { return AllBut(processes_.size()); }

Members ProcessGroupTest::AllBut(size_t index) const {
  Members members;
  for (size_t i = 0; i < processes_.size(); ++i) {
    if (i != index) members.push_back(processes_[i].get());
  }
  return members;
}

std::vector<std::vector<FileDescriptor>> ProcessGroupTest::Allocate(const Members& members,
                                                                    const RankCommand& command) {
  std::vector<std::vector<FileDescriptor>> parts;
  for (Answer& answer : ExpectOk(members, command)) {
    EXPECT_EQ(answer.descriptors.size(), kPartsOfRank);
    parts.push_back(std::move(answer.descriptors));
  }
  return parts;
}

void ProcessGroupTest::Form(const Members& members, absl::Duration operation_timeout,
                            uint64_t extra_bytes) {
  ++generation_;
  geometry_ = GeometryOf(members.size());
  RankCommand command = Command(RankVerb::kAllocate);
  command.extra_bytes = extra_bytes;
  command.timeout_ms = absl::ToInt64Milliseconds(operation_timeout);
  // Closed at the end: a descriptor left open here would keep the memory of a dead rank.
  const std::vector<std::vector<FileDescriptor>> parts = Allocate(members, command);
  std::vector<int> descriptors;
  for (const auto& of_rank : parts) {
    for (const FileDescriptor& part : of_rank) descriptors.push_back(part.get());
  }
  ASSERT_EQ(descriptors.size(), members.size() * kPartsOfRank);
  command.verb = RankVerb::kMap;
  for (size_t rank = 0; rank < members.size(); ++rank) {
    command.rank = static_cast<int32_t>(rank);
    members[rank]->Send(command, descriptors);
  }
  for (RankProcess* member : members) {
    const Answer mapped = member->Receive();
    ASSERT_TRUE(mapped.ok()) << mapped.text();
  }
}

RankCommand ProcessGroupTest::Command(RankVerb verb) const {
  RankCommand command;
  command.verb = verb;
  command.geometry = geometry_;
  command.hidden = kHidden;
  command.seed = kSeed;
  command.generation = generation_;
  command.timeout_ms = 10'000;
  return command;
}

std::vector<Answer> ProcessGroupTest::OnAll(const Members& members, const RankCommand& command) {
  for (RankProcess* member : members) member->Send(command);
  std::vector<Answer> answers;
  for (RankProcess* member : members) answers.push_back(member->Receive());
  return answers;
}

std::vector<Answer> ProcessGroupTest::ExpectOk(const Members& members, const RankCommand& command) {
  std::vector<Answer> answers = OnAll(members, command);
  for (size_t i = 0; i < answers.size(); ++i) {
    EXPECT_TRUE(answers[i].ok()) << "member " << i << ", command " << static_cast<int>(command.verb)
                                 << ": " << answers[i].text();
  }
  return answers;
}

double ProcessGroupTest::MostMs(const std::vector<Answer>& answers) {
  double most = 0;
  for (const Answer& answer : answers) most = std::max(most, answer.reply.milliseconds);
  return most;
}

uint64_t ProcessGroupTest::FreeBytes(const Members& members) const {
  return members.front()->Do(Command(RankVerb::kReadMemory)).reply.free_bytes;
}

void ProcessGroupTest::Print(const std::string& numbers) {
  const testing::TestInfo& test = *testing::UnitTest::GetInstance()->current_test_info();
  std::cout << "MEASURED " << test.name() << " " << numbers << std::endl;
}

std::string BackendCaseName(const testing::TestParamInfo<std::string>& info) { return info.param; }

}  // namespace perigee
