// Dequantizing GEMM of few rows: weight rows are read once.

#include <functional>
#include <type_traits>
#include <vector>

#include "core/cpu/packed_inputs.h"
#include "core/cpu/packed_rows.h"
#include "core/cpu/packed_ways_neon.h"
#include "core/cpu/parallel.h"
#include "core/ops/packed_linear.h"

namespace quench::cpu::QUENCH_CPU_NAMESPACE {
namespace {

// In flight, to hide latency.
template <int kRows>
inline constexpr int kStreams = kRows == 1 ? 4 : 2;
constexpr int kMaxStreams = 4;
// In bytes, to L2.
constexpr std::int64_t kAhead = 4096;

// f32 out[r, n] before the epilogue.
struct Products {
  PackedRows weight;
  const Tensor& scales;
  float* out;
  const float* x_sums;  // [rows][groups] of x, with offsets
  // Epilogue of finished columns, by the computing thread.
  std::function<void(std::int64_t begin, std::int64_t end)> finish;
};

template <class Way>
struct ScaleWalk {
  bool by_lane = false;     // several groups per block
  std::int64_t run = 0;     // blocks per group, else 1
  std::int64_t groups = 0;  // per block, if by_lane
  I32 group_of_lane{};      // group in the block, if by_lane
  bool possible = true;

  ScaleWalk(std::int64_t group, std::int64_t groups_of_row, std::int64_t blocks) {
    if (groups_of_row == 1 || group % Way::kBlock == 0) {
      run = groups_of_row == 1 ? blocks : group / Way::kBlock;
    } else if (Way::kBlock % group == 0 && group % Way::kPerLane == 0) {
      by_lane = true;
      run = 1;
      groups = Way::kBlock / group;
      group_of_lane = lane_numbers() / static_cast<std::int32_t>(group / Way::kPerLane);
    } else {
      possible = false;
    }
  }
};

QUENCH_INLINE F32 permute(F32 x, I32 index) {
  return __builtin_shuffle(x, index);
}

// [kCount][groups], readable kLanes past the end.
template <class Way, int kRows, int kCount, bool kByLane>
void dot_products(const PackedRows& w, const Inputs<Way>& in, const ScaleWalk<Way>& walk, std::int64_t first,
                  const float* scales, float (&out)[kMaxStreams][kPackedRows]) {
  const std::int64_t blocks = blocks_of<Way>(w.depth), whole = w.row_bytes / Way::kBlockBytes;
  const std::int64_t run = kByLane ? 1 : walk.run;
  const std::uint8_t* rows = w.codes + first * w.row_bytes;
  // Interleaved rows defeat the hardware prefetcher: software prefetch of the next rows, in memory order.
  const std::uint8_t* next = rows + std::max(kAhead, kCount * w.row_bytes);
  F32 sums[kCount][kRows];
  typename Way::Part parts[kCount][kRows][2];
  unrolled<kCount>(
      [&](auto s) QUENCH_INLINE_LAMBDA { unrolled<kRows>([&](auto r) QUENCH_INLINE_LAMBDA { sums[s][r] = F32{}; }); });
  const auto add = [&](const std::uint8_t* codes, std::int64_t stride, std::int64_t block) QUENCH_INLINE_LAMBDA {
    unrolled<kCount>([&](auto s) QUENCH_INLINE_LAMBDA {
      Way::template add<kRows>(codes + s * stride, in.x + block * Way::kBlock, in.stride(), parts[s]);
    });
  };
  for (std::int64_t begin = 0, group = 0; begin < blocks; begin += run, ++group) {
    unrolled<kCount>([&](auto s) QUENCH_INLINE_LAMBDA {
      unrolled<kRows>([&](auto r) QUENCH_INLINE_LAMBDA { parts[s][r][0] = parts[s][r][1] = typename Way::Part{}; });
    });
    const std::int64_t end = std::min(begin + run, whole);
    for (std::int64_t block = begin; block < end; ++block) {
      const std::uint8_t* codes = rows + block * Way::kBlockBytes;
      unrolled<kCount>([&](auto s) QUENCH_INLINE_LAMBDA {
        __builtin_prefetch(next + (block * kCount + s) * Way::kBlockBytes, 0, 2);
      });
      add(codes, w.row_bytes, block);
    }
    if (begin + run > whole && blocks > whole) [[unlikely]] {  // zero-filled tail
      std::uint8_t tail[kCount][Way::kBlockBytes] = {};
      for (int s = 0; s < kCount; ++s)
        std::memcpy(tail[s], rows + s * w.row_bytes + whole * Way::kBlockBytes,
                    static_cast<std::size_t>(w.row_bytes - whole * Way::kBlockBytes));
      add(&tail[0][0], Way::kBlockBytes, whole);
    }
    unrolled<kCount>([&](auto s) QUENCH_INLINE_LAMBDA {
      F32 scale;
      if constexpr (kByLane)
        scale = permute(load(scales + s * w.groups + group * walk.groups, FullVector{}), walk.group_of_lane);
      else
        scale = broadcast(scales[s * w.groups + group]);
      unrolled<kRows>([&](auto r) QUENCH_INLINE_LAMBDA { sums[s][r] = fma(Way::sum(parts[s][r]), scale, sums[s][r]); });
    });
  }
  for (int s = 0; s < kCount; ++s)
    for (int r = 0; r < kRows; ++r) out[s][r] = reduce_add(sums[s][r]);
}

// Fixed point, scales per block: one weight row at a time; integer accumulators do not stall, and stay in registers.
template <class Way, int kRows, int kCount, bool kByLane>
void fixed_dot_products(const PackedRows& w, const Inputs<Way>& in, const ScaleWalk<Way>& walk, std::int64_t first,
                        const float* scales, float (&out)[kMaxStreams][kPackedRows]) {
  const std::int64_t whole = w.row_bytes / Way::kBlockBytes;
  const std::uint8_t* rows = w.codes + first * w.row_bytes;
  const std::uint8_t* next = rows + std::max(kAhead, kCount * w.row_bytes);
  F32 sums[kCount][kRows];
  unrolled<kCount>(
      [&](auto s) QUENCH_INLINE_LAMBDA { unrolled<kRows>([&](auto r) QUENCH_INLINE_LAMBDA { sums[s][r] = F32{}; }); });
  const auto add = [&](auto low, const std::uint8_t* codes, std::int64_t stride, std::int64_t block,
                       std::int64_t group) QUENCH_INLINE_LAMBDA {
    unrolled<kCount>([&](auto s) QUENCH_INLINE_LAMBDA {
      typename Way::Part part[kRows][2] = {};
      Way::template add<kRows, low.value>(codes + s * stride, in.x + block * in.kBlock, in.stride(), part);
      F32 scale;
      if constexpr (kByLane)
        scale = permute(load(scales + s * w.groups + group, FullVector{}), walk.group_of_lane);
      else
        scale = broadcast(scales[s * w.groups + group]);
      unrolled<kRows>([&](auto r) QUENCH_INLINE_LAMBDA {
        const F32 unit = scale * load(in.scales + (r * in.blocks + block) * kLanes, FullVector{});
        sums[s][r] = fma(Way::template sum<low.value>(part[r]), unit, sums[s][r]);
      });
    });
  };
  const auto add_block = [&](const std::uint8_t* codes, std::int64_t stride, std::int64_t block, std::int64_t group)
                             QUENCH_INLINE_LAMBDA {
                               bool low = false;  // uniform: well predicted
                               for (int r = 0; r < kRows; ++r) low |= in.low[r * in.blocks + block] != 0;
                               if (low)
                                 add(std::true_type{}, codes, stride, block, group);
                               else
                                 add(std::false_type{}, codes, stride, block, group);
                             };
  std::int64_t group = 0, left = walk.run;
  for (std::int64_t block = 0; block < whole; ++block) {
    unrolled<kCount>(
        [&](auto s) QUENCH_INLINE_LAMBDA { __builtin_prefetch(next + (block * kCount + s) * Way::kBlockBytes, 0, 2); });
    add_block(rows + block * Way::kBlockBytes, w.row_bytes, block, group);
    if (--left == 0) {
      left = walk.run;
      group += kByLane ? walk.groups : 1;
    }
  }
  if (in.blocks > whole) [[unlikely]] {  // zero-filled tail
    std::uint8_t tail[kCount][Way::kBlockBytes] = {};
    for (int s = 0; s < kCount; ++s)
      std::memcpy(tail[s], rows + s * w.row_bytes + whole * Way::kBlockBytes,
                  static_cast<std::size_t>(w.row_bytes - whole * Way::kBlockBytes));
    add_block(&tail[0][0], Way::kBlockBytes, whole, group);
  }
  for (int s = 0; s < kCount; ++s)
    for (int r = 0; r < kRows; ++r) out[s][r] = reduce_add(sums[s][r]);
}

template <class Way, int kRows, int kCount, bool kByLane>
void dot_products_of(const PackedRows& w, const Inputs<Way>& in, const ScaleWalk<Way>& walk, std::int64_t first,
                     const float* scales, float (&out)[kMaxStreams][kPackedRows]) {
  if constexpr (kFixedPoint<Way>)
    fixed_dot_products<Way, kRows, kCount, kByLane>(w, in, walk, first, scales, out);
  else
    dot_products<Way, kRows, kCount, kByLane>(w, in, walk, first, scales, out);
}

float offset_product(const Products& p, std::int64_t column, std::int64_t row) {
  if (p.weight.offsets == nullptr) return 0.0f;
  F32 sum{};
  for_vectors(p.weight.groups, [&](std::int64_t g, auto count) {
    sum = fma(load(p.weight.offsets + column * p.weight.groups + g, count),
              load(p.x_sums + row * p.weight.groups + g, count), sum);
  });
  return reduce_add(sum);
}

// Rows [first_row, first_row + kRows).
template <class Way, int kRows>
void multiply(const Products& p, const Inputs<Way>& all, const ScaleWalk<Way>& walk, std::int64_t first_row,
              bool finish) {
  const Inputs<Way> in = all.from(first_row);
  constexpr int kCount = kStreams<kRows>;
  const std::int64_t n = p.weight.rows, groups = p.weight.groups;
  parallel_ranges((n + kCount - 1) / kCount, n * p.weight.depth, [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> scales(static_cast<std::size_t>(kCount * groups + kLanes));
    float dots[kMaxStreams][kPackedRows];
    const std::int64_t last = std::min(end * kCount, n);
    for (std::int64_t column = begin * kCount; column < last; column += kCount) {
      const std::int64_t from = std::min(column, n - kCount);  // the last tile overlaps
      widen_scales(p.scales, groups, from, kCount, scales.data());
      if (walk.by_lane)
        dot_products_of<Way, kRows, kCount, true>(p.weight, in, walk, from, scales.data(), dots);
      else
        dot_products_of<Way, kRows, kCount, false>(p.weight, in, walk, from, scales.data(), dots);
      for (int s = 0; s < kCount; ++s)
        for (int r = 0; from + s >= column && r < kRows; ++r)
          p.out[(first_row + r) * n + from + s] = dots[s][r] + offset_product(p, from + s, first_row + r);
    }
    if (finish) p.finish(begin * kCount, last);
  });
}

// False if groups do not align with lanes, or rows are too few.
template <class Way, class T>
bool multiply_by(const Products& p, const T* x, std::int64_t rows) {
  const std::int64_t depth = p.weight.depth;
  const ScaleWalk<Way> walk(p.weight.group, p.weight.groups, blocks_of<Way>(depth));
  if (!walk.possible || p.weight.rows < kMaxStreams) return false;
  const ArrangedInputs<Way> arranged(x, rows, depth);
  const Inputs<Way> in = arranged.view();
  for (std::int64_t row = 0; row < rows;) {  // three: two, then one
    const std::int64_t left = rows - row, count = left == 3 ? 2 : left;
    const bool finish = row + count == rows;
    switch (count) {
      case 1: multiply<Way, 1>(p, in, walk, row, finish); break;
      case 2: multiply<Way, 2>(p, in, walk, row, finish); break;
      default: multiply<Way, 4>(p, in, walk, row, finish); break;
    }
    row += count;
  }
  return true;
}

// Any groups: dequantizes a row, then multiplies.
template <class Codes, class T>
void multiply_values(const Products& p, const T* x, std::int64_t rows) {
  const PackedRows& w = p.weight;
  parallel_ranges(w.rows, w.rows * w.depth, [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> scales(static_cast<std::size_t>(w.groups)), values(static_cast<std::size_t>(w.depth));
    for (std::int64_t column = begin; column < end; ++column) {
      widen_scales(p.scales, w.groups, column, 1, scales.data());
      unpack_row<Codes>(w, column, scales.data(), values.data());
      for (std::int64_t r = 0; r < rows; ++r) {
        F32 sum{};
        for_vectors(w.depth, [&](std::int64_t k, auto count) {
          sum = fma(load(values.data() + k, count), load(x + r * w.depth + k, count), sum);
        });
        p.out[r * w.rows + column] = reduce_add(sum);
      }
    }
    p.finish(begin, end);
  });
}

// Sums of x, [rows, groups].
template <class T>
std::vector<float> group_sums(const PackedRows& w, const T* x, std::int64_t rows) {
  std::vector<float> sums(static_cast<std::size_t>(rows * w.groups));
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t g = 0; g < w.groups; ++g) {
      float sum = 0;
      for (std::int64_t k = g * w.group; k < std::min((g + 1) * w.group, w.depth); ++k)
        sum += static_cast<float>(x[r * w.depth + k]);
      sums[static_cast<std::size_t>(r * w.groups + g)] = sum;
    }
  return sums;
}

template <class Y, class Convert>
void write_columns(const Tensor& y, std::int64_t begin, std::int64_t end, const Convert& convert) {
  for (std::int64_t r = 0; r < y.size(0); ++r)
    for (std::int64_t column = begin; column < end; ++column)
      y.data<Y>()[r * y.stride(0) + column] = Y(convert(r, column));
}

// bf16 inputs: faster dot products if available for the dtype, else false.
template <class T>
bool multiply_in_bf16([[maybe_unused]] const Products& p, [[maybe_unused]] DType codes, [[maybe_unused]] const T* x,
                      [[maybe_unused]] std::int64_t rows) {
#if defined(__AVX512BF16__)
  if constexpr (std::is_same_v<T, bfloat16>) {
    switch (codes) {
      case DType::i4: return multiply_by<Bf16Nibbles<kInt4Values>>(p, x, rows);
      case DType::f4_e2m1: return multiply_by<Bf16Nibbles<kFloat4Values>>(p, x, rows);
      case DType::i8: return multiply_by<Bf16SignedBytes>(p, x, rows);
      case DType::f8_e4m3: return multiply_by<Bf16Float8>(p, x, rows);
      default: break;
    }
  }
#elif defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
  if constexpr (std::is_same_v<T, bfloat16>) {
    switch (codes) {
      case DType::i4: return multiply_by<Bf16Nibbles<kInt4Values>>(p, x, rows);
      case DType::f4_e2m1: return multiply_by<Bf16Nibbles<kFloat4Values>>(p, x, rows);
      case DType::f8_e4m3: return multiply_by<Bf16Float8>(p, x, rows);
      default: break;
    }
  }
#elif defined(__AVX2__) && !defined(__AVX512F__)
  if constexpr (std::is_same_v<T, bfloat16>) {
    switch (codes) {
      case DType::i4: return multiply_by<FixedNibbles>(p, x, rows);
      case DType::f4_e2m1: return multiply_by<FixedFloat4>(p, x, rows);
      case DType::i8: return multiply_by<FixedBytes>(p, x, rows);
      default: break;
    }
  }
#endif
  return false;
}

template <class T>
void multiply_any(const Products& p, DType codes, const T* x, std::int64_t rows) {
  if (multiply_in_bf16(p, codes, x, rows)) return;
  dispatch_codes(codes, "packed_linear", [&]<class Codes>() {
    if (!multiply_by<F32Way<typename Codes::ValueOf, 8 / Codes::kPerByte>>(p, x, rows))
      multiply_values<Codes>(p, x, rows);
  });
}

void packed_linear_kernel(const PackedLinearArgs& args) {
  const auto& [x, weight, y, bias] = args;
  const MemoryScope scope(MemoryCategory::workspace);
  const std::int64_t rows = x.size(0), n = weight.rows();
  const Tensor out = Tensor::empty({rows, n}, DType::f32);
  const float* products = out.data<float>();
  dispatch<float, bfloat16>(x.dtype(), "packed_linear", [&]<class T>() {
    const T* b = bias.defined() ? bias.data<T>() : nullptr;
    Products p{rows_of(weight), weight.scales(), out.data<float>(), nullptr, {}};
    p.finish = [&](std::int64_t begin, std::int64_t end) {
      dispatch<float, bfloat16>(y.dtype(), "packed_linear", [&]<class Y>() {
        write_columns<Y>(y, begin, end, [&](std::int64_t r, std::int64_t column) {
          return products[r * n + column] + (b != nullptr ? static_cast<float>(b[column]) : 0.0f);
        });
      });
    };
    std::vector<float> sums;
    if (p.weight.offsets != nullptr) sums = group_sums(p.weight, x.data<T>(), rows);
    p.x_sums = sums.data();
    multiply_any(p, weight.codes().dtype(), x.data<T>(), rows);
  });
}

// u8 inputs, value + 128: x = s (u - 128 - z), zero point z and scale s per row.
void packed_integer_linear_kernel(const PackedIntegerLinearArgs& args) {
  const PackedMatrix& weight = args.weight;
  const MemoryScope scope(MemoryCategory::workspace);
  const std::int64_t rows = args.x.size(0), depth = weight.columns(), n = weight.rows();
  std::vector<std::uint8_t> x(static_cast<std::size_t>(rows * depth));
  for (std::size_t i = 0; i < x.size(); ++i)
    x[i] = static_cast<std::uint8_t>(static_cast<int>(args.x.data<std::int8_t>()[i]) + 128);
  const Tensor out = Tensor::empty({rows, n}, DType::f32);
  const float* products = out.data<float>();
  const float* weight_sums = args.weight_sums.data<float>();
  Products p{rows_of(weight), weight.scales(), out.data<float>(), nullptr, {}};
  p.finish = [&](std::int64_t begin, std::int64_t end) {
    dispatch<float, bfloat16>(args.y.dtype(), "packed_integer_linear", [&]<class Y>() {
      const Y* bias = args.bias.defined() ? args.bias.data<Y>() : nullptr;
      write_columns<Y>(args.y, begin, end, [&](std::int64_t r, std::int64_t column) {
        const float zero = args.zero_points.defined() ? args.zero_points.data<float>()[r] : 0.0f;
        const float product = products[r * n + column] - (128.0f + zero) * weight_sums[column];
        return args.scales.data<float>()[r] * product + (bias != nullptr ? static_cast<float>(bias[column]) : 0.0f);
      });
    });
  };
  std::vector<float> sums;
  if (p.weight.offsets != nullptr) sums = group_sums(p.weight, x.data(), rows);
  p.x_sums = sums.data();
  const bool done = weight.codes().dtype() == DType::i4 ? multiply_by<IntegerNibbles>(p, x.data(), rows)
                                                        : multiply_by<IntegerBytes>(p, x.data(), rows);
  QUENCH_CHECK(done, "packed_integer_linear: groups of {} do not fit", weight.group_size());
}

QUENCH_CPU_KERNEL(packed_linear_slot, packed_linear_kernel);
QUENCH_CPU_KERNEL(packed_integer_linear_slot, packed_integer_linear_kernel);

}  // namespace
}  // namespace quench::cpu::QUENCH_CPU_NAMESPACE
