// Tests of the attach socket: one rank with a buffer on a data path that does as it is told, a
// clock that the test moves, and clients that speak the socket's language themselves.
#ifndef PERIGEE_WORKER_TESTING_ATTACH_FIXTURE_H_
#define PERIGEE_WORKER_TESTING_ATTACH_FIXTURE_H_

#include <sys/stat.h>
#include <unistd.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "proto/support/random.h"
#include "tests/testing/fake_clock.h"
#include "tests/testing/open_descriptors.h"
#include "worker/attach/attach_server.h"
#include "worker/testing/fake_backend.h"
#include "worker/testing/scratch_directory.h"
#include "worker/testing/test_attachment.h"
#include "worker/testing/test_client.h"

namespace perigee {

class AttachTest : public ::testing::Test {
 protected:
  static constexpr const char* kGroup = "tenants/default/groups/g";
  static constexpr const char* kBuffer = "tenants/default/groups/g/buffers/b";
  static constexpr uint64_t kIncarnation = 100;
  static constexpr absl::Duration kLong = absl::Seconds(20);

  AttachTest() {
    backend_.set_attachable();
    backend_.set_on_data_path([this](FakeDataPath& path) { path_ = &path; });
    descriptors_ = *DescriptorServer::Start(directory_.path() + "/w", clock_);
    environment_.reset(new SessionEnvironment{"workers/w", kIncarnation, backend_, *descriptors_,
                                              clock_, budget_, operations_done_, 1});
    StartServer({});
    FormSession();
  }
  ~AttachTest() override {
    session_->Abort({}, "the test ends");
    EXPECT_TRUE(session_->Close().ok());
    server_.reset();
  }

  void StartServer(const std::set<uint32_t>& users) {
    server_.reset();
    if (!users.empty()) {
      ASSERT_EQ(chmod(directory_.path().c_str(), 0711), 0);
    }
    absl::StatusOr<std::unique_ptr<AttachServer>> server =
        AttachServer::Start(directory_.path() + "/a", ClientUsers(geteuid(), users), *environment_);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  void FormSession() {
    v1::OpenSessionCommand open;
    v1::GroupMember& member = *open.add_members();
    member.set_worker("workers/w");
    member.set_incarnation(Hex64(kIncarnation));
    member.set_socket_path(descriptors_->path());
    session_ = *Session::Open(kGroup, Generation(7), open, *environment_);
    v1::AllocateBufferCommand allocate;
    v1::Buffer& buffer = *allocate.mutable_buffer();
    buffer.set_name(kBuffer);
    buffer.set_id(3);
    buffer.mutable_shape()->set_tokens(4);
    buffer.mutable_shape()->set_hidden(8);
    buffer.mutable_shape()->set_topk(2);
    buffer.mutable_shape()->set_experts(2);
    allocate.add_tickets("");
    ASSERT_TRUE(session_->AllocateBuffer(allocate).ok());
    v1::ConnectBufferCommand connect;
    connect.set_buffer(kBuffer);
    connect.add_tickets("");
    ASSERT_TRUE(session_->ConnectBuffer(connect).ok());
  }
  void BlockBarriers() {
    path_->set_behaviour([path = path_](const std::string&, Sequence sequence) {
      return path->AwaitAbort(Operation::kBarrier, sequence);
    });
  }

  absl::Status Serve(uint64_t id, const Ticket& ticket, uint64_t first_sequence = 1) {
    return server_->Serve(*session_, TestServeCommand(kBuffer, id, ticket, first_sequence),
                          {[this](const v1::ClientReport& report) { Note(reports_, report); },
                           [this](const AttachmentEnd& end) { Note(ends_, end); }});
  }
  AttachRequest Request(const Ticket& ticket) const {
    return TestAttachRequest(kGroup, kIncarnation, 0, ticket);
  }
  absl::StatusOr<TestClient> Attach(const AttachRequest& request) {
    return TestClient::Attach(server_->path(), request);
  }
  // Refused without a word, and without a descriptor; with a word in the worker's log.
  void ExpectRefused(const AttachRequest& request) {
    ::testing::internal::CaptureStderr();
    const absl::Status status = Attach(request).status();
    const std::string log = ::testing::internal::GetCapturedStderr();
    EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied);
    EXPECT_NE(log.find("attach_refused"), std::string::npos) << log;
  }

  AttachmentEnd AwaitEnd(size_t count = 1) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return ends_.size() >= count; });
    return ends_[count - 1];
  }
  size_t end_count() {
    std::lock_guard<std::mutex> lock(mutex_);
    return ends_.size();
  }
  // Nothing of any attachment is left.
  void ExpectAllGivenBack() {
    if (const std::shared_ptr<BufferGuest> guest = buffer().guest()) guest->AwaitEnd();
    EXPECT_EQ(budget_.used_bytes(), 0u);
    EXPECT_EQ(backend_.ledger()->alive("shared"), 2) << "the shard";
    EXPECT_TRUE(buffer().Enter().ok());
  }
  SessionBuffer& buffer() { return **session_->FindBuffer(kBuffer); }

  template <typename Event>
  void Note(std::vector<Event>& events, const Event& event) {
    std::lock_guard<std::mutex> lock(mutex_);
    events.push_back(event);
    changed_.notify_all();
  }

  ScratchDirectory directory_;
  FakeClock clock_;
  FakeBackend backend_;
  FakeDataPath* path_ = nullptr;
  ByteBudget budget_{1 << 24};
  std::atomic<uint64_t> operations_done_ = 0;
  std::unique_ptr<DescriptorServer> descriptors_;
  std::unique_ptr<SessionEnvironment> environment_;
  std::unique_ptr<AttachServer> server_;
  std::shared_ptr<Session> session_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<v1::ClientReport> reports_;
  std::vector<AttachmentEnd> ends_;
};

}  // namespace perigee

#endif  // PERIGEE_WORKER_TESTING_ATTACH_FIXTURE_H_
