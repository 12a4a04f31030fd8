#include "server/rpc/page.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "proto/v1/groups.pb.h"

namespace perigee {
namespace {

std::vector<v1::Group> Groups(int count) {
  std::vector<v1::Group> groups(count);
  for (int i = 0; i < count; ++i) groups[i].set_name(absl::StrCat("g", 1000 + i));
  return groups;
}

TEST(Page, PagesTogetherAreTheWholeListOnce) {
  for (const int size : {1, 2, 3, 7, 10, 0}) {
    v1::ListGroupsRequest request;
    request.set_page_size(size);
    std::vector<std::string> names;
    do {
      const auto page = TakePageByName(Groups(10), request);
      ASSERT_TRUE(page.ok()) << page.status();
      EXPECT_FALSE(page->items.empty());
      for (const auto& group : page->items) names.push_back(group.name());
      request.set_page_token(page->next_page_token);
    } while (!request.page_token().empty());
    ASSERT_EQ(names.size(), 10u) << size;
    for (int i = 0; i < 10; ++i) EXPECT_EQ(names[i], absl::StrCat("g", 1000 + i));
  }
}

TEST(Page, GoesOnBehindAnItemThatIsGone) {
  v1::ListGroupsRequest request;
  request.set_page_size(2);
  auto page = TakePageByName(Groups(4), request);
  request.set_page_token(page->next_page_token);
  std::vector<v1::Group> rest = Groups(4);
  rest.erase(rest.begin() + 1);  // the last one shown
  page = TakePageByName(rest, request);
  ASSERT_EQ(page->items.size(), 2u);
  EXPECT_EQ(page->items[0].name(), "g1002");
}

TEST(Page, APageHoldsAtMostTheDefault) {
  v1::ListGroupsRequest request;
  request.set_page_size(1 << 30);
  const auto page = TakePageByName(Groups(1001), request);
  EXPECT_EQ(page->items.size(), 1000u);
  EXPECT_FALSE(page->next_page_token.empty());
}

TEST(Page, RefusesWhatIsNoTokenAndNegativeSizes) {
  v1::ListGroupsRequest request;
  for (const char* token : {"x", "g1001", "%%%", "YWZ0ZXI6"}) {
    request.set_page_token(token);
    EXPECT_TRUE(absl::IsInvalidArgument(TakePageByName(Groups(1), request).status())) << token;
  }
  request.clear_page_token();
  request.set_page_size(-1);
  EXPECT_TRUE(absl::IsInvalidArgument(TakePageByName(Groups(1), request).status()));
}

TEST(Page, AnEmptyListIsOneEmptyPage) {
  const auto page = TakePageByName(Groups(0), v1::ListGroupsRequest());
  EXPECT_TRUE(page->items.empty());
  EXPECT_TRUE(page->next_page_token.empty());
}

}  // namespace
}  // namespace perigee
