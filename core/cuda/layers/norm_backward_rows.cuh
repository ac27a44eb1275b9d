#pragma once
// Row stages of the RMSNorm backward kernel: prefetch, the row in registers (dot product, dx), and dweight of a CTA.

#include "core/cuda/layers/norm_rows.cuh"

namespace quench::cuda {

template <class T>
struct BackwardRows : NormRows<T> {
  Rows<const T> dy, dsum;
  Rows<T> dx;
  float* partial = nullptr;  // [blocks,width]; optional

  explicit BackwardRows(const RmsNormBackwardArgs& args)
      : NormRows<T>(args), dy(args.dy), dsum(args.dsum), dx(args.dx) {}
  [[nodiscard]] bool wide() const {
    return NormRows<T>::wide() && dy.wide(this->width) && dsum.wide(this->width) && dx.wide(this->width);
  }
};

inline constexpr int kBackwardStages = 2;  // rows

// Next rows by cp.async, each thread its own elements: [groups][kBackwardStages][dy, x, dsum][vectors].
template <class T, int kGroup, int kVectors>
struct RowPrefetch {
  const BackwardRows<T>& args;
  float (*rstd)[kNormBlock<kGroup>];  // [kBackwardStages], per thread
  Packed<T>* own_slots;
  int lane, stage = 0;

  __device__ RowPrefetch(const BackwardRows<T>& rows, Packed<T>* memory, float (*rstd_memory)[kNormBlock<kGroup>])
      : args(rows),
        rstd(rstd_memory),
        own_slots(memory + threadIdx.x / kGroup * kBackwardStages * 3 * rows.vectors + threadIdx.x % kGroup),
        lane(static_cast<int>(threadIdx.x) % kGroup) {}
  [[nodiscard]] __device__ const Packed<T>* slots() const { return own_slots + stage * 3 * args.vectors; }
  // Empty cp.async groups keep counts equal.
  __device__ __forceinline__ void fetch(std::uint32_t row, int to) {
    if (row < args.rows) {
      const RowPosition at = args.numbering(row);
      Packed<T>* const slots = own_slots + to * 3 * args.vectors;
      __pipeline_memcpy_async(&rstd[to][threadIdx.x], args.rstd + row, sizeof(float));
      fetch_row<kGroup, kVectors>(slots, args.dy[at], lane, args.vectors);
      fetch_row<kGroup, kVectors>(slots + args.vectors, args.x[at], lane, args.vectors);
      if (args.dsum.base != nullptr)
        fetch_row<kGroup, kVectors>(slots + 2 * args.vectors, args.dsum[at], lane, args.vectors);
    }
    __pipeline_commit();
  }
};

// Thread's elements of a row. Absent rows: end 0.
template <class T, int kGroup, int kVectors, bool kAhead>
struct BackwardRow {
  static constexpr int kWidth = kVectorWidth<T>;
  const BackwardRows<T>& args;
  std::uint32_t row;
  int lane, end;  // end: in vectors
  RowPosition at;
  const T *dy, *x;
  Packed<T> gradient[kVectors];               // dy, then dx
  Packed<T> value[kVectors], past[kVectors];  // x, dsum
  const Packed<T>* slots = nullptr;           // kAhead
  float rstd = 0;

  __device__ BackwardRow(const BackwardRows<T>& rows, std::uint32_t number)
      : args(rows),
        row(number < rows.rows ? number : 0),
        lane(static_cast<int>(threadIdx.x) % kGroup),
        end(number < rows.rows ? rows.vectors : 0),
        at(rows.numbering(row)),
        dy(rows.dy[at]),
        x(rows.x[at]) {}
  [[nodiscard]] __device__ bool has(int k) const { return lane + k * kGroup < end; }
  [[nodiscard]] __device__ int vector(int k) const { return lane + k * kGroup; }

  __device__ __forceinline__ void load() {
    rstd = args.rstd[row];
#pragma unroll
    for (int k = 0; k < kVectors; ++k) {
      if (!has(k)) continue;
      gradient[k] = load_packed_once(dy, vector(k));
      value[k] = load_packed_once(x, vector(k));
    }
    if (args.dsum.base != nullptr) load_row<kGroup>(past, args.dsum[at], lane, end);
  }
  // Waits for the row and fetches the one that is `next_row`.
  __device__ __forceinline__ void load(RowPrefetch<T, kGroup, kVectors>& prefetch, std::uint32_t next_row) {
    prefetch.fetch(next_row, prefetch.stage ^ 1);  // consumed by this thread
    __pipeline_wait_prior(kBackwardStages - 1);
    slots = prefetch.slots();
    rstd = prefetch.rstd[prefetch.stage][threadIdx.x];
    prefetch.stage ^= 1;
#pragma unroll
    for (int k = 0; k < kVectors; ++k) {
      if (!has(k)) continue;
      gradient[k] = slots[k * kGroup];
      value[k] = slots[args.vectors + k * kGroup];
    }
  }
  // The thread's part of the sum of u x; adds the row to its columns of dweight.
  __device__ __forceinline__ float dot(const Packed<T> (&weight)[kVectors],
                                       Vector<float, kWidth> (&dweight)[kVectors]) {
    float sum = 0;
#pragma unroll
    for (int k = 0; k < kVectors; ++k) {
      if (!has(k)) continue;
      const Vector<float, kWidth> g = unpack(gradient[k]), v = unpack(value[k]), w = unpack(weight[k]);
      float part[2] = {};
      Vector<float, kWidth> xhat;
#pragma unroll
      for (int j = 0; j < kWidth; ++j) {
        part[j % 2] = fmaf(g[j] * (w[j] + args.weight_offset), v[j], part[j % 2]);
        xhat[j] = v[j] * rstd;
      }
      sum += part[0] + part[1];
      if (args.partial == nullptr) continue;
      if (!args.f32_weight) xhat = rounded<T>(xhat);
#pragma unroll
      for (int j = 0; j < kWidth; ++j) dweight[k][j] = fmaf(g[j], xhat[j], dweight[k][j]);
    }
    return sum;
  }
  // `mean`: of u xhat, times rstd. Writes dx, its quantization outputs by column, and a recomputed y.
  template <class QuantOutputs>
  __device__ __forceinline__ void store_dx(const Packed<T> (&weight)[kVectors], float mean, QuantOutputs& quant_outputs,
                                           Packed<T>* own_columns) {
    T* const dx = args.dx[at];
#pragma unroll
    for (int k = 0; k < kVectors; ++k) {
      if (!has(k)) continue;
      const Vector<float, kWidth> g = unpack(gradient[k]), v = unpack(value[k]), w = unpack(weight[k]);
      Vector<float, kWidth> result;
#pragma unroll
      for (int j = 0; j < kWidth; ++j) result[j] = fmaf(-v[j], mean, g[j] * (w[j] + args.weight_offset)) * rstd;
      if (args.dsum.base != nullptr) {
        const Vector<float, kWidth> p = unpack(kAhead ? slots[2 * args.vectors + k * kGroup] : past[k]);
#pragma unroll
        for (int j = 0; j < kWidth; ++j) result[j] += p[j];
      }
      gradient[k] = pack<T>(result);
      store_packed(dx, vector(k), gradient[k]);
      quant_outputs.add(gradient[k], own_columns[k * kGroup]);
      if (args.y.base != nullptr) store_packed(args.y[at], vector(k), normalised<T>(value[k], rstd, weight[k], args));
    }
  }
};

// Partial dweight of a CTA with one row at a time.
template <int kGroup, int kVectors, int kWidth>
__device__ __forceinline__ void store_dweight(float* partial, const Vector<float, kWidth> (&dweight)[kVectors],
                                              int vectors) {
  const int lane = static_cast<int>(threadIdx.x) % kGroup;
#pragma unroll
  for (int k = 0; k < kVectors; ++k)
    for (int j = 0; lane + k * kGroup < vectors && j < kWidth; j += 4)
      *reinterpret_cast<float4*>(partial + (lane + k * kGroup) * kWidth + j) =
          make_float4(dweight[k][j], dweight[k][j + 1], dweight[k][j + 2], dweight[k][j + 3]);
}
// Partial dweight of a CTA with kRows at a time, summed in order through `shares`. CTA collective.
template <int kGroup, int kRows, int kVectors, int kWidth>
__device__ __forceinline__ void reduce_dweight(float* partial, const Vector<float, kWidth> (&dweight)[kVectors],
                                               float (&shares)[kRows][kGroup * kVectors * kWidth], std::int64_t width) {
  const int lane = static_cast<int>(threadIdx.x) % kGroup;
#pragma unroll
  for (int k = 0; k < kVectors; ++k)
#pragma unroll
    for (int j = 0; j < kWidth; ++j) shares[threadIdx.x / kGroup][(lane + k * kGroup) * kWidth + j] = dweight[k][j];
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < width; i += kNormBlock<kGroup>) {
    float total = 0;
#pragma unroll 4
    for (int r = 0; r < kRows; ++r) total += shares[r][i];
    partial[i] = total;
  }
}

}  // namespace quench::cuda
