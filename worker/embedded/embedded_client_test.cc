// Clients in the worker's own process, on a data path that does as it is told. What they do in a
// whole cluster: tests/clients.
#include "worker/embedded/embedded_client.h"

#include <algorithm>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/testing/attach_fixture.h"

namespace perigee {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsSubsetOf;

constexpr Ticket kTicket = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};

std::string Message(const absl::Status& status) { return std::string(status.message()); }

class EmbeddedClientTest : public AttachTest {
 protected:
  absl::StatusOr<std::unique_ptr<RankClient>> AttachEmbedded(const AttachRequest& request) {
    absl::StatusOr<EmbeddedAttachment> attachment =
        link_->Attach([&] { return server_->AttachEmbedded(request); });
    if (!attachment.ok()) return attachment.status();
    return EmbeddedClient::Create(*std::move(attachment), link_);
  }
  std::unique_ptr<RankClient> Attached(uint64_t first_sequence = 1) {
    EXPECT_TRUE(Serve(1, kTicket, first_sequence).ok());
    absl::StatusOr<std::unique_ptr<RankClient>> client = AttachEmbedded(Request(kTicket));
    EXPECT_TRUE(client.ok()) << client.status();
    return *std::move(client);
  }

  std::shared_ptr<EmbeddedLink> link_ = std::make_shared<EmbeddedLink>();
};

TEST_F(EmbeddedClientTest, ItComesWorksAndLeavesAndNothingIsLeft) {
  const std::set<std::string> descriptors = OpenDescriptors();
  {
    const std::unique_ptr<RankClient> client = Attached(5);
    EXPECT_EQ(client->rank(), RankId(0));
    EXPECT_EQ(client->generation(), Generation(7));
    EXPECT_EQ(client->hidden_size(), 8);
    for (const LocalOperation& operation :
         {LocalOperation(LocalEmpty{}), LocalOperation(LocalDispatch{LocalPlanId(1), 4, false}),
          LocalOperation(LocalBarrier{})}) {
      const absl::StatusOr<LocalCompletion> done = client->Run(operation, kLong);
      ASSERT_TRUE(done.ok()) << done.status();
      EXPECT_TRUE(done->status.ok()) << done->status;
    }
    EXPECT_THAT(path_->calls(), ElementsAre("dispatch 5", "barrier 6"));
    EXPECT_TRUE(client->Detach().ok());
    const AttachmentEnd end = AwaitEnd();
    EXPECT_EQ(end.status.code(), 0);
    EXPECT_TRUE(end.end.attached());
    EXPECT_TRUE(end.end.orderly());
    EXPECT_EQ(end.end.last_sequence(), 6u);
  }
  ExpectAllGivenBack();
  EXPECT_THAT(OpenDescriptors(), IsSubsetOf(descriptors));
  ASSERT_EQ(reports_.size(), 2u);
  EXPECT_EQ(reports_[1].state(), v1::ClientReport::ATTACHED);
  EXPECT_EQ(reports_[1].pid(), getpid());
}

TEST_F(EmbeddedClientTest, ItsShardIsTheWorkersAndAfterwardsItsOwn) {
  const std::unique_ptr<RankClient> client = Attached();
  const RankMemory memory = client->memory();
  ASSERT_FALSE(memory.rows.empty());
  BFloat16* const worker_rows = buffer().site().data_path.rows();
  memory.rows[3] = ToBFloat16(2);
  EXPECT_EQ(ToFloat(worker_rows[3]), 2);
  EXPECT_NE(memory.rows.data(), worker_rows) << "a mapping of its own";
  EXPECT_TRUE(client->Detach().ok());
  EXPECT_EQ(client->memory().rows.data(), memory.rows.data());
  EXPECT_EQ(ToFloat(memory.rows[3]), 0);
  memory.rows[3] = ToBFloat16(5);
  EXPECT_EQ(ToFloat(worker_rows[3]), 2);
}

TEST_F(EmbeddedClientTest, ATicketIsGoodOnceAndForWhatItNames) {
  EXPECT_EQ(AttachEmbedded(Request(kTicket)).status().code(), absl::StatusCode::kPermissionDenied);
  ASSERT_TRUE(Serve(1, kTicket).ok());
  AttachRequest request = Request(kTicket);
  request.rank = 1;
  EXPECT_EQ(AttachEmbedded(request).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(AwaitEnd().end.reason(), HasSubstr("its ticket was presented wrongly"));
  EXPECT_EQ(AttachEmbedded(Request(kTicket)).status().code(), absl::StatusCode::kPermissionDenied)
      << "spent, and forgotten with its attachment";
  ExpectAllGivenBack();
  const Ticket second = {2};
  ASSERT_TRUE(Serve(2, second).ok());
  const auto client = AttachEmbedded(Request(second));
  ASSERT_TRUE(client.ok()) << client.status();
  EXPECT_EQ(AttachEmbedded(Request(second)).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE((*client)->Run(LocalEmpty{}, kLong).ok()) << "the first one stays";
}

TEST_F(EmbeddedClientTest, AnAbortEndsItsOperationAndLeavesItsMemory) {
  BlockBarriers();
  const std::unique_ptr<RankClient> client = Attached();
  const auto command = client->Submit(LocalBarrier{});
  ASSERT_TRUE(command.ok());
  session_->Abort(std::vector<int32_t>{0}, "rank 0 (workers/w) was lost");
  const auto done = client->Wait(*command, kLong);
  const absl::Status status = done.ok() ? done->status : done.status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  AwaitEnd();
  absl::Status ended;
  while (ended.ok()) ended = client->Run(LocalEmpty{}, kLong).status();
  EXPECT_THAT(Message(ended), HasSubstr("workers/w"));
  ASSERT_TRUE(client->End().has_value());
  EXPECT_EQ(client->End()->reason, "GENERATION_ABORTED");
  EXPECT_THAT(client->End()->lost, ElementsAre(0));
  const RankMemory memory = client->memory();
  std::fill(memory.rows.begin(), memory.rows.end(), ToBFloat16(1));
  EXPECT_TRUE(client->Detach().ok());
}

TEST_F(EmbeddedClientTest, ItOutlivesTheWorker) {
  const std::unique_ptr<RankClient> client = Attached();
  link_->End();
  server_.reset();
  EXPECT_EQ(AwaitEnd().end.reason(), "the worker ends");
  EXPECT_EQ(client->Run(LocalBarrier{}, kLong).status().code(), absl::StatusCode::kCancelled);
  client->memory().hidden[0] = ToBFloat16(1);
  EXPECT_TRUE(client->Detach().ok());
  EXPECT_EQ(AttachEmbedded(Request(kTicket)).status().code(), absl::StatusCode::kUnavailable);
  StartServer({});
}

TEST_F(EmbeddedClientTest, WhoeverEndsFirstTheOtherEndsWell) {
  for (int round = 0; round < 20; ++round) {
    link_ = std::make_shared<EmbeddedLink>();
    std::unique_ptr<RankClient> client = Attached();
    std::thread leaver([&] { client.reset(); });
    link_->End();
    server_.reset();
    leaver.join();
    StartServer({});
  }
  EXPECT_EQ(end_count(), 20u);
  ExpectAllGivenBack();
}

}  // namespace
}  // namespace perigee
