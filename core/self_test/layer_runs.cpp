#include <array>
#include <span>

#include "core/ops/attention.h"
#include "core/ops/embedding.h"
#include "core/ops/loss/cross_entropy.h"
#include "core/ops/norm.h"
#include "core/ops/optimizer/adamw.h"
#include "core/ops/quantize/quantize.h"
#include "core/ops/rope.h"
#include "core/ops/swiglu.h"
#include "core/self_test/cases.h"
#include "core/self_test/runs.h"

namespace quench::self_test {

Outputs run_attention(Device device) {
  constexpr std::int64_t kRows = 128, kHeads = 4, kKvHeads = 2, kDim = 64;
  const auto bf16 = [&](std::int64_t heads, std::uint32_t seed) {
    return values({kRows, heads, kDim}, DType::bf16, seed, device);
  };
  const auto zeros = [&](std::int64_t heads) { return Tensor::zeros({kRows, heads, kDim}, DType::bf16, device); };
  const Tensor q = bf16(kHeads, 71), k = bf16(kKvHeads, 72), v = bf16(kKvHeads, 73), dout = bf16(kHeads, 74);
  Outputs out;
  // Two sequences of 64 rows, which cuDNN takes as packed, and one of 128.
  const std::array packed{SequenceRange{0, 64, 0, 64}, SequenceRange{64, 64, 64, 64}};
  const std::array uniform{SequenceRange{0, 128, 0, 128}};
  for (const std::span<const SequenceRange> sequences : {std::span<const SequenceRange>(packed), {uniform}}) {
    const Tensor lse = Tensor::zeros({kHeads, kRows}, DType::f32, device);
    const Tensor result = zeros(kHeads), dq = zeros(kHeads), dk = zeros(kKvHeads), dv = zeros(kKvHeads);
    attention({.q = q, .k = k, .v = v, .out = result, .lse = lse, .sequences = sequences, .scale = 0.125f});
    attention_backward({.dout = dout,
                        .q = q,
                        .k = k,
                        .v = v,
                        .out = result,
                        .lse = lse,
                        .dq = dq,
                        .dk = dk,
                        .dv = dv,
                        .sequences = sequences,
                        .scale = 0.125f});
    out.insert(out.end(), {result, dq, dk, dv});
  }
  return out;
}

Outputs run_decode_attention(Device device) {
  const std::array sequences{SequenceRange{0, 1, 0, 40}};
  Outputs out{Tensor::zeros({1, 4, 64}, DType::bf16, device)};
  attention({.q = values({1, 4, 64}, DType::bf16, 75, device),
             .k = values({40, 2, 64}, DType::bf16, 76, device),
             .v = values({40, 2, 64}, DType::bf16, 77, device),
             .out = out[0],
             .lse = {},
             .sequences = sequences,
             .scale = 0.125f});
  return out;
}

Outputs run_cross_entropy(Device device) {
  const Tensor labels = integers({7, 30000, kIgnoreLabel, 0}, device);
  Outputs out;
  // Two CTAs a row in f32, streamed rows in bf16.
  for (const auto& [vocabulary, dtype] : {std::pair{32768, DType::f32}, std::pair{40960, DType::bf16}}) {
    const Tensor losses = Tensor::zeros({4}, DType::f32, device),
                 gradients = Tensor::zeros({4, vocabulary}, dtype, device);
    cross_entropy({.logits = values({4, vocabulary}, dtype, 81, device),
                   .labels = labels,
                   .losses = losses,
                   .dlogits = gradients});
    out.insert(out.end(), {losses, gradients});
  }
  return out;
}

Outputs run_rms_norm(Device device) {
  const Tensor x = values({32, 256}, DType::bf16, 91, device), weight = values({256}, DType::bf16, 92, device),
               rstd = Tensor::zeros({32}, DType::f32, device);
  Outputs out{Tensor::zeros({32, 256}, DType::bf16, device), Tensor::zeros({32, 256}, DType::bf16, device),
              Tensor::zeros({256}, DType::f32, device)};
  rms_norm({.x = x, .residual = {}, .weight = weight, .y = out[0], .sum = {}, .rstd = rstd});
  rms_norm_backward({.dy = values({32, 256}, DType::bf16, 93, device),
                     .x = x,
                     .weight = weight,
                     .rstd = rstd,
                     .dsum = {},
                     .dx = out[1],
                     .dweight = out[2],
                     .y = {}});
  return out;
}

Outputs run_rope(Device device) {
  const Tensor cos = values({8, 32}, DType::f32, 102, device), sin = values({8, 32}, DType::f32, 103, device),
               positions = integers({0, 1, 2, 3, 4, 5, 6, 7, 7, 6, 5, 4, 3, 2, 1, 0}, device);
  Outputs out;
  for (const bool inverse : {false, true}) {
    out.push_back(values({16, 4, 64}, DType::bf16, 101, device));
    rope({.x = out.back(), .cos = cos, .sin = sin, .positions = positions, .inverse = inverse});
  }
  return out;
}

Outputs run_swiglu(Device device) {
  const Tensor gate_up = values({32, 256}, DType::bf16, 111, device);
  Outputs out{Tensor::zeros({32, 128}, DType::bf16, device), Tensor::zeros({32, 256}, DType::bf16, device)};
  swiglu({gate_up, out[0]});
  swiglu_backward(
      {.dout = values({32, 128}, DType::bf16, 112, device), .gate_up = gate_up, .dgate_up = out[1], .out = {}});
  return out;
}

Outputs run_embedding(Device device) {
  const Tensor ids = integers({3, 0, 63, 3, 17, 3, 40, 0}, device);
  Outputs out{Tensor::zeros({8, 128}, DType::bf16, device), Tensor::zeros({64, 128}, DType::f32, device)};
  embedding({values({64, 128}, DType::bf16, 121, device), ids, out[0]});
  embedding_backward({values({8, 128}, DType::bf16, 122, device), ids, out[1]});
  return out;
}

Outputs run_adamw(Device device) {
  const auto f32 = [&](std::uint32_t seed) { return values({1000}, DType::f32, seed, device); };
  AdamWTensor tensor;
  tensor.param = f32(131);
  tensor.grad = f32(132);
  tensor.exp_avg = f32(133);
  tensor.exp_avg_sq = Tensor::zeros({1000}, DType::f32, device);
  tensor.weight_decay = 0.1;
  adamw({.tensors = {&tensor, 1}, .lr = 0.125, .eps = 0.125, .step = 3, .grad_scale = {}});
  return {tensor.param, tensor.exp_avg, tensor.exp_avg_sq};
}

Outputs run_quantize(Device device) {
  const Tensor x = values({32, 128}, DType::bf16, 141, device);
  return {dequantize(quantize_float8(x, {.granularity = Granularity::row}), DType::f32),
          dequantize(quantize_mx(x, {}), DType::f32), dequantize(quantize_nvfp4(x), DType::f32)};
}

}  // namespace quench::self_test
