#include "client/lib/c_cluster.h"

#include <cstddef>
#include <cstring>
#include <memory>
#include <utility>

#include "client/lib/fake_connection.h"
#include "client/lib/perigee.h"
#include "gtest/gtest.h"

namespace perigee {
namespace {

class CClusterTest : public ::testing::Test {
 protected:
  CClusterTest() {
    auto fake = std::make_unique<FakeConnection>();
    fake_ = fake.get();
    cluster_.client = std::make_unique<Client>(std::move(fake));
  }

  // What the coordinator is asked for by a caller that knows the first `bytes` of the struct.
  v1::Buffer Ask(size_t bytes) {
    shape_.struct_bytes = static_cast<uint32_t>(bytes);
    char name[PERIGEE_NAME_BYTES];
    EXPECT_EQ(perigee_create_buffer(&cluster_, "g", "b", &shape_, name, nullptr), PERIGEE_OK);
    return fake_->create_buffer_requests.back().buffer();
  }

  perigee_buffer_shape shape_{};
  perigee_cluster cluster_;
  FakeConnection* fake_;  // owned by cluster_
};

TEST_F(CClusterTest, ABufferCarriesEveryOption) {
  shape_.expert_output_slots = 3;
  shape_.operation_timeout_ms = 1500;
  shape_.warmup_timeout_ms = 7001;
  shape_.sms = 12;
  shape_.local_sms = 34;
  shape_.no_programmatic_launch = 1;
  shape_.high_priority_stream = 1;
  const v1::Buffer buffer = Ask(sizeof(shape_));
  EXPECT_EQ(buffer.shape().expert_output_slots(), 3);
  EXPECT_EQ(buffer.operation_timeout_ms(), 1500);
  EXPECT_EQ(buffer.warmup_timeout_ms(), 7001);
  EXPECT_EQ(buffer.sms(), 12);
  EXPECT_EQ(buffer.local_sms(), 34);
  EXPECT_TRUE(buffer.no_programmatic_launch());
  EXPECT_TRUE(buffer.high_priority_stream());
}

TEST_F(CClusterTest, ACallerOfAnEarlierVersionGetsTheDefaults) {
  std::memset(&shape_, 0x5a, sizeof(shape_));  // what lies behind its struct is not its
  const v1::Buffer buffer = Ask(offsetof(perigee_buffer_shape, operation_timeout_ms));
  EXPECT_EQ(buffer.shape().expert_output_slots(), 0x5a5a5a5a);
  EXPECT_EQ(buffer.operation_timeout_ms(), 0);
  EXPECT_EQ(buffer.warmup_timeout_ms(), 0);
  EXPECT_EQ(buffer.sms(), 0);
  EXPECT_EQ(buffer.local_sms(), 0);
  EXPECT_FALSE(buffer.no_programmatic_launch());
  EXPECT_FALSE(buffer.high_priority_stream());
  const v1::Buffer first = Ask(offsetof(perigee_buffer_shape, gradients));
  EXPECT_EQ(first.shape().layers(), 0x5a5a5a5a);
  EXPECT_FALSE(first.shape().gradients());
  EXPECT_EQ(first.shape().expert_output_slots(), 0);
}

TEST_F(CClusterTest, AStructThatIsTooShortIsRefused) {
  shape_.struct_bytes = offsetof(perigee_buffer_shape, gradients) - 1;
  char name[PERIGEE_NAME_BYTES];
  perigee_error error{};
  error.struct_bytes = sizeof(error);
  EXPECT_EQ(perigee_create_buffer(&cluster_, "g", "b", &shape_, name, &error),
            PERIGEE_INVALID_ARGUMENT);
  EXPECT_STREQ(error.message, "shape has struct_bytes 35, expected at least 36");
  EXPECT_TRUE(fake_->create_buffer_requests.empty());
}

}  // namespace
}  // namespace perigee
