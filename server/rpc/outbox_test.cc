#include "server/rpc/outbox.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/rpc/mailbox.h"

namespace perigee {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// A reactor's writing half: the test says when a write is done.
class FakeReactor {
 public:
  void StartWrite(const std::string* message) { written.push_back(*message); }
  void Finish(const grpc::Status& status) { finished.push_back(status.error_code()); }

  std::vector<std::string> written;
  std::vector<grpc::StatusCode> finished;
};

class OutboxTest : public ::testing::Test {
 protected:
  FakeReactor reactor;
  Outbox<FakeReactor, std::string, FifoMailbox<std::string, 2>> outbox{reactor};
};

TEST_F(OutboxTest, WritesOneAfterTheOther) {
  EXPECT_TRUE(outbox.Push("a"));
  EXPECT_TRUE(outbox.Push("b"));
  EXPECT_TRUE(outbox.Push("c"));
  EXPECT_FALSE(outbox.Push("d")) << "two wait already";
  EXPECT_THAT(reactor.written, ElementsAre("a"));
  outbox.OnWriteDone(true);
  outbox.OnWriteDone(true);
  EXPECT_THAT(reactor.written, ElementsAre("a", "b", "c"));
}

TEST_F(OutboxTest, WhatWaitsIsTakenBackAndWhatGrpcHasIsNot) {
  outbox.Push("a");
  outbox.Push("b");
  outbox.Push("c");
  EXPECT_THAT(outbox.TakeUnsent(), ElementsAre("b", "c"));
  outbox.OnWriteDone(true);
  EXPECT_THAT(reactor.written, ElementsAre("a")) << "nothing follows";
  outbox.EndNow(grpc::Status::OK);
  EXPECT_THAT(reactor.finished, ElementsAre(grpc::StatusCode::OK));
}

// A write that fails is often the first that is heard of a broken stream: what waits behind it is
// neither lost nor given to the broken stream.
TEST_F(OutboxTest, AfterAFailedWriteTheRestIsStillUnsent) {
  outbox.Push("a");
  outbox.Push("b");
  outbox.OnWriteDone(false);
  outbox.Push("c");
  EXPECT_THAT(reactor.written, ElementsAre("a"));
  EXPECT_THAT(outbox.TakeUnsent(), ElementsAre("b", "c"));
  EXPECT_THAT(outbox.TakeUnsent(), IsEmpty());
}

TEST_F(OutboxTest, AnEndWaitsForWhatWaits) {
  outbox.Push("a");
  outbox.Push("b");
  outbox.End(grpc::Status(grpc::StatusCode::ABORTED, ""));
  outbox.End(grpc::Status::OK);
  outbox.OnWriteDone(true);
  EXPECT_THAT(reactor.finished, IsEmpty());
  outbox.OnWriteDone(true);
  EXPECT_THAT(reactor.written, ElementsAre("a", "b"));
  EXPECT_THAT(reactor.finished, ElementsAre(grpc::StatusCode::ABORTED));
}

TEST_F(OutboxTest, AnEndOfABrokenStreamWaitsForNothing) {
  outbox.Push("a");
  outbox.Push("b");
  outbox.OnWriteDone(false);
  outbox.End(grpc::Status::CANCELLED);
  EXPECT_THAT(reactor.finished, ElementsAre(grpc::StatusCode::CANCELLED));
}

}  // namespace
}  // namespace perigee
