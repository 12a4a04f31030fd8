#include "client/cli/doctor/report.h"

#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/json_util.h>

#include "gtest/gtest.h"

namespace perigee {
namespace {

DoctorReport Report() {
  DoctorReport report;
  report.backend = "host";
  report.ranks = 8;
  report.checks = {{"kernel", FindingState::kOk, "Linux 6.1", "any", ""},
                   {"cpus", FindingState::kWarn, "2 CPUs", "8", "start 2"},
                   {"loopback", FindingState::kFail, "\"lo\" is down", "up", "ip link set lo up"}};
  return report;
}

TEST(DoctorReportTest, TextHasALineForEachAndRemedies) {
  DoctorReport report = Report();
  EXPECT_EQ(DoctorText(report),
            "ok    kernel    Linux 6.1\n"
            "warn  cpus      2 CPUs\n"
            "                -> start 2\n"
            "FAIL  loopback  \"lo\" is down\n"
            "                -> ip link set lo up\n"
            "workers CANNOT run here: 1 ok, 1 warn, 1 FAIL, 8 workers on the host backend\n");
  report.checks.pop_back();
  const std::string text = DoctorText(report);
  EXPECT_NE(text.find("\nworkers can run here: 1 ok, 1 warn, 0 FAIL"), std::string::npos) << text;
}

TEST(DoctorReportTest, JsonHasEveryKey) {
  google::protobuf::Value json;
  const std::string text = DoctorJson(Report());
  ASSERT_TRUE(google::protobuf::util::JsonStringToMessage(text, &json).ok()) << text;
  const auto& fields = json.struct_value().fields();
  EXPECT_EQ(fields.at("backend").string_value(), "host");
  EXPECT_EQ(fields.at("ranks").number_value(), 8);
  for (const char* key : {"ok", "warn", "fail"}) EXPECT_EQ(fields.at(key).number_value(), 1);
  const auto& checks = fields.at("checks").list_value();
  ASSERT_EQ(checks.values_size(), 3);
  const auto& last = checks.values(2).struct_value().fields();
  EXPECT_EQ(last.size(), 5u);
  EXPECT_EQ(last.at("name").string_value(), "loopback");
  EXPECT_EQ(last.at("state").string_value(), "FAIL");
  EXPECT_EQ(last.at("found").string_value(), "\"lo\" is down");
  EXPECT_EQ(last.at("expected").string_value(), "up");
  EXPECT_EQ(last.at("remedy").string_value(), "ip link set lo up");
  EXPECT_EQ(checks.values(0).struct_value().fields().at("remedy").string_value(), "");
}

}  // namespace
}  // namespace perigee
