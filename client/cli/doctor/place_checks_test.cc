#include "client/cli/doctor/place_checks.h"

#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace perigee {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

PlaceFacts Healthy() {
  PlaceFacts facts;
  facts.programs = ProgramPaths{"/bin/perigee-coordinator", "/bin/perigee-worker"};
  facts.parent = "/tmp";
  facts.free_bytes = uint64_t{1} << 30;
  facts.socket_path_bytes = 54;
  return facts;
}

Finding Check(const PlaceFacts& facts, const std::string& name) {
  for (const Finding& finding : CheckPlaces(facts)) {
    if (finding.name == name) return finding;
  }
  return {.name = "none"};
}

void ExpectState(const Finding& finding, FindingState state, const char* found,
                 const char* remedy) {
  EXPECT_EQ(finding.state, state) << finding.name << ": " << finding.found;
  EXPECT_THAT(finding.found, HasSubstr(found));
  EXPECT_THAT(finding.remedy, HasSubstr(remedy));
}

TEST(PlaceChecksTest, HealthyPlacesAreOk) {
  for (const Finding& finding : CheckPlaces(Healthy())) {
    EXPECT_EQ(finding.state, FindingState::kOk) << finding.name << ": " << finding.found;
    EXPECT_THAT(finding.remedy, IsEmpty());
  }
}

TEST(PlaceChecksTest, MissingProgramsFail) {
  PlaceFacts facts = Healthy();
  facts.programs = absl::NotFoundError("program perigee-worker is not at /bin");
  ExpectState(Check(facts, "programs"), FindingState::kFail, "perigee-worker is not at",
              "PERIGEE_BIN_DIR");
}

TEST(PlaceChecksTest, ADirectoryThatCannotBeMadeFails) {
  PlaceFacts facts = Healthy();
  facts.made = absl::FailedPreconditionError("cannot make a directory in /x: Permission denied");
  ExpectState(Check(facts, "run_directory"), FindingState::kFail, "Permission denied", "TMPDIR");
  EXPECT_EQ(Check(facts, "socket_path").name, "none");
  EXPECT_EQ(Check(facts, "run_directory_space").name, "none");
}

TEST(PlaceChecksTest, AParentThatOthersChangeOrThatIsNotTheWantedOneWarns) {
  PlaceFacts facts = Healthy();
  facts.wanted = "/a/path/that/is/much/too/long/for/the/sockets/in/it";
  ExpectState(Check(facts, "run_directory"), FindingState::kWarn, "is not taken", "TMPDIR");
  facts.unprotected = true;
  ExpectState(Check(facts, "run_directory"), FindingState::kWarn, "may rename", "chmod +t /tmp");
  facts = Healthy();
  facts.wanted = "/tmp";
  EXPECT_EQ(Check(facts, "run_directory").state, FindingState::kOk);
}

TEST(PlaceChecksTest, LittleSpaceWarns) {
  PlaceFacts facts = Healthy();
  facts.free_bytes = 1 << 20;
  ExpectState(Check(facts, "run_directory_space"), FindingState::kWarn, "/tmp has 1.00 MiB free",
              "du -xsh /tmp");
}

TEST(PlaceChecksTest, ASocketThatDoesNotWorkFails) {
  PlaceFacts facts = Healthy();
  facts.socket = absl::InvalidArgumentError("a path of 120 bytes");
  ExpectState(Check(facts, "socket_path"), FindingState::kFail, "a path of 120 bytes", "TMPDIR");
}

TEST(PlaceFactsTest, ADirectoryIsMadeAndRemoved) {
  char parent[] = "/tmp/doctor-XXXXXX";
  ASSERT_NE(mkdtemp(parent), nullptr);
  setenv("TMPDIR", parent, 1);
  PlaceFacts facts = GatherPlaceFacts();
  EXPECT_EQ(facts.parent, parent);
  EXPECT_TRUE(facts.made.ok()) << facts.made;
  EXPECT_TRUE(facts.socket.ok()) << facts.socket;
  EXPECT_FALSE(facts.unprotected);
  EXPECT_TRUE(std::filesystem::is_empty(parent));
  chmod(parent, 0777);
  EXPECT_TRUE(GatherPlaceFacts().unprotected);
  std::filesystem::remove_all(parent);
  facts = GatherPlaceFacts();
  EXPECT_THAT(std::string(facts.made.message()), HasSubstr(parent));
}

}  // namespace
}  // namespace perigee
