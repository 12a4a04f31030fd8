// How a route's destination is encoded in dst [S, K], for host and device.
//
//   raw    = d * NvS + local row on rank d
//   dst    = raw        the token's first route to rank d: its row travels (primary)
//          = -raw - 1   a further route to rank d: only its weight travels, the row is copied there
//          = INT32_MIN  masked, or a token past the rank's token count
#ifndef PERIGEE_KERNELS_PLAN_DESTINATION_H_
#define PERIGEE_KERNELS_PLAN_DESTINATION_H_

#include <cstdint>

#include "kernels/common/host_device.h"

namespace perigee {

inline constexpr int32_t kMaskedRoute = INT32_MIN;

PERIGEE_HOST_DEVICE constexpr bool IsMasked(int32_t dst) { return dst == kMaskedRoute; }
PERIGEE_HOST_DEVICE constexpr bool IsPrimary(int32_t dst) { return dst >= 0; }
PERIGEE_HOST_DEVICE constexpr bool IsDuplicate(int32_t dst) { return dst < 0 && !IsMasked(dst); }

// raw < 2^31 - 1, so a duplicate never looks masked.
PERIGEE_HOST_DEVICE constexpr int32_t EncodeDuplicate(int32_t raw) { return -raw - 1; }
// raw of an unmasked dst.
PERIGEE_HOST_DEVICE constexpr int32_t DecodeRow(int32_t dst) { return dst >= 0 ? dst : -(dst + 1); }

PERIGEE_HOST_DEVICE constexpr int32_t RankOf(int32_t raw, int32_t logical_rows) {
  return raw / logical_rows;
}
PERIGEE_HOST_DEVICE constexpr int32_t LocalRow(int32_t raw, int32_t logical_rows) {
  return raw % logical_rows;
}

// What a source rank writes about a route's row into the maps of the rank it lands on. (The CUDA
// backend writes more about a primary: kernels/cuda/send_routes.cuh.)
struct DuplicateLink {
  int32_t primary = -1;  // local row of the token's primary there; -1 for a primary itself
  uint8_t ordinal = 0;   // 1-based place among the token's duplicates there, by k; 0 for a primary
};

// token_dst [K]: the destinations of one token. token_dst[k] is not masked.
PERIGEE_HOST_DEVICE inline DuplicateLink LinkOf(const int32_t* token_dst, int32_t k,
                                                int32_t logical_rows) {
  DuplicateLink link;
  if (IsPrimary(token_dst[k])) return link;
  const int32_t rank = RankOf(DecodeRow(token_dst[k]), logical_rows);
  for (int32_t earlier = k - 1; earlier >= 0; --earlier) {
    if (IsMasked(token_dst[earlier])) continue;
    const int32_t raw = DecodeRow(token_dst[earlier]);
    if (RankOf(raw, logical_rows) != rank) continue;
    ++link.ordinal;
    if (!IsPrimary(token_dst[earlier])) continue;
    link.primary = LocalRow(raw, logical_rows);
    break;
  }
  return link;
}

}  // namespace perigee

#endif  // PERIGEE_KERNELS_PLAN_DESTINATION_H_
