#include "server/rpc/group_error_metadata.h"

namespace perigee {
namespace {

constexpr size_t kShortMessageBytes = 120;

std::string Shorten(const std::string& text, size_t limit) {
  if (text.size() <= limit) return text;
  size_t cut = limit - 3;
  // Never in the middle of a UTF-8 character: protobuf refuses half of one.
  while (cut > 0 && (static_cast<unsigned char>(text[cut]) & 0xc0) == 0x80) --cut;
  return text.substr(0, cut) + "...";
}

}  // namespace

std::string SerializeGroupError(const v1::GroupError& error) {
  v1::GroupError fitting = error;
  const auto fits = [&] { return fitting.ByteSizeLong() <= kGroupErrorLimitBytes; };
  if (!fits()) {
    for (v1::RankStatus& rank : *fitting.mutable_ranks()) {
      rank.set_message(Shorten(rank.message(), kShortMessageBytes));
    }
  }
  if (!fits()) {
    for (v1::RankStatus& rank : *fitting.mutable_ranks()) rank.clear_operation_error();
  }
  if (!fits()) {
    for (v1::RankStatus& rank : *fitting.mutable_ranks()) rank.clear_message();
  }
  if (!fits()) {
    for (v1::RankStatus& rank : *fitting.mutable_ranks()) rank.clear_worker();
  }
  return fitting.SerializeAsString();
}

std::string LimitStatusMessage(std::string message) {
  return Shorten(message, kStatusMessageLimitBytes);
}

}  // namespace perigee
