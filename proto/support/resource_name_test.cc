#include "proto/support/resource_name.h"

#include <string>

#include "gtest/gtest.h"

namespace perigee {
namespace {

TEST(ResourceName, FormatsAndParsesBack) {
  const std::string group = GroupName(kDefaultTenant, "g1");
  EXPECT_EQ(group, "tenants/default/groups/g1");
  const auto buffer = ParseBufferName(BufferName(group, "b-2"));
  ASSERT_TRUE(buffer.ok());
  EXPECT_EQ(buffer->buffer_id, "b-2");
  EXPECT_EQ(buffer->group.group_name(), group);
  const auto generation = ParseGenerationName(GenerationName(group, Generation(17)));
  ASSERT_TRUE(generation.ok());
  EXPECT_EQ(generation->generation, Generation(17));
  EXPECT_EQ(*ParseWorkerName(WorkerName("w0")), "w0");
  EXPECT_EQ(*ParseTenantName(kDefaultTenant), "default");
}

TEST(ResourceName, RefusesWhatIsNotAnId) {
  for (const char* id : {"", "-a", "A", "a_b", "a/b", "a b", "\xc3\xa4"}) {
    EXPECT_FALSE(IsValidId(id)) << id;
    EXPECT_FALSE(CheckId("worker name", id).ok()) << id;
  }
  EXPECT_TRUE(IsValidId(std::string(63, 'a')));
  EXPECT_FALSE(IsValidId(std::string(64, 'a')));
  EXPECT_TRUE(IsValidId("0-w"));
}

TEST(ResourceName, SaysWhichFormWasExpected) {
  const auto status = ParseGroupName("tenants/default/group/g1").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("tenants/{t}/groups/{g}"), absl::string_view::npos);
  EXPECT_FALSE(ParseWorkerName("workers/").ok());
  EXPECT_FALSE(ParseWorkerName("workers/a/b").ok());
  EXPECT_FALSE(ParseGenerationName("tenants/t/groups/g/generations/x").ok());
  EXPECT_FALSE(ParseGenerationName("tenants/t/groups/g/generations/99999999999999999999").ok());
}

}  // namespace
}  // namespace perigee
