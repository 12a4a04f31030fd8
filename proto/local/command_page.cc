#include "proto/local/command_page.h"

#include <new>

#include "absl/strings/str_cat.h"
#include "kernels/common/check.h"

namespace perigee {
namespace {

bool IsAligned(const std::byte* address) {
  return reinterpret_cast<uintptr_t>(address) % alignof(CommandPage) == 0;
}

absl::Status Wrong(absl::string_view what, uint64_t found, uint64_t expected) {
  return absl::InvalidArgumentError(
      absl::StrCat("command page: ", what, " is ", found, ", expected ", expected));
}

}  // namespace

CommandPage& FormatCommandPage(absl::Span<std::byte> memory, const CommandPageIdentity& identity) {
  PERIGEE_CHECK(memory.size() >= kCommandPageBytes && IsAligned(memory.data()));
  CommandPage& page = *new (memory.data()) CommandPage;
  page.header.magic = kCommandPageMagic;
  page.header.version = kCommandPageVersion;
  page.header.slots = kCommandSlots;
  page.header.generation = identity.generation.value;
  page.header.buffer = identity.buffer.value;
  page.header.first_sequence = identity.first_sequence.value;
  page.header.rank = identity.rank.value;
  page.header.ranks = identity.ranks;
  return page;
}

absl::StatusOr<CommandPage*> OpenCommandPage(absl::Span<std::byte> memory) {
  if (memory.size() < kCommandPageBytes) return Wrong("size", memory.size(), kCommandPageBytes);
  if (!IsAligned(memory.data())) {
    return absl::InvalidArgumentError("command page: its address is not a multiple of 64");
  }
  CommandPage* const page = reinterpret_cast<CommandPage*>(memory.data());
  const CommandPageHeader header = page->header;
  if (header.magic != kCommandPageMagic) return Wrong("magic", header.magic, kCommandPageMagic);
  if (header.version != kCommandPageVersion) {
    return Wrong("version", header.version, kCommandPageVersion);
  }
  if (header.slots != kCommandSlots) return Wrong("slots", header.slots, kCommandSlots);
  if (header.rank < 0 || header.rank >= header.ranks) {
    return absl::InvalidArgumentError(
        absl::StrCat("command page: rank ", header.rank, " of ", header.ranks));
  }
  return page;
}

CommandPageIdentity IdentityOf(const CommandPage& page) {
  return {Generation(page.header.generation), BufferId(page.header.buffer),
          RankId(page.header.rank), page.header.ranks, Sequence(page.header.first_sequence)};
}

}  // namespace perigee
