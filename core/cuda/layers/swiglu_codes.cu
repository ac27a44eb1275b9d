// Gated units with float8 codes of their results under given tensorwise scales, in both orientations: tiles of the
// float8 casts, 8x8 elements per thread. The bf16 results are optional.

#include "core/cuda/layers/swiglu_codes.h"

#include <algorithm>

#include "core/cuda/common/swiglu_math.cuh"
#include "core/cuda/quantize/scaled_codes.cuh"

namespace quench::cuda {
namespace {

using T = bfloat16;

// Bytes per element of [rows, half]: 4 read; 1 written per orientation, 2 with `out`.
template <class Element, GatedActivation kActivation>
__global__ __launch_bounds__(kCodeThreads, 4) void swiglu_codes_kernel(const T* gate_up, T* out, ScaledCodes codes,
                                                                       MatrixBatch half, CodeTiles grid) {
  __shared__ CodeUnits units;
  const auto tile = grid(blockIdx.x);
  const CodeBlock block(half, tile);
  const float scale = *codes.scale;
  BlockCodes<Element> result;
  RunningMax<T> most;
  if (block.inside) {
#pragma unroll
    for (int r = 0; r < kPiece; ++r) {
      if (r >= block.rows) continue;
      const T* const row = gate_up + (block.row + r) * 2 * half.columns + block.column;
      const Packed<T> value = pack<T>(
          swiglu_of<kActivation>(unpack(load_packed_once(row, 0)), unpack(load_packed_once(row + half.columns, 0))));
      if (out != nullptr) store_packed(out + (block.row + r) * half.columns + block.column, 0, value);
      most.add(value);
      result.set(r, value, scale);
    }
  }
  finish_amax(codes.amax, most);
  store_block(result, codes, half.columns, 0, block, half, tile, units);
}

// Bytes per element of [rows, half]: 6 read; 2 written per orientation of dgate_up, 4 with its values; 1 per
// orientation of the recomputed output, 2 with its values.
template <class Gradient, class Element, GatedActivation kActivation>
__global__ __launch_bounds__(kCodeThreads, 2) void swiglu_backward_codes_kernel(const T* dout, const T* gate_up,
                                                                                T* dgate_up, T* out,
                                                                                ScaledCodes gradient, ScaledCodes codes,
                                                                                MatrixBatch half, CodeTiles grid) {
  __shared__ CodeUnits units;
  const auto tile = grid(blockIdx.x);
  const CodeBlock block(half, tile);
  const bool again = codes.natural != nullptr || codes.transposed != nullptr;
  const float gradient_scale = *gradient.scale, scale = again ? *codes.scale : 0.0f;
  BlockCodes<Gradient> dgate, dup;
  BlockCodes<Element> result;
  RunningMax<T> most;
  if (block.inside) {
#pragma unroll
    for (int r = 0; r < kPiece; ++r) {
      if (r >= block.rows) continue;
      const std::int64_t at = (block.row + r) * half.columns + block.column,
                         gate_at = at + (block.row + r) * half.columns;
      const auto values = swiglu_gradient<kActivation>(unpack(load_packed_once(dout + at, 0)),
                                                       unpack(load_packed_once(gate_up + gate_at, 0)),
                                                       unpack(load_packed_once(gate_up + gate_at + half.columns, 0)));
      const Packed<T> dgate_row = pack<T>(values.dgate), dup_row = pack<T>(values.dup), row = pack<T>(values.out);
      if (dgate_up != nullptr) {
        store_packed(dgate_up + gate_at, 0, dgate_row);
        store_packed(dgate_up + gate_at + half.columns, 0, dup_row);
      }
      if (out != nullptr) store_packed(out + at, 0, row);
      most.add(dgate_row);
      most.add(dup_row);
      dgate.set(r, dgate_row, gradient_scale);
      dup.set(r, dup_row, gradient_scale);
      if (again) result.set(r, row, scale);
    }
  }
  finish_amax(gradient.amax, most);
  store_block(dgate, gradient, 2 * half.columns, 0, block, half, tile, units);
  store_block(dup, gradient, 2 * half.columns, half.columns, block, half, tile, units);
  if (again) store_block(result, codes, half.columns, 0, block, half, tile, units);
}

bool takes(const QuantOutputs& outputs, ElementFormat element) {
  const auto fits = [&](const QuantTensor& codes) { return !codes.defined() || codes.format().element == element; };
  return fits(outputs.codes) && fits(outputs.transposed_codes) && !outputs.rows.defined() &&
         !outputs.column_amax.defined() && ScaledCodes(outputs).wide();
}

bool takes_rows(const Tensor& gate_up, std::initializer_list<const Tensor*> operands) {
  const std::int64_t width = gate_up.size(1) / 2;
  return gate_up.dtype() == DType::bf16 && gate_up.size(0) % 16 == 0 &&
         std::all_of(operands.begin(), operands.end(),
                     [&](const Tensor* t) { return !t->defined() || rows_are_wide<T>(t->raw_data(), width, width); });
}

T* pointer_or_null(const Tensor& t) {
  return t.defined() ? t.data<T>() : nullptr;
}

template <class Body>
void with_activation(GatedActivation activation, const Body& body) {
  if (activation == GatedActivation::silu)
    body.template operator()<GatedActivation::silu>();
  else
    body.template operator()<GatedActivation::gelu_tanh>();
}

}  // namespace

bool swiglu_codes(const OpLaunch& launch, const SwigluArgs& args) {
  if (!takes(args.quant_outputs, ElementFormat::e4m3) || !takes_rows(args.gate_up, {&args.gate_up, &args.out}))
    return false;
  const MatrixBatch half(Shape{args.gate_up.size(0), args.gate_up.size(1) / 2});
  const CodeTiles grid(half);
  with_activation(args.activation, [&]<GatedActivation kActivation>() {
    launch(swiglu_codes_kernel<E4m3, kActivation>, dim3(grid.rows * grid.columns), kCodeThreads, 0,
           args.gate_up.data<T>(), pointer_or_null(args.out), ScaledCodes(args.quant_outputs), half, grid);
  });
  return true;
}

bool swiglu_backward_codes(const OpLaunch& launch, const SwigluBackwardArgs& args) {
  if (!args.quant_outputs.has_codes() || !takes(args.quant_outputs, ElementFormat::e5m2) ||
      !takes(args.out_codes, ElementFormat::e4m3) ||
      !takes_rows(args.gate_up, {&args.dout, &args.gate_up, &args.dgate_up, &args.out}))
    return false;
  const MatrixBatch half(args.dout.shape());
  const CodeTiles grid(half);
  with_activation(args.activation, [&]<GatedActivation kActivation>() {
    launch(swiglu_backward_codes_kernel<E5m2, E4m3, kActivation>, dim3(grid.rows * grid.columns), kCodeThreads, 0,
           args.dout.data<T>(), args.gate_up.data<T>(), pointer_or_null(args.dgate_up), pointer_or_null(args.out),
           ScaledCodes(args.quant_outputs), ScaledCodes(args.out_codes), half, grid);
  });
  return true;
}

}  // namespace quench::cuda
