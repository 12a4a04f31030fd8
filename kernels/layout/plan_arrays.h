// The tensors of a plan as those who follow it read them; docs/planning.md has their names.
#ifndef PERIGEE_KERNELS_LAYOUT_PLAN_ARRAYS_H_
#define PERIGEE_KERNELS_LAYOUT_PLAN_ARRAYS_H_

#include <cstdint>

namespace perigee {

// Where they are wanted or lie. Owns nothing; host or device addresses.
struct PlanArrays {
  uint64_t* sequence = nullptr;         // of the plan's making; 0: none yet
  int32_t* dst = nullptr;               // [S, K]
  int32_t* cu_seqlens = nullptr;        // [E + B]
  int32_t* zero_fill_ranges = nullptr;  // [E + B, 2]
  int32_t* experts_to_copy = nullptr;   // [R, B]
  int32_t* load = nullptr;              // [R]
  int32_t* home_load = nullptr;         // [R]
};

}  // namespace perigee

#endif  // PERIGEE_KERNELS_LAYOUT_PLAN_ARRAYS_H_
