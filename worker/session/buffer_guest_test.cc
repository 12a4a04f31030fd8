// A guest beside programs, calls and the end of a session.
#include "worker/session/buffer_guest.h"

#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/testing/fake_backend.h"
#include "worker/testing/session_group.h"

namespace perigee {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class FakeGuest final : public BufferGuest {
 public:
  explicit FakeGuest(SessionBuffer& buffer) : buffer_(buffer) {}
  void Abort(const absl::Status& aborted, absl::Span<const int32_t> lost_ranks) override {
    aborted_ = aborted;
    lost_.assign(lost_ranks.begin(), lost_ranks.end());
  }
  void AwaitEnd() override { buffer_.RemoveGuest(); }

  SessionBuffer& buffer_;
  absl::Status aborted_;
  std::vector<int32_t> lost_;
};

class BufferGuestTest : public ::testing::Test {
 protected:
  BufferGuestTest() : group_(2, [](int32_t) { return std::make_unique<FakeBackend>(); }) {
    v1::BufferShape shape;
    shape.set_tokens(4);
    shape.set_hidden(8);
    shape.set_topk(2);
    shape.set_experts(6);
    shape.set_token_padding(1);
    group_.MakeBuffer(shape);
    guest_ = std::make_shared<FakeGuest>(group_.buffer(0));
    EXPECT_TRUE(group_.buffer(0).AddGuest(guest_).ok());
  }
  void ExpectRefused(const absl::Status& status, const std::string& words) {
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(words));
  }

  SessionGroup group_;
  std::shared_ptr<FakeGuest> guest_;
};

TEST_F(BufferGuestTest, NoProgramRunsBesideAGuest) {
  v1::ExecuteProgramCommand command;
  command.set_buffer(kTestBuffer);
  command.set_program_id(1);
  command.set_first_sequence(1);
  command.mutable_program()->add_operations()->mutable_barrier();
  ExpectRefused(group_.session(0).Execute(command, nullptr, nullptr),
                "a local client is attached to");
  ExpectRefused(group_.buffer(0).AddGuest(guest_), "a local client is attached to");
  ExpectRefused(group_.session(0).DropBuffer(kTestBuffer), "a local client is attached to");
  ExpectRefused(group_.session(0).Close(), "a local client is attached to");
  group_.buffer(0).RemoveGuest();
  for (const ProgramOutcome& outcome : group_.Execute("operations { barrier {} }")) {
    EXPECT_EQ(outcome.status.code(), 0);
  }
}

TEST_F(BufferGuestTest, CallsComeBetweenItsOperations) {
  EXPECT_TRUE(group_.buffer(0).Enter().ok());
  ASSERT_TRUE(group_.buffer(0).BeginGuestOperation().ok());
  ExpectRefused(group_.buffer(0).Enter().status(), "an operation of a local client is running");
  group_.buffer(0).EndGuestOperation();
  EXPECT_TRUE(group_.buffer(0).Enter().ok());
}

TEST_F(BufferGuestTest, AnAbortReachesItAndTheSessionWaitsForItsEnd) {
  group_.session(0).Abort({1}, "its lease ended");
  EXPECT_EQ(guest_->aborted_.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(guest_->lost_, ElementsAre(1));
  EXPECT_EQ(group_.shared_buffer(1)->guest(), nullptr);
  EXPECT_EQ(guest_->buffer_.BeginGuestOperation().code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(group_.session(0).Close().ok());
}

}  // namespace
}  // namespace perigee
