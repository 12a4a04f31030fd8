// Sums rows that bulk copies bring into shared memory.
#ifndef PERIGEE_KERNELS_CUDA_ROW_SUMMER_CUH_
#define PERIGEE_KERNELS_CUDA_ROW_SUMMER_CUH_

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/bulk_copy.cuh"
#include "kernels/cuda/device_words.cuh"
#include "kernels/cuda/row_tickets.cuh"
#include "kernels/cuda/row_vectors.cuh"
#include "kernels/cuda/vector_sum.cuh"

namespace perigee {

// Up to 32 rows that become one: lane i knows the address of row i of `count`, in order.
struct RowSum {
  const void* row = nullptr;
  // The rest is the same for all lanes.
  int32_t count = 0;
  void* out = nullptr;       // may be one of the rows; zeros where count is 0. Null: nothing to do
  uint64_t* done = nullptr;  // becomes `mark` when the sum, dealt whole, is there for the device
  uint64_t mark = 0;
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

// How sums are dealt to warps: whole ones first, the last in parts, so that warps end together and
// none is idle where sums are few.
struct SumPart {
  int32_t sum = 0;
  int32_t begin = 0;  // bytes of the row
  int32_t end = 0;
};
class SumParts {
 public:
  __device__ SumParts(int32_t count, int32_t row_bytes, bool in_parts) : row_bytes_(row_bytes) {
    const auto warps = static_cast<int32_t>(gridDim.x) * SummerShape::kWarps;
    parts_ = max(row_bytes / kLeastBytes, 1);
    part_bytes_ = (row_bytes / parts_ + SummerShape::kPieceBytes - 1) / SummerShape::kPieceBytes *
                  SummerShape::kPieceBytes;
    parts_ = (row_bytes + part_bytes_ - 1) / part_bytes_;
    whole_ = in_parts ? max(count - kSplitPerWarp * warps, 0) : count;
    tickets_ = whole_ + int64_t{count - whole_} * parts_;
  }
  __device__ int64_t tickets() const { return tickets_; }
  __device__ SumPart Of(int64_t ticket) const {
    if (ticket < whole_) return {static_cast<int32_t>(ticket), 0, row_bytes_};
    const auto beyond = static_cast<int32_t>(ticket - whole_);
    const int32_t sum = beyond / parts_;
    const int32_t begin = (beyond - sum * parts_) * part_bytes_;
    return {whole_ + sum, begin, min(begin + part_bytes_, row_bytes_)};
  }

 private:
  static constexpr int32_t kLeastBytes = 2 * SummerShape::kPieceBytes;  // of a part
  static constexpr int32_t kSplitPerWarp = 2;                           // sums

  int32_t row_bytes_;
  int32_t parts_;  // of a sum
  int32_t part_bytes_;
  int32_t whole_;
  int64_t tickets_;
};

// The sums of one warp. What it takes to find a sum's rows is asked for two tickets ahead.
template <typename Source>
class SumQueue {
 public:
  __device__ SumQueue(const Source& source, const SumParts& parts, const RowTickets& tickets)
      : source_(source), parts_(parts), tickets_(tickets) {
    later_ = tickets_.Take();
    if (later_ >= 0) later_first_ = source_.First(parts_.Of(later_).sum);
    Ask();
  }
  // The next, false where there is none.
  __device__ bool Take(SumPart* part, RowSum* sum) {
    if (next_ < 0) return false;
    *part = parts_.Of(next_);
    *sum = source_.SumOf(part->sum, next_first_, next_second_);
    Ask();
    return true;
  }

 private:
  __device__ void Ask() {
    next_ = later_;
    next_first_ = later_first_;
    if (next_ >= 0) next_second_ = source_.Second(next_first_);
    if (later_ < 0) return;
    later_ = tickets_.Take();
    if (later_ >= 0) later_first_ = source_.First(parts_.Of(later_).sum);
  }

  const Source& source_;
  const SumParts parts_;
  RowTickets tickets_;
  int64_t next_ = -1;
  int64_t later_ = -1;
  typename Source::FirstLook next_first_ = {};
  typename Source::FirstLook later_first_ = {};
  typename Source::SecondLook next_second_ = {};
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

  // Sums what this warp gets of `count` sums; `counter` is that of their tickets. All of the grid's
  // warps call it; for other sums, again. On all lanes and ahead of its turn, source.First(i) is
  // called, then source.Second(of what that gave), which may look where it pointed, and then
  // source.SumOf(i, of what both gave).
  template <typename Source>
  __device__ void Sum(uint32_t* counter, int32_t count, const Source& source) {
    const SumParts parts(count, row_bytes_, Source::kInParts);
    SumQueue<Source> queue(source, parts, RowTickets(counter, parts.tickets(), row_bytes_));
    int load_stage = stage_;
    int ahead = 0;
    RowSum sum;
    int32_t offset = 0;
    int32_t end = 0;  // of the part
    int32_t row = 0;
    bool more = true;
    while (true) {
      while (more && ahead < SummerShape::kStages) {
        if (offset >= end) {
          SumPart part;
          more = queue.Take(&part, &sum);
          if (!more) break;
          if (sum.out == nullptr) continue;
          offset = part.begin;
          end = part.end;
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
      AwaitPhase(&loaded_[stage_], parity_);
      Add(stage_);
      --ahead;
      if (++stage_ == SummerShape::kStages) {
        stage_ = 0;
        parity_ ^= 1;
      }
    }
  }

 private:
  struct Stage {
    void* out;       // of the piece
    uint64_t* done;  // null but in the last stage of a sum
    uint64_t mark;
    int32_t bytes;
    int16_t rows;
    bool is_first;  // stage of the piece
    bool is_last;
    bool is_sum;  // of two rows or more
  };

  __device__ void Load(int stage, const RowSum& sum, int32_t offset, int32_t row) {
    __syncwarp();  // all have read what the stage held
    const int32_t rows = min(SummerShape::kRows, sum.count - row);
    const int32_t bytes = min(SummerShape::kPieceBytes, row_bytes_ - offset);
    if (LaneId() == 0) {
      const bool is_last = offset + bytes == row_bytes_ && row + SummerShape::kRows >= sum.count;
      meta_[stage] = {static_cast<std::byte*>(sum.out) + offset,
                      is_last ? sum.done : nullptr,
                      sum.mark,
                      bytes,
                      static_cast<int16_t>(rows),
                      row == 0,
                      row + SummerShape::kRows >= sum.count,
                      sum.count > 1};
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
    for (int row = 0; row < SummerShape::kRows; ++row) {
      if (row >= meta.rows) break;
#pragma unroll
      for (int i = 0; i < SummerShape::kVectors; ++i) {
        const uint4 vector =
            *reinterpret_cast<const uint4*>(data + SummerShape::kPieceBytes * row + 512 * i);
        if (row == 0 && meta.is_first) {
          sums_[i].Start(vector);
        } else {
          sums_[i].Add(vector);
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
    if (meta.done == nullptr) return;
    __syncwarp();
    if (LaneId() == 0) StoreReleaseOnDevice(meta.done, meta.mark);
  }

  const int32_t row_bytes_;
  // The stage that is summed next, and the parity of its loads.
  int stage_ = 0;
  uint32_t parity_ = 0;
  std::byte* data_;
  Stage* meta_;
  uint64_t* loaded_;
  VectorSum sums_[SummerShape::kVectors];
};

}  // namespace perigee

#endif  // PERIGEE_KERNELS_CUDA_ROW_SUMMER_CUH_
