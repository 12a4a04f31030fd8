#include "client/lib/path_table_update.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace perigee {
namespace {

using ::testing::HasSubstr;

PathCell Cell(const std::string& routes) {
  PathCell cell;
  cell.machine = {"GPU", 4, "cuda", "nvlink", 16, 0};
  cell.shape = {64, 128, 2, 8, 4, 16, 2, 0};
  cell.routes = routes;
  cell.costs.dispatch_us = 100;
  return cell;
}

class PathTableUpdateTest : public testing::Test {
 protected:
  PathTableUpdateTest() : folder_(absl::StrCat(testing::TempDir(), "/path_update_", getpid())) {
    std::filesystem::create_directory(folder_);
    path_ = folder_ + "/table.jsonl";
  }
  ~PathTableUpdateTest() override { std::filesystem::remove_all(folder_); }

  std::vector<std::string> Routes() const {
    const auto table = PathTable::Read(path_);
    EXPECT_TRUE(table.ok()) << table.status();
    std::vector<std::string> routes;
    if (!table.ok()) return routes;
    for (const PathCell& cell : table->cells()) routes.push_back(cell.routes);
    return routes;
  }
  std::string Text() const {
    std::ifstream file(path_);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }

  const std::string folder_;
  std::string path_;
};

// Each reads, adds and writes; one that did not wait for the other would write over its cells.
TEST_F(PathTableUpdateTest, NoCellIsLostWhereManyAddAtOnce) {
  constexpr int kWriters = 4;
  constexpr int kCells = 12;
  std::vector<std::thread> writers;
  for (int writer = 0; writer < kWriters; ++writer) {
    writers.emplace_back([&, writer] {
      for (int i = 0; i < kCells; ++i) {
        const absl::Status added =
            AddToPathTable(path_, {Cell(absl::StrCat(writer, ",", i))}, absl::Minutes(5));
        EXPECT_TRUE(added.ok()) << added;
      }
    });
  }
  for (std::thread& writer : writers) writer.join();
  std::vector<std::string> routes = Routes();
  std::sort(routes.begin(), routes.end());
  EXPECT_EQ(routes.size(), size_t{kWriters * kCells});
  EXPECT_EQ(std::unique(routes.begin(), routes.end()), routes.end());
}

TEST_F(PathTableUpdateTest, ALockThatIsHeldIsNamed) {
  const int held = open((path_ + ".lock").c_str(), O_RDWR | O_CREAT, 0600);
  ASSERT_EQ(flock(held, LOCK_EX), 0);
  const absl::Status status = AddToPathTable(path_, {Cell("a")}, absl::ZeroDuration());
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(status.message()), HasSubstr("table.jsonl.lock for 0"));
  EXPECT_FALSE(std::filesystem::exists(path_));
  close(held);
  EXPECT_TRUE(AddToPathTable(path_, {Cell("a")}, absl::ZeroDuration()).ok());
}

TEST_F(PathTableUpdateTest, ATableThatCannotBeReadStaysAsItIs) {
  PathTable newer;
  newer.Put(Cell("a"));
  const std::string text = newer.Text();
  for (const std::string& unreadable :
       {std::string(), std::string("spoilt"), absl::StrCat(text, "{\n"),
        std::string("{\"format\": \"perigee path table\", \"version\": 3}\n{\"x\": 1}\n")}) {
    std::ofstream(path_) << unreadable;
    EXPECT_FALSE(AddToPathTable(path_, {Cell("b")}).ok()) << unreadable;
    EXPECT_EQ(Text(), unreadable);
  }
  std::filesystem::remove(path_);
  std::filesystem::create_directory(path_);
  EXPECT_THAT(std::string(AddToPathTable(path_, {Cell("b")}).message()),
              HasSubstr("cannot read path table"));
  EXPECT_TRUE(std::filesystem::is_directory(path_));
}

TEST_F(PathTableUpdateTest, ALinkStaysOne) {
  const std::string link = folder_ + "/link";
  ASSERT_TRUE(AddToPathTable(path_, {Cell("a")}).ok());
  std::filesystem::create_symlink(path_, link);
  ASSERT_TRUE(AddToPathTable(link, {Cell("b")}).ok());
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  EXPECT_THAT(Routes(), testing::ElementsAre("a", "b"));
}

// Its cells stay as they were, beside those that say all of their buffer.
TEST_F(PathTableUpdateTest, ATableOfVersionOneIsGoneOnWith) {
  std::ofstream(path_) << "{\"format\": \"perigee path table\", \"version\": 1}\n"
                          "{\"device\": \"GPU\", \"devices\": 4, \"backend\": \"cuda\", "
                          "\"transport\": \"nvlink\", \"sms\": 16, \"local_sms\": 0, "
                          "\"tokens\": 64, \"hidden\": 128, \"topk\": 2, \"experts\": 8, "
                          "\"ranks\": 4, \"routes\": \"a\", \"home_imbalance\": 1, "
                          "\"costs_us\": {\"dispatch\": 90.000}}\n";
  ASSERT_TRUE(AddToPathTable(path_, {Cell("a")}).ok());
  const auto table = PathTable::Read(path_);
  ASSERT_TRUE(table.ok()) << table.status();
  ASSERT_EQ(table->cells().size(), 2u);
  EXPECT_FALSE(table->cells()[0].shape.recorded());
  EXPECT_EQ(table->cells()[0].shape, Cell("a").shape.AsNotRecorded());
  EXPECT_EQ(table->cells()[0].costs.dispatch_us, 90);
  EXPECT_EQ(table->cells()[1].shape, Cell("a").shape);
  EXPECT_THAT(Text(), HasSubstr("\"version\": 2}"));
}

}  // namespace
}  // namespace perigee
