// Requests as AttachmentService takes them, without gRPC.
#include "server/rpc/attachment_handler.h"

#include "server/testing/handler_fixture.h"

namespace perigee {
namespace {

class AttachmentHandlerTest : public HandlerFixture {
 protected:
  Reply<v1::AttachTicket> Issue(const std::string& buffer, int32_t rank,
                                const std::string& request_id = "") {
    v1::IssueAttachTicketRequest request;
    request.set_buffer(buffer);
    request.set_rank(rank);
    request.set_request_id(request_id);
    return Ask(handler_, &AttachmentHandler::IssueTicket, request);
  }

  AttachmentHandler handler_{control_, log_};
};

TEST_F(AttachmentHandlerTest, GivesATicketOfSixteenRandomBytesOncePerRequest) {
  AddWorkers(2);
  const std::string buffer = MakeBuffer();
  const auto first = Issue(buffer, 0, "one");
  ASSERT_TRUE(first.status.ok()) << first.status;
  EXPECT_EQ(first.message.ticket().size(), 16u);
  EXPECT_EQ(first.message.worker(), "workers/w0");
  EXPECT_EQ(first.message.shape().slots(), 3) << "the shape is complete";
  EXPECT_EQ(Issue(buffer, 0, "one").message.ticket(), first.message.ticket()) << "repeated";
  EXPECT_TRUE(absl::IsAlreadyExists(Issue(buffer, 0, "two").status));
  const auto other = Issue(buffer, 1, "three");
  ASSERT_TRUE(other.status.ok()) << other.status;
  EXPECT_NE(other.message.ticket(), first.message.ticket());
}

TEST_F(AttachmentHandlerTest, NamesWhatIsWrong) {
  ExpectNamesField(Issue("buffers/b", 0).status, "buffer");
  EXPECT_TRUE(absl::IsNotFound(Issue("tenants/default/groups/g/buffers/b", 0).status));
  AddWorkers(2);
  const std::string buffer = MakeBuffer();
  ExpectNamesField(Issue(buffer, 2).status, "rank");
}

}  // namespace
}  // namespace perigee
