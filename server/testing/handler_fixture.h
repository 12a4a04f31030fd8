// A control plane with fake workers, for tests of what turns requests into its calls.
#ifndef PERIGEE_SERVER_TESTING_HANDLER_FIXTURE_H_
#define PERIGEE_SERVER_TESTING_HANDLER_FIXTURE_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "proto/support/random.h"
#include "server/control_plane.h"
#include "server/rpc/reply.h"
#include "server/rpc/request_log.h"
#include "server/testing/awaited.h"
#include "server/testing/fake_worker.h"
#include "server/testing/memory_store.h"
#include "tests/testing/fake_clock.h"

namespace perigee {

class HandlerFixture : public ::testing::Test {
 protected:
  static constexpr const char* kTenant = "tenants/default";
  static constexpr const char* kMasterKey = "a master key of thirty-two bytes";

  ~HandlerFixture() override {
    for (auto& worker : workers_) worker->Stop();
    control_.Shutdown();
  }

  void AddWorkers(int count) {
    for (int i = 0; i < count; ++i) workers_.push_back(std::make_unique<FakeWorker>(control_, i));
  }
  // The name of an ACTIVE group of as many ranks as asked for.
  std::string MakeGroup(const std::string& id, int32_t ranks) {
    Awaited<CallResult> made;
    control_.CreateGroup({kTenant, id, ranks, "host", {}}, made.done());
    const absl::Status status = made.Get().status;
    EXPECT_TRUE(status.ok()) << status;
    return absl::StrCat(kTenant, "/groups/", id);
  }
  // The name of a buffer "b" of an ACTIVE group "g" of two ranks.
  std::string MakeBuffer() {
    NewBuffer request;
    request.group = MakeGroup("g", 2);
    request.buffer_id = "b";
    request.shape.set_tokens(4);
    request.shape.set_hidden(8);
    request.shape.set_topk(2);
    request.shape.set_experts(6);
    Awaited<CallResult> made;
    control_.CreateBuffer(request, made.done());
    EXPECT_TRUE(made.Get().status.ok());
    return request.group + "/buffers/b";
  }
  // The reply to (handler.*call)(request).
  template <typename Message, typename Handler, typename Request>
  static Reply<Message> Ask(Handler& handler,
                            void (Handler::*call)(const Request&, ReplyFunction<Message>),
                            const Request& request) {
    Awaited<Reply<Message>> reply;
    (handler.*call)(request, reply.done());
    return reply.Get();
  }

  static ControlPlaneOptions Options() {
    ControlPlaneOptions options;
    options.master_key = kMasterKey;
    return options;
  }

  FakeClock clock_;
  MemoryStore store_;
  RequestLog log_{clock_};
  ControlPlane control_{Options(), store_, clock_, RandomBytes};
  std::vector<std::unique_ptr<FakeWorker>> workers_;
};

// INVALID_ARGUMENT that begins with the field.
inline void ExpectNamesField(const absl::Status& status, const std::string& field) {
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_EQ(status.message().find(field), 0u) << status << " does not name " << field;
}

}  // namespace perigee

#endif  // PERIGEE_SERVER_TESTING_HANDLER_FIXTURE_H_
