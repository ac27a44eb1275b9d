// Decode step of attention over long KV caches, in bf16 and in codes, under device-graph capture.

#include <fmt/format.h>

#include <array>
#include <chrono>
#include <cmath>
#include <vector>

#include "bench/cuda/measure.h"
#include "bench/cuda/rates.h"
#include "core/memory/device_graph.h"
#include "core/ops/kv_cache/cache_codes.h"
#include "core/ops/kv_cache/cached_attention.h"
#include "core/ops/kv_cache/kv_format.h"

namespace quench::bench {
namespace {

constexpr std::int64_t kLayers = 16;  // a cache each: they exceed L2 together

struct Heads {
  const char* model;
  std::int64_t heads, kv_heads, dim;
};
constexpr std::array kModels = {Heads{"Llama 3.2 1B", 32, 8, 64}, Heads{"Llama 3.1 8B", 32, 8, 128},
                                Heads{"SmolLM2 135M", 9, 3, 64}};

struct Cache {
  Tensor rows, scales;
};

Cache make_cache(const Heads& model, std::int64_t keys, const KvFormat* format, bool dynamic) {
  const std::int64_t vectors = 2 * model.kv_heads;
  const Tensor values = random_on_gpu({keys, vectors * model.dim}, DType::bf16, 1.0);
  if (format == nullptr) return {values, {}};
  const Tensor shared = Tensor::empty({vectors}, DType::f32), positions = Tensor::empty({keys}, DType::i32);
  std::fill_n(shared.data<float>(), vectors, 5.0f / format->largest);
  for (std::int64_t i = 0; i < keys; ++i) positions.data<std::int32_t>()[i] = static_cast<std::int32_t>(i);
  const Cache cache{Tensor::empty(values.shape(), format->codes, kGpu),
                    dynamic ? Tensor::empty({keys, vectors}, DType::f32, kGpu) : on_gpu(shared)};
  append_codes({.values = values, .positions = on_gpu(positions), .cache = cache.rows, .scales = cache.scales});
  return cache;
}

// Microseconds a layer.
double time_layers(const Heads& model, std::int64_t keys, const std::vector<Cache>& caches) {
  const std::int64_t width = (model.heads + 2 * model.kv_heads) * model.dim;
  const Tensor qkv = random_on_gpu({1, width}, DType::bf16, 1.0),
               out = Tensor::empty({1, model.heads * model.dim}, DType::bf16, kGpu),
               cos = random_on_gpu({keys, model.dim / 2}, DType::f32, 0.5),
               sin = random_on_gpu({keys, model.dim / 2}, DType::f32, 0.5);
  const std::array<std::int32_t, 1> last{static_cast<std::int32_t>(keys - 1)};
  const Tensor position = on_gpu(Tensor::from_values<std::int32_t>({1}, last));
  const SequenceRange range{0, 1, 0, keys};
  const auto queue = [&] {
    for (const Cache& cache : caches)
      cached_attention({.qkv = qkv,
                        .cos = cos,
                        .sin = sin,
                        .positions = position,
                        .cache = cache.rows,
                        .scales = cache.scales,
                        .out = out,
                        .heads = model.heads,
                        .kv_heads = model.kv_heads,
                        .sequences = std::span(&range, 1),
                        .scale = 1.0f / std::sqrt(static_cast<float>(model.dim)),
                        .length_on_device = true});
  };
  queue();
  const auto work = DeviceGraph::capture(kGpu, queue);
  const Stream stream = current_stream(kGpu);
  Backend& gpu = backend(DeviceType::cuda);
  constexpr int kLaunches = 20;
  double best = INFINITY;
  for (int round = 0; round < 6; ++round) {
    gpu.synchronize(stream);
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < kLaunches; ++i) work->launch();
    gpu.synchronize(stream);
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
    best = std::min(best, elapsed.count() / kLaunches);
  }
  return 1e6 * best / static_cast<double>(caches.size());
}

}  // namespace

void measure_kv_caches() {
  struct Kind {
    const char* name;
    const KvFormat* format;
    bool dynamic;
  };
  std::vector<Kind> kinds = {{"bf16", nullptr, false}};
  for (const KvFormat& format : kv_formats())
    for (const bool dynamic : {false, true}) kinds.push_back({format.name.data(), &format, dynamic});
  for (const Heads& model : kModels)
    for (const std::int64_t keys : {1000, 8192, 32768}) {
      fmt::print("\n{:<40}{:>10}{:>10}{:>10}\n", fmt::format("attention of a token, {}, {} keys", model.model, keys),
                 "us", "GB/s", "of bf16");
      double plain = 0;
      for (const Kind& kind : kinds) {
        std::vector<Cache> caches;
        for (std::int64_t layer = 0; layer < kLayers; ++layer)
          caches.push_back(make_cache(model, keys, kind.format, kind.dynamic));
        const double us = time_layers(model, keys, caches);
        if (kind.format == nullptr) plain = us;
        const std::size_t bytes = caches[0].rows.nbytes() + (kind.dynamic ? caches[0].scales.nbytes() : 0);
        fmt::print("{:<40}{:>10.2f}{:>10.0f}{:>10.3f}\n",
                   fmt::format("{}{}", kind.name,
                               kind.format == nullptr ? ""
                               : kind.dynamic         ? ", dynamic scales"
                                                      : ", static scales"),
                   us, static_cast<double>(bytes) / us / 1e3, us / plain);
      }
    }
}

}  // namespace quench::bench
