#include "client/cli/output.h"

#include <gtest/gtest.h>

#include <limits>

namespace perigee {
namespace {

TEST(TextTable, AlignsNumbersRightAndTextLeft) {
  TextTable table({"name", "rows", "state"});
  table.AddRow({"a", "1,000", "up"});
  table.AddRow({"longer", "-5", "going down"});
  EXPECT_EQ(table.ToString(),
            "name     rows  state\n"
            "a       1,000  up\n"
            "longer     -5  going down\n");
}

TEST(JsonWriter, NestsAndKeepsOrder) {
  JsonWriter json;
  json.BeginObject();
  json.Field("z", 1);
  json.Field("a", "q\"\n\x01");
  json.ArrayField("list", std::vector<int64_t>{1, -2});
  json.ArrayField("none", std::vector<int64_t>{});
  json.Key("inner");
  json.BeginObject();
  json.Field("t", true);
  json.Field("d", 0.1);
  json.Field("nan", std::numeric_limits<double>::quiet_NaN());
  json.EndObject();
  json.Key("objects");
  json.BeginArray();
  json.BeginObject();
  json.EndObject();
  json.Value(uint64_t{18446744073709551615u});
  json.EndArray();
  json.EndObject();
  EXPECT_EQ(json.ToString(), R"({
  "z": 1,
  "a": "q\"\n\u0001",
  "list": [1, -2],
  "none": [],
  "inner": {
    "t": true,
    "d": 0.1,
    "nan": null
  },
  "objects": [
    {},
    18446744073709551615
  ]
}
)");
}

TEST(JsonWriter, RefusesWrongNesting) {
  JsonWriter json;
  json.BeginObject();
  EXPECT_DEATH(json.Value(1), "check failed");
  EXPECT_DEATH(json.EndArray(), "check failed");
  EXPECT_DEATH(json.ToString(), "check failed");
}

TEST(Format, Bytes) {
  EXPECT_EQ(FormatBytes(0), "0 B");
  EXPECT_EQ(FormatBytes(1023), "1023 B");
  EXPECT_EQ(FormatBytes(1536), "1.50 KiB");
  EXPECT_EQ(FormatBytes(int64_t{80} << 30), "80.00 GiB");
  EXPECT_EQ(FormatBytes(INT64_MAX), "8.00 EiB");
}

TEST(Format, Counts) {
  EXPECT_EQ(FormatCount(0), "0");
  EXPECT_EQ(FormatCount(999), "999");
  EXPECT_EQ(FormatCount(1000), "1,000");
  EXPECT_EQ(FormatCount(-1234567), "-1,234,567");
}

}  // namespace
}  // namespace perigee
