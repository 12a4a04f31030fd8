// `perigee plan` on whole recorded traces, where they are at hand: PERIGEE_SHARED_DATA names the
// folder (bazel test --test_env=PERIGEE_SHARED_DATA=...).
#include <gmock/gmock.h>
#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/json_util.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "client/cli/command.h"
#include "client/cli/run_cli.h"

namespace perigee {
namespace {

using ::testing::Each;
using ::testing::Le;

struct Trace {
  const char* file;
  int experts;
  int layers;
};

std::vector<int> Numbers(const google::protobuf::Value& list) {
  std::vector<int> numbers;
  for (const auto& value : list.list_value().values()) {
    numbers.push_back(static_cast<int>(value.number_value()));
  }
  return numbers;
}

void PlanAndCheck(const std::string& folder, const Trace& trace, int layer, int tokens, int ranks) {
  SCOPED_TRACE(std::string(trace.file) + " layer " + std::to_string(layer) + " tokens " +
               std::to_string(tokens) + " ranks " + std::to_string(ranks));
  const CliResult result =
      RunCli({"plan", "--input", folder + "/" + trace.file, "--layer", std::to_string(layer),
              "--tokens", std::to_string(tokens), "--ranks", std::to_string(ranks), "--experts",
              std::to_string(trace.experts), "--output", ::testing::TempDir() + "/plan", "--json"});
  ASSERT_EQ(result.status, kDone) << result.err;
  google::protobuf::Value json;
  ASSERT_TRUE(google::protobuf::util::JsonStringToMessage(result.out, &json).ok()) << result.out;
  const auto& fields = json.struct_value().fields();
  const std::vector<int> load = Numbers(fields.at("load"));
  EXPECT_EQ(load.size(), static_cast<size_t>(ranks));
  EXPECT_THAT(load, Each(tokens * 8));
  EXPECT_THAT(Numbers(fields.at("replicas")), Each(Le(trace.experts / ranks)));
  std::printf("%s layer %d tokens %d ranks %d: %.1f ms\n", trace.file, layer, tokens, ranks,
              fields.at("planning_ms").number_value());
}

TEST(Traces, EveryLayerBalancesExactly) {
  const char* folder = std::getenv("PERIGEE_SHARED_DATA");
  if (folder == nullptr) GTEST_SKIP() << "PERIGEE_SHARED_DATA is not set: no traces";
  constexpr Trace kTraces[] = {{"e64_k8.safetensors", 64, 6},
                               {"e64_k8_early.safetensors", 64, 6},
                               {"e256_k8.safetensors", 256, 4},
                               {"e256_k8_early.safetensors", 256, 4}};
  for (const Trace& trace : kTraces) {
    for (int layer = 0; layer < trace.layers; ++layer) {
      for (int tokens : {4096, 8192}) {
        for (int ranks : {2, 4, 8}) PlanAndCheck(folder, trace, layer, tokens, ranks);
      }
    }
  }
}

}  // namespace
}  // namespace perigee
