#include "client/cli/cluster/line_pipe.h"

#include <unistd.h>

#include <utility>

#include "gtest/gtest.h"

namespace perigee {
namespace {

using Lines = std::vector<std::string>;

void WriteText(int fd, const std::string& text) {
  ASSERT_EQ(write(fd, text.data(), text.size()), static_cast<ssize_t>(text.size()));
}

TEST(LineReaderTest, LinesComeWhenTheyAreComplete) {
  auto pipe = NewPipe();
  ASSERT_TRUE(pipe.ok());
  LineReader reader(std::move(pipe->read));
  EXPECT_EQ(reader.Read(), Lines{});
  WriteText(pipe->write.get(), "one\ntw");
  EXPECT_EQ(reader.Read(), Lines{"one"});
  WriteText(pipe->write.get(), "o\n\nthree\n");
  EXPECT_EQ(reader.Read(), (Lines{"two", "", "three"}));
  EXPECT_FALSE(reader.ended());
  pipe->write.Reset();
  EXPECT_EQ(reader.Read(), Lines{});
  EXPECT_TRUE(reader.ended());
}

TEST(LineReaderTest, TheLastLinesComeWithTheEnd) {
  auto pipe = NewPipe();
  ASSERT_TRUE(pipe.ok());
  LineReader reader(std::move(pipe->read));
  WriteText(pipe->write.get(), "last\ncut off");
  pipe->write.Reset();
  EXPECT_EQ(reader.Read(), Lines{"last"});
  EXPECT_TRUE(reader.ended());
}

}  // namespace
}  // namespace perigee
