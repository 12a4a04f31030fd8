#include "server/groups/placement.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace perigee {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

v1::Worker MakeWorker(const std::string& name, v1::Worker::State state = v1::Worker::READY,
                      const std::string& host = "hosts/a", const std::string& backend = "host") {
  v1::Worker worker;
  worker.set_name(name);
  worker.set_state(state);
  worker.set_host(host);
  worker.set_backend(backend);
  return worker;
}

TEST(PlaceRanks, TakesTheFirstReadyOnesByName) {
  const std::vector<v1::Worker> workers = {MakeWorker("w0", v1::Worker::ASSIGNED),
                                           MakeWorker("w1"),
                                           MakeWorker("w2", v1::Worker::LOST),
                                           MakeWorker("w3"),
                                           MakeWorker("w4", v1::Worker::READY, "hosts/a", "cuda"),
                                           MakeWorker("w5")};
  const auto placed = PlaceRanks(2, "host", {}, workers);
  ASSERT_TRUE(placed.ok()) << placed.status();
  EXPECT_THAT(*placed, ElementsAre("w1", "w3"));
}

TEST(PlaceRanks, TooFewSaysHowManyWereNeededAndThere) {
  const auto status = PlaceRanks(3, "host", {},
                                 {MakeWorker("w0"), MakeWorker("w1", v1::Worker::ASSIGNED),
                                  MakeWorker("w2", v1::Worker::LOST)})
                          .status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(status.message(),
            "needed 3 READY workers of backend host on one host; there are 1 (1 in other groups, 1 "
            "lost)");
}

TEST(PlaceRanks, KeepsAGroupOnOneHost) {
  const std::vector<v1::Worker> workers = {MakeWorker("w0", v1::Worker::READY, "hosts/a"),
                                           MakeWorker("w1", v1::Worker::READY, "hosts/b"),
                                           MakeWorker("w2", v1::Worker::READY, "hosts/b")};
  EXPECT_THAT(*PlaceRanks(2, "host", {}, workers), ElementsAre("w1", "w2"));
  const auto status = PlaceRanks(3, "host", {}, workers).status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("there are 3, at most 2 on one host"));
  EXPECT_EQ(PlaceRanks(2, "host", {"w0", "w1"}, workers).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST(PlaceRanks, TakesTheWantedOnesInTheirOrder) {
  const std::vector<v1::Worker> workers = {MakeWorker("w0"), MakeWorker("w1"),
                                           MakeWorker("w2", v1::Worker::ASSIGNED),
                                           MakeWorker("w3", v1::Worker::READY, "hosts/a", "cuda")};
  EXPECT_THAT(*PlaceRanks(2, "host", {"w1", "w0"}, workers), ElementsAre("w1", "w0"));
  const auto code = [&](std::vector<std::string> wanted) {
    return PlaceRanks(2, "host", wanted, workers).status().code();
  };
  EXPECT_EQ(code({"w0"}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({"w0", "w0"}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({"w0", "w9"}), absl::StatusCode::kNotFound);
  EXPECT_EQ(code({"w0", "w2"}), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(code({"w0", "w3"}), absl::StatusCode::kFailedPrecondition);
}

std::string Shown(const absl::optional<std::vector<RankWorker>>& placed) {
  if (!placed) return "none";
  std::string text;
  for (const RankWorker& rank : *placed) {
    text += std::to_string(rank.rank) + ":" + rank.worker + " ";
  }
  return text;
}

v1::Worker WithGpu(const std::string& name, const std::string& uuid,
                   const std::vector<std::string>& unreachable = {}) {
  v1::Worker worker = MakeWorker(name);
  worker.mutable_gpu()->set_uuid(uuid);
  for (const std::string& other : unreachable) worker.mutable_gpu()->add_unreachable(other);
  return worker;
}

TEST(CheckLinks, NvlinkNamesRanksThatCannotUseEachOthersMemory) {
  const std::vector<v1::Worker> workers = {WithGpu("w0", "a"), WithGpu("w1", "b", {"c"}),
                                           WithGpu("w2", "c"), MakeWorker("w3")};
  EXPECT_TRUE(CheckLinks("nvlink", {"w0", "w1", "w3"}, workers).ok());
  const absl::Status status = CheckLinks("nvlink", {"w0", "w2", "w1"}, workers);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("rank 2 (w1) and rank 1 (w2) cannot use each other's memory"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("transport nccl takes such ranks"));
  EXPECT_TRUE(CheckLinks("nccl", {"w0", "w2", "w1"}, workers).ok());
}

TEST(CheckLinks, NcclNamesRanksThatHaveOneGpu) {
  const std::vector<v1::Worker> workers = {WithGpu("w0", "a"), WithGpu("w1", "b"),
                                           WithGpu("w2", "b")};
  EXPECT_TRUE(CheckLinks("nvlink", {"w0", "w1", "w2"}, workers).ok());
  EXPECT_TRUE(CheckLinks("nccl", {"w0", "w1"}, workers).ok());
  const absl::Status status = CheckLinks("nccl", {"w0", "w1", "w2"}, workers);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("rank 1 (w1) and rank 2 (w2) have one GPU"));
}

const Survivors kOnA = {.host = "hosts/a"};

TEST(PlaceReplacements, PrefersTheSameName) {
  const std::vector<v1::Worker> workers = {MakeWorker("w1"), MakeWorker("w3"), MakeWorker("w9")};
  EXPECT_EQ(Shown(PlaceReplacements({{3, "w3"}}, "host", kOnA, workers)), "3:w3 ");
  EXPECT_EQ(Shown(PlaceReplacements({{2, "w2"}, {3, "w3"}}, "host", kOnA, workers)), "3:w3 2:w1 ");
}

TEST(PlaceReplacements, WaitsUntilEveryRankHasOne) {
  EXPECT_EQ(Shown(PlaceReplacements({{2, "w2"}, {3, "w3"}}, "host", kOnA, {MakeWorker("w2")})),
            "none");
}

TEST(PlaceReplacements, StaysOnTheSurvivorsHost) {
  const std::vector<v1::Worker> workers = {MakeWorker("w2", v1::Worker::READY, "hosts/b")};
  EXPECT_EQ(Shown(PlaceReplacements({{2, "w2"}}, "host", kOnA, workers)), "none");
  EXPECT_EQ(Shown(PlaceReplacements({{2, "w2"}}, "host", {}, workers)), "2:w2 ");
  EXPECT_EQ(Shown(PlaceReplacements({{2, "w2"}}, "cuda", {}, workers)), "none");
}

// With w0 on GPU a: w1 has come again on the same one, w2 is out of reach of it, w3 is not.
TEST(PlaceReplacements, GetOnWithTheSurvivorsAndEachOther) {
  const std::vector<v1::Worker> workers = {WithGpu("w0", "a"), WithGpu("w1", "a"),
                                           WithGpu("w2", "c", {"a"}), WithGpu("w3", "d"),
                                           WithGpu("w4", "d")};
  const auto place = [&](const std::vector<RankWorker>& lost, const char* transport) {
    std::vector<v1::Worker> free(workers.begin(), workers.end());
    free[0].set_state(v1::Worker::ASSIGNED);
    return Shown(PlaceReplacements(
        lost, "host", {.host = "hosts/a", .transport = transport, .workers = {"w0"}}, free));
  };
  EXPECT_EQ(place({{1, "w1"}}, "nvlink"), "1:w1 ");
  EXPECT_EQ(place({{1, "w1"}}, "nccl"), "1:w2 ");
  EXPECT_EQ(place({{1, "w2"}}, "nvlink"), "1:w1 ");
  EXPECT_EQ(place({{1, "w3"}, {2, "w4"}}, "nvlink"), "1:w3 2:w4 ");
  EXPECT_EQ(place({{1, "w3"}, {2, "w4"}}, "nccl"), "1:w3 2:w2 ");
  EXPECT_EQ(place({{1, "w2"}, {2, "w3"}, {3, "w4"}}, "nccl"), "none");
}

}  // namespace
}  // namespace perigee
