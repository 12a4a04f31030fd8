#include "tests/device/process_group.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <iostream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/common/check.h"
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

struct Devices {
  size_t count = 0;
  std::string text;  // what there is, in words
};

// The CUDA devices. Asked in a child: a process that has used CUDA can fork none that does.
Devices AskForDevices() {
  std::array<int, 2> ends;
  if (pipe(ends.data()) != 0) return {0, kNoAnswer};
  const pid_t pid = fork();
  if (pid == 0) {
    alarm(kChildLimitSeconds);
    const CudaDevices devices = QueryCudaDevices();
    const std::string text =
        absl::StrCat(devices.devices.size(), " ", DescribeCudaDevices(devices));
    const bool written = write(ends[1], text.data(), text.size()) > 0;
    _exit(written ? 0 : 1);
  }
  close(ends[1]);
  std::string text;
  char byte = 0;
  while (read(ends[0], &byte, 1) == 1) text += byte;
  close(ends[0]);
  waitpid(pid, nullptr, 0);
  if (text.empty()) return {0, kNoAnswer};
  return {std::stoul(text), text.substr(text.find(' ') + 1)};
}

// As PERIGEE_DEVICES says.
size_t DevicesAskedFor() {
  const char* given = std::getenv("PERIGEE_DEVICES");
  return given == nullptr ? 1 : std::strtoul(given, nullptr, 10);
}

}  // namespace

void ProcessGroupTest::SetUp() {
  if (on_device()) {
    static const Devices present = AskForDevices();
    devices_ = DevicesAskedFor();
    if (present.count == 0 && devices_ == 1) GTEST_SKIP() << present.text;
    ASSERT_GE(devices_, 1u) << "PERIGEE_DEVICES is no number of devices";
    ASSERT_LE(devices_, present.count)
        << "PERIGEE_DEVICES asks for " << devices_ << " CUDA devices; here: " << present.text;
  }
  watchers_.resize(devices_);
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
  watchers_.clear();
  listener_.reset();
  if (!directory_.empty()) rmdir(directory_.c_str());
}

double ProcessGroupTest::SlackMs() {
  const char* given = std::getenv("PERIGEE_DEVICE_SLACK_MS");
  return given == nullptr ? 40 : std::atof(given);
}

void ProcessGroupTest::Start(size_t count) {
  for (size_t i = 0; i < count; ++i) {
    processes_.push_back(
        RankProcess::Fork(*listener_, GetParam(), static_cast<int32_t>(DeviceOf(i))));
    ASSERT_NE(processes_.back(), nullptr);
  }
  for (const auto& process : processes_) {
    const Answer ready = process->Receive();
    ASSERT_TRUE(ready.ok()) << ready.text();
  }
}

void ProcessGroupTest::Replace(size_t index) {
  processes_[index].reset();
  processes_[index] = StartProcess(DeviceOf(index));
  ASSERT_NE(processes_[index], nullptr);
}

std::unique_ptr<RankProcess> ProcessGroupTest::StartProcess(size_t device) {
  auto process = RankProcess::Fork(*listener_, GetParam(), static_cast<int32_t>(device));
  if (process == nullptr) return nullptr;
  const Answer ready = process->Receive();
  EXPECT_TRUE(ready.ok()) << ready.text();
  return ready.ok() ? std::move(process) : nullptr;
}

RankProcess& ProcessGroupTest::Watcher(size_t device) {
  if (watchers_[device] == nullptr) watchers_[device] = StartProcess(device);
  PERIGEE_CHECK(watchers_[device] != nullptr);
  return *watchers_[device];
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
  std::vector<Answer> answers;
  for (RankProcess* member : members) {
    answers.push_back(member->Receive());
    ASSERT_TRUE(answers.back().ok()) << answers.back().text();
  }
  mapping_ms_ = MostMs(answers);
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

std::vector<uint64_t> ProcessGroupTest::FreeBytes() {
  std::vector<uint64_t> free_bytes;
  for (size_t device = 0; device < devices(); ++device) {
    free_bytes.push_back(Watcher(device).Do(Command(RankVerb::kReadMemory)).reply.free_bytes);
  }
  return free_bytes;
}

double ProcessGroupTest::AwaitFree(const std::vector<uint64_t>& free_bytes) {
  std::vector<Answer> answers;
  RankCommand await = Command(RankVerb::kAwaitMemory);
  for (size_t device = 0; device < devices(); ++device) {
    await.free_bytes = free_bytes[device];
    Watcher(device).Send(await);
  }
  for (size_t device = 0; device < devices(); ++device) {
    answers.push_back(Watcher(device).Receive());
    EXPECT_TRUE(answers.back().ok()) << "device " << device << ": " << answers.back().text();
  }
  return MostMs(answers);
}

void ProcessGroupTest::Print(const std::string& numbers) const {
  const testing::TestInfo& test = *testing::UnitTest::GetInstance()->current_test_info();
  std::cout << "MEASURED " << test.name() << " devices=" << devices() << " " << numbers
            << std::endl;
}

std::string BackendCaseName(const testing::TestParamInfo<std::string>& info) { return info.param; }

}  // namespace perigee
