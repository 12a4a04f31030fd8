#include "proto/local/unix_socket.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <set>
#include <string>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/local/private_directory.h"
#include "tests/testing/open_descriptors.h"

namespace perigee {
namespace {

using ::testing::HasSubstr;
using ::testing::IsSubsetOf;

constexpr absl::Duration kLong = absl::Seconds(20);
constexpr absl::Duration kShort = absl::Milliseconds(20);

std::string Message(const absl::Status& status) { return std::string(status.message()); }

class UnixSocketTest : public ::testing::Test {
 protected:
  void SetUp() override {
    // Not TEST_TMPDIR: a sandbox's path is longer than a socket's may be.
    char name[] = "/tmp/perigee-socket-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    directory_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  std::string path() const { return directory_ + "/s"; }

  struct Pair {
    UnixListener listener;
    UnixSocket client;
    UnixSocket server;
  };
  Pair Connected() {
    absl::StatusOr<UnixListener> listener = UnixListener::Listen(path());
    EXPECT_TRUE(listener.ok()) << listener.status();
    absl::StatusOr<UnixSocket> client = UnixSocket::Connect(path(), WaitLimit(kLong));
    EXPECT_TRUE(client.ok()) << client.status();
    absl::StatusOr<absl::optional<UnixSocket>> server = listener->Accept();
    EXPECT_TRUE(server.ok() && server->has_value());
    return Pair{*std::move(listener), *std::move(client), **std::move(server)};
  }

  std::string directory_;
};

TEST_F(UnixSocketTest, CarriesBytesAndDescriptors) {
  Pair pair = Connected();
  FileDescriptor memory(memfd_create("x", MFD_CLOEXEC));
  ASSERT_EQ(ftruncate(memory.get(), 4096), 0);
  ASSERT_TRUE(pair.client.Send("hello", {memory.get(), memory.get()}, WaitLimit(kLong)).ok());
  absl::StatusOr<SocketMessage> got = pair.server.Receive(64, 2, WaitLimit(kLong));
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(got->bytes, "hello");
  ASSERT_EQ(got->descriptors.size(), 2u);
  struct stat sent, received;
  ASSERT_EQ(fstat(memory.get(), &sent), 0);
  ASSERT_EQ(fstat(got->descriptors[1].get(), &received), 0);
  EXPECT_EQ(sent.st_ino, received.st_ino);
  EXPECT_NE(fcntl(got->descriptors[0].get(), F_GETFD) & FD_CLOEXEC, 0);
}

TEST_F(UnixSocketTest, CarriesAsManyDescriptorsAsTheKernelTakes) {
  Pair pair = Connected();
  FileDescriptor memory(memfd_create("x", MFD_CLOEXEC));
  const std::vector<int> many(kMaxDescriptorsPerMessage, memory.get());
  ASSERT_TRUE(pair.client.Send("m", many, WaitLimit(kLong)).ok());
  absl::StatusOr<SocketMessage> got =
      pair.server.Receive(1, kMaxDescriptorsPerMessage, WaitLimit(kLong));
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(got->descriptors.size(), kMaxDescriptorsPerMessage);
}

TEST_F(UnixSocketTest, TooManyDescriptorsAreAnErrorAndClosed) {
  Pair pair = Connected();
  FileDescriptor memory(memfd_create("x", MFD_CLOEXEC));
  const std::set<std::string> before = OpenDescriptors();
  ASSERT_TRUE(
      pair.client.Send("m", {memory.get(), memory.get(), memory.get()}, WaitLimit(kLong)).ok());
  absl::StatusOr<SocketMessage> got = pair.server.Receive(16, 2, WaitLimit(kLong));
  EXPECT_EQ(got.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(OpenDescriptors(), IsSubsetOf(before));
}

TEST_F(UnixSocketTest, ControlDataThatTheKernelCutsShortIsAnErrorAndClosed) {
  Pair pair = Connected();
  FileDescriptor memory(memfd_create("x", MFD_CLOEXEC));
  const std::vector<int> many(8, memory.get());
  ASSERT_TRUE(pair.client.Send("m", many, WaitLimit(kLong)).ok());
  const std::set<std::string> before = OpenDescriptors();
  // Room for three descriptors more: the kernel installs those and cuts off the others.
  FileDescriptor next(dup(memory.get()));
  rlimit limit;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlimit tight{static_cast<rlim_t>(next.get() + 3), limit.rlim_max};
  next.Reset();
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &tight), 0);
  absl::StatusOr<SocketMessage> got = pair.server.Receive(16, 8, WaitLimit(kLong));
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_EQ(got.status().code(), absl::StatusCode::kInvalidArgument) << got.status();
  EXPECT_THAT(OpenDescriptors(), IsSubsetOf(before));
}

TEST_F(UnixSocketTest, AMessageThatIsTooLongIsAnErrorAndItsDescriptorsAreClosed) {
  Pair pair = Connected();
  FileDescriptor memory(memfd_create("x", MFD_CLOEXEC));
  const std::set<std::string> before = OpenDescriptors();
  ASSERT_TRUE(pair.client.Send("seventeen bytes!!", {memory.get()}, WaitLimit(kLong)).ok());
  absl::StatusOr<SocketMessage> got = pair.server.Receive(16, 1, WaitLimit(kLong));
  EXPECT_EQ(got.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(got.status()), HasSubstr("16"));
  EXPECT_THAT(OpenDescriptors(), IsSubsetOf(before));
}

TEST_F(UnixSocketTest, MessagesKeepTheirBounds) {
  Pair pair = Connected();
  ASSERT_TRUE(pair.client.Send("one", {}, WaitLimit(kLong)).ok());
  ASSERT_TRUE(pair.client.Send("two", {}, WaitLimit(kLong)).ok());
  EXPECT_EQ(pair.server.Receive(64, 0, WaitLimit(kLong))->bytes, "one");
  EXPECT_EQ(pair.server.Receive(64, 0, WaitLimit(kLong))->bytes, "two");
}

TEST_F(UnixSocketTest, APeerThatHasGoneIsUnavailable) {
  Pair pair = Connected();
  { UnixSocket gone = std::move(pair.client); }
  EXPECT_EQ(pair.server.Receive(64, 0, WaitLimit(kLong)).status().code(),
            absl::StatusCode::kUnavailable);
  EXPECT_EQ(pair.server.Send("x", {}, WaitLimit(kLong)).code(), absl::StatusCode::kUnavailable);
}

TEST_F(UnixSocketTest, EveryWaitEndsAtItsDeadline) {
  Pair pair = Connected();
  EXPECT_EQ(pair.server.Receive(64, 0, WaitLimit(kShort)).status().code(),
            absl::StatusCode::kDeadlineExceeded);
  const std::string big(32 << 10, 'x');
  absl::Status sent;
  while (sent.ok()) sent = pair.client.Send(big, {}, WaitLimit(kShort));
  EXPECT_EQ(sent.code(), absl::StatusCode::kDeadlineExceeded);
}

TEST_F(UnixSocketTest, AFullBacklogEndsAtTheDeadline) {
  absl::StatusOr<UnixListener> listener = UnixListener::Listen(path());
  ASSERT_TRUE(listener.ok());
  std::vector<UnixSocket> waiting;
  absl::Status status;
  while (status.ok()) {
    absl::StatusOr<UnixSocket> next = UnixSocket::Connect(path(), WaitLimit(kShort));
    status = next.status();
    if (next.ok()) waiting.push_back(*std::move(next));
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_GT(waiting.size(), 8u);
}

TEST_F(UnixSocketTest, AnInterruptEndsAWaitFromAnotherThread) {
  Pair pair = Connected();
  Interrupt interrupt;
  std::thread other([&] { interrupt.Raise(); });
  EXPECT_EQ(pair.server.Receive(64, 0, WaitLimit(kLong, &interrupt)).status().code(),
            absl::StatusCode::kCancelled);
  other.join();
  EXPECT_EQ(WaitLimit(kLong, &interrupt).Pause(kLong).code(), absl::StatusCode::kCancelled);
}

TEST_F(UnixSocketTest, NobodyListeningIsUnavailable) {
  EXPECT_EQ(UnixSocket::Connect(path(), WaitLimit(kLong)).status().code(),
            absl::StatusCode::kUnavailable);
}

TEST_F(UnixSocketTest, AcceptNeverBlocks) {
  absl::StatusOr<UnixListener> listener = UnixListener::Listen(path());
  ASSERT_TRUE(listener.ok());
  EXPECT_FALSE(listener->Accept()->has_value());
}

TEST_F(UnixSocketTest, ThePathEndsWithTheListener) {
  {
    absl::StatusOr<UnixListener> listener = UnixListener::Listen(path());
    ASSERT_TRUE(listener.ok());
    EXPECT_TRUE(std::filesystem::exists(path()));
    EXPECT_EQ(UnixListener::Listen(path()).status().code(), absl::StatusCode::kAlreadyExists);
    UnixListener moved = *std::move(listener);
    EXPECT_TRUE(std::filesystem::exists(path()));
  }
  EXPECT_FALSE(std::filesystem::exists(path()));
}

TEST_F(UnixSocketTest, ALongPathIsRefusedWithItsLimit) {
  const size_t room = kMaxSocketPathBytes - directory_.size() - 1;
  EXPECT_TRUE(UnixListener::Listen(directory_ + "/" + std::string(room, 'x')).ok());
  const std::string path = directory_ + "/" + std::string(room + 1, 'x');
  const absl::Status status = UnixListener::Listen(path).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(status), HasSubstr("107"));
  EXPECT_THAT(Message(UnixSocket::Connect(path, WaitLimit(kLong)).status()), HasSubstr("107"));
}

TEST_F(UnixSocketTest, ADirectoryThatOthersMayEnterIsRefused) {
  ASSERT_EQ(chmod(directory_.c_str(), 0750), 0);
  const absl::Status status = UnixListener::Listen(path()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(status), HasSubstr("0750"));
}

TEST_F(UnixSocketTest, PrivateDirectoriesAreMadeOnceAndChecked) {
  const std::string made = directory_ + "/made";
  EXPECT_TRUE(EnsurePrivateDirectory(made).ok());
  EXPECT_TRUE(EnsurePrivateDirectory(made).ok());
  EXPECT_FALSE(EnsurePrivateDirectory(directory_ + "/no/parent").ok());
  FileDescriptor file(open((directory_ + "/file").c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
  EXPECT_THAT(Message(EnsurePrivateDirectory(directory_ + "/file")), HasSubstr("not a directory"));
  ASSERT_EQ(symlink(made.c_str(), (directory_ + "/link").c_str()), 0);
  EXPECT_FALSE(CheckPrivateDirectory(directory_ + "/link").ok());
}

TEST_F(UnixSocketTest, MessagesNameTheirSenderWhereAskedFor) {
  const ListenOptions options{.name_senders = true};
  absl::StatusOr<UnixListener> listener = UnixListener::Listen(path(), options);
  ASSERT_TRUE(listener.ok()) << listener.status();
  absl::StatusOr<UnixSocket> client = UnixSocket::Connect(path(), WaitLimit(kLong));
  ASSERT_TRUE(client.ok()) << client.status();
  // Before it is accepted, after, and by another process that has got the descriptor.
  ASSERT_TRUE(client->Send("one", {}, WaitLimit(kLong)).ok());
  absl::StatusOr<absl::optional<UnixSocket>> server = listener->Accept();
  ASSERT_TRUE(server.ok() && server->has_value());
  const PeerCredentials own{getpid(), geteuid()};
  EXPECT_EQ(*(*server)->peer(), own);
  EXPECT_EQ((*server)->Receive(64, 0, WaitLimit(kLong))->sender, own);
  const pid_t child = fork();
  if (child == 0) _exit(client->Send("two", {}, WaitLimit(kLong)).ok() ? 0 : 1);
  absl::StatusOr<SocketMessage> message = (*server)->Receive(64, 0, WaitLimit(kLong));
  ASSERT_TRUE(message.ok()) << message.status();
  EXPECT_EQ(message->bytes, "two");
  EXPECT_EQ(message->sender, (PeerCredentials{child, geteuid()}));
  int outcome = -1;
  ASSERT_EQ(waitpid(child, &outcome, 0), child);
  EXPECT_EQ(outcome, 0);
}

TEST_F(UnixSocketTest, SendersAreNotNamedElsewhere) {
  Pair pair = Connected();
  ASSERT_TRUE(pair.client.Send("x", {}, WaitLimit(kLong)).ok());
  EXPECT_FALSE(pair.server.Receive(64, 0, WaitLimit(kLong))->sender.has_value());
}

TEST_F(UnixSocketTest, AListenerForAnyUserWantsADirectoryThatNobodyElseWritesTo) {
  const ListenOptions options{.any_user = true};
  ASSERT_EQ(chmod(directory_.c_str(), 0773), 0);
  EXPECT_THAT(Message(UnixListener::Listen(path(), options).status()), HasSubstr("0773"));
  ASSERT_EQ(chmod(directory_.c_str(), 0711), 0);
  absl::StatusOr<UnixListener> listener = UnixListener::Listen(path(), options);
  ASSERT_TRUE(listener.ok()) << listener.status();
  struct stat found;
  ASSERT_EQ(stat(path().c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777, 0666u);
  const std::string made = directory_ + "/made";
  EXPECT_TRUE(EnsureOwnDirectory(made).ok());
  EXPECT_TRUE(EnsureOwnDirectory(made).ok());
  ASSERT_EQ(stat(made.c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777, 0711u);
}

// The child of another user gets through the file modes here, as it never should: its credentials
// must stop it.
TEST_F(UnixSocketTest, AnotherUserIsRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can take another user's place";
  absl::StatusOr<UnixListener> listener = UnixListener::Listen(path());
  ASSERT_TRUE(listener.ok());
  ASSERT_EQ(chmod(directory_.c_str(), 0755), 0);
  ASSERT_EQ(chmod(path().c_str(), 0777), 0);
  const std::string socket_path = path();
  const pid_t child = fork();
  if (child == 0) {
    if (setuid(65534) != 0) _exit(2);
    const absl::Status status = UnixSocket::Connect(socket_path, WaitLimit(kLong)).status();
    _exit(status.code() == absl::StatusCode::kPermissionDenied ? 0 : 1);
  }
  int outcome = -1;
  ASSERT_EQ(waitpid(child, &outcome, 0), child);
  ASSERT_TRUE(WIFEXITED(outcome));
  if (WEXITSTATUS(outcome) == 2) GTEST_SKIP() << "this root may not become another user";
  EXPECT_EQ(WEXITSTATUS(outcome), 0);
  EXPECT_EQ(listener->Accept().status().code(), absl::StatusCode::kPermissionDenied);
}

TEST_F(UnixSocketTest, AnotherUserIsNamedWhereAnyMayConnect) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can take another user's place";
  ASSERT_EQ(chmod(directory_.c_str(), 0711), 0);
  absl::StatusOr<UnixListener> listener = UnixListener::Listen(path(), {.any_user = true});
  ASSERT_TRUE(listener.ok()) << listener.status();
  const std::string socket_path = path();
  const pid_t child = fork();
  if (child == 0) {
    if (setuid(65534) != 0) _exit(2);
    _exit(UnixSocket::Connect(socket_path, WaitLimit(kLong), 0).ok() ? 0 : 1);
  }
  int outcome = -1;
  ASSERT_EQ(waitpid(child, &outcome, 0), child);
  ASSERT_TRUE(WIFEXITED(outcome));
  if (WEXITSTATUS(outcome) == 2) GTEST_SKIP() << "this root may not become another user";
  EXPECT_EQ(WEXITSTATUS(outcome), 0);
  absl::StatusOr<absl::optional<UnixSocket>> server = listener->Accept();
  ASSERT_TRUE(server.ok() && server->has_value()) << server.status();
  EXPECT_EQ(*(*server)->peer(), (PeerCredentials{child, 65534}));
}

}  // namespace
}  // namespace perigee
