#pragma once
// float8 codes of bf16 results under a given tensorwise scale, in both orientations, from kernels that compute in the
// tiles of the float8 casts, 8x8 elements per thread.

#include "core/cuda/quantize/code_tiles.cuh"
#include "core/cuda/quantize/quant_outputs.cuh"

namespace quench::cuda {

// Null if not requested.
struct ScaledCodes {
  std::uint8_t* natural = nullptr;
  std::uint8_t* transposed = nullptr;
  const float* scale = nullptr;
  std::uint32_t* amax = nullptr;

  ScaledCodes() = default;
  explicit ScaledCodes(const QuantOutputs& outputs) {
    if (outputs.codes.defined()) natural = bytes_of(outputs.codes.payload());
    if (outputs.transposed_codes.defined()) transposed = bytes_of(outputs.transposed_codes.payload());
    const QuantTensor& any = outputs.codes.defined() ? outputs.codes : outputs.transposed_codes;
    if (any.defined()) scale = any.scales().data<float>();
    amax = static_cast<std::uint32_t*>(outputs.amax.raw_data());
  }
  [[nodiscard]] bool wide() const { return aligned(natural, 8) && aligned(transposed); }
};

// Codes of one 8x8 block; of values rounded to bf16, as the casts of stored results.
template <class Element>
struct BlockCodes {
  uint2 rows[kPiece] = {};

  __device__ void set(int r, const Packed<bfloat16>& rounded, float scale) {
    rows[r] = encode_piece<Element>(unpack(rounded), scale);
  }
};

// First element and extent of a thread's block within a tile of [rows, columns].
struct CodeBlock {
  std::int64_t row, column;
  int rows;
  bool inside;
  __device__ CodeBlock(const MatrixBatch& of, const CodeTiles::Position& tile)
      : row(tile.row + static_cast<int>(threadIdx.x) / kTileParts * kPiece),
        column(tile.column + static_cast<int>(threadIdx.x) % kTileParts * kPiece),
        rows(clamped(of.rows - row, kPiece)),
        inside(rows > 0 && column < of.columns) {}
};

// CTA collective: a block of `part`, the columns from `offset` of a matrix of `width` columns. Null outputs are
// skipped.
template <class Element>
__device__ inline void store_block(BlockCodes<Element>& block_codes, const ScaledCodes& codes, std::int64_t width,
                                   std::int64_t offset, const CodeBlock& block, const MatrixBatch& part,
                                   const CodeTiles::Position& tile, CodeUnits& units) {
  if (codes.natural != nullptr && block.inside) {
#pragma unroll
    for (int r = 0; r < kPiece; ++r)
      if (r < block.rows)
        *reinterpret_cast<uint2*>(codes.natural + (block.row + r) * width + offset + block.column) =
            block_codes.rows[r];
  }
  if (codes.transposed == nullptr) return;
  __syncthreads();  // earlier readers of `units`
  store_transposed<true>(block_codes.rows, units, codes.transposed + offset * part.rows, part, tile.row, tile.column);
}

__device__ inline void finish_amax(std::uint32_t* amax, const RunningMax<bfloat16>& most) {
  if (amax == nullptr) return;
  __shared__ BlockMax::Scratch scratch;
  BlockMax block_max(scratch);
  raise_amax(amax, most.word(), block_max);
}

}  // namespace quench::cuda
