#include "client/cli/doctor/network_checks.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace perigee {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

Finding Check(const NetworkFacts& facts, const std::string& name) {
  for (const Finding& finding : CheckNetwork(facts)) {
    if (finding.name == name) return finding;
  }
  return {.name = "none"};
}

NetworkFacts Healthy() {
  NetworkFacts facts;
  facts.address = "127.0.0.1:5000";
  return facts;
}

// Listens at a free port of 127.0.0.1 while it lives.
class Listener {
 public:
  Listener() : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(listen(fd_, 4), 0);
    EXPECT_EQ(getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    address_ = absl::StrCat("127.0.0.1:", ntohs(address.sin_port));
  }
  ~Listener() { close(fd_); }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;
  const std::string& address() const { return address_; }

 private:
  int fd_;
  std::string address_;
};

TEST(NetworkChecksTest, AHealthyNetworkIsOk) {
  NetworkFacts facts = Healthy();
  EXPECT_EQ(CheckNetwork(facts).size(), 2u);
  facts.named = "127.0.0.1:6000";
  EXPECT_EQ(CheckNetwork(facts).size(), 3u);
  for (const Finding& finding : CheckNetwork(facts)) {
    EXPECT_EQ(finding.state, FindingState::kOk) << finding.name << ": " << finding.found;
    EXPECT_THAT(finding.remedy, IsEmpty());
  }
}

TEST(NetworkChecksTest, WithoutLoopbackItFails) {
  NetworkFacts facts = Healthy();
  facts.loopback = absl::FailedPreconditionError("connect: Network is unreachable");
  const Finding finding = Check(facts, "loopback");
  EXPECT_EQ(finding.state, FindingState::kFail);
  EXPECT_THAT(finding.found, HasSubstr("Network is unreachable"));
  EXPECT_THAT(finding.remedy, HasSubstr("ip link set lo up"));
}

TEST(NetworkChecksTest, AnAddressThatCannotBeListenedAtFails) {
  const struct {
    absl::Status listening;
    const char* remedy;
  } cases[] = {
      {absl::AlreadyExistsError("bind"), "ss -ltnp 'sport = :5000'"},
      {absl::PermissionDeniedError("bind"), "a port of 1024 or above"},
      {absl::InvalidArgumentError("no"), "give an address of this machine and a port"},
      {absl::FailedPreconditionError("bind"), "ip -brief address"},
  };
  for (const auto& c : cases) {
    NetworkFacts facts = Healthy();
    facts.listening = c.listening;
    const Finding finding = Check(facts, "coordinator_address");
    EXPECT_EQ(finding.state, FindingState::kFail);
    EXPECT_THAT(finding.found, HasSubstr("127.0.0.1:5000: "));
    EXPECT_THAT(finding.remedy, HasSubstr(c.remedy));
  }
}

TEST(NetworkChecksTest, ACoordinatorThatDoesNotAnswerWarns) {
  NetworkFacts facts = Healthy();
  facts.named = "127.0.0.1:6000";
  facts.reached = absl::FailedPreconditionError("connect: Connection refused");
  const Finding finding = Check(facts, "perigee_address");
  EXPECT_EQ(finding.state, FindingState::kWarn);
  EXPECT_EQ(finding.found, "PERIGEE_ADDRESS=127.0.0.1:6000: connect: Connection refused");
  EXPECT_THAT(finding.remedy, HasSubstr("unset PERIGEE_ADDRESS"));
}

TEST(NetworkFactsTest, ThisMachineListensAndAnswers) {
  std::string gone;
  {
    const Listener listener;
    gone = listener.address();
    setenv("PERIGEE_ADDRESS", listener.address().c_str(), 1);
    const NetworkFacts facts = GatherNetworkFacts(listener.address());
    EXPECT_TRUE(facts.loopback.ok()) << facts.loopback;
    EXPECT_TRUE(absl::IsAlreadyExists(facts.listening)) << facts.listening;
    EXPECT_TRUE(facts.reached.ok()) << facts.reached;
  }
  const NetworkFacts facts = GatherNetworkFacts("127.0.0.1:0");
  EXPECT_TRUE(facts.listening.ok()) << facts.listening;
  EXPECT_EQ(facts.named, gone);
  EXPECT_FALSE(facts.reached.ok());
}

TEST(NetworkFactsTest, WhatIsNoAddressIsRefused) {
  for (const char* address : {"", "here", ":5000", "127.0.0.1:", "127.0.0.1:http", "127.0.0.1:-1",
                              "127.0.0.1:65536", "no.such.host.invalid:1"}) {
    const NetworkFacts facts = GatherNetworkFacts(address);
    EXPECT_TRUE(absl::IsInvalidArgument(facts.listening)) << address << ": " << facts.listening;
  }
  EXPECT_FALSE(GatherNetworkFacts("192.0.2.1:0").listening.ok()) << "an address of examples";
}

}  // namespace
}  // namespace perigee
