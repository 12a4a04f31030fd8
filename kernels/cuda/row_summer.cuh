// Sums rows that bulk copies bring into shared memory.
#ifndef PERIGEE_KERNELS_CUDA_ROW_SUMMER_CUH_
#define PERIGEE_KERNELS_CUDA_ROW_SUMMER_CUH_

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/bulk_copy.cuh"
#include "kernels/cuda/row_tickets.cuh"
#include "kernels/cuda/row_vectors.cuh"
#include "kernels/cuda/vector_sum.cuh"

namespace perigee {

// Up to 32 rows that become one: lane i knows the address of row i of `count`, in order. Rows
// [inner_begin, inner_end) are summed and rounded first, and their sum takes their place.
struct RowSum {
  const void* row = nullptr;
  // The rest is the same for all lanes.
  int32_t count = 0;
  int32_t inner_begin = 0;
  int32_t inner_end = 0;  // inner_begin: none are
  void* out =
      nullptr;  // may be one of the rows; zeros where count is 0. Null: nothing is to be done
};

// How a row is cut: a piece is kVectors vectors of 16 bytes a lane. A stage holds a piece of kRows
// rows; of more, one stage after the other. Chosen among several by measurement:
// docs/performance.md.
struct SummerShape {
  static constexpr int kVectors = 2;
  static constexpr int kRows = 4;
  static constexpr int kStages = 3;  // of each warp
  static constexpr int kWarps = 16;  // of a block
  static constexpr int kThreads = 32 * kWarps;
  static constexpr int kPieceBytes = 512 * kVectors;
  static constexpr int kStageBytes = kPieceBytes * kRows;
  static constexpr size_t kSharedBytes = size_t{kStageBytes} * kStages * kWarps;
};

// One warp's side of it.
class RowSummer {
 public:
  // `shared` has SummerShape::kSharedBytes.
  __device__ RowSummer(std::byte* shared, uint32_t row_bytes)
      : row_bytes_(static_cast<int32_t>(row_bytes)) {
    __shared__ uint64_t loaded[SummerShape::kWarps * SummerShape::kStages];
    __shared__ Stage stages[SummerShape::kWarps * SummerShape::kStages];
    const int warp = static_cast<int>(threadIdx.x / 32) * SummerShape::kStages;
    loaded_ = loaded + warp;
    meta_ = stages + warp;
    data_ = shared + size_t{SummerShape::kStageBytes} * warp;
    if (LaneId() == 0) {
      for (int stage = 0; stage < SummerShape::kStages; ++stage) InitArrival(&loaded_[stage]);
    }
    FenceBeforeBulk();
    __syncwarp();
  }

  // Calls sum_of(i) on all lanes for what this warp gets.
  template <typename SumOf>
  __device__ void Sum(RowTickets tickets, const SumOf& sum_of) {
    int load_stage = 0;
    int sum_stage = 0;
    int ahead = 0;
    uint32_t parity = 0;
    RowSum sum;
    int32_t offset = row_bytes_;
    int32_t row = 0;
    bool more = true;
    while (true) {
      while (more && ahead < SummerShape::kStages) {
        if (offset >= row_bytes_) {
          const int64_t next = tickets.Take();
          more = next >= 0;
          if (!more) break;
          sum = sum_of(next);
          if (sum.out == nullptr) continue;
          offset = 0;
          row = 0;
        }
        Load(load_stage, sum, offset, row);
        row += SummerShape::kRows;
        if (row >= sum.count) {
          row = 0;
          offset += SummerShape::kPieceBytes;
        }
        load_stage = load_stage + 1 == SummerShape::kStages ? 0 : load_stage + 1;
        ++ahead;
      }
      if (ahead == 0) return;
      AwaitPhase(&loaded_[sum_stage], parity);
      Add(sum_stage);
      --ahead;
      if (++sum_stage == SummerShape::kStages) {
        sum_stage = 0;
        parity ^= 1;
      }
    }
  }

 private:
  struct Stage {
    void* out;  // of the piece
    int32_t bytes;
    int16_t first_row;  // that the stage holds, of all that are summed
    int16_t rows;
    int16_t inner_begin;
    int16_t inner_end;
    bool is_last;  // stage of the piece
    bool is_sum;   // of two rows or more, an inner sum counting as one
  };

  __device__ void Load(int stage, const RowSum& sum, int32_t offset, int32_t row) {
    __syncwarp();  // all have read what the stage held
    const int32_t rows = min(SummerShape::kRows, sum.count - row);
    const int32_t bytes = min(SummerShape::kPieceBytes, row_bytes_ - offset);
    if (LaneId() == 0) {
      const int32_t inner = max(sum.inner_end - sum.inner_begin - 1, 0);
      meta_[stage] = {static_cast<std::byte*>(sum.out) + offset,
                      bytes,
                      static_cast<int16_t>(row),
                      static_cast<int16_t>(rows),
                      static_cast<int16_t>(sum.inner_begin),
                      static_cast<int16_t>(sum.inner_end),
                      row + SummerShape::kRows >= sum.count,
                      sum.count - inner > 1};
      if (rows > 0) {
        ArriveExpecting(&loaded_[stage], rows * bytes);
      } else {
        Arrive(&loaded_[stage]);
      }
    }
    __syncwarp();
    if (LaneId() < row || LaneId() >= row + rows) return;
    BulkLoad(data_ + SummerShape::kStageBytes * stage + SummerShape::kPieceBytes * (LaneId() - row),
             static_cast<const std::byte*>(sum.row) + offset, bytes, &loaded_[stage]);
  }
  __device__ void Add(int stage) {
    const Stage meta = meta_[stage];
    const std::byte* data = data_ + SummerShape::kStageBytes * stage + 16 * LaneId();
#pragma unroll
    for (int i = 0; i < SummerShape::kRows; ++i) {
      if (i >= meta.rows) break;
      const int row = meta.first_row + i;
      const bool is_inner = row >= meta.inner_begin && row < meta.inner_end;
      const bool ends_inner = is_inner && row + 1 == meta.inner_end;
      const bool is_first = row == 0 || (ends_inner && meta.inner_begin == 0);
#pragma unroll
      for (int v = 0; v < SummerShape::kVectors; ++v) {
        uint4 vector =
            *reinterpret_cast<const uint4*>(data + SummerShape::kPieceBytes * i + 512 * v);
        if (is_inner) {
          if (row == meta.inner_begin) {
            inner_[v].Start(vector);
          } else {
            inner_[v].Add(vector);
          }
          if (!ends_inner) continue;
          vector = inner_[v].Rounded(true);
        }
        if (is_first) {
          sums_[v].Start(vector);
        } else {
          sums_[v].Add(vector);
        }
      }
    }
    if (!meta.is_last) return;
#pragma unroll
    for (int i = 0; i < SummerShape::kVectors; ++i) {
      const int32_t at = 16 * LaneId() + 512 * i;
      if (at >= meta.bytes) break;
      const uint4 vector = meta.rows > 0 ? sums_[i].Rounded(meta.is_sum) : make_uint4(0, 0, 0, 0);
      *reinterpret_cast<uint4*>(static_cast<std::byte*>(meta.out) + at) = vector;
    }
  }

  const int32_t row_bytes_;
  std::byte* data_;
  Stage* meta_;
  uint64_t* loaded_;
  VectorSum sums_[SummerShape::kVectors];
  VectorSum inner_[SummerShape::kVectors];
};

}  // namespace perigee

#endif  // PERIGEE_KERNELS_CUDA_ROW_SUMMER_CUH_
