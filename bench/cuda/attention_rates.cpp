// Attention op: forward, backward, and decode over a KV cache.

#include <chrono>
#include <functional>

#include "bench/cuda/measure.h"
#include "core/ops/attention.h"

namespace quench::bench {
namespace {

// Seconds per call by host clock, over enough calls to hide queueing.
double seconds(const std::function<void()>& call, int calls) {
  const Stream stream = current_stream(kGpu);
  Backend& gpu = backend(DeviceType::cuda);
  for (int i = 0; i < 5; ++i) call();
  double best = INFINITY;
  for (int round = 0; round < 3; ++round) {
    gpu.synchronize(stream);
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < calls; ++i) call();
    gpu.synchronize(stream);
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
    best = std::min(best, elapsed.count() / calls);
  }
  return best;
}

// Random data: zeros run faster.
Tensor noise(const Shape& shape, DType dtype) {
  Generator random(1);
  const Tensor piece = random.normal({1 << 16}, dtype), whole = Tensor::empty(shape, dtype);
  const std::size_t width = piece.nbytes();
  for (std::size_t at = 0; at < whole.nbytes(); at += width)
    std::memcpy(static_cast<std::byte*>(whole.raw_data()) + at, piece.raw_data(), std::min(width, whole.nbytes() - at));
  return whole.to(kGpu);
}

struct Size {
  std::int64_t heads, kv_heads, dim;
  std::vector<std::int64_t> lengths;
};

void time_training(const char* name, const Size& size, DType dtype, int calls) {
  std::vector<SequenceRange> sequences;
  std::int64_t tokens = 0;
  double pairs = 0;
  for (const std::int64_t n : size.lengths) {
    sequences.push_back({tokens, n, tokens, n});
    tokens += n;
    pairs += 0.5 * static_cast<double>(n) * static_cast<double>(n);
  }
  const std::int64_t width = (size.heads + 2 * size.kv_heads) * size.dim;
  const auto part = [&](const Tensor& t, std::int64_t first, std::int64_t count) {
    return t.strided({tokens, count, size.dim}, {width, size.dim, 1}, first * size.dim);
  };
  const Tensor fused = noise({tokens, width}, dtype), gradient = Tensor::empty_like(fused);
  const Tensor dout = noise({tokens, size.heads, size.dim}, dtype), out = Tensor::empty_like(dout);
  const Tensor lse = Tensor::empty({size.heads, tokens}, DType::f32, kGpu);
  const float scale = 1.0f / std::sqrt(static_cast<float>(size.dim));
  const std::int64_t v = size.heads + size.kv_heads;
  const double forward = seconds(
      [&] {
        attention({.q = part(fused, 0, size.heads),
                   .k = part(fused, size.heads, size.kv_heads),
                   .v = part(fused, v, size.kv_heads),
                   .out = out,
                   .lse = lse,
                   .sequences = sequences,
                   .scale = scale});
      },
      calls);
  const double backward = seconds(
      [&] {
        attention_backward({.dout = dout,
                            .q = part(fused, 0, size.heads),
                            .k = part(fused, size.heads, size.kv_heads),
                            .v = part(fused, v, size.kv_heads),
                            .out = out,
                            .lse = lse,
                            .dq = part(gradient, 0, size.heads),
                            .dk = part(gradient, size.heads, size.kv_heads),
                            .dv = part(gradient, v, size.kv_heads),
                            .sequences = sequences,
                            .scale = scale});
      },
      calls);
  const double flops = 4 * pairs * static_cast<double>(size.heads * size.dim);
  fmt::print("{:28} {} forward {:8.3f} ms {:6.1f} TFLOP/s   backward {:8.3f} ms {:6.1f} TFLOP/s\n", name,
             to_string(dtype), forward * 1e3, flops / forward * 1e-12, backward * 1e3, 2.5 * flops / backward * 1e-12);
}

void time_decode(std::int64_t sequences, std::int64_t keys, const Size& size, DType dtype) {
  std::vector<SequenceRange> ranges;
  for (std::int64_t i = 0; i < sequences; ++i) ranges.push_back({i, 1, i * keys, keys});
  const Tensor q = noise({sequences, size.heads, size.dim}, dtype), out = Tensor::empty_like(q);
  const Tensor k = noise({sequences * keys, size.kv_heads, size.dim}, dtype);
  const Tensor v = noise({sequences * keys, size.kv_heads, size.dim}, dtype);
  const double time =
      seconds([&] { attention({.q = q, .k = k, .v = v, .out = out, .sequences = ranges, .scale = 0.1f}); }, 200);
  fmt::print("decode {:3} x {:6} keys, {}({}) heads of {}, {} {:8.1f} us {:7.0f} GB/s\n", sequences, keys, size.heads,
             size.kv_heads, size.dim, to_string(dtype), time * 1e6, 2 * static_cast<double>(k.nbytes()) / time * 1e-9);
}

void measure_training() {
  const std::vector<std::int64_t> documents = {4096, 1000, 700, 2300, 96, 5000, 1200, 800, 1192};
  time_training("[2,32(8),8192,128]", {32, 8, 128, {8192, 8192}}, DType::bf16, 20);
  time_training("[16,28(4),1024,128]", {28, 4, 128, std::vector<std::int64_t>(16, 1024)}, DType::bf16, 50);
  time_training("[4,32(8),4096,64]", {32, 8, 64, std::vector<std::int64_t>(4, 4096)}, DType::bf16, 50);
  time_training("9 documents,32(8),128", {32, 8, 128, documents}, DType::bf16, 20);
  time_training("tiled [2,16(4),1024,64]", {16, 4, 64, {1024, 1024}}, DType::f32, 5);
  time_training("tiled [2,16(4),1024,128]", {16, 4, 128, {1024, 1024}}, DType::f32, 5);
}

void measure_decode() {
  for (const std::int64_t keys : {256, 1024, 4000, 32000}) {
    time_decode(1, keys, {32, 8, 128, {}}, DType::bf16);
    time_decode(1, keys, {28, 4, 128, {}}, DType::bf16);
    time_decode(16, keys, {32, 8, 128, {}}, DType::bf16);
    time_decode(1, keys, {16, 16, 64, {}}, DType::f32);
  }
}

}  // namespace

void measure_attention() {
  measure_training();
  measure_decode();
}

}  // namespace quench::bench
