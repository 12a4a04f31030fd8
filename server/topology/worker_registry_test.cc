#include "server/topology/worker_registry.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/layout/abi.h"

namespace perigee {
namespace {

using ::testing::HasSubstr;

constexpr const char* kFirst = "1f00aa2100000001";
constexpr const char* kSecond = "9bc31e0700000002";

v1::Worker Description(const std::string& name, const std::string& incarnation) {
  v1::Worker worker;
  worker.set_name(name);
  worker.set_incarnation(incarnation);
  worker.set_host("hosts/h");
  worker.set_backend("host");
  worker.set_address("127.0.0.1:1");
  worker.set_socket_path("/run/w.sock");
  worker.set_data_path_abi(kDataPathAbi);
  return worker;
}

template <typename Effect>
std::vector<Effect> Only(const std::vector<TopologyEffect>& effects) {
  std::vector<Effect> found;
  for (const TopologyEffect& effect : effects) {
    if (const auto* match = std::get_if<Effect>(&effect)) found.push_back(*match);
  }
  return found;
}

class WorkerRegistryTest : public ::testing::Test {
 protected:
  std::vector<TopologyEffect> Do(const TopologyEvent& event) {
    auto effects = registry.Step(event, now);
    EXPECT_TRUE(effects.ok()) << effects.status();
    return effects.ok() ? *effects : std::vector<TopologyEffect>{};
  }
  absl::Status Refused(const TopologyEvent& event) { return registry.Step(event, now).status(); }
  // In steps that no reader can take for a stall.
  std::vector<TopologyEffect> Wait(absl::Duration duration) {
    std::vector<TopologyEffect> all;
    const absl::Duration end = now + duration;
    while (now < end) {
      now = std::min(end, now + absl::Milliseconds(100));
      for (const TopologyEffect& effect : Do(ClockMoved{})) all.push_back(effect);
    }
    return all;
  }
  // Registered, with both streams open as streams base and base + 1.
  void Join(const std::string& name, const std::string& incarnation, StreamId base) {
    Do(RegisterWorker{Description(name, incarnation), absl::UnixEpoch()});
    Do(OpenStream{name, incarnation, WorkerStream::kLease, base});
    Do(OpenStream{name, incarnation, WorkerStream::kCommands, base + 1});
  }
  v1::Worker::State StateOf(const std::string& name) { return registry.Find(name)->state(); }

  LeaseTimes times;
  WorkerRegistry registry{times};
  absl::Duration now = absl::Hours(1);
};

TEST_F(WorkerRegistryTest, GivenAnotherAbiWhenItRegistersThenBothNumbersAreNamed) {
  v1::Worker worker = Description("workers/w0", kFirst);
  worker.set_data_path_abi(kDataPathAbi + 41);
  const absl::Status status = Refused(RegisterWorker{worker, absl::UnixEpoch()});
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr(std::to_string(kDataPathAbi + 41)));
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("coordinator has " + std::to_string(kDataPathAbi)));
  EXPECT_EQ(registry.Find("workers/w0"), nullptr);
}

TEST_F(WorkerRegistryTest, GivenMalformedFieldsWhenItRegistersThenTheMessageSaysWhatWasExpected) {
  const auto refused = [&](auto change, const char* expected) {
    v1::Worker worker = Description("workers/w0", kFirst);
    change(worker);
    const absl::Status status = Refused(RegisterWorker{worker, absl::UnixEpoch()});
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(expected));
  };
  refused([](v1::Worker& w) { w.set_name("w0"); }, "workers/{w}");
  refused([](v1::Worker& w) { w.set_name("workers/W0"); }, "workers/{w}");
  refused([](v1::Worker& w) { w.set_incarnation("12"); }, "16 lower-case hex digits");
  refused([](v1::Worker& w) { w.set_incarnation("000000000000000G"); }, "hex");
  refused([](v1::Worker& w) { w.set_backend("tpu"); }, "host or cuda");
  refused([](v1::Worker& w) { w.clear_address(); }, "host:port");
  refused([](v1::Worker& w) { w.clear_socket_path(); }, "socket_path");
  refused([](v1::Worker& w) { w.set_device(std::string(2000, 'x')); }, "at most 1024");
  refused([](v1::Worker& w) { w.mutable_gpu()->set_pci(std::string(2000, 'x')); }, "at most 1024");
  refused([](v1::Worker& w) { w.mutable_gpu()->add_peers(std::string(2000, 'x')); }, "gpu is");
  refused(
      [](v1::Worker& w) {
        for (int i = 0; i < 300; ++i) w.mutable_gpu()->add_unreachable("GPU-x");
      },
      "300 other GPUs, expected at most 256");
}

TEST_F(WorkerRegistryTest, GivenALostReplyWhenTheSameIncarnationRegistersAgainThenNothingChanges) {
  Join("workers/w0", kFirst, 1);
  Do(AssignWorker{"workers/w0", "tenants/default/groups/g", 3});
  EXPECT_TRUE(Do(RegisterWorker{Description("workers/w0", kFirst), absl::UnixEpoch()}).empty());
  EXPECT_EQ(StateOf("workers/w0"), v1::Worker::ASSIGNED);
  EXPECT_EQ(registry.Find("workers/w0")->rank(), 3);
}

TEST_F(WorkerRegistryTest, GivenAWorkerWhenAnotherIncarnationRegistersThenTheOldOneIsAborted) {
  Join("workers/w0", kFirst, 1);
  Do(AssignWorker{"workers/w0", "tenants/default/groups/g", 0});

  const auto effects = Do(RegisterWorker{Description("workers/w0", kSecond), absl::UnixEpoch()});

  const auto ended = Only<EndStream>(effects);
  ASSERT_EQ(ended.size(), 2u);
  for (const EndStream& end : ended) EXPECT_TRUE(absl::IsAborted(end.status)) << end.status;
  const auto lost = Only<WorkerLost>(effects);
  ASSERT_EQ(lost.size(), 1u);
  EXPECT_EQ(lost[0].incarnation, kFirst);
  EXPECT_EQ(lost[0].reason, "it restarted: incarnation 9bc31e07 registered in place of 1f00aa21");
  EXPECT_EQ(lost[0].group, "tenants/default/groups/g");
  EXPECT_EQ(Only<WorkerReady>(effects).size(), 1u);
  EXPECT_EQ(StateOf("workers/w0"), v1::Worker::READY);
  EXPECT_TRUE(registry.Find("workers/w0")->group().empty());
  // The old process finds out wherever it asks, and cannot take the name back.
  EXPECT_TRUE(absl::IsAborted(Refused(OpenStream{"workers/w0", kFirst, WorkerStream::kLease, 9})));
  EXPECT_TRUE(absl::IsAborted(Refused(TakeHeartbeat{1})));
  EXPECT_TRUE(absl::IsAborted(
      Refused(RegisterWorker{Description("workers/w0", kFirst), absl::UnixEpoch()})));
  EXPECT_EQ(registry.Find("workers/w0")->incarnation(), kSecond);
}

TEST_F(WorkerRegistryTest, GivenARankThenItsLastHeartbeatSaysWhatItHasSent) {
  Join("workers/w0", kFirst, 1);
  const auto beat = [&](const std::string& group, uint64_t bytes) {
    TakeHeartbeat heartbeat{1, v1::TransportCounts()};
    heartbeat.transport->set_group(group);
    heartbeat.transport->add_bytes_sent(bytes);
    Do(heartbeat);
    return registry.Find("workers/w0");
  };
  EXPECT_FALSE(beat("g", 1)->has_transport()) << "it is a rank of none";
  Do(AssignWorker{"workers/w0", "g", 0});
  EXPECT_EQ(beat("g", 2)->transport().bytes_sent(0), 2u);
  EXPECT_EQ(beat("g", 3)->transport().bytes_sent(0), 3u);
  EXPECT_FALSE(beat("another", 4)->has_transport());
  beat("g", 5);
  Do(TakeHeartbeat{1});
  EXPECT_FALSE(registry.Find("workers/w0")->has_transport()) << "its session has ended";
  beat("g", 6);
  Do(ReleaseWorker{"workers/w0", "g"});
  EXPECT_FALSE(registry.Find("workers/w0")->has_transport());
}

TEST_F(WorkerRegistryTest, GivenHeartbeatsWhenTheyStopThenTheLeaseEndsOneTermAfterTheLast) {
  Join("workers/w0", kFirst, 1);
  for (int i = 0; i < 40; ++i) {
    EXPECT_TRUE(Wait(times.heartbeat_interval).empty());
    Do(TakeHeartbeat{1});
  }
  EXPECT_TRUE(Wait(times.lease_duration - absl::Milliseconds(1)).empty());
  const auto effects = Wait(absl::Milliseconds(1));
  ASSERT_EQ(Only<WorkerLost>(effects).size(), 1u);
  EXPECT_EQ(Only<WorkerLost>(effects)[0].reason, "no heartbeat for 2s");
  EXPECT_EQ(Only<EndStream>(effects).size(), 2u);
  EXPECT_EQ(StateOf("workers/w0"), v1::Worker::LOST);
  EXPECT_EQ(registry.Find("workers/w0")->lost_reason(), "no heartbeat for 2s");
}

TEST_F(WorkerRegistryTest, GivenABrokenStreamWhenItReopensWithinTheGraceThenNobodyIsLost) {
  for (const StreamId broken : {1, 2}) {
    Join("workers/w0", broken == 1 ? kFirst : kSecond, 10 * broken);
    const StreamId stream = 10 * broken + (broken - 1);
    Do(CloseStream{stream, false});
    EXPECT_TRUE(Wait(times.reconnect_grace - absl::Milliseconds(1)).empty());
    const WorkerStream kind = broken == 1 ? WorkerStream::kLease : WorkerStream::kCommands;
    Do(OpenStream{"workers/w0", broken == 1 ? kFirst : kSecond, kind, 100 * broken});
    EXPECT_TRUE(
        Wait(times.lease_duration - times.reconnect_grace - absl::Milliseconds(100)).empty());
  }
}

TEST_F(WorkerRegistryTest, GivenABrokenStreamWhenTheGraceEndsThenTheWorkerIsLost) {
  for (const bool orderly : {false, true}) {
    const std::string name = orderly ? "workers/w1" : "workers/w0";
    Join(name, kFirst, orderly ? 11 : 1);
    Do(CloseStream{orderly ? StreamId{12} : StreamId{1}, orderly});
    const auto lost = Only<WorkerLost>(Wait(times.reconnect_grace));
    ASSERT_EQ(lost.size(), 1u);
    EXPECT_EQ(lost[0].reason, orderly ? "it left" : "its connection broke");
    EXPECT_TRUE(
        absl::IsAborted(Refused(RegisterWorker{Description(name, kFirst), absl::UnixEpoch()})));
  }
}

TEST_F(WorkerRegistryTest, GivenASecondStreamWhenTheFirstClosesThenTheSecondCounts) {
  Join("workers/w0", kFirst, 1);
  const auto effects = Do(OpenStream{"workers/w0", kFirst, WorkerStream::kCommands, 7});
  ASSERT_EQ(Only<EndStream>(effects).size(), 1u);
  EXPECT_EQ(Only<EndStream>(effects)[0].stream, 2u);
  Do(CloseStream{2, false});
  EXPECT_TRUE(Wait(times.reconnect_grace * 2).empty());
}

TEST_F(WorkerRegistryTest, GivenNoCommandStreamWhenOneTermHasPassedThenHeartbeatsDoNotHelp) {
  Do(RegisterWorker{Description("workers/w0", kFirst), absl::UnixEpoch()});
  Do(OpenStream{"workers/w0", kFirst, WorkerStream::kLease, 1});
  for (int i = 0; i < 7; ++i) {
    EXPECT_TRUE(Wait(times.heartbeat_interval).empty());
    Do(TakeHeartbeat{1});
  }
  EXPECT_EQ(Only<WorkerLost>(Wait(times.heartbeat_interval)).size(), 1u);
}

TEST_F(WorkerRegistryTest, GivenThisProcessWasStoppedWhenItGoesOnThenEveryLeaseGetsAFullTerm) {
  Join("workers/w0", kFirst, 1);
  now += absl::Minutes(1);
  EXPECT_TRUE(Do(ClockMoved{}).empty());
  EXPECT_TRUE(Wait(times.lease_duration - absl::Milliseconds(1)).empty());
  EXPECT_EQ(Only<WorkerLost>(Wait(absl::Milliseconds(1))).size(), 1u);
}

TEST_F(WorkerRegistryTest, GivenNobodyWhenAWorkerJoinsLateThenItsLeaseIsOfTheUsualLength) {
  now += absl::Hours(5);
  Join("workers/w0", kFirst, 1);
  EXPECT_EQ(Only<WorkerLost>(Wait(times.lease_duration)).size(), 1u);
}

TEST_F(WorkerRegistryTest, GivenAnUnknownNameWhenAStreamOpensThenItIsToldToRegister) {
  const absl::Status status = Refused(OpenStream{"workers/w9", kFirst, WorkerStream::kCommands, 1});
  EXPECT_TRUE(absl::IsNotFound(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("register it first"));
}

TEST_F(WorkerRegistryTest, GivenAnAssignedWorkerWhenReleasedByItsGroupOnlyThenItIsReady) {
  Join("workers/w0", kFirst, 1);
  Do(AssignWorker{"workers/w0", "g1", 0});
  EXPECT_TRUE(absl::IsFailedPrecondition(Refused(AssignWorker{"workers/w0", "g2", 0})));
  EXPECT_TRUE(Do(ReleaseWorker{"workers/w0", "g2"}).empty());
  EXPECT_EQ(StateOf("workers/w0"), v1::Worker::ASSIGNED);
  EXPECT_EQ(Only<WorkerReady>(Do(ReleaseWorker{"workers/w0", "g1"})).size(), 1u);
  EXPECT_EQ(StateOf("workers/w0"), v1::Worker::READY);
}

TEST_F(WorkerRegistryTest, NextDeadlineIsNeverLateAndNeverOnWithNobodyLive) {
  EXPECT_EQ(registry.NextDeadline(), absl::InfiniteDuration());
  Join("workers/w0", kFirst, 1);
  Do(CloseStream{2, false});
  EXPECT_EQ(registry.NextDeadline(), now + times.reconnect_grace);
  Wait(times.reconnect_grace);
  EXPECT_EQ(registry.NextDeadline(), absl::InfiniteDuration());
}

TEST_F(WorkerRegistryTest, ListIsInOrderOfName) {
  Join("workers/b", kFirst, 1);
  Join("workers/a", kFirst, 3);
  const auto list = registry.List();
  ASSERT_EQ(list.size(), 2u);
  EXPECT_EQ(list[0].name(), "workers/a");
}

}  // namespace
}  // namespace perigee
