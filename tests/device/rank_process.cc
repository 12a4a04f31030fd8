#include "tests/device/rank_process.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/device/rank_server.h"

namespace perigee {
namespace {

constexpr size_t kMaxDescriptors = kPartsOfRank;

WaitLimit Limit() { return WaitLimit(absl::Seconds(kChildLimitSeconds)); }

absl::StatusOr<UnixSocket> AwaitConnection(UnixListener& listener) {
  const WaitLimit limit = Limit();
  while (true) {
    if (absl::Status status = limit.Wait(listener.fd(), POLLIN); !status.ok()) return status;
    absl::StatusOr<absl::optional<UnixSocket>> socket = listener.Accept();
    if (!socket.ok()) return socket.status();
    if (socket->has_value()) return **std::move(socket);
  }
}

}  // namespace

std::unique_ptr<RankProcess> RankProcess::Fork(UnixListener& listener, const std::string& backend,
                                               int32_t device) {
  const pid_t pid = fork();
  if (pid == 0) ServeRank(listener.path(), backend, device);
  if (pid < 0) {
    ADD_FAILURE() << "fork failed";
    return nullptr;
  }
  absl::StatusOr<UnixSocket> socket = AwaitConnection(listener);
  if (!socket.ok()) {
    ADD_FAILURE() << "a rank's process does not connect: " << socket.status();
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
    return nullptr;
  }
  return std::unique_ptr<RankProcess>(new RankProcess(pid, *std::move(socket)));
}

RankProcess::~RankProcess() {
  if (pid_ >= 0) Kill();
}

void RankProcess::Send(const RankCommand& command, const std::vector<int>& descriptors) {
  const absl::Status status = socket_.Send(BytesOf(command), descriptors, Limit());
  EXPECT_TRUE(status.ok()) << "command " << static_cast<int>(command.verb) << ": " << status;
}

RankProcess::Answer RankProcess::Receive() {
  Answer answer;
  answer.reply.code = static_cast<int32_t>(absl::StatusCode::kUnknown);
  absl::StatusOr<SocketMessage> message =
      socket_.Receive(sizeof(RankReply), kMaxDescriptors, Limit());
  if (!message.ok() || !ParseMessage(message->bytes, answer.reply)) {
    ADD_FAILURE() << "process " << pid_ << " does not answer: " << message.status();
    return answer;
  }
  answer.descriptors = std::move(message->descriptors);
  return answer;
}

int RankProcess::Reap() {
  int status = -1;
  EXPECT_EQ(waitpid(pid_, &status, 0), pid_);
  pid_ = -1;
  return status;
}

void RankProcess::Kill() {
  EXPECT_EQ(kill(pid_, SIGKILL), 0);
  const int status = Reap();
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << "status " << status;
}

void RankProcess::Stop() {
  EXPECT_EQ(kill(pid_, SIGSTOP), 0);
  int status = 0;
  EXPECT_EQ(waitpid(pid_, &status, WUNTRACED), pid_);
  EXPECT_TRUE(WIFSTOPPED(status)) << "status " << status;
}

void RankProcess::Continue() { EXPECT_EQ(kill(pid_, SIGCONT), 0); }

void RankProcess::Quit() {
  RankCommand command;
  command.verb = RankVerb::kQuit;
  const Answer answer = Do(command);
  EXPECT_TRUE(answer.ok()) << answer.text();
  const int status = Reap();
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "status " << status;
}

}  // namespace perigee
