// Pages of a listing. A token holds the key of the last item that was shown, so a page follows it
// even where items came or went meanwhile.
#ifndef PERIGEE_SERVER_RPC_PAGE_H_
#define PERIGEE_SERVER_RPC_PAGE_H_

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace perigee {

std::string PageToken(absl::string_view last_key);
// The key; empty for an empty token. INVALID_ARGUMENT: not a token of this server.
absl::StatusOr<std::string> ParsePageToken(absl::string_view token);
// 0 is the default and the most. INVALID_ARGUMENT: negative.
absl::StatusOr<size_t> PageSize(int page_size);

template <typename Item>
struct Page {
  std::vector<Item> items;
  std::string next_page_token;  // empty on the last page
};

// The page of `all` (in order) that `request` asks for. key(item): a string that names the item;
// follows(item, key): whether the item comes after the one of that key.
template <typename Item, typename Request, typename Key, typename Follows>
absl::StatusOr<Page<Item>> TakePage(std::vector<Item> all, const Request& request, const Key& key,
                                    const Follows& follows) {
  const auto size = PageSize(request.page_size());
  if (!size.ok()) return size.status();
  const auto last = ParsePageToken(request.page_token());
  if (!last.ok()) return last.status();
  Page<Item> page;
  for (Item& item : all) {
    if (!last->empty() && !follows(item, *last)) continue;
    if (page.items.size() == *size) {
      page.next_page_token = PageToken(key(page.items.back()));
      break;
    }
    page.items.push_back(std::move(item));
  }
  return page;
}

// Of resources in order of name.
template <typename Item, typename Request>
absl::StatusOr<Page<Item>> TakePageByName(std::vector<Item> all, const Request& request) {
  return TakePage(
      std::move(all), request, [](const Item& item) { return item.name(); },
      [](const Item& item, const std::string& last) { return item.name() > last; });
}

}  // namespace perigee

#endif  // PERIGEE_SERVER_RPC_PAGE_H_
