// Decode step of one token under device-graph capture, and the cost of each kernel in it.

#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <vector>

#include "bench/cuda/measure.h"
#include "bench/cuda/rates.h"
#include "core/cuda/common/cuda_error.h"
#include "core/device/read_only_weights.h"
#include "core/memory/device_graph.h"
#include "core/ops/argmax.h"
#include "core/ops/gated_linear.h"
#include "core/ops/gemm.h"
#include "core/ops/kv_cache/cached_attention.h"
#include "core/ops/norm.h"
#include "core/ops/normed_linear.h"
#include "core/ops/packed_linear.h"

namespace quench::bench {
namespace {

// Llama 3.2 1B.
constexpr std::int64_t kWidth = 2048, kInner = 8192, kHeads = 32, kKvHeads = 8, kDim = 64, kLayers = 16;
constexpr std::int64_t kVocabulary = 128256;
constexpr std::int64_t kBound = 1024, kPosition = 430;

struct Weight {
  Tensor values;  // or
  PackedMatrix packed;
};

Weight make_weight(std::int64_t rows, std::int64_t columns, DType dtype, std::int64_t group) {
  if (dtype == DType::bf16) return {random_on_gpu({rows, columns}, dtype, 0.02), {}};
  static const Tensor bytes = [] {
    Generator random(3);
    const Tensor block = Tensor::empty({1 << 20}, DType::u8);
    for (std::int64_t i = 0; i < block.numel(); ++i) {
      const auto byte = static_cast<std::uint8_t>(random.below(256));
      block.data<std::uint8_t>()[i] = (byte & 0x7F) == 0x7F ? 0 : byte;
    }
    return on_gpu(block);
  }();
  const Tensor codes = Tensor::empty({rows, columns}, dtype, kGpu);
  for (std::size_t done = 0; done < codes.nbytes(); done += bytes.nbytes())
    cuda::check(cudaMemcpy(static_cast<char*>(codes.raw_data()) + done, bytes.raw_data(),
                           std::min(bytes.nbytes(), codes.nbytes() - done), cudaMemcpyDeviceToDevice),
                "copy", kGpu);
  return {{}, PackedMatrix(group, codes, random_on_gpu({rows, columns / group}, DType::bf16, 0.002))};
}

struct Layer {
  Weight qkv, o, gate_up, down;
  Tensor cache, gain;
};

enum Part : unsigned {
  kNorm = 1,
  kQkv = 2,
  kAttention = 4,
  kO = 8,
  kGateUp = 16,
  kDown = 32,
  kNormWithin = 64,  // fused into the GEMM that reads it
  kAll = kNormWithin | (kDown * 2 - 2)
};
// Ops after the last layer.
enum Tail : unsigned { kLastNorm = 1, kHead = 2, kChoice = 4, kWholeTail = 7 };

class Token {
 public:
  Token(DType dtype, std::int64_t group) {
    for (std::int64_t i = 0; i < kLayers; ++i) {
      const auto weight = [&](std::int64_t rows, std::int64_t columns) {
        return make_weight(rows, columns, dtype, group > 0 ? group : columns);
      };
      layers_.push_back({weight((kHeads + 2 * kKvHeads) * kDim, kWidth), weight(kWidth, kWidth),
                         weight(2 * kInner, kWidth), weight(kWidth, kInner),
                         random_on_gpu({kBound, 2 * kKvHeads * kDim}, DType::bf16, 1.0),
                         random_on_gpu({kWidth}, DType::bf16, 1.0)});
    }
    head_ = make_weight(kVocabulary, kWidth, dtype, group > 0 ? group : kWidth);
  }

  // Microseconds per layer with these parts.
  double measure(unsigned parts) {
    return microseconds([&] { run(parts); }) / kLayers;
  }
  // Microseconds of these parts after the last layer.
  double measure_tail(unsigned parts) {
    return microseconds([&] { run_tail(parts); });
  }
  // Microseconds of all layers and the tail.
  double measure_all() {
    return microseconds([&] {
      run(kAll);
      run_tail(kWholeTail);
    });
  }

 private:
  double microseconds(const std::function<void()>& queue) {
    queue();
    const auto work = DeviceGraph::capture(kGpu, [&] {
      const ReadOnlyWeightsScope constant(value_weights());
      queue();
    });
    auto* stream = static_cast<cudaStream_t>(current_stream(kGpu).handle);
    cudaEvent_t begin = nullptr, end = nullptr;
    cuda::check(cudaEventCreate(&begin), "event", kGpu);
    cuda::check(cudaEventCreate(&end), "event", kGpu);
    std::array<float, 9> times;
    constexpr int kLaunches = 10;
    for (float& time : times) {
      cuda::check(cudaEventRecord(begin, stream), "event", kGpu);
      for (int i = 0; i < kLaunches; ++i) work->launch();
      cuda::check(cudaEventRecord(end, stream), "event", kGpu);
      cuda::check(cudaEventSynchronize(end), "event", kGpu);
      cuda::check(cudaEventElapsedTime(&time, begin, end), "event", kGpu);
    }
    std::ranges::sort(times);
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
    return 1e3 * static_cast<double>(times[4]) / kLaunches;
  }

  [[nodiscard]] std::vector<const void*> value_weights() const {
    std::vector<const void*> all;
    for (const Layer& layer : layers_)
      for (const Weight* weight : {&layer.qkv, &layer.o, &layer.gate_up, &layer.down})
        if (weight->values.defined()) all.push_back(weight->values.raw_data());
    if (head_.values.defined()) all.push_back(head_.values.raw_data());
    return all;
  }

  static void multiply(const Tensor& x, const Weight& w, const Tensor& y) {
    if (w.packed.defined())
      packed_linear({.x = x, .weight = w.packed, .y = y, .bias = {}});
    else
      gemm({.a = x, .b = w.values, .c = y, .transpose_b = true});
  }

  void run(unsigned parts) {
    const SequenceRange range{0, 1, 0, kBound};
    for (const Layer& layer : layers_) {
      project(parts, layer, layer.qkv, (parts & kQkv) != 0, qkv_, false);
      if (parts & kAttention)
        cached_attention({.qkv = qkv_,
                          .cos = cos_,
                          .sin = sin_,
                          .positions = position_,
                          .cache = layer.cache,
                          .out = mixed_,
                          .heads = kHeads,
                          .kv_heads = kKvHeads,
                          .sequences = std::span(&range, 1),
                          .scale = 0.125f,
                          .length_on_device = true});
      if (parts & kO) multiply(mixed_, layer.o, delta_);
      project(parts, layer, layer.gate_up, (parts & kGateUp) != 0, inner_, true);
      if (parts & kDown) multiply(inner_, layer.down, delta_);
    }
  }

  // GEMM of the norm's output, fused or separate, each if requested.
  void project(unsigned parts, const Layer& layer, const Weight& w, bool product, const Tensor& y, bool gated) {
    if (product && (parts & kNormWithin)) {
      normed_linear({.x = delta_,
                     .norm = {.residual = stream_, .weight = layer.gain, .sum = next_stream_},
                     .values = w.values,
                     .packed = w.packed,
                     .y = y,
                     .bias = {},
                     .gated = gated ? std::optional(GatedActivation::silu) : std::nullopt});
      return std::swap(stream_, next_stream_);
    }
    if (parts & kNorm)
      rms_norm({.x = delta_, .residual = stream_, .weight = layer.gain, .y = normed_, .sum = stream_, .rstd = rstd_});
    if (!product) return;
    if (!gated)
      multiply(normed_, w, y);
    else if (w.packed.defined())
      gated_packed_linear({.x = normed_, .weight = w.packed, .y = y, .bias = {}});
    else
      gated_linear({.x = normed_, .weight = w.values, .y = y, .bias = {}});
  }

  void run_tail(unsigned parts) {
    const Layer& layer = layers_.front();
    if (parts & kLastNorm)
      rms_norm({.x = delta_, .residual = stream_, .weight = layer.gain, .y = normed_, .sum = stream_, .rstd = rstd_});
    if (parts & kHead) multiply(normed_, head_, logits_);
    if (parts & kChoice)
      argmax({.x = logits_, .index = found_.narrow(0, 0, 1), .first_nonfinite = found_.narrow(0, 1, 1)});
  }

  std::vector<Layer> layers_;
  Weight head_;
  Tensor logits_ = Tensor::zeros({1, kVocabulary}, DType::f32, kGpu), found_ = Tensor::zeros({2}, DType::i32, kGpu);
  Tensor delta_ = random_on_gpu({1, kWidth}, DType::bf16, 1.0);
  Tensor next_stream_ = random_on_gpu({1, kWidth}, DType::bf16, 1.0);
  Tensor stream_ = random_on_gpu({1, kWidth}, DType::bf16, 1.0), normed_ = random_on_gpu({1, kWidth}, DType::bf16, 1.0),
         qkv_ = random_on_gpu({1, (kHeads + 2 * kKvHeads) * kDim}, DType::bf16, 1.0),
         mixed_ = random_on_gpu({1, kWidth}, DType::bf16, 1.0), inner_ = random_on_gpu({1, kInner}, DType::bf16, 1.0),
         rstd_ = Tensor::zeros({1}, DType::f32, kGpu), cos_ = random_on_gpu({2 * kBound, kDim / 2}, DType::f32, 0.5),
         sin_ = random_on_gpu({2 * kBound, kDim / 2}, DType::f32, 0.5), position_ = [] {
           const std::array<std::int32_t, 1> values{static_cast<std::int32_t>(kPosition)};
           return on_gpu(Tensor::from_values<std::int32_t>({1}, values));
         }();
};

}  // namespace

void measure_generation() {
  struct Kind {
    const char* name;
    DType dtype;
    std::int64_t group;
  };
  constexpr std::array kKinds{Kind{"bf16", DType::bf16, 0}, Kind{"int4 by groups of 128", DType::i4, 128},
                              Kind{"float8 by rows", DType::f8_e4m3, 0}};
  constexpr std::array<std::pair<const char*, unsigned>, 11> kParts{{{"a layer", kAll + 0u},
                                                                     {"norms apart", kAll - kNormWithin + kNorm},
                                                                     {"without norms", kAll - kNormWithin},
                                                                     {"without attention", kAll - kAttention},
                                                                     {"GEMMs alone", kQkv | kO | kGateUp | kDown},
                                                                     {"qkv alone", kQkv + 0u},
                                                                     {"o alone", kO + 0u},
                                                                     {"gate_up alone", kGateUp + 0u},
                                                                     {"down alone", kDown + 0u},
                                                                     {"attention alone", kAttention + 0u},
                                                                     {"norms alone", kNorm + 0u}}};
  constexpr std::array<std::pair<const char*, unsigned>, 3> kTails{
      {{"last norm, head, choice", kWholeTail + 0u}, {"head alone", kHead + 0u}, {"choice alone", kChoice + 0u}}};
  for (const Kind& kind : kKinds) {
    Token token(kind.dtype, kind.group);
    fmt::print("\n{:<40}{:>10}\n", fmt::format("a token's layers, {}", kind.name), "us");
    for (const auto& [name, parts] : kParts) fmt::print("{:<40}{:>10.2f}\n", name, token.measure(parts));
    for (const auto& [name, parts] : kTails) fmt::print("{:<40}{:>10.2f}\n", name, token.measure_tail(parts));
    fmt::print("{:<40}{:>10.2f}\n", "16 layers and what follows", token.measure_all());
  }
}

}  // namespace quench::bench
