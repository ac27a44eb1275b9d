// Products and values of packed weights. Codes become f32 in registers; a row of the weight is read once for all rows
// of x.

#include <vector>

#include "core/cpu/packed_codes.h"
#include "core/cpu/parallel.h"
#include "core/ops/packed_linear.h"

namespace quench::cpu::QUENCH_CPU_NAMESPACE {
namespace {

// Rows of the weight that are walked side by side, so that sums do not wait for each other.
constexpr int kStreams = 2;

// The scales of a row in f32, with zeros behind them for lanes beyond the row.
template <class S>
void widen_scales(const S* from, std::int64_t groups, float* to) {
  for_vectors(groups, [&](std::int64_t i, auto count) { store(to + i, load(from + i, count), count); });
}

// What all rows of one product share.
struct Problem {
  std::int64_t depth, group, groups;
  std::int64_t row_bytes;
  const std::uint8_t* codes;
  const float* offsets;  // or null
  const float* x;        // [rows][padded depth], in the order in which Codes::decode gives a block's elements
  std::int64_t x_stride;
  const float* sums;                // [rows][groups] of x by group; where there are offsets
  const std::int32_t* lane_groups;  // group of each first element of a lane, block by block; where a block has several
};

template <class Codes>
std::int64_t padded(std::int64_t depth) {
  return (depth + Codes::kBlock - 1) / Codes::kBlock * Codes::kBlock;
}

// The first element of each vector of a decoded block by lane, relative to the block.
template <class Codes>
constexpr int element_of_lane(int vector, int lane) {
  return Codes::kVectors == 2 ? 2 * lane + vector : lane;
}

// x in f32, block by block in the order of decoded elements; zeros behind the end.
template <class Codes, class T>
void arrange(const T* x, std::int64_t depth, float* out) {
  for (std::int64_t block = 0; block < depth; block += Codes::kBlock)
    for (int vector = 0; vector < Codes::kVectors; ++vector)
      for (int lane = 0; lane < kLanes; ++lane) {
        const std::int64_t k = block + element_of_lane<Codes>(vector, lane);
        out[block + vector * kLanes + lane] = k < depth ? static_cast<float>(x[k]) : 0.0f;
      }
}

// The codes of a block; those behind the row's end are 0.
template <class Codes>
QUENCH_INLINE void decode_block(const Problem& p, const std::uint8_t* row, std::int64_t k, F32 (&out)[2]) {
  const std::int64_t left = p.row_bytes - k / Codes::kPerByte;
  if (left >= Codes::kBlockBytes) [[likely]] {
    Codes::decode(row + k / Codes::kPerByte, out);
    return;
  }
  std::uint8_t tail[Codes::kBlockBytes] = {};
  std::memcpy(tail, row + k / Codes::kPerByte, static_cast<std::size_t>(left));
  Codes::decode(tail, out);
}

// out[s][r] = product of row first + s of the weight and row r of x.
template <class Codes, int kRows, int kCount>
void dot_products(const Problem& p, std::int64_t first, const float* scales, std::int64_t scales_stride,
                  float (&out)[kStreams][kPackedRows]) {
  F32 sums[kCount][kRows] = {};
  const std::uint8_t* rows[kCount];
  for (int s = 0; s < kCount; ++s) rows[s] = p.codes + (first + s) * p.row_bytes;
  if (p.lane_groups == nullptr) {
    for (std::int64_t g = 0; g < p.groups; ++g) {
      const std::int64_t end = std::min(p.depth, (g + 1) * p.group);
      F32 part[kCount][kRows][Codes::kVectors] = {};
      for (std::int64_t k = g * p.group; k < end; k += Codes::kBlock)
        for (int s = 0; s < kCount; ++s) {
          F32 w[2];
          decode_block<Codes>(p, rows[s], k, w);
          for (int r = 0; r < kRows; ++r)
            for (int v = 0; v < Codes::kVectors; ++v)
              part[s][r][v] = fma(w[v], load(p.x + r * p.x_stride + k + v * kLanes, FullVector{}), part[s][r][v]);
        }
      for (int s = 0; s < kCount; ++s)
        for (int r = 0; r < kRows; ++r) {
          F32 all = part[s][r][0];
          if constexpr (Codes::kVectors == 2) all += part[s][r][1];
          sums[s][r] = fma(all, broadcast(scales[s * scales_stride + g]), sums[s][r]);
        }
    }
  } else {
    for (std::int64_t k = 0; k < p.depth; k += Codes::kBlock)
      for (int s = 0; s < kCount; ++s) {
        F32 w[2], scale;
        decode_block<Codes>(p, rows[s], k, w);
        const std::int32_t* groups = p.lane_groups + k / Codes::kVectors;
        for (int lane = 0; lane < kLanes; ++lane) scale[lane] = scales[s * scales_stride + groups[lane]];
        for (int v = 0; v < Codes::kVectors; ++v) w[v] *= scale;
        for (int r = 0; r < kRows; ++r)
          for (int v = 0; v < Codes::kVectors; ++v)
            sums[s][r] = fma(w[v], load(p.x + r * p.x_stride + k + v * kLanes, FullVector{}), sums[s][r]);
      }
  }
  for (int s = 0; s < kCount; ++s)
    for (int r = 0; r < kRows; ++r) {
      float total = reduce_add(sums[s][r]);
      if (p.offsets != nullptr) {
        const float* offsets = p.offsets + (first + s) * p.groups;
        F32 shift{};
        for_vectors(p.groups, [&](std::int64_t g, auto count) {
          shift = fma(load(offsets + g, count), load(p.sums + r * p.groups + g, count), shift);
        });
        total += reduce_add(shift);
      }
      out[s][r] = total;
    }
}

template <class Codes, int kRows, class T, class Y, class S>
void multiply(const PackedLinearArgs& args) {
  const PackedMatrix& weight = args.weight;
  const std::int64_t depth = weight.columns(), groups = weight.groups(), n = weight.rows();
  const MemoryScope scope(MemoryCategory::workspace);
  const std::int64_t stride = padded<Codes>(depth);
  const Tensor arranged = Tensor::empty({kRows, stride}, DType::f32);
  for (int r = 0; r < kRows; ++r)
    arrange<Codes>(args.x.data<T>() + r * depth, depth, arranged.data<float>() + r * stride);
  Problem p{.depth = depth,
            .group = weight.group_size(),
            .groups = groups,
            .row_bytes = depth / Codes::kPerByte,
            .codes = static_cast<const std::uint8_t*>(weight.codes().raw_data()),
            .offsets = weight.offsets().defined() ? weight.offsets().data<float>() : nullptr,
            .x = arranged.data<float>(),
            .x_stride = stride,
            .sums = nullptr,
            .lane_groups = nullptr};
  std::vector<float> sums;
  if (p.offsets != nullptr) {
    sums.assign(static_cast<std::size_t>(kRows * groups), 0.0f);
    for (int r = 0; r < kRows; ++r)
      for (std::int64_t k = 0; k < depth; ++k)
        sums[static_cast<std::size_t>(r * groups + k / p.group)] += static_cast<float>(args.x.data<T>()[r * depth + k]);
    p.sums = sums.data();
  }
  std::vector<std::int32_t> lane_groups;
  if (groups > 1 && p.group % Codes::kBlock != 0) {
    for (std::int64_t k = 0; k < depth; k += Codes::kBlock)
      for (int lane = 0; lane < kLanes; ++lane)
        lane_groups.push_back(
            static_cast<std::int32_t>(std::min(k + element_of_lane<Codes>(0, lane), depth - 1) / p.group));
    p.lane_groups = lane_groups.data();
  }
  const S* scales = weight.scales().data<S>();
  const T* bias = args.bias.defined() ? args.bias.data<T>() : nullptr;
  const auto write = [&](std::int64_t column, const float(&dots)[kPackedRows]) {
    for (int r = 0; r < kRows; ++r)
      args.y.data<Y>()[r * args.y.stride(0) + column] =
          Y(dots[r] + (bias != nullptr ? static_cast<float>(bias[column]) : 0.0f));
  };
  parallel_ranges((n + kStreams - 1) / kStreams, n * depth, [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> wide(static_cast<std::size_t>(kStreams * groups));
    float dots[kStreams][kPackedRows];
    for (std::int64_t column = begin * kStreams; column < std::min(end * kStreams, n); column += kStreams) {
      const std::int64_t count = std::min<std::int64_t>(kStreams, n - column);
      widen_scales(scales + column * groups, count * groups, wide.data());
      if (count == kStreams)
        dot_products<Codes, kRows, kStreams>(p, column, wide.data(), groups, dots);
      else
        dot_products<Codes, kRows, 1>(p, column, wide.data(), groups, dots);
      for (std::int64_t s = 0; s < count; ++s) write(column + s, dots[s]);
    }
  });
}

void packed_linear_kernel(const PackedLinearArgs& args) {
  dispatch_codes(args.weight.codes().dtype(), "packed_linear", [&]<class Codes>() {
    dispatch<float, bfloat16, float16>(args.weight.scales().dtype(), "packed_linear", [&]<class S>() {
      const auto run = [&]<class T, class Y>() {
        switch (args.x.size(0)) {
          case 1: return multiply<Codes, 1, T, Y, S>(args);
          case 2: return multiply<Codes, 2, T, Y, S>(args);
          case 3: return multiply<Codes, 3, T, Y, S>(args);
          default: return multiply<Codes, 4, T, Y, S>(args);
        }
      };
      if (args.x.dtype() == DType::f32) return run.template operator()<float, float>();
      if (args.y.dtype() == DType::f32) return run.template operator()<bfloat16, float>();
      return run.template operator()<bfloat16, bfloat16>();
    });
  });
}

// Values of one row, in order.
template <class Codes, class T>
void unpack_row(const Problem& p, const std::uint8_t* row, const float* scales, const float* offsets, T* out) {
  const bool whole_vectors = p.groups == 1 || p.group % kLanes == 0;
  for (std::int64_t k = 0; k < p.depth; k += Codes::kBlock) {
    F32 w[2];
    decode_block<Codes>(p, row, k, w);
    Codes::in_order(w);
    for (int v = 0; v < Codes::kVectors; ++v) {
      const std::int64_t at = k + v * kLanes, count = std::min<std::int64_t>(kLanes, p.depth - at);
      if (count <= 0) break;
      F32 scale, offset{};
      if (whole_vectors) {
        scale = broadcast(scales[at / p.group]);
        if (offsets != nullptr) offset = broadcast(offsets[at / p.group]);
      } else {
        for (int lane = 0; lane < kLanes; ++lane) {
          const std::int64_t group = std::min(at + lane, p.depth - 1) / p.group;
          scale[lane] = scales[group];
          if (offsets != nullptr) offset[lane] = offsets[group];
        }
      }
      const F32 value = w[v] * scale + offset;
      if (count == kLanes)
        store(out + at, value, FullVector{});
      else
        store(out + at, value, count);
    }
  }
}

void unpack_kernel(const UnpackArgs& args) {
  const PackedMatrix& weight = args.weight;
  dispatch_codes(weight.codes().dtype(), "unpack", [&]<class Codes>() {
    dispatch<float, bfloat16, float16>(weight.scales().dtype(), "unpack", [&]<class S>() {
      dispatch<float, bfloat16>(args.out.dtype(), "unpack", [&]<class T>() {
        const std::int64_t depth = weight.columns(), groups = weight.groups();
        const Problem p{.depth = depth,
                        .group = weight.group_size(),
                        .groups = groups,
                        .row_bytes = depth / Codes::kPerByte,
                        .codes = static_cast<const std::uint8_t*>(weight.codes().raw_data()),
                        .offsets = weight.offsets().defined() ? weight.offsets().data<float>() : nullptr,
                        .x = nullptr,
                        .x_stride = 0,
                        .sums = nullptr,
                        .lane_groups = nullptr};
        parallel_ranges(weight.rows(), weight.rows() * depth, [&](std::int64_t begin, std::int64_t end) {
          std::vector<float> scales(static_cast<std::size_t>(groups));
          for (std::int64_t row = begin; row < end; ++row) {
            widen_scales(weight.scales().data<S>() + row * groups, groups, scales.data());
            unpack_row<Codes>(p, p.codes + row * p.row_bytes, scales.data(),
                              p.offsets != nullptr ? p.offsets + row * groups : nullptr,
                              args.out.data<T>() + row * depth);
          }
        });
      });
    });
  });
}

QUENCH_CPU_KERNEL(packed_linear_slot, packed_linear_kernel);
QUENCH_CPU_KERNEL(unpack_slot, unpack_kernel);

}  // namespace
}  // namespace quench::cpu::QUENCH_CPU_NAMESPACE
