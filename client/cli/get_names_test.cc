#include "client/cli/get_names.h"

#include "gtest/gtest.h"

namespace perigee {
namespace {

std::string Full(ResourceKind kind, const std::string& text) {
  const auto name = ParseTypedName(kind, text);
  if (!name.ok()) return "refused";
  return (name->is_parent ? "parent " : "") + name->name;
}

TEST(GetNamesTest, KindsInBothNumbers) {
  EXPECT_EQ(*ParseResourceKind("workers"), ResourceKind::kWorker);
  EXPECT_EQ(*ParseResourceKind("generation"), ResourceKind::kGeneration);
  EXPECT_EQ(*ParseResourceKind("host"), ResourceKind::kHost);
  EXPECT_FALSE(ParseResourceKind("tenants").ok());
  EXPECT_FALSE(ParseResourceKind("").ok());
}

TEST(GetNamesTest, ShortNamesAreCompleted) {
  EXPECT_EQ(Full(ResourceKind::kHost, "Node.1"), "hosts/Node.1");
  EXPECT_EQ(Full(ResourceKind::kHost, "hosts/a"), "hosts/a");
  EXPECT_EQ(Full(ResourceKind::kWorker, "w0"), "workers/w0");
  EXPECT_EQ(Full(ResourceKind::kGroup, "g"), "tenants/default/groups/g");
  EXPECT_EQ(Full(ResourceKind::kBuffer, "g/b"), "tenants/default/groups/g/buffers/b");
  EXPECT_EQ(Full(ResourceKind::kGeneration, "g/7"), "tenants/default/groups/g/generations/7");
}

TEST(GetNamesTest, WholeNamesStay) {
  for (const auto& [kind, name] :
       {std::pair{ResourceKind::kWorker, "workers/w0"},
        std::pair{ResourceKind::kGroup, "tenants/t/groups/g"},
        std::pair{ResourceKind::kBuffer, "tenants/t/groups/g/buffers/b"},
        std::pair{ResourceKind::kGeneration, "tenants/t/groups/g/generations/7"}}) {
    EXPECT_EQ(Full(kind, name), name);
  }
}

TEST(GetNamesTest, AGroupStandsForItsBuffersAndGenerations) {
  EXPECT_EQ(Full(ResourceKind::kBuffer, "g"), "parent tenants/default/groups/g");
  EXPECT_EQ(Full(ResourceKind::kGeneration, "tenants/t/groups/g"), "parent tenants/t/groups/g");
}

TEST(GetNamesTest, OtherNamesAreRefused) {
  EXPECT_EQ(Full(ResourceKind::kWorker, "W 0"), "refused");
  EXPECT_EQ(Full(ResourceKind::kWorker, "workers/a/b"), "refused");
  EXPECT_EQ(Full(ResourceKind::kBuffer, "g/b/c"), "refused");
  EXPECT_EQ(Full(ResourceKind::kGeneration, "g/x"), "refused");
}

}  // namespace
}  // namespace perigee
