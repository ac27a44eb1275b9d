#include "core/ops/embedding.h"

#include <algorithm>
#include <bit>

#include "core/cuda/common/launch.h"
#include "core/cuda/common/pdl.cuh"
#include "core/cuda/common/vector.cuh"

namespace quench::cuda {
namespace {

constexpr int kThreads = 256;

// Row gather, `columns` vectors per row. Ids outside the table give NaN rows, caught by the non-finite loss check.
template <class Piece>
__global__ __launch_bounds__(kThreads) void gather_rows_kernel(const Piece* table, std::int64_t table_rows,
                                                               const std::int32_t* ids, Piece* out, std::int64_t rows,
                                                               std::int64_t columns, Piece nan) {
  pdl_sync();
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  if (row >= rows) return;
  const std::int64_t id = ids[row];
  Piece* to = out + row * columns;
  if (id < 0 || id >= table_rows) {
    for (std::int64_t c = threadIdx.x; c < columns; c += blockDim.x) to[c] = nan;
    return;
  }
  const Piece* from = table + id * columns;
  constexpr int kInFlight = 4;
  for (std::int64_t first = threadIdx.x; first < columns; first += kInFlight * blockDim.x) {
    Piece pieces[kInFlight];
#pragma unroll
    for (int k = 0; k < kInFlight; ++k)
      if (const std::int64_t c = first + k * blockDim.x; c < columns) pieces[k] = __ldg(from + c);
#pragma unroll
    for (int k = 0; k < kInFlight; ++k)
      if (const std::int64_t c = first + k * blockDim.x; c < columns) to[c] = pieces[k];
  }
}

template <class Piece>
void gather_rows(const EmbeddingArgs& args, const OpLaunch& launch, Piece nan) {
  const std::int64_t rows = args.ids.numel(), row_bytes = args.table.size(1) * byte_size(args.table.dtype()),
                     columns = row_bytes / static_cast<std::int64_t>(sizeof(Piece));
  const auto across =
      static_cast<unsigned>(std::bit_ceil(static_cast<std::uint64_t>(std::min<std::int64_t>(columns, kThreads))));
  const dim3 block(across, kThreads / across);
  launch.early(rows, gather_rows_kernel<Piece>, dim3(static_cast<unsigned>((rows + block.y - 1) / block.y)), block, 0,
               static_cast<const Piece*>(args.table.raw_data()), args.table.size(0), args.ids.data<std::int32_t>(),
               static_cast<Piece*>(args.out.raw_data()), rows, columns, nan);
}

void embedding(const EmbeddingArgs& args) {
  const OpLaunch launch("embedding", {&args.table, &args.ids, &args.out});
  const bool is_bf16 = args.table.dtype() == DType::bf16;
  const auto nan16 = static_cast<std::uint16_t>(kF32QuietNan >> 16);
  const std::uint32_t nan = is_bf16 ? std::uint32_t{nan16} << 16 | nan16 : kF32QuietNan;
  const auto wide = [&]<class T>() {
    return rows_are_wide<T>(args.table.raw_data(), args.table.size(1), args.table.size(1)) &&
           rows_are_wide<T>(args.out.raw_data(), args.out.size(1), args.out.size(1));
  };
  if (is_bf16 ? wide.operator()<bfloat16>() : wide.operator()<float>())
    gather_rows(args, launch, uint4{nan, nan, nan, nan});
  else if (is_bf16)
    gather_rows(args, launch, nan16);
  else
    gather_rows(args, launch, nan);
}

QUENCH_CUDA_KERNEL(embedding_slot, embedding);

}  // namespace
}  // namespace quench::cuda
