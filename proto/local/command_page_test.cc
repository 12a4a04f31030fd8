#include "proto/local/command_page.h"

#include <cstring>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace perigee {
namespace {

using ::testing::HasSubstr;

constexpr CommandPageIdentity kIdentity{Generation(7), BufferId(3), RankId(2), 4, Sequence(11)};

class CommandPageTest : public ::testing::Test {
 protected:
  CommandPageTest() : bytes_(kCommandPageBytes + 64) {
    void* start = bytes_.data();
    size_t space = bytes_.size();
    std::align(64, kCommandPageBytes, start, space);
    memory_ = absl::MakeSpan(static_cast<std::byte*>(start), kCommandPageBytes);
    page_ = &FormatCommandPage(memory_, kIdentity);
  }
  void ExpectRefused(const char* why) {
    const absl::StatusOr<CommandPage*> opened = OpenCommandPage(memory_);
    EXPECT_EQ(opened.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(opened.status().message()), HasSubstr(why));
  }

  std::vector<std::byte> bytes_;
  absl::Span<std::byte> memory_;
  CommandPage* page_;
};

TEST_F(CommandPageTest, SaysWhatItIsFor) {
  const absl::StatusOr<CommandPage*> opened = OpenCommandPage(memory_);
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_EQ(*opened, page_);
  EXPECT_EQ(IdentityOf(**opened), kIdentity);
}

TEST_F(CommandPageTest, RefusesWhatIsNone) {
  memory_ = memory_.subspan(64);
  ExpectRefused("size is");
}

TEST_F(CommandPageTest, RefusesAnUnalignedAddress) {
  memory_ = absl::MakeSpan(memory_.data() + 8, kCommandPageBytes);
  ExpectRefused("not a multiple of 64");
}

TEST_F(CommandPageTest, RefusesAnotherMagicVersionOrShape) {
  page_->header.magic ^= 1;
  ExpectRefused("magic is");
  page_->header.magic ^= 1;
  page_->header.version += 1;
  ExpectRefused("version is 6, expected 5");
  page_->header.version -= 1;
  page_->header.slots = 63;
  ExpectRefused("slots is 63, expected 64");
  page_->header.slots = 64;
  page_->header.rank = 4;
  ExpectRefused("rank 4 of 4");
}

}  // namespace
}  // namespace perigee
