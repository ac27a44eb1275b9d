#pragma once
// float8 codes in both orientations of a matrix that CTAs compute row by row. Rows are written as they are; the CTA
// that completes a block of rows transposes it, reading from L2.

#include "core/cuda/quantize/code_tiles.cuh"
#include "core/cuda/quantize/quant_outputs.cuh"

namespace quench::cuda {

// Transposed, one 32-byte sector per column.
inline constexpr int kCodeBlockRows = 32;
// Codes of 16 rows of a column per store; all rows are a multiple of it.
inline constexpr int kCodeStoreRows = 16;

// Up to two matrices of the same shape. Null if not requested.
struct TransposedRows {
  const std::uint8_t* natural[2] = {};
  std::uint8_t* transposed[2] = {};
  std::uint32_t* finished = nullptr;  // rows of each block, initially 0

  void add(const QuantOutputs& outputs) {
    if (!outputs.transposed_codes.defined()) return;
    const int i = transposed[0] == nullptr ? 0 : 1;
    natural[i] = bytes_of(outputs.codes.payload());
    transposed[i] = bytes_of(outputs.transposed_codes.payload());
  }
};

[[nodiscard]] inline std::int64_t code_block_count(std::int64_t rows) {
  return (rows + kCodeBlockRows - 1) / kCodeBlockRows;
}

// Whether kernels that write rows can write them, in 8-byte accesses to rows of whole 16-byte vectors.
[[nodiscard]] inline bool writes_row_codes(const QuantOutputs& outputs, ElementFormat element) {
  const QuantTensor &natural = outputs.codes, &transposed = outputs.transposed_codes;
  const auto fits = [&](const QuantTensor& codes, std::uintptr_t alignment) {
    return !codes.defined() || (codes.format().element == element && aligned(codes.payload().raw_data(), alignment));
  };
  if (outputs.rows.defined() || outputs.column_amax.defined() || !fits(natural, kPiece) || !fits(transposed, 16))
    return false;
  if (!transposed.defined()) return true;
  return transposed.shape()[0] % kCodeStoreRows == 0 &&
         (!natural.defined() || natural.scales().raw_data() == transposed.scales().raw_data());
}

template <class Element>
__device__ inline void store_row_codes(std::uint8_t* codes, std::int64_t index, Packed<bfloat16> piece, float scale) {
  keep_packed(piece);
  reinterpret_cast<uint2*>(codes)[index] = encode_piece<Element>(unpack(piece), scale);
}

// `outputs` with the natural codes that the transposed ones are made from.
[[nodiscard]] inline QuantOutputs with_natural_codes(QuantOutputs outputs) {
  const QuantTensor& transposed = outputs.transposed_codes;
  if (outputs.codes.defined() || !transposed.defined()) return outputs;
  const Tensor payload = Tensor::empty(transposed.shape(), transposed.payload().dtype(), transposed.device());
  outputs.codes = {code_format(transposed.format().element, Granularity::tensor), transposed.shape(),
                   transposed.source_dtype(), payload, transposed.scales()};
  return outputs;
}

// Transposes within a kernel of persistent CTAs of kThreads threads, all of one row at a time, in the order
//   transpose_complete(), barrier, begin_row(row), stores of the row's codes
// and then kDrainSteps times with kNoRow.
template <int kThreads>
class RowTransposer {
 public:
  static constexpr std::int64_t kNoRow = -1;
  static constexpr int kDrainSteps = 3;
  struct Scratch {
    int complete[2];  // block; -1: none
  };

  // Followed by a barrier.
  __device__ RowTransposer(Scratch& scratch, const TransposedRows& codes, std::uint32_t rows, int vectors)
      : scratch_(scratch), codes_(codes), rows_(rows), vectors_(vectors) {
    if (threadIdx.x < 2) scratch.complete[threadIdx.x] = -1;
  }

  // The block, if any, that an earlier row of this CTA has completed.
  __device__ void transpose_complete() const {
    const int block = scratch_.complete[turn_];
    if (block < 0) return;
#pragma unroll
    for (int i = 0; i < 2; ++i)
      if (codes_.transposed[i] != nullptr) transpose(codes_.natural[i], codes_.transposed[i], block * kCodeBlockRows);
  }
  // Counts the row before.
  __device__ void begin_row(std::int64_t row) {
    if (threadIdx.x == 0)
      scratch_.complete[turn_] =
          row_ == kNoRow || codes_.finished == nullptr ? -1 : count(static_cast<std::uint32_t>(row_));
    turn_ ^= 1;
    row_ = row;
  }

 private:
  // By one thread: the row's block, if it is the last one of it.
  __device__ int count(std::uint32_t row) const {
    const std::uint32_t block = row / kCodeBlockRows, size = min(kCodeBlockRows, rows_ - block * kCodeBlockRows);
    __threadfence();  // release of the CTA's stores, cumulative over the barrier
    if (atomicAdd(codes_.finished + block, 1) + 1 != size) return -1;
    __threadfence();
    return static_cast<int>(block);
  }

  __device__ void transpose(const std::uint8_t* natural, std::uint8_t* transposed, std::uint32_t first) const {
    const std::uint32_t end = min(first + kCodeBlockRows, rows_);
    for (int v = static_cast<int>(threadIdx.x); v < vectors_; v += kThreads)
#pragma unroll 1
      for (std::uint32_t row = first; row < end; row += kCodeStoreRows) {
        const uint2* const from = reinterpret_cast<const uint2*>(natural) + std::int64_t{row} * vectors_ + v;
        std::uint8_t* const to = transposed + std::int64_t{v} * kPiece * rows_ + row;
        uint2 upper[kPiece], lower[kPiece];
#pragma unroll
        for (int r = 0; r < kPiece; ++r) upper[r] = __ldcg(from + r * vectors_);
#pragma unroll
        for (int r = 0; r < kPiece; ++r) lower[r] = __ldcg(from + (r + kPiece) * vectors_);
        transpose_codes(upper);
        transpose_codes(lower);
#pragma unroll
        for (int c = 0; c < kPiece; ++c)
          *reinterpret_cast<uint4*>(to + std::int64_t{c} * rows_) =
              make_uint4(upper[c].x, upper[c].y, lower[c].x, lower[c].y);
      }
  }

  Scratch& scratch_;
  const TransposedRows& codes_;
  std::uint32_t rows_;
  int vectors_;
  std::int64_t row_ = kNoRow;
  int turn_ = 0;
};

}  // namespace quench::cuda
