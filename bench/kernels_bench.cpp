// CPU kernels of a training step at the shapes of three decoders. Reports the best iteration (the mean includes other
// load on the machine).

#include <benchmark/benchmark.h>

#include <chrono>
#include <limits>
#include <string>
#include <vector>

#include "core/number/random.h"
#include "core/ops/attention.h"
#include "core/ops/elementwise.h"
#include "core/ops/embedding.h"
#include "core/ops/gemm.h"
#include "core/ops/global_norm.h"
#include "core/ops/loss/cross_entropy.h"
#include "core/ops/loss/lm_head_loss.h"
#include "core/ops/norm.h"
#include "core/ops/optimizer/adamw.h"
#include "core/ops/rope.h"
#include "core/ops/swiglu.h"

namespace quench {
namespace {

struct Model {
  const char* name;
  std::int64_t batch, context, width, heads, kv_heads, head_dim, intermediate, vocab;
  [[nodiscard]] std::int64_t tokens() const { return batch * context; }
  [[nodiscard]] std::int64_t projections() const { return (heads + 2 * kv_heads) * head_dim; }
};

constexpr Model kModels[] = {
    {"char", 12, 64, 128, 4, 4, 32, 344, 65},
    {"10M", 16, 256, 384, 6, 6, 64, 1024, 4096},
    {"110M", 4, 512, 768, 12, 12, 64, 2048, 32000},
};

Tensor random_tensor(const Shape& shape, DType dtype, float scale = 1.0f) {
  const Tensor wide = Tensor::empty(shape, DType::f32), result = Tensor::empty(shape, dtype);
  const RandomKey key{1, static_cast<std::uint64_t>(shape.numel()), 0};
  for (std::int64_t i = 0; i < wide.numel(); ++i)
    wide.data<float>()[i] = (to_uniform(random_word(key, static_cast<std::uint64_t>(i))) - 0.5f) * 3.4f * scale;
  if (wide.numel() > 0) cast({wide, result});
  return result;
}

Tensor random_ids(std::int64_t n, std::int64_t bound) {
  const Tensor ids = Tensor::empty({n}, DType::i32);
  for (std::int64_t i = 0; i < n; ++i)
    ids.data<std::int32_t>()[i] = static_cast<std::int32_t>(
        random_below({2, 3, 4}, static_cast<std::uint64_t>(i), static_cast<std::uint64_t>(bound)));
  return ids;
}

// Runs `body` once per iteration; reports the rate of the fastest one.
template <class Body>
void measure(benchmark::State& state, double flops, double bytes, const Body& body) {
  using Clock = std::chrono::steady_clock;
  body();  // creates primitives and touches memory
  double best = std::numeric_limits<double>::infinity();
  for (auto _ : state) {
    const auto start = Clock::now();
    body();
    best = std::min(best, std::chrono::duration<double>(Clock::now() - start).count());
  }
  state.counters["best_us"] = best * 1e6;
  if (flops > 0) state.counters["GFLOP/s"] = flops / best * 1e-9;
  if (bytes > 0) state.counters["GB/s"] = bytes / best * 1e-9;
}

template <class Body>
void add_benchmark(const std::string& name, const Body& body) {
  benchmark::RegisterBenchmark(name.c_str(), body)->Unit(benchmark::kMicrosecond)->UseRealTime();
}

void bench_gemm(const std::string& name, DType dtype, std::int64_t m, std::int64_t n, std::int64_t k, bool transpose_a,
                bool transpose_b, DType c_dtype) {
  add_benchmark(name, [=](benchmark::State& state) {
    const Tensor a = random_tensor(transpose_a ? Shape{k, m} : Shape{m, k}, dtype);
    const Tensor b = random_tensor(transpose_b ? Shape{n, k} : Shape{k, n}, dtype);
    const Tensor c = Tensor::empty({m, n}, c_dtype);
    measure(state, 2.0 * static_cast<double>(m * n * k), m == 1 ? static_cast<double>(b.nbytes()) : 0,
            [&] { gemm({.a = a, .b = b, .c = c, .transpose_a = transpose_a, .transpose_b = transpose_b}); });
  });
}

void bench_linears(const Model& model, DType dtype, const std::string& suffix) {
  struct Layer {
    const char* name;
    std::int64_t out, in;
  };
  const Layer layers[] = {{"qkv", model.projections(), model.width},
                          {"o", model.width, model.heads * model.head_dim},
                          {"gate_up", 2 * model.intermediate, model.width},
                          {"down", model.width, model.intermediate}};
  const std::int64_t n = model.tokens();
  for (const Layer& layer : layers) {
    const std::string name = std::string("gemm/") + layer.name;
    bench_gemm(name + "_forward" + suffix, dtype, n, layer.out, layer.in, false, true, dtype);
    bench_gemm(name + "_dgrad" + suffix, dtype, n, layer.in, layer.out, false, false, dtype);
    bench_gemm(name + "_wgrad" + suffix, dtype, layer.out, layer.in, n, true, false, dtype);
    bench_gemm(name + "_wgrad_f32" + suffix, dtype, layer.out, layer.in, n, true, false, DType::f32);
    bench_gemm(name + "_decode" + suffix, dtype, 1, layer.out, layer.in, false, true, dtype);
  }
}

void bench_norm(const Model& model, DType dtype, const std::string& suffix) {
  const Shape shape{model.tokens(), model.width};
  const double width = static_cast<double>(byte_size(dtype));
  add_benchmark("rms_norm_residual" + suffix, [=](benchmark::State& state) {
    const Tensor x = random_tensor(shape, dtype), residual = random_tensor(shape, dtype);
    const Tensor weight = random_tensor({shape[1]}, dtype), y = Tensor::empty(shape, dtype);
    const Tensor sum = Tensor::empty(shape, dtype), rstd = Tensor::empty({shape[0]}, DType::f32);
    measure(state, 0, 4 * width * static_cast<double>(shape.numel()),
            [&] { rms_norm({.x = x, .residual = residual, .weight = weight, .y = y, .sum = sum, .rstd = rstd}); });
  });
  add_benchmark("rms_norm_backward" + suffix, [=](benchmark::State& state) {
    const Tensor x = random_tensor(shape, dtype), dy = random_tensor(shape, dtype), dsum = random_tensor(shape, dtype);
    const Tensor weight = random_tensor({shape[1]}, dtype), dx = Tensor::empty(shape, dtype);
    const Tensor rstd = random_tensor({shape[0]}, DType::f32), dweight = Tensor::empty({shape[1]}, dtype);
    measure(state, 0, 4 * width * static_cast<double>(shape.numel()), [&] {
      rms_norm_backward({.dy = dy, .x = x, .weight = weight, .rstd = rstd, .dsum = dsum, .dx = dx, .dweight = dweight});
    });
  });
}

void bench_elementwise(const Model& model, DType dtype, const std::string& suffix) {
  const std::int64_t n = model.tokens(), inner = model.intermediate;
  const double width = static_cast<double>(byte_size(dtype));
  add_benchmark("swiglu" + suffix, [=](benchmark::State& state) {
    const Tensor gate_up = random_tensor({n, 2 * inner}, dtype), out = Tensor::empty({n, inner}, dtype);
    measure(state, 0, 3 * width * static_cast<double>(n * inner), [&] { swiglu({gate_up, out}); });
  });
  add_benchmark("swiglu_backward" + suffix, [=](benchmark::State& state) {
    const Tensor gate_up = random_tensor({n, 2 * inner}, dtype), dout = random_tensor({n, inner}, dtype);
    const Tensor dgate_up = Tensor::empty({n, 2 * inner}, dtype);
    measure(state, 0, 5 * width * static_cast<double>(n * inner), [&] { swiglu_backward({dout, gate_up, dgate_up}); });
  });
  add_benchmark("rope" + suffix, [=](benchmark::State& state) {
    const Tensor x = random_tensor({n, model.heads, model.head_dim}, dtype), positions = random_ids(n, model.context);
    const Tensor table = random_tensor({model.context, model.head_dim / 2}, DType::f32, 0.5f);
    measure(state, 0, 2 * width * static_cast<double>(x.numel()),
            [&] { rope({.x = x, .cos = table, .sin = table, .positions = positions}); });
  });
  add_benchmark("embedding_backward" + suffix, [=](benchmark::State& state) {
    const Tensor dout = random_tensor({n, model.width}, dtype), ids = random_ids(n, model.vocab);
    const Tensor dtable = Tensor::zeros({model.vocab, model.width}, dtype);
    measure(state, 0, 3 * width * static_cast<double>(dout.numel()), [&] { embedding_backward({dout, ids, dtable}); });
  });
}

void bench_attention(const Model& model, DType dtype, const std::string& suffix) {
  // Causal: half of the pairs. Two GEMMs forward, five backward.
  const double product = static_cast<double>(model.tokens() * model.context * model.heads * model.head_dim);
  for (const bool backward : {false, true})
    add_benchmark((backward ? "attention_backward" : "attention") + suffix, [=](benchmark::State& state) {
      const std::int64_t n = model.tokens();
      const Shape wide{n, model.heads, model.head_dim}, narrow{n, model.kv_heads, model.head_dim};
      const Tensor q = random_tensor(wide, dtype), k = random_tensor(narrow, dtype), v = random_tensor(narrow, dtype);
      const Tensor dout = random_tensor(wide, dtype), out = Tensor::empty(wide, dtype);
      const Tensor dq = Tensor::empty(wide, dtype), dk = Tensor::empty(narrow, dtype),
                   dv = Tensor::empty(narrow, dtype);
      const Tensor lse = Tensor::empty({model.heads, n}, DType::f32);
      std::vector<SequenceRange> sequences;
      for (std::int64_t i = 0; i < n; i += model.context) sequences.push_back({i, model.context, i, model.context});
      const float scale = 0.125f;
      const auto forward = [&] {
        attention({.q = q, .k = k, .v = v, .out = out, .lse = lse, .sequences = sequences, .scale = scale});
      };
      forward();
      if (!backward) return measure(state, 2 * product, 0, forward);
      measure(state, 5 * product, 0, [&] {
        attention_backward({.dout = dout,
                            .q = q,
                            .k = k,
                            .v = v,
                            .out = out,
                            .lse = lse,
                            .dq = dq,
                            .dk = dk,
                            .dv = dv,
                            .sequences = sequences,
                            .scale = scale});
      });
    });
}

void bench_loss(const Model& model, DType dtype, const std::string& suffix) {
  const std::int64_t n = model.tokens(), vocab = model.vocab;
  add_benchmark("cross_entropy" + suffix, [=](benchmark::State& state) {
    const std::int64_t rows = std::min(n, default_loss_chunk_rows(vocab));
    const Tensor logits = random_tensor({rows, vocab}, DType::f32), labels = random_ids(rows, vocab);
    const Tensor losses = Tensor::empty({rows}, DType::f32), dlogits = Tensor::empty({rows, vocab}, dtype);
    measure(state, 0, static_cast<double>(rows * vocab * (4 + byte_size(dtype))),
            [&] { cross_entropy({.logits = logits, .labels = labels, .losses = losses, .dlogits = dlogits}); });
  });
  add_benchmark("lm_head_loss" + suffix, [=](benchmark::State& state) {
    const Tensor hidden = random_tensor({n, model.width}, dtype),
                 weight = random_tensor({vocab, model.width}, dtype, 0.05f);
    const Tensor labels = random_ids(n, vocab), losses = Tensor::empty({n}, DType::f32);
    const Tensor dhidden = Tensor::empty({n, model.width}, dtype), dweight = Tensor::empty({vocab, model.width}, dtype);
    measure(state, 6.0 * static_cast<double>(n * vocab * model.width), 0, [&] {
      lm_head_loss({.hidden = hidden,
                    .weight = weight,
                    .labels = labels,
                    .losses = losses,
                    .grad_scale = 1e-3f,
                    .dhidden = dhidden,
                    .dweight = dweight});
    });
  });
}

void bench_optimizer(const Model& model, DType dtype, const std::string& suffix) {
  // Matrices of two layers.
  const Shape shapes[] = {{model.projections(), model.width},
                          {model.width, model.heads * model.head_dim},
                          {2 * model.intermediate, model.width},
                          {model.width, model.intermediate},
                          {model.width}};
  const auto make = [=] {
    std::vector<AdamWTensor> tensors;
    for (int layer = 0; layer < 2; ++layer)
      for (const Shape& shape : shapes)
        tensors.push_back({.param = random_tensor(shape, dtype),
                           .grad = random_tensor(shape, dtype, 1e-3f),
                           .exp_avg = Tensor::zeros(shape, DType::f32),
                           .exp_avg_sq = Tensor::zeros(shape, DType::f32),
                           .master = dtype == DType::f32 ? Tensor() : Tensor::zeros(shape, DType::f32),
                           .weight_decay = 0.1});
    return tensors;
  };
  double elements = 0;
  for (const Shape& shape : shapes) elements += 2 * static_cast<double>(shape.numel());
  const double width = static_cast<double>(byte_size(dtype));
  add_benchmark("adamw" + suffix, [=](benchmark::State& state) {
    const std::vector<AdamWTensor> tensors = make();
    measure(state, 0, elements * (2 * width + 16 + (dtype == DType::f32 ? width : 4 + 4)),
            [&] { adamw({.tensors = tensors, .lr = 1e-3, .step = 10}); });
  });
  add_benchmark("squared_norm" + suffix, [=](benchmark::State& state) {
    std::vector<Tensor> gradients;
    for (const AdamWTensor& t : make()) gradients.push_back(t.grad);
    const Tensor result = Tensor::empty({1}, DType::f64);
    measure(state, 0, elements * width, [&] { squared_norm({gradients, result}); });
  });
}

const bool registered = [] {
  for (const Model& model : kModels)
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const std::string suffix = std::string("/") + model.name + "/" + std::string(to_string(dtype));
      bench_linears(model, dtype, suffix);
      bench_norm(model, dtype, suffix);
      bench_elementwise(model, dtype, suffix);
      bench_attention(model, dtype, suffix);
      bench_loss(model, dtype, suffix);
      bench_optimizer(model, dtype, suffix);
    }
  return true;
}();

}  // namespace
}  // namespace quench
