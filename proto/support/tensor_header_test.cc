#include "proto/support/tensor_header.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

namespace perigee {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

TEST(TensorHeader, ParsesTensorsByOffsetAndMetadata) {
  const auto header = ParseTensorHeader(
      R"({"b" : {"dtype":"F32","shape":[2,3],"data_offsets":[6,30]},
          "a":{"data_offsets":[0,6],"shape":[3],"dtype":"BF16"},
          "none":{"dtype":"I64","shape":[4,0],"data_offsets":[6,6]},
          "scalar":{"dtype":"U8","shape":[],"data_offsets":[30,31]},
          "__metadata__":{"layout":"rows\n\u00e9\ud83d\ude00","v":"1"}}   )");
  ASSERT_TRUE(header.ok()) << header.status();
  ASSERT_EQ(header->tensors.size(), 4u);
  EXPECT_EQ(header->tensors[0].name, "a");
  EXPECT_EQ(header->tensors[1].name, "none");
  EXPECT_EQ(header->tensors[1].elements(), 0);
  EXPECT_EQ(header->tensors[2].Describe(), "F32 [2, 3]");
  EXPECT_EQ(header->tensors[2].elements(), 6);
  EXPECT_EQ(header->tensors[3].elements(), 1);
  EXPECT_EQ(header->data_bytes(), 31);
  EXPECT_THAT(header->metadata,
              ElementsAre(Pair("layout", "rows\n\xc3\xa9\xf0\x9f\x98\x80"), Pair("v", "1")));
}

TEST(TensorHeader, EveryDtypeHasItsNameAndSize) {
  const std::pair<const char*, int64_t> dtypes[] = {
      {"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E4M3", 1}, {"F8_E5M2", 1},
      {"U16", 2},  {"I16", 2}, {"F16", 2}, {"BF16", 2},    {"U32", 4},
      {"I32", 4},  {"F32", 4}, {"U64", 8}, {"I64", 8},     {"F64", 8}};
  for (const auto& [name, bytes] : dtypes) {
    const auto dtype = ParseDtype(name);
    ASSERT_TRUE(dtype.ok()) << name;
    EXPECT_EQ(DtypeName(*dtype), name);
    EXPECT_EQ(DtypeBytes(*dtype), bytes) << name;
  }
  EXPECT_THAT(std::string(ParseDtype("i32").status().message()),
              HasSubstr("dtype \"i32\", expected one of BOOL U8"));
}

TEST(TensorHeader, ComesBackAsWritten) {
  TensorHeader header;
  header.metadata = {{"quote\"", "back\\slash\ttab"}, {"", ""}};
  header.tensors = {{"a", TensorDtype::kF16, {2}, 0, 4}, {"z\n", TensorDtype::kI8, {}, 4, 1}};
  const std::string text = FormatTensorHeader(header);
  EXPECT_EQ(text.size() % 8, 0u);
  const auto parsed = ParseTensorHeader(text);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->metadata, header.metadata);
  ASSERT_EQ(parsed->tensors.size(), 2u);
  EXPECT_EQ(parsed->tensors[1].name, "z\n");
  EXPECT_EQ(FormatTensorHeader(*parsed), text);
}

void ExpectRefused(absl::string_view json, const std::string& what) {
  const auto header = ParseTensorHeader(json);
  ASSERT_FALSE(header.ok()) << json;
  EXPECT_EQ(header.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(header.status().message()), HasSubstr(what)) << json;
}

TEST(TensorHeader, RefusesWhatIsNoHeader) {
  ExpectRefused("", "byte 0: expected {");
  ExpectRefused("[]", "byte 0: expected {");
  ExpectRefused("{} x", "expected nothing more");
  ExpectRefused("{", "expected a string");
  ExpectRefused(R"({"a":1})", "byte 5: expected {");
  ExpectRefused(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},})", "expected a string");
  ExpectRefused(R"({"a":{"dtype":"U8","shape":[1]}})", "expected dtype, shape and data_offsets");
  ExpectRefused(R"({"a":{"dtype":"U8","dtype":"U8"}})", "once each");
  ExpectRefused(R"({"a":{"extra":"U8"}})", "key \"extra\"");
  ExpectRefused(R"({"__metadata__":{"a":1}})", "expected a string");
  ExpectRefused(R"({"__metadata__":{"a":"1","a":"2"}})", "metadata key \"a\" stands there twice");
  ExpectRefused(std::string(100000, '{'), "expected a string");
  ExpectRefused("{\"a\xff\":1}", "UTF-8");
  ExpectRefused("{\"\xc0\xaf\":1}", "UTF-8");
  ExpectRefused("{\"\xed\xa0\x80\":1}", "UTF-8");
  ExpectRefused(R"({"\x":1})", "escape");
  ExpectRefused(R"({"\ud800":1})", "surrogate");
  ExpectRefused(R"({"\u12g4":1})", "hexadecimal");
  ExpectRefused("{\"a\nb\":1}", "UTF-8 text");
}

TEST(TensorHeader, RefusesOffsetsThatDoNotFit) {
  const auto tensor = [](const std::string& name, const std::string& shape,
                         const std::string& offsets) {
    return "\"" + name + R"(":{"dtype":"I32","shape":)" + shape + R"(,"data_offsets":)" + offsets +
           "}";
  };
  ExpectRefused("{" + tensor("a", "[2]", "[0,7]") + "}", "span 7 bytes, expected 8 for I32 [2]");
  ExpectRefused("{" + tensor("a", "[2]", "[8,0]") + "}", "expected [begin, end]");
  ExpectRefused("{" + tensor("a", "[2]", "[0]") + "}", "expected [begin, end]");
  ExpectRefused("{" + tensor("a", "[2]", "[8,16]") + "}", "begins at byte 8, expected 0");
  ExpectRefused("{" + tensor("a", "[2]", "[0,8]") + "," + tensor("b", "[2]", "[4,12]") + "}",
                "tensor \"b\" begins at byte 4, expected 8");
  ExpectRefused("{" + tensor("a", "[2]", "[0,8]") + "," + tensor("b", "[2]", "[12,20]") + "}",
                "without gaps or overlaps");
  ExpectRefused("{" + tensor("a", "[2]", "[0,8]") + "," + tensor("a", "[2]", "[8,16]") + "}",
                "\"a\" stands there twice");
  ExpectRefused("{" + tensor("a", "[-1]", "[0,8]") + "}", "expected an integer, 0 or more");
  ExpectRefused("{" + tensor("a", "[2.0]", "[0,8]") + "}", "expected , or ]");
  ExpectRefused("{" + tensor("a", "[01]", "[0,4]") + "}", "expected an integer");
  ExpectRefused("{" + tensor("a", "[9223372036854775808]", "[0,8]") + "}", "below 2^63");
  ExpectRefused("{" + tensor("a", "[4294967296,4294967296]", "[0,0]") + "}",
                "expected more than 63 bits hold");
  std::string ones = "[1";
  for (int i = 0; i < 40; ++i) ones += ",1";
  ExpectRefused("{" + tensor("a", ones + "]", "[0,4]") + "}", "at most 32 numbers");
}

// Whatever is cut out of, or written into, a good header is either still one or refused.
TEST(TensorHeader, SurvivesMutations) {
  const char* given = std::getenv("PERIGEE_SEED");
  const uint64_t seed =
      given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device()();
  std::printf("PERIGEE_SEED=%llu\n", static_cast<unsigned long long>(seed));
  std::mt19937_64 random(seed);
  const std::string good =
      R"({"__metadata__":{"k":"\u00e9"},"a":{"dtype":"I32","shape":[2,3],"data_offsets":[0,24]},)"
      R"("b":{"dtype":"U8","shape":[0],"data_offsets":[24,24]}})";
  ASSERT_TRUE(ParseTensorHeader(good).ok());
  constexpr absl::string_view kAlphabet = "{}[]\",:\\u0129-.eE \xc3\xed\x80\xff";
  int refused = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string text = good;
    for (uint64_t edits = 1 + random() % 3; edits > 0 && !text.empty(); --edits) {
      const size_t at = random() % text.size();
      switch (random() % 3) {
        case 0:
          text.erase(at, 1 + random() % 8);
          break;
        case 1:
          text[at] = kAlphabet[random() % kAlphabet.size()];
          break;
        default:
          text.insert(at, 1, kAlphabet[random() % kAlphabet.size()]);
      }
    }
    const auto header = ParseTensorHeader(text);
    refused += !header.ok();
    if (!header.ok()) continue;
    int64_t bytes = 0;
    for (const TensorInfo& tensor : header->tensors) bytes += tensor.size_bytes;
    EXPECT_EQ(bytes, header->data_bytes()) << text;
  }
  EXPECT_GT(refused, 10000);
}

}  // namespace
}  // namespace perigee
