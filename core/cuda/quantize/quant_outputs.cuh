#pragma once
// Fused quantization outputs in producer kernels. Magnitudes are compared as integers (NaN above infinity); atomic
// maxima are order-independent. bf16 magnitudes stay packed.

#include <type_traits>

#include "core/cuda/common/pack.cuh"
#include "core/cuda/common/reduce.cuh"
#include "core/cuda/quantize/quantize_common.cuh"
#include "core/ops/quantize/quant_outputs.h"

namespace quench::cuda {

// codes: natural ones under a given scale, and the amax if wanted.
enum class QuantOutputParts { none, amax, codes, rows };

[[nodiscard]] inline QuantOutputParts parts_of(const QuantOutputs& quant_outputs) {
  if (quant_outputs.rows.defined() || quant_outputs.column_amax.defined()) return QuantOutputParts::rows;
  if (quant_outputs.codes.defined()) return QuantOutputParts::codes;
  return quant_outputs.amax.defined() ? QuantOutputParts::amax : QuantOutputParts::none;
}

// Null if not requested.
struct QuantOutputPointers {
  std::uint32_t* amax = nullptr;
  std::uint32_t* column_amax = nullptr;
  std::uint8_t* codes = nullptr;
  float* scales = nullptr;
  const float* given_scale = nullptr;  // scale of codes that are not by row
  ElementFormat element = ElementFormat::e4m3;
  bool power_of_two = false;

  QuantOutputPointers() = default;
  explicit QuantOutputPointers(const QuantOutputs& quant_outputs) {
    amax = static_cast<std::uint32_t*>(quant_outputs.amax.raw_data());
    column_amax = static_cast<std::uint32_t*>(quant_outputs.column_amax.raw_data());
    if (quant_outputs.codes.defined()) {
      codes = bytes_of(quant_outputs.codes.payload());
      given_scale = quant_outputs.codes.scales().data<float>();
      element = quant_outputs.codes.format().element;
    }
    if (!quant_outputs.rows.defined()) return;
    codes = bytes_of(quant_outputs.rows.payload());
    scales = quant_outputs.rows.scales().data<float>();
    element = quant_outputs.rows.format().element;
    power_of_two = quant_outputs.power_of_two;
  }
  // Eight quantized values per store; rows are whole 16-byte vectors.
  [[nodiscard]] bool wide() const { return aligned(codes, 8); }
};

// Result as f32 bits.
__device__ inline std::uint32_t widened_max(std::uint32_t pair) {
  return max(pair << 16, pair & 0xFFFF0000u);
}

// Compiler barrier: unpacked values do not stay live, at twice the registers.
template <class T>
__device__ inline void keep_packed(Packed<T>& piece) {
#pragma unroll
  for (std::uint32_t& word : piece.words) asm volatile("" : "+r"(word));
}

// amax of a thread's stored values.
template <class T>
class RunningMax {
 public:
  template <int N>
  __device__ void add(const Packed<T, N>& packed) {
    if constexpr (N == 1)
      add(packed.value);
    else
#pragma unroll
      for (int i = 0; i < Packed<T, N>::kWords; ++i) add_word(packed.words[i]);
  }
  template <int N>
  __device__ void add(const Vector<T, N>& values) {
    if constexpr (N == 1)
      add(values[0]);
    else
      add(reinterpret_cast<const Packed<T, N>&>(values));
  }
  __device__ void add(float value) {
    add_word(__float_as_uint(value));
  }
  __device__ void add(bfloat16 value) {
    add_word(value.bits);
  }

  // f32 bits.
  [[nodiscard]] __device__ std::uint32_t word() const {
    return std::is_same_v<T, bfloat16> ? widened_max(most_) : most_;
  }

 private:
  __device__ void add_word(std::uint32_t word) {
    most_ = larger<T>(most_, magnitudes<T>(word));
  }

  std::uint32_t most_ = 0;
};

// CTA maximum in every thread; double-buffered: one barrier per call.
class BlockMax {
 public:
  struct Scratch {
    std::uint32_t words[2][32];
  };
  __device__ explicit BlockMax(Scratch& scratch) : scratch_(scratch) {}
  __device__ std::uint32_t operator()(std::uint32_t value) {
    std::uint32_t* words = scratch_.words[turn_];
    turn_ ^= 1;
    value = __reduce_max_sync(0xFFFFFFFFu, value);
    const unsigned lane = threadIdx.x % 32;
    if (lane == 0) words[threadIdx.x / 32] = value;
    __syncthreads();
    return __reduce_max_sync(0xFFFFFFFFu, lane < blockDim.x / 32 ? words[lane] : 0u);
  }

 private:
  Scratch& scratch_;
  int turn_ = 0;
};

// CTA collective.
__device__ inline void raise_amax(std::uint32_t* amax, std::uint32_t word, BlockMax& block_max) {
  word = block_max(word);
  if (threadIdx.x == 0) atomicMax(amax, word);
}

// Scale of a bf16 row with amax `most` (f32 bits), and the factor of its codes.
struct RowScale {
  float stored, factor;
};
__device__ inline RowScale row_scale(const QuantOutputPointers& quant_outputs, std::uint32_t most) {
  const float amax = __uint_as_float(most);
  if (quant_outputs.element == ElementFormat::int8) {
    const float stored = int8_scale<bfloat16>(amax);
    return {stored, int8_encode_factor(stored)};
  }
  const float scale = float8_scale(amax, quant_outputs.element == ElementFormat::e5m2 ? E5m2::kMax : E4m3::kMax,
                                   quant_outputs.power_of_two);
  return {scale, scale};
}

__device__ inline void encode_piece(const QuantOutputPointers& quant_outputs, std::int64_t index,
                                    Packed<bfloat16> piece, float factor) {
  keep_packed(piece);
  const Piece values = unpack(piece);
  uint2& codes = reinterpret_cast<uint2*>(quant_outputs.codes)[index];
  if (quant_outputs.element == ElementFormat::e4m3)
    codes = encode_piece<E4m3>(values, factor);
  else if (quant_outputs.element == ElementFormat::int8)
    codes = encode_piece<Int8Code>(values, factor);
  else
    codes = encode_piece<E5m2>(values, factor);
}

// Atomic maximum of column maxima in shared memory: `rows` rows of `pieces` vectors, `stride` apart. By the CTA, after
// a barrier. Coalesced.
__device__ inline void raise_columns(std::uint32_t* column_amax, int pieces, const Packed<bfloat16>* columns, int rows,
                                     int stride) {
  for (int column = static_cast<int>(threadIdx.x); column < kPiece * pieces; column += static_cast<int>(blockDim.x)) {
    std::uint32_t pair = 0;
#pragma unroll 4
    for (int r = 0; r < rows; ++r)
      pair = larger<bfloat16>(pair, (columns + r * stride + column / kPiece)->words[column % kPiece / 2]);
    atomicMax(column_amax + column, column % 2 == 0 ? pair << 16 : pair & 0xFFFF0000u);
  }
}

enum class RowOwner { block, warp };

// Outputs of a bf16 result, row by row. The kernel holds the column maxima, in registers or shared memory.
// QuantOutputParts::none is empty.
template <QuantOutputParts kParts, RowOwner kOwner = RowOwner::block>
class RowQuantOutputs {
 public:
  __device__ RowQuantOutputs(const QuantOutputPointers&, BlockMax&) {}
  template <class T>
  __device__ void add(const Packed<T>&, Packed<T>&) {}
  [[nodiscard]] __device__ bool has_codes() const { return false; }
  __device__ float finish_row(std::int64_t, bool) { return 0; }
  template <class T>
  __device__ void encode(std::int64_t, const Packed<T>&, float) const {}
  template <int kRows, int kStride, class T>
  __device__ void finish(int, const Packed<T>*) {}
};

// Rows may be split.
template <RowOwner kOwner>
class RowQuantOutputs<QuantOutputParts::amax, kOwner> : public RowQuantOutputs<QuantOutputParts::none, kOwner> {
 public:
  __device__ RowQuantOutputs(const QuantOutputPointers& quant_outputs, BlockMax& block_max)
      : RowQuantOutputs<QuantOutputParts::none, kOwner>(quant_outputs, block_max),
        quant_outputs_(quant_outputs),
        block_max_(block_max) {}
  __device__ void add(const Packed<bfloat16>& piece, Packed<bfloat16>&) { most_.add(piece); }
  template <int kRows, int kStride>
  __device__ void finish(int, const Packed<bfloat16>*) {
    raise_amax(quant_outputs_.amax, most_.word(), block_max_);
  }

 private:
  const QuantOutputPointers& quant_outputs_;
  BlockMax& block_max_;
  RunningMax<bfloat16> most_;
};

template <RowOwner kOwner>
class RowQuantOutputs<QuantOutputParts::rows, kOwner> {
 public:
  __device__ RowQuantOutputs(const QuantOutputPointers& quant_outputs, BlockMax& block_max)
      : quant_outputs_(quant_outputs), block_max_(block_max) {}

  // Row amax and `columns`.
  __device__ void add(const Packed<bfloat16>& piece, Packed<bfloat16>& columns) {
    Packed<bfloat16> most = columns;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const std::uint32_t pair = magnitudes<bfloat16>(piece.words[i]);
      most.words[i] = larger<bfloat16>(most.words[i], pair);
      row_ = larger<bfloat16>(row_, pair);
    }
    columns = most;
  }

  [[nodiscard]] __device__ bool has_codes() const {
    return quant_outputs_.codes != nullptr;
  }
  // Ends a row: returns the factor for encode(); the scale is stored if quantized values are requested. By the CTA,
  // warps without a row included.
  __device__ float finish_row(std::int64_t row, bool exists) {
    std::uint32_t most = widened_max(row_);
    row_ = 0;
    RowScale scale{};
    if (has_codes()) {
      most = kOwner == RowOwner::block ? block_max_(most) : __reduce_max_sync(0xFFFFFFFFu, most);
      scale = row_scale(quant_outputs_, most);
      if (exists && threadIdx.x % (kOwner == RowOwner::block ? 1024 : 32) == 0)
        quant_outputs_.scales[row] = scale.stored;
    }
    most_ = max(most_, most);
    return scale.factor;
  }

  __device__ void encode(std::int64_t index, const Packed<bfloat16>& piece, float scale) const {
    encode_piece(quant_outputs_, index, piece, scale);
  }

  // Global maxima, by the CTA. `columns` (shared memory): maxima of kRows concurrent rows of `pieces` vectors, kStride
  // apart.
  template <int kRows, int kStride>
  __device__ void finish(int pieces, const Packed<bfloat16>* columns) {
    if (quant_outputs_.amax != nullptr) raise_amax(quant_outputs_.amax, most_, block_max_);
    if (quant_outputs_.column_amax == nullptr) return;
    __syncthreads();
    raise_columns(quant_outputs_.column_amax, pieces, columns, kRows, kStride);
  }

 private:
  const QuantOutputPointers& quant_outputs_;
  BlockMax& block_max_;
  std::uint32_t row_ = 0;   // bf16 pair
  std::uint32_t most_ = 0;  // f32 bits
};

}  // namespace quench::cuda
