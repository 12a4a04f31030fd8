#include "client/cli/estimate_command.h"

#include <gmock/gmock.h>
#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/json_util.h>
#include <gtest/gtest.h>

#include "client/cli/run_cli.h"

namespace perigee {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const std::vector<std::string> kGroup = {"estimate", "--tokens", "256", "--hidden",
                                         "256",      "--topk",   "8",   "--experts",
                                         "64",       "--ranks",  "8"};

CliResult Estimate(const std::vector<std::string>& more) {
  std::vector<std::string> args = kGroup;
  args.insert(args.end(), more.begin(), more.end());
  return RunCli(args);
}

TEST(EstimateCommand, SaysWhetherItFits) {
  // Rows of 512 bytes: the hidden shard is 4080 of them, in all a rank takes some 4.5 MiB.
  const CliResult fits = Estimate({"--memory", "8MiB"});
  EXPECT_EQ(fits.status, kDone);
  EXPECT_THAT(fits.out, HasSubstr("hidden_shard"));
  EXPECT_THAT(fits.out, HasSubstr("1.99 MiB"));
  EXPECT_THAT(fits.out, HasSubstr("\nfits the given memory of each rank: "));
  EXPECT_THAT(fits.out, HasSubstr("expert weights are left out"));
  const CliResult tight = Estimate({"--memory", "4MiB"});
  EXPECT_EQ(tight.status, kDone);
  EXPECT_THAT(tight.out, HasSubstr("\nDOES NOT FIT the given memory of each rank: "));
  EXPECT_THAT(Estimate({}).out, HasSubstr("this machine's memory, shared by all ranks"));
}

TEST(EstimateCommand, JsonAddsUp) {
  const CliResult result = Estimate({"--intermediate", "64", "--layers", "2", "--json"});
  ASSERT_EQ(result.status, kDone) << result.err;
  google::protobuf::Value json;
  ASSERT_TRUE(google::protobuf::util::JsonStringToMessage(result.out, &json).ok()) << result.out;
  const auto& fields = json.struct_value().fields();
  double sum = 0;
  for (const auto& [name, bytes] : fields.at("buffer_bytes_per_rank").struct_value().fields()) {
    sum += bytes.number_value();
  }
  const auto number = [&](const char* key) { return fields.at(key).number_value(); };
  EXPECT_EQ(number("bytes_per_rank"), sum);
  EXPECT_EQ(number("bytes_total"), 8 * sum);
  EXPECT_EQ(number("forming_bytes_per_rank"), sum + number("shard_bytes_per_rank"));
  EXPECT_EQ(number("forming_bytes_total"), 8 * number("forming_bytes_per_rank"));
  EXPECT_EQ(number("needed_bytes"), number("forming_bytes_total"));
  EXPECT_EQ(number("slots"), 8);  // experts / ranks
  EXPECT_EQ(fields.at("memory_of").string_value(), "machine");
  EXPECT_GT(number("memory_bytes"), 1 << 20);
}

TEST(EstimateCommand, GradientsAreHeldWhereAskedFor) {
  const std::vector<std::string> weights = {"--intermediate", "64", "--layers", "2"};
  EXPECT_THAT(Estimate(weights).out, Not(HasSubstr("gradients")));
  std::vector<std::string> wanted = weights;
  wanted.push_back("--gradients");
  const CliResult text = Estimate(wanted);
  EXPECT_EQ(text.status, kDone) << text.err;
  EXPECT_THAT(text.out, HasSubstr("expert_gradients"));
  EXPECT_THAT(text.out, HasSubstr("slot_gradients"));
  wanted.push_back("--json");
  const std::string json = Estimate(wanted).out;
  EXPECT_THAT(json, HasSubstr("\"gradients\": true"));
  EXPECT_THAT(json, HasSubstr("\"expert_gradients\": 3145728"));  // 2 layers of 8 x 3 x 256 x 64
  EXPECT_THAT(json, HasSubstr("\"slot_gradients\": 1572864"));
}

TEST(EstimateCommand, WeightsTakeWhatTheirFormatTakes) {
  const auto slots = [](std::vector<std::string> more) {
    more.insert(more.end(), {"--intermediate", "64", "--json"});
    const std::string json = Estimate(more).out;
    const std::string key = "\"expert_slots\": ";
    return std::stoll(json.substr(json.find(key) + key.size()));
  };
  const int64_t elements = 8 * 3 * 256 * 64;
  EXPECT_EQ(slots({}), 2 * elements + 4096);
  EXPECT_EQ(slots({"--weight-format", "bf16"}), 2 * elements + 4096);
  EXPECT_EQ(slots({"--weight-format", "8bit"}), elements + 4096);
  EXPECT_EQ(slots({"--weight-format", "mxfp4", "--weight-scales"}),
            elements / 2 + elements / 32 + 4096);
  const std::string json = Estimate({"--weight-format", "mxfp4", "--json"}).out;
  EXPECT_THAT(json, HasSubstr("\"weight_format\": \"mxfp4\""));
  EXPECT_THAT(json, HasSubstr("\"weight_scales\": false"));
}

TEST(EstimateCommand, ASourceIsHeldWhereAskedFor) {
  EXPECT_THAT(Estimate({}).out, Not(HasSubstr("source")));
  const std::string off = Estimate({"--json"}).out;
  EXPECT_THAT(off, HasSubstr("\"source\": false"));
  EXPECT_THAT(off, Not(HasSubstr("source_shard")));
  EXPECT_THAT(Estimate({"--source"}).out, HasSubstr("source_shard"));
  const std::string json = Estimate({"--source", "--json"}).out;
  EXPECT_THAT(json, HasSubstr("\"source\": true"));
  EXPECT_THAT(json, HasSubstr("\"source_shard\": "));
}

TEST(EstimateCommand, WrongUse) {
  const std::pair<std::vector<std::string>, const char*> cases[] = {
      {{"--slots", "-1"}, "--slots is '-1'"},
      {{"--intermediate", "12"}, "intermediate is 12, expected a multiple of 8"},
      {{"--weight-format", "fp8"}, "--weight-format is 'fp8'"},
      {{"--weight-scales"}, "weight scales are wanted and the weights are bf16"},
      {{"--weight-scales", "--weight-format", "8bit"}, "intermediate is 0"},
      {{"--gradients"}, "gradients are wanted and intermediate is 0"},
      {{"--intermediate", "8", "--gradients", "--slots", "7"}, "slots is 7, expected at least"},
      {{"--layers", "0"}, "layers is 0, expected 1 to 1024"},
      {{"--token-padding", "2147483647"}, "expected less than 2^31"},
  };
  for (const auto& [more, message] : cases) {
    const CliResult result = Estimate(more);
    EXPECT_EQ(result.status, kWrongUse) << message;
    EXPECT_THAT(result.err, HasSubstr(message));
    EXPECT_EQ(LineCount(result.err), 2);
  }
  const CliResult odd = RunCli({"estimate", "--tokens", "1", "--hidden", "8", "--topk", "1",
                                "--experts", "9", "--ranks", "2"});
  EXPECT_EQ(odd.status, kWrongUse);
  EXPECT_THAT(odd.err, HasSubstr("experts is 9, expected a multiple of ranks (2)"));
}

}  // namespace
}  // namespace perigee
