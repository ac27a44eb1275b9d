// RoPE with float8 codes of its result under a given tensorwise scale, in both orientations: tiles of the float8
// casts, 8x8 elements per thread.

#include "core/cuda/common/launch.h"
#include "core/cuda/quantize/scaled_codes.cuh"
#include "core/ops/rope.h"

namespace quench::cuda {
namespace {

struct HeadRotation {
  const bfloat16* x;
  const float* cos;
  const float* sin;
  const std::int32_t* positions;
  std::int64_t table_rows;
  std::int64_t rotated;  // columns; whole heads
  int dim;               // size of a head; a multiple of 16
  float sign;
};

struct HeadAngles {
  Piece cosine, sine;
};

// Angles of 8 elements of a half. Positions outside the tables give NaN, without an access.
__device__ inline HeadAngles load_head_angles(const HeadRotation& args, std::int64_t row, int element) {
  const std::int32_t position = args.positions[row];
  if (position < 0 || position >= args.table_rows) {
    const Piece nan = repeated(__int_as_float(0x7FC00000));
    return {nan, nan};
  }
  const std::int64_t at = std::int64_t{position} * (args.dim / 2) + element;
  return {load_piece(args.cos + at, true), load_piece(args.sin + at, true)};
}

// Bytes per element: 2 read, 1 written per orientation; tables and the other half of a head from cache. The arithmetic
// of rope.cu.
template <class Element>
__global__ __launch_bounds__(kCodeThreads, 2) void rope_codes_kernel(HeadRotation args, ScaledCodes codes,
                                                                     MatrixBatch shape, CodeTiles grid) {
  __shared__ CodeUnits units;
  const auto tile = grid(blockIdx.x);
  const CodeBlock block(shape, tile);
  const float scale = *codes.scale;
  const int half = args.dim / 2, in_head = static_cast<int>(block.column % args.dim);
  const bool rotates = block.column < args.rotated, upper = in_head >= half;
  BlockCodes<Element> result;
  RunningMax<bfloat16> most;
  if (block.inside) {
    const bfloat16* const own_at = args.x + block.row * shape.columns + block.column;
    Packed<bfloat16> own[kPiece], other[kPiece];
#pragma unroll
    for (int r = 0; r < kPiece; ++r)
      if (r < block.rows) own[r] = load_packed(own_at + r * shape.columns, 0);
    if (rotates) {
      const bfloat16* const other_at = upper ? own_at - half : own_at + half;
#pragma unroll
      for (int r = 0; r < kPiece; ++r)
        if (r < block.rows) other[r] = load_packed(other_at + r * shape.columns, 0);
      const float sign = upper ? args.sign : -args.sign;
#pragma unroll
      for (int r = 0; r < kPiece; ++r) {
        if (r >= block.rows) continue;
        const HeadAngles angles = load_head_angles(args, block.row + r, upper ? in_head - half : in_head);
        const Piece a = unpack(own[r]), b = unpack(other[r]);
        Piece rotated;
#pragma unroll
        for (int j = 0; j < kPiece; ++j) rotated[j] = fmaf(a[j], angles.cosine[j], b[j] * (sign * angles.sine[j]));
        own[r] = pack<bfloat16>(rotated);
      }
    }
#pragma unroll
    for (int r = 0; r < kPiece; ++r) {
      if (r >= block.rows) continue;
      most.add(own[r]);
      result.set(r, own[r], scale);
    }
  }
  finish_amax(codes.amax, most);
  store_block(result, codes, shape.columns, 0, block, shape, tile, units);
}

void rope_codes(const RopeCodesArgs& args) {
  const QuantOutputs& outputs = args.quant_outputs;
  const QuantTensor& any = outputs.codes.defined() ? outputs.codes : outputs.transposed_codes;
  const std::int64_t dim = 2 * args.cos.size(1);
  const ElementFormat element = any.format().element;
  const auto fits = [&](const QuantTensor& codes) {
    return !codes.defined() ||
           (codes.format().element == element && codes.scales().raw_data() == any.scales().raw_data());
  };
  const MatrixBatch shape(args.x.shape());
  if (args.x.dtype() != DType::bf16 || dim % (2 * kPiece) != 0 || shape.rows % 16 != 0 ||
      !rows_are_wide<bfloat16>(args.x.raw_data(), shape.columns, shape.columns) || !aligned(args.cos.raw_data()) ||
      !aligned(args.sin.raw_data()) || !fits(outputs.codes) || !fits(outputs.transposed_codes) ||
      !ScaledCodes(outputs).wide())
    return rope_codes_of_copy(args);
  const OpLaunch launch("rope_codes", {&args.x, &args.cos, &args.sin, &args.positions});
  const CodeTiles grid(shape);
  const HeadRotation rotation{.x = args.x.data<bfloat16>(),
                              .cos = args.cos.data<float>(),
                              .sin = args.sin.data<float>(),
                              .positions = args.positions.data<std::int32_t>(),
                              .table_rows = args.cos.size(0),
                              .rotated = args.heads * dim,
                              .dim = static_cast<int>(dim),
                              .sign = args.inverse ? -1.0f : 1.0f};
  dispatch_element<E4m3, E5m2>(element, "rope_codes", [&]<class Element>() {
    launch(rope_codes_kernel<Element>, dim3(grid.rows * grid.columns), kCodeThreads, 0, rotation, ScaledCodes(outputs),
           shape, grid);
  });
}

QUENCH_CUDA_KERNEL(rope_codes_slot, rope_codes);

}  // namespace
}  // namespace quench::cuda
