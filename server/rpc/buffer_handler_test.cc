// Requests as BufferService takes them, without gRPC.
#include "server/rpc/buffer_handler.h"

#include "server/testing/handler_fixture.h"

namespace perigee {
namespace {

v1::CreateBufferRequest NewRequest(const std::string& group, const std::string& id) {
  v1::CreateBufferRequest request;
  request.set_parent(group);
  request.set_buffer_id(id);
  v1::BufferShape& shape = *request.mutable_buffer()->mutable_shape();
  shape.set_tokens(4);
  shape.set_hidden(8);
  shape.set_topk(2);
  shape.set_experts(6);
  return request;
}

TEST(ParseNewBuffer, TakesEveryField) {
  v1::CreateBufferRequest request = NewRequest("tenants/default/groups/g", "b");
  request.mutable_buffer()->set_operation_timeout_ms(77);
  request.mutable_buffer()->set_warmup_timeout_ms(88);
  request.mutable_buffer()->set_sms(24);
  request.mutable_buffer()->set_local_sms(48);
  request.mutable_buffer()->set_no_programmatic_launch(true);
  request.mutable_buffer()->set_high_priority_stream(true);
  const auto buffer = ParseNewBuffer(request);
  ASSERT_TRUE(buffer.ok()) << buffer.status();
  EXPECT_EQ(buffer->group, "tenants/default/groups/g");
  EXPECT_EQ(buffer->buffer_id, "b");
  EXPECT_EQ(buffer->shape.experts(), 6);
  EXPECT_EQ(buffer->operation_timeout_ms, 77);
  EXPECT_EQ(buffer->warmup_timeout_ms, 88);
  EXPECT_EQ(buffer->sms, 24);
  EXPECT_EQ(buffer->local_sms, 48);
  EXPECT_TRUE(buffer->no_programmatic_launch);
  EXPECT_TRUE(buffer->high_priority_stream);
}

TEST(ParseNewBuffer, NamesTheFieldThatIsWrong) {
  ExpectNamesField(ParseNewBuffer(NewRequest("g", "b")).status(), "parent");
  ExpectNamesField(ParseNewBuffer(NewRequest("tenants/default/groups/g", "B")).status(),
                   "buffer_id");
}

class BufferHandlerTest : public HandlerFixture {
 protected:
  BufferHandler handler_{control_, log_};
};

TEST_F(BufferHandlerTest, ABufferIsMadeListedAndDeleted) {
  AddWorkers(2);
  const std::string g = MakeGroup("g", 1), h = MakeGroup("h", 1);
  for (const std::string& group : {g, h}) {
    const auto made = Ask(handler_, &BufferHandler::Create, NewRequest(group, "b"));
    ASSERT_TRUE(made.status.ok()) << made.status;
    EXPECT_EQ(made.message.state(), v1::Buffer::ACTIVE);
  }
  v1::ListBuffersRequest list;
  list.set_parent(g);
  EXPECT_EQ(handler_.List(list)->buffers_size(), 1);
  list.set_parent("tenants/default/groups/-");
  EXPECT_EQ(handler_.List(list)->buffers_size(), 2) << "of all groups";
  list.set_page_size(1);
  EXPECT_NE(handler_.List(list)->next_page_token(), "");

  v1::GetBufferRequest get;
  get.set_name(g + "/buffers/b");
  EXPECT_TRUE(handler_.Get(get).ok());
  v1::DeleteBufferRequest remove;
  remove.set_name(get.name());
  EXPECT_TRUE(Ask(handler_, &BufferHandler::Delete, remove).status.ok());
  EXPECT_TRUE(absl::IsNotFound(handler_.Get(get).status()));
}

TEST_F(BufferHandlerTest, EveryCallNamesTheFieldThatIsWrong) {
  v1::ListBuffersRequest list;
  list.set_parent("tenants/default/groups/G");
  ExpectNamesField(handler_.List(list).status(), "parent");
  v1::GetBufferRequest get;
  ExpectNamesField(handler_.Get(get).status(), "name");
  v1::DeleteBufferRequest remove;
  ExpectNamesField(Ask(handler_, &BufferHandler::Delete, remove).status, "name");
}

}  // namespace
}  // namespace perigee
