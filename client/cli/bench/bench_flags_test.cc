#include "client/cli/bench/bench_flags.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace perigee {
namespace {

using ::testing::HasSubstr;

constexpr const char* kShape = "S16,H64,K2,E8";

absl::StatusOr<BenchRequest> Parse(std::vector<std::string> args, const std::string& address = "") {
  BenchFlags given;
  FlagSet flags("bench", "");
  DeclareBenchFlags(flags, given);
  if (absl::Status status = flags.Parse(args); !status.ok()) return status;
  return ParseBenchRequest(flags, given, address);
}

TEST(BenchFlags, HaveDefaults) {
  const auto request = Parse({"all", "--shape", kShape});
  ASSERT_TRUE(request.ok()) << request.status();
  const BenchOptions& options = request->options;
  EXPECT_EQ(options.ranks, 2);
  EXPECT_EQ(options.iterations, 20);
  EXPECT_EQ(options.warmup, 5);
  EXPECT_EQ(options.inputs, 3);
  EXPECT_TRUE(options.programmatic_launch);
  EXPECT_EQ(options.memory, RankMemory::kOneForAll) << "of one host";
  EXPECT_TRUE(options.wants("combine"));
}

TEST(BenchFlags, AreTaken) {
  const auto request = Parse({"dispatch",
                              "--shape",
                              kShape,
                              "--shape=S32,H64,K2,E8",
                              "--backend",
                              "cuda",
                              "--sms",
                              "24",
                              "--local-sms",
                              "48",
                              "--no-programmatic-launch",
                              "--high-priority",
                              "--seed",
                              "9",
                              "--ranks",
                              "4",
                              "--inputs",
                              "1",
                              "--warmup",
                              "0",
                              "--iterations",
                              "7"});
  ASSERT_TRUE(request.ok()) << request.status();
  const BenchOptions& options = request->options;
  ASSERT_EQ(request->shapes.size(), 2u);
  EXPECT_EQ(request->shapes[1].tokens, 32);
  EXPECT_EQ(options.ranks, 4);
  EXPECT_EQ(options.sms, 24);
  EXPECT_EQ(options.local_sms, 48);
  EXPECT_FALSE(options.programmatic_launch);
  EXPECT_TRUE(options.high_priority_stream);
  EXPECT_EQ(options.seed, 9u);
  EXPECT_EQ(options.routes.seed, 9u);
  EXPECT_EQ(options.memory, RankMemory::kOneForEach);
  EXPECT_FALSE(options.wants("combine"));
  EXPECT_EQ(Parse({"all", "--shape", kShape, "--backend", "cuda", "--shared-gpu"})->options.memory,
            RankMemory::kOneForAll);
  EXPECT_EQ(Parse({"all", "--shape", kShape, "--ranks", "8", "--solo"})->options.ranks, 1);
}

TEST(BenchFlags, SkewAndDepthAreTaken) {
  const auto request = Parse({"direct", "--shape", kShape, "--skew", "0.1", "--depth", "64"});
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_EQ(request->options.routes.skew, 0.1);
  EXPECT_EQ(request->options.depth, 64);
  EXPECT_FALSE(Parse({"all", "--shape", kShape})->options.routes.skew.has_value());
}

TEST(BenchFlags, WireHasRoutesOfItsOwn) {
  const auto request = Parse({"wire", "--shape", "S16,H64,K1,E8,P1"});
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_TRUE(request->options.routes.all_remote);
  EXPECT_TRUE(request->options.wants("dispatch"));
  EXPECT_FALSE(request->options.wants("plan"));
  EXPECT_FALSE(Parse({"all", "--shape", kShape})->options.routes.all_remote);
}

TEST(BenchFlags, WrongUseSaysWhatWasExpected) {
  const auto refused = [](std::vector<std::string> args, const char* why,
                          const std::string& address = "") {
    const auto request = Parse(std::move(args), address);
    ASSERT_FALSE(request.ok()) << why;
    EXPECT_THAT(std::string(request.status().message()), HasSubstr(why));
  };
  refused({"--shape", kShape}, "WHAT is missing");
  refused({"speed", "--shape", kShape},
          "WHAT is 'speed', expected "
          "plan|dispatch|wire|combine|staged|layer|prefetch|reduce|direct|pull|rings|all");
  refused({"all"}, "--shape is missing");
  refused({"all", "--shape", "S16"}, "--shape S16: H (elements of a row) is missing");
  refused({"all", "--shape", "S16,H64,K2,E7"}, "--shape S16,H64,K2,E7: ");
  for (const char* what : {"layer", "prefetch", "reduce", "rings"}) {
    refused({what, "--shape", kShape}, "such as I1024");
  }
  refused({"all", "--shape", kShape, "--output-slots", "2"}, "--output-slots is for rings");
  refused({"rings", "--shape", "S16,H64,K2,E8,I32", "--output-slots", "0"},
          "expected a number from 1 to 64");
  refused({"rings", "--shape", "S16,H64,K2,E8,I32", "--backend", "cuda", "--transport", "nccl"},
          "rings are for --transport nvlink");
  refused({"wire", "--shape", "S16,H64,K2,E8,P1"}, "expected K1 and P1");
  refused({"wire", "--shape", "S16,H64,K1,E8"}, "expected K1 and P1");
  refused({"wire", "--shape", "S16,H64,K1,E8,P1", "--solo"}, "expected 2 ranks or more");
  refused({"wire", "--shape", "S16,H64,K1,E8,P1", "--skew", "1"}, "--skew is not for wire");
  refused({"wire", "--shape", "S16,H64,K1,E8,P1", "--trace", "t"}, "--trace is not for wire");
  refused({"wire", "--shape", "S16,H64,K1,E8,P1", "--calibrate", "t"}, "not for wire");
  refused({"all", "--shape", kShape, "--layer", "0"}, "--layer is for --trace");
  refused({"all", "--shape", kShape, "--skew", "-1"},
          "--skew is '-1', expected a number from 0 to 20");
  refused({"all", "--shape", kShape, "--skew", "nan"}, "expected a number from 0 to 20");
  refused({"all", "--shape", kShape, "--skew", "1", "--trace", "t"}, "--skew is for random routes");
  refused({"combine", "--shape", kShape, "--calibrate", "t"},
          "--calibrate is for direct, pull, dispatch");
  refused({"all", "--shape", kShape, "--calibrate", ""}, "--calibrate is empty");
  refused({"all", "--shape", kShape, "--depth", "64"}, "--depth is for direct");
  refused({"direct", "--shape", kShape, "--depth", "20"},
          "--depth is 20, expected a multiple of 8");
  refused({"direct", "--shape", kShape, "--backend", "cuda", "--transport", "nccl"},
          "expected --transport nvlink");
  refused({"all", "--shape", kShape, "--sms", "4"}, "--sms is for --backend cuda");
  refused({"all", "--shape", kShape, "--shared-gpu"}, "--shared-gpu is for --backend cuda");
  refused({"all", "--shape", kShape, "--iterations", "0"}, "expected a number from 1 to 1000");
  refused({"all", "--shape", kShape, "--threads", "2"}, "for a cluster of its own", "localhost:1");
}

}  // namespace
}  // namespace perigee
