// Norms, SwiGLU, RoPE, cross-entropy and the elementwise ops at the shapes of training.

#include <cuda_runtime.h>

#include <algorithm>
#include <functional>

#include "bench/cuda/measure.h"
#include "core/cuda/common/cuda_error.h"
#include "core/ops/elementwise.h"
#include "core/ops/loss/cross_entropy.h"
#include "core/ops/norm.h"
#include "core/ops/rope.h"
#include "core/ops/swiglu.h"

namespace quench::bench {
namespace {

constexpr std::int64_t kTokens = 16384;
constexpr std::size_t kRotation = std::size_t{256} << 20;  // bytes of operands between two uses of one: beyond any L2

void check(cudaError_t status) {
  cuda::check(status, "measurement", kGpu);
}

class Timer {
 public:
  Timer() {
    check(cudaEventCreate(&begin_));
    check(cudaEventCreate(&end_));
  }
  ~Timer() {
    cudaEventDestroy(begin_);
    cudaEventDestroy(end_);
  }
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

  // Median over batches of the microseconds of one run(turn), turn counting up.
  double microseconds(const std::function<void(int)>& run) const {
    constexpr int kWarmUp = 3, kBatches = 7, kRuns = 8;
    int turn = 0;
    for (int i = 0; i < kWarmUp; ++i) run(turn++);
    std::vector<float> times(kBatches);
    for (float& time : times) {
      check(cudaEventRecord(begin_, stream()));
      for (int i = 0; i < kRuns; ++i) run(turn++);
      check(cudaEventRecord(end_, stream()));
      check(cudaEventSynchronize(end_));
      check(cudaEventElapsedTime(&time, begin_, end_));
    }
    std::sort(times.begin(), times.end());
    return static_cast<double>(times[kBatches / 2]) * 1e3 / kRuns;
  }

 private:
  static cudaStream_t stream() { return cuda::native(current_stream(kGpu)); }

  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

// Random values everywhere: zeros can run faster. One block of them is repeated.
Tensor random_on_gpu(const Shape& shape, DType dtype) {
  constexpr std::int64_t kBlock = (std::int64_t{1} << 20) + 7;
  static const Tensor blocks[] = {on_gpu(Generator(1).normal({kBlock}, DType::f32)),
                                  on_gpu(Generator(1).normal({kBlock}, DType::bf16))};
  const Tensor& block = blocks[dtype == DType::f32 ? 0 : 1];
  const Tensor result = Tensor::empty({shape.numel()}, dtype, kGpu);
  for (std::int64_t i = 0; i < shape.numel(); i += kBlock) {
    const std::int64_t n = std::min(kBlock, shape.numel() - i);
    result.narrow(0, i, n).copy_from(block.narrow(0, 0, n));
  }
  return result.view(shape);
}

class Bandwidth {
 public:
  void measure_norm() const;
  void measure_swiglu() const;
  void measure_sinks() const;
  void measure_rope() const;
  void measure_cross_entropy() const;
  void measure_elementwise() const;

 private:
  // One row of the table. `make` gives the op on operands of its own; as many are made as the rotation needs.
  void row(const std::string& name, std::int64_t bytes, const std::function<std::function<void()>()>& make) const {
    std::vector<std::function<void()>> sets;
    for (std::size_t held = 0; sets.size() < 2 || held < kRotation; held += static_cast<std::size_t>(bytes))
      sets.push_back(make());
    const double time = timer_.microseconds([&](int turn) { sets[static_cast<std::size_t>(turn) % sets.size()](); });
    const double rate = static_cast<double>(bytes) / time * 1e-6;  // TB/s
    fmt::print("{:<46} {:>9.1f} {:>9.1f} {:>7.2f} {:>6.1f}%\n", name, static_cast<double>(bytes) * 1e-6, time, rate,
               100 * rate / copy_rate());
  }

  static void header(std::string_view what) {
    fmt::print("\n{:<46} {:>9} {:>9} {:>7} {:>7}\n", what, "MB moved", "us", "TB/s", "of copy");
  }

  // What a device-to-device copy of 1 GiB reaches, read and written, in TB/s.
  [[nodiscard]] double copy_rate() const {
    static const double rate = [this] {
      constexpr std::size_t kBytes = std::size_t{1} << 30;
      const Tensor from = random_on_gpu({kBytes / 4}, DType::f32), to = Tensor::empty_like(from);
      const double time = timer_.microseconds([&](int) {
        check(cudaMemcpyAsync(to.raw_data(), from.raw_data(), kBytes, cudaMemcpyDeviceToDevice,
                              cuda::native(current_stream(kGpu))));
      });
      const double result = 2.0 * kBytes / time * 1e-6;
      fmt::print("copy of 1 GiB: {:.2f} TB/s\n", result);
      return result;
    }();
    return rate;
  }

  Timer timer_;
};

void Bandwidth::measure_norm() const {
  header("rms_norm, 16384 tokens");
  const DType dtype = DType::bf16;
  for (const std::int64_t width : {2048, 3584, 4096, 8192}) {
    const Shape shape{kTokens, width};
    const std::int64_t matrix = shape.numel() * 2;
    const Tensor weight = random_on_gpu({width}, dtype), rstd = Tensor::empty({kTokens}, DType::f32, kGpu),
                 dweight = Tensor::zeros({width}, DType::f32, kGpu);
    const auto matrices = [&] { return random_on_gpu(shape, dtype); };
    row(fmt::format("forward H={}", width), 2 * matrix, [&]() -> std::function<void()> {
      return [=, x = matrices(), y = matrices()] { rms_norm({.x = x, .weight = weight, .y = y, .rstd = rstd}); };
    });
    row(fmt::format("forward with residual H={}", width), 4 * matrix, [&]() -> std::function<void()> {
      return [=, x = matrices(), residual = matrices(), sum = matrices(), y = matrices()] {
        rms_norm({.x = x, .residual = residual, .weight = weight, .y = y, .sum = sum, .rstd = rstd});
      };
    });
    row(fmt::format("backward with dsum and y H={}", width), 5 * matrix, [&]() -> std::function<void()> {
      return [=, dy = matrices(), x = matrices(), dsum = matrices(), dx = matrices(), y = matrices()] {
        rms_norm_backward({.dy = dy,
                           .x = x,
                           .weight = weight,
                           .rstd = rstd,
                           .dsum = dsum,
                           .dx = dx,
                           .dweight = dweight,
                           .accumulate_dweight = true,
                           .y = y});
      };
    });
    for (const bool with_dsum : {false, true})
      row(fmt::format("backward{} H={}", with_dsum ? " with dsum" : "", width), (with_dsum ? 4 : 3) * matrix,
          [&]() -> std::function<void()> {
            return [=, dy = matrices(), x = matrices(), dsum = with_dsum ? matrices() : Tensor(), dx = matrices()] {
              rms_norm_backward({.dy = dy,
                                 .x = x,
                                 .weight = weight,
                                 .rstd = rstd,
                                 .dsum = dsum,
                                 .dx = dx,
                                 .dweight = dweight,
                                 .accumulate_dweight = true});
            };
          });
  }
  const Shape fused{kTokens, 48, 128}, heads{kTokens, 32, 128};  // the queries of a fused projection
  const Tensor weight = random_on_gpu({128}, dtype), rstd = Tensor::empty({kTokens, 32}, DType::f32, kGpu),
               dweight = Tensor::zeros({128}, DType::f32, kGpu);
  const auto queries = [&] { return random_on_gpu(fused, dtype).narrow(1, 0, 32); };
  row("forward 32 heads of 128, fused", 2 * heads.numel() * 2, [&]() -> std::function<void()> {
    return [=, x = queries(), y = queries()] { rms_norm({.x = x, .weight = weight, .y = y, .rstd = rstd}); };
  });
  row("backward 32 heads of 128, fused", 3 * heads.numel() * 2, [&]() -> std::function<void()> {
    return [=, dy = queries(), x = queries(), dx = queries()] {
      rms_norm_backward({.dy = dy, .x = x, .weight = weight, .rstd = rstd, .dx = dx, .dweight = dweight});
    };
  });
}

void Bandwidth::measure_swiglu() const {
  header("swiglu, 16384 tokens");
  for (const std::int64_t width : {8192, 14336, 18944}) {
    const Shape half{kTokens, width}, whole{kTokens, 2 * width};
    const auto make = [](const Shape& shape) { return random_on_gpu(shape, DType::bf16); };
    row(fmt::format("forward I={}", width), 6 * half.numel(), [&]() -> std::function<void()> {
      return [gate_up = make(whole), out = make(half)] { swiglu({gate_up, out}); };
    });
    row(fmt::format("backward I={}", width), 10 * half.numel(), [&]() -> std::function<void()> {
      return [gate_up = make(whole), dout = make(half), dgate_up = make(whole)] {
        swiglu_backward({dout, gate_up, dgate_up});
      };
    });
    row(fmt::format("backward with out I={}", width), 12 * half.numel(), [&]() -> std::function<void()> {
      return [gate_up = make(whole), dout = make(half), dgate_up = make(whole), out = make(half)] {
        swiglu_backward({dout, gate_up, dgate_up, out});
      };
    });
  }
}

// The quantization outputs of the float8 recipes: by tensor, and by row with the columns' maxima, whose codes are moved
// as well.
void Bandwidth::measure_sinks() const {
  header("with quantization outputs, 16384 tokens");
  const DType dtype = DType::bf16;
  const auto make = [&](std::int64_t width) { return random_on_gpu({kTokens, width}, dtype); };
  const auto quant_outputs_of = [&](std::int64_t width, bool by_rows) -> QuantOutputs {
    if (!by_rows) return {.amax = Tensor::zeros({}, DType::f32, kGpu)};
    return {.rows = QuantTensor::empty({.element = ElementFormat::e4m3, .granularity = Granularity::row},
                                       {kTokens, width}, dtype, kGpu),
            .power_of_two = true,
            .column_amax = Tensor::zeros({1, width}, DType::f32, kGpu)};
  };
  for (const bool by_rows : {false, true}) {
    const char* kind = by_rows ? "rows, column_amax" : "amax";
    const auto moved = [&](std::int64_t elements, std::int64_t result) {  // bf16 elements, and codes of the result
      return kTokens * (2 * elements + (by_rows ? result : 0));
    };
    for (const std::int64_t width : {2048, 3584, 4096, 8192}) {
      const Tensor weight = random_on_gpu({width}, dtype), rstd = Tensor::zeros({kTokens}, DType::f32, kGpu),
                   dweight = Tensor::zeros({width}, DType::f32, kGpu);
      row(fmt::format("norm forward H={} {}", width, kind), moved(2 * width, width), [&]() -> std::function<void()> {
        return [=, x = make(width), y = make(width), quant_outputs = quant_outputs_of(width, by_rows)] {
          rms_norm({.x = x, .weight = weight, .y = y, .rstd = rstd, .quant_outputs = quant_outputs});
        };
      });
      row(fmt::format("norm forward, residual H={} {}", width, kind), moved(4 * width, width),
          [&]() -> std::function<void()> {
            return [=, x = make(width), residual = make(width), sum = make(width), y = make(width),
                    quant_outputs = quant_outputs_of(width, by_rows)] {
              rms_norm({.x = x,
                        .residual = residual,
                        .weight = weight,
                        .y = y,
                        .sum = sum,
                        .rstd = rstd,
                        .quant_outputs = quant_outputs});
            };
          });
      row(fmt::format("norm backward, dsum H={} {}", width, kind), moved(4 * width, width),
          [&]() -> std::function<void()> {
            return [=, dy = make(width), x = make(width), dsum = make(width), dx = make(width),
                    quant_outputs = quant_outputs_of(width, by_rows)] {
              rms_norm_backward({.dy = dy,
                                 .x = x,
                                 .weight = weight,
                                 .rstd = rstd,
                                 .dsum = dsum,
                                 .dx = dx,
                                 .dweight = dweight,
                                 .accumulate_dweight = true,
                                 .quant_outputs = quant_outputs});
            };
          });
    }
    for (const std::int64_t width : {8192, 14336, 18944}) {
      row(fmt::format("swiglu forward I={} {}", width, kind), moved(3 * width, width), [&]() -> std::function<void()> {
        return [gate_up = make(2 * width), out = make(width), quant_outputs = quant_outputs_of(width, by_rows)] {
          swiglu({gate_up, out, quant_outputs});
        };
      });
      row(fmt::format("swiglu backward I={} {}", width, kind), moved(5 * width, 2 * width),
          [&]() -> std::function<void()> {
            return [gate_up = make(2 * width), dout = make(width), dgate_up = make(2 * width),
                    quant_outputs = quant_outputs_of(2 * width, by_rows)] {
              swiglu_backward({dout, gate_up, dgate_up, {}, quant_outputs});
            };
          });
    }
  }
}

void Bandwidth::measure_rope() const {
  header("rope, 16384 tokens, heads in a fused projection");
  for (const std::int64_t dim : {64, 128})
    for (const std::int64_t heads : {8, 32, 40}) {
      // Rotations, so that x stays as it is however often it is rotated in place.
      const Tensor angles = Generator(2).normal({8192, dim / 2}, DType::f32), cosines = Tensor::empty_like(angles);
      for (std::int64_t i = 0; i < angles.numel(); ++i) {
        float& angle = angles.data<float>()[i];
        cosines.data<float>()[i] = std::cos(angle);
        angle = std::sin(angle);
      }
      const Tensor cos = on_gpu(cosines), sin = on_gpu(angles);
      const Tensor positions = on_gpu(Generator(3).integers(kTokens, 8192));
      row(fmt::format("{} heads of {}", heads, dim), kTokens * heads * dim * 4, [&]() -> std::function<void()> {
        return [=, x = random_on_gpu({kTokens, 48, dim}, DType::bf16).narrow(1, 0, heads)] {
          rope({.x = x, .cos = cos, .sin = sin, .positions = positions});
        };
      });
    }
}

void Bandwidth::measure_cross_entropy() const {
  header("cross_entropy");
  struct Case {
    DType logits, gradient;
  };
  for (const std::int64_t vocab : {32000, 128256, 152064})
    for (const auto [dtype, gradient] :
         {Case{DType::f32, DType::bf16}, Case{DType::f32, DType::f32}, Case{DType::bf16, DType::bf16}})
      for (const std::int64_t rows : {1024, 4096}) {
        const Tensor labels = on_gpu(Generator(4).integers(rows, vocab)),
                     losses = Tensor::empty({rows}, DType::f32, kGpu);
        row(fmt::format("{} to {} V={} rows {}", to_string(dtype), to_string(gradient), vocab, rows),
            rows * vocab * (byte_size(dtype) + byte_size(gradient)), [&]() -> std::function<void()> {
              return
                  [=, logits = random_on_gpu({rows, vocab}, dtype), dlogits = random_on_gpu({rows, vocab}, gradient)] {
                    cross_entropy({.logits = logits, .labels = labels, .losses = losses, .dlogits = dlogits});
                  };
            });
      }
}

void Bandwidth::measure_elementwise() const {
  header("elementwise, 16384 x 4096");
  const Shape shape{kTokens, 4096};
  const std::int64_t n = shape.numel();
  const auto make = [&](DType dtype) { return random_on_gpu(shape, dtype); };
  const auto f32 = DType::f32, bf16 = DType::bf16;
  for (const auto& [from, to] : {std::pair(f32, bf16), std::pair(bf16, f32)})
    row(fmt::format("cast {} to {}", to_string(from), to_string(to)), 6 * n,
        [&, a = from, b = to]() -> std::function<void()> { return [x = make(a), y = make(b)] {
                                                             cast({x, y});
                                                           }; });
  for (const DType dtype : {f32, bf16}) {
    const std::int64_t bytes = n * byte_size(dtype);
    row(fmt::format("add {}", to_string(dtype)), 3 * bytes, [&]() -> std::function<void()> {
      return [a = make(dtype), b = make(dtype), out = make(dtype)] { add({a, b, out}); };
    });
    row(fmt::format("accumulate {} into f32", to_string(dtype)), bytes + 8 * n, [&]() -> std::function<void()> {
      return [x = make(dtype), out = make(DType::f32)] { accumulate({x, out, 0.5f}); };
    });
    row(fmt::format("scale {}", to_string(dtype)), 2 * bytes, [&]() -> std::function<void()> {
      return [x = make(dtype)] { scale({x, -1.0f}); };
    });
    row(fmt::format("column_sum {}", to_string(dtype)), bytes, [&]() -> std::function<void()> {
      return [x = make(dtype), out = Tensor::empty({4096}, DType::f32, kGpu)] { column_sum({x, out}); };
    });
  }
  row("copy_rows bf16, 1024 of 6144 columns", kTokens * 1024 * 4, []() -> std::function<void()> {
    return [from = random_on_gpu({kTokens, 6144}, DType::bf16).narrow(1, 4096, 1024),
            to = random_on_gpu({kTokens, 1024}, DType::bf16)] {
      copy_rows({from, to});
    };
  });
}

}  // namespace

void measure_fused_kernels() {
  const Bandwidth bandwidth;
  bandwidth.measure_norm();
  bandwidth.measure_swiglu();
  bandwidth.measure_sinks();
  bandwidth.measure_rope();
  bandwidth.measure_cross_entropy();
  bandwidth.measure_elementwise();
}

}  // namespace quench::bench
