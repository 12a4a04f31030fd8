#include "client/cli/flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/cli/command.h"

namespace perigee {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Values {
  std::string input;
  std::string backend = "host";
  int32_t experts = 0;
  int32_t padding = 128;
  absl::optional<int32_t> slots;
  absl::optional<int64_t> memory;
  bool json = false;
};

class FlagsTest : public ::testing::Test {
 protected:
  FlagsTest() : flags_("thing", "Does a thing.") {
    flags_.Required("input", "FILE", "what to read", &values_.input);
    flags_.Required("experts", "E", "experts", &values_.experts, 1, 100);
    flags_.Optional("token-padding", "P", "rows", &values_.padding, 1);
    flags_.Optional("slots", "B", "slots", &values_.slots, 0);
    flags_.Optional("memory", "BYTES", "memory", &values_.memory);
    flags_.Choice("backend", {"host", "cuda"}, "backend", &values_.backend);
    flags_.Boolean("json", "print JSON", &values_.json);
  }
  std::string ErrorOf(const std::vector<std::string>& args) {
    std::vector<std::string> all = {"--input", "f", "--experts", "8"};
    all.insert(all.end(), args.begin(), args.end());
    return std::string(flags_.Parse(all).message());
  }

  Values values_;
  FlagSet flags_;
};

TEST_F(FlagsTest, BothForms) {
  const absl::Status status = flags_.Parse({"--input", "a b", "--experts=64", "--slots", "0",
                                            "--json", "--memory=1.5KiB", "--backend", "cuda"});
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(values_.input, "a b");
  EXPECT_EQ(values_.experts, 64);
  EXPECT_EQ(values_.padding, 128);
  EXPECT_EQ(values_.slots, 0);
  EXPECT_EQ(values_.memory, 1536);
  EXPECT_EQ(values_.backend, "cuda");
  EXPECT_TRUE(values_.json);
  EXPECT_TRUE(flags_.given("slots"));
  EXPECT_FALSE(flags_.given("token-padding"));
}

TEST_F(FlagsTest, ValuesMayBeEmptyOrNegativeOrHoldEquals) {
  EXPECT_EQ(ErrorOf({}), "");
  ASSERT_TRUE(flags_.Parse({"--input=", "--experts", "1"}).ok());
  EXPECT_EQ(values_.input, "");
  ASSERT_TRUE(flags_.Parse({"--input=a=b", "--experts", "1", "--json=false"}).ok());
  EXPECT_EQ(values_.input, "a=b");
  EXPECT_FALSE(values_.json);
  EXPECT_THAT(ErrorOf({"--slots", "-1"}), HasSubstr("--slots is '-1', expected a number, 0 or"));
}

TEST_F(FlagsTest, SaysWhatIsWrong) {
  EXPECT_EQ(ErrorOf({"--slot", "1"}), "unknown flag --slot, did you mean --slots?");
  EXPECT_EQ(ErrorOf({"--jsno"}), "unknown flag --jsno, did you mean --json?");
  EXPECT_EQ(ErrorOf({"--zzzzzzzz"}), "unknown flag --zzzzzzzz");
  EXPECT_EQ(ErrorOf({"-slots", "1"}), "unknown flag -slots, did you mean --slots?");
  EXPECT_EQ(ErrorOf({"--experts", "9"}), "--experts is given twice");
  EXPECT_EQ(ErrorOf({"--slots"}), "--slots needs a value: B");
  EXPECT_EQ(ErrorOf({"--slots", "--json"}), "--slots needs a value: B");
  EXPECT_EQ(ErrorOf({"--token-padding=x"}), "--token-padding is 'x', expected a number, 1 or more");
  EXPECT_EQ(ErrorOf({"--slots=99999999999"}),
            "--slots is '99999999999', expected a number, 0 or more");
  EXPECT_EQ(ErrorOf({"--backend", "tpu"}), "--backend is 'tpu', expected host|cuda");
  EXPECT_EQ(ErrorOf({"--json=yes"}), "--json is 'yes', expected true or false");
  EXPECT_EQ(ErrorOf({"extra"}), "unexpected argument 'extra'");
  EXPECT_EQ(std::string(flags_.Parse({"--input", "f"}).message()), "--experts is missing");
  EXPECT_EQ(std::string(flags_.Parse({"--input", "f", "--experts", "101"}).message()),
            "--experts is '101', expected a number from 1 to 100");
}

TEST_F(FlagsTest, Sizes) {
  const std::pair<const char*, int64_t> sizes[] = {{"0", 0},
                                                   {"17", 17},
                                                   {"80GiB", int64_t{80} << 30},
                                                   {"2TiB", int64_t{2} << 40},
                                                   {"0.5MiB", 1 << 19},
                                                   {"3GB", 3'000'000'000}};
  for (const auto& [text, bytes] : sizes) {
    EXPECT_EQ(ErrorOf({"--memory", text}), "") << text;
    EXPECT_EQ(values_.memory, bytes) << text;
  }
  for (const char* text : {"", "x", "GiB", "-1", "1e9", "nan", "8 GiB", "8gib", "9999999TiB"}) {
    EXPECT_THAT(ErrorOf({std::string("--memory=") + text}), HasSubstr("expected a size")) << text;
  }
}

TEST_F(FlagsTest, HelpNamesEveryFlag) {
  const std::string help = flags_.HelpText();
  for (const char* text :
       {"Usage: perigee thing --input FILE --experts E [FLAGS]", "what to read (required)",
        "--token-padding P", "(default 128)", "--backend host|cuda", "--json ", "--help"}) {
    EXPECT_THAT(help, HasSubstr(text));
  }
  EXPECT_EQ(flags_.ParseOrExit({"--nonsense", "--help"}), kDone);
  EXPECT_EQ(flags_.ParseOrExit({"--nonsense"}), kWrongUse);
  EXPECT_EQ(flags_.ParseOrExit({"--input", "f", "--experts", "1"}), absl::nullopt);
}

TEST(Arguments, TakenInOrder) {
  FlagSet flags("get", "Gets one.");
  std::string kind, name;
  std::vector<std::string> rest;
  bool json = false;
  flags.Positional("KIND", "what", &kind);
  flags.OptionalPositional("NAME", "which", &name);
  flags.Repeated("MORE", "more", &rest);
  flags.Boolean("json", "print JSON", &json);
  EXPECT_EQ(std::string(flags.Parse({}).message()), "argument KIND is missing");
  ASSERT_TRUE(flags.Parse({"group", "--json"}).ok());
  EXPECT_EQ(kind, "group");
  EXPECT_EQ(name, "");
  ASSERT_TRUE(flags.Parse({"group", "g1", "-", "--", "--json"}).ok());
  EXPECT_EQ(name, "g1");
  EXPECT_THAT(rest, ElementsAre("-", "--json"));
  EXPECT_THAT(flags.HelpText(), HasSubstr("Usage: perigee get KIND [NAME] [MORE...] [FLAGS]"));
}

TEST(FlagSet, AListTakesEveryValueInOrder) {
  std::vector<std::string> shapes;
  FlagSet flags("bench", "Measures.");
  flags.RequiredList("shape", "SHAPE", "what to measure", &shapes);
  EXPECT_TRUE(flags.Parse({"--shape", "a", "--shape=b", "--shape", "a"}).ok());
  EXPECT_EQ(shapes, (std::vector<std::string>{"a", "b", "a"}));
  EXPECT_EQ(flags.Parse({}).message(), "--shape is missing");
}

}  // namespace
}  // namespace perigee
