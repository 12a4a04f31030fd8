#include "server/rpc/request_log.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/v1/groups.pb.h"
#include "tests/testing/fake_clock.h"

namespace perigee {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class RequestLogTest : public ::testing::Test {
 protected:
  // What the service would do: gives the function to call, or keeps the reply.
  void Call(const std::string& id, const std::string& group, const std::string& who) {
    v1::DrainGroupRequest request;
    request.set_request_id(id);
    request.set_name(group);
    RunOnce<v1::Group>(
        log, "Drain", request,
        [this, who](const Reply<v1::Group>& reply) {
          replies.push_back(
              absl::StrCat(who, ":", reply.message.name(), std::string(reply.status.message())));
        },
        [this](ReplyFunction<v1::Group> done) { started.push_back(std::move(done)); });
  }
  void Finish(size_t index, const std::string& answer) {
    Reply<v1::Group> reply;
    reply.message.set_name(answer);
    started[index](reply);
  }

  FakeClock clock;
  RequestLog log{clock};
  std::vector<ReplyFunction<v1::Group>> started;
  std::vector<std::string> replies;
};

TEST_F(RequestLogTest, ARepetitionGetsTheFirstAnswerAndHasNoEffect) {
  Call("id", "g", "first");
  Finish(0, "done");
  Call("id", "g", "second");
  EXPECT_EQ(started.size(), 1u);
  EXPECT_THAT(replies, ElementsAre("first:done", "second:done"));
}

TEST_F(RequestLogTest, WhereAnswersAreKeptElsewhereOnlyCallsUnderWayAreJoined) {
  const auto call = [&](const std::string& id, const std::string& group, const std::string& who) {
    v1::DrainGroupRequest request;
    request.set_request_id(id);
    request.set_name(group);
    RunJoined<v1::Group>(
        log, "Drain", request,
        [this, who](const Reply<v1::Group>& reply) {
          replies.push_back(
              absl::StrCat(who, ":", reply.message.name(), std::string(reply.status.message())));
        },
        [this](ReplyFunction<v1::Group> done) { started.push_back(std::move(done)); });
  };
  call("id", "g", "first");
  call("id", "g", "second");
  EXPECT_EQ(started.size(), 1u);
  Finish(0, "done");
  EXPECT_THAT(replies, ElementsAre("first:done", "second:done"));
  call("id", "other", "third");
  ASSERT_EQ(started.size(), 2u) << "nothing was kept";
  Finish(1, "again");
  EXPECT_EQ(replies.back(), "third:again");
}

TEST_F(RequestLogTest, ARepetitionWhileTheFirstRunsJoinsIt) {
  Call("id", "g", "first");
  Call("id", "g", "second");
  EXPECT_EQ(started.size(), 1u);
  EXPECT_TRUE(replies.empty());
  Finish(0, "done");
  EXPECT_THAT(replies, ElementsAre("first:done", "second:done"));
}

TEST_F(RequestLogTest, FailuresAreAnswersTooWithTheRanksWords) {
  v1::DrainGroupRequest request;
  request.set_request_id("id");
  int with_error = 0;
  const auto call = [&] {
    RunOnce<v1::Group>(
        log, "Drain", request,
        [&](const Reply<v1::Group>& reply) {
          EXPECT_EQ(reply.status, absl::UnavailableError("lost"));
          with_error += reply.error && reply.error->lost_ranks_size() == 1;
        },
        [](const ReplyFunction<v1::Group>& done) {
          Reply<v1::Group> reply{absl::UnavailableError("lost"), v1::GroupError(), {}};
          reply.error->add_lost_ranks(3);
          done(reply);
        });
  };
  call();
  call();
  EXPECT_EQ(with_error, 2);
}

TEST_F(RequestLogTest, TheSameIdForAnotherRequestIsRefused) {
  Call("id", "g", "first");
  Call("id", "h", "second");
  EXPECT_EQ(started.size(), 1u);
  ASSERT_EQ(replies.size(), 1u);
  EXPECT_THAT(replies[0], HasSubstr("'id' was used for another request"));
  Call(std::string(200, 'x'), "g", "third");
  EXPECT_THAT(replies[1], HasSubstr("200 bytes, expected at most 128"));
}

TEST_F(RequestLogTest, WithoutAnIdEveryCallRuns) {
  Call("", "g", "first");
  Call("", "g", "second");
  EXPECT_EQ(started.size(), 2u);
}

TEST_F(RequestLogTest, AnAnswerIsForgottenAfterItsLife) {
  Call("id", "g", "first");
  Finish(0, "done");
  clock.Advance(kRequestIdLife - absl::Nanoseconds(1));
  Call("id", "g", "second");
  EXPECT_EQ(started.size(), 1u);
  clock.Advance(absl::Nanoseconds(1));
  Call("id", "g", "third");
  EXPECT_EQ(started.size(), 2u);
}

TEST_F(RequestLogTest, WhereThereAreTooManyTheOldestAnswerIsForgottenButNoCallUnderWay) {
  Call("running", "g", "first");
  for (size_t i = 0; i < RequestLog::kMaxEntries + 10; ++i) {
    Call(absl::StrCat("id", i), "g", "x");
    Finish(started.size() - 1, "done");
  }
  Call("running", "g", "joined");
  EXPECT_EQ(started.size(), RequestLog::kMaxEntries + 11);
  Call("id0", "g", "again");
  EXPECT_EQ(started.size(), RequestLog::kMaxEntries + 12);
}

TEST_F(RequestLogTest, CallsUnderWayAreBounded) {
  for (size_t i = 0; i < RequestLog::kMaxEntries; ++i) Call(absl::StrCat("id", i), "g", "x");
  Call("one-more", "g", "x");
  ASSERT_EQ(replies.size(), 1u);
  EXPECT_THAT(replies[0], HasSubstr("calls are under way"));
}

}  // namespace
}  // namespace perigee
