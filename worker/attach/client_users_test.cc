#include "worker/attach/client_users.h"

#include "gtest/gtest.h"

namespace perigee {
namespace {

constexpr PeerCredentials kOwn{100, 1000};
constexpr PeerCredentials kAllowed{101, 2000};
constexpr PeerCredentials kStranger{102, 3000};
constexpr PeerCredentials kRoot{103, 0};

TEST(ClientUsers, OnlyTheOwnUserUnlessOthersAreAllowed) {
  const ClientUsers own(1000, {});
  EXPECT_FALSE(own.others_allowed());
  EXPECT_TRUE(own.CheckUser(kOwn).ok());
  EXPECT_EQ(own.CheckUser(kAllowed).code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(own.CheckUser(kRoot).code(), absl::StatusCode::kPermissionDenied);
  const ClientUsers more(1000, {2000});
  EXPECT_TRUE(more.others_allowed());
  EXPECT_TRUE(more.CheckUser(kAllowed).ok());
  EXPECT_TRUE(more.CheckUser(kOwn).ok());
  EXPECT_EQ(more.CheckUser(kStranger).code(), absl::StatusCode::kPermissionDenied);
}

TEST(ClientUsers, TheSenderIsWhoConnected) {
  const ClientUsers users(1000, {2000});
  EXPECT_TRUE(users.CheckSender(kOwn, kOwn).ok());
  EXPECT_FALSE(users.CheckSender(kOwn, kAllowed).ok()) << "allowed, but another process";
  EXPECT_FALSE(users.CheckSender(kOwn, PeerCredentials{101, 1000}).ok()) << "passed on";
  EXPECT_FALSE(users.CheckSender(kOwn, PeerCredentials{100, 0}).ok()) << "has changed its user";
  EXPECT_FALSE(users.CheckSender(kStranger, kStranger).ok());
  EXPECT_FALSE(users.CheckSender(kOwn, absl::nullopt).ok());
}

}  // namespace
}  // namespace perigee
