#include "recipes/float8/block.h"

#include <array>

#include "core/ops/elementwise.h"
#include "core/ops/experts/grouped_gemm.h"
#include "core/ops/experts/token_permutation.h"
#include "core/ops/gemm.h"
#include "recipes/emulated/expert_input.h"

namespace quench::recipes {
namespace {

using autograd::Gradient;
using autograd::Saved;
using autograd::Tape;
using autograd::TokenPermutation;
using autograd::Variable;
using autograd::Weight;

constexpr std::string_view kName = "float8_blockwise";

struct LayerGemms {
  BlockFloat8Options options;
  TokenPermutation rows;  // without ends for a dense layer: one group
  bool tokens = false;    // x is in token order

  // One group: high-precision GEMMs use the library.
  [[nodiscard]] bool dense() const { return !rows.ends.defined(); }

  // x [R,K], w [E,N,K] -> y [R,N]. Frees x after quantization.
  void forward(Tensor x, const Tensor& w, const Tensor& y) const {
    if (options.float8.forward) {
      const BlockFloat8 codes = quantize_block_lines(x, Orientation::natural);
      x = Tensor();
      grouped_gemm(BlockFloat8GemmArgs{.a = codes,
                                       .b = quantize_block_squares(w, Orientation::natural),
                                       .ends = rows.ends,
                                       .c = y,
                                       .gemms = options.gemms});
    } else if (dense()) {
      gemm({.a = x, .b = w.select(0, 0), .c = y, .transpose_b = true});
    } else {
      grouped_gemm(GroupedGemmArgs{.a = x, .b = w, .ends = rows.ends, .c = y, .transpose_b = true});
    }
  }
  // dy [R,N], w [E,N,K] -> dx [R,K]
  void dgrad(const Tensor& dy, const Tensor& w, const Tensor& dx) const {
    if (options.float8.dgrad)
      grouped_gemm(BlockFloat8GemmArgs{.a = quantize_block_lines(dy, Orientation::natural),
                                       .b = quantize_block_squares(w, Orientation::transposed),
                                       .ends = rows.ends,
                                       .c = dx,
                                       .gemms = options.gemms});
    else if (dense())
      gemm({.a = dy, .b = w.select(0, 0), .c = dx});
    else
      grouped_gemm(GroupedGemmArgs{.a = dy, .b = w, .ends = rows.ends, .c = dx});
  }
  [[nodiscard]] Tensor rows_in(const Tensor& x) const { return copied(rows_of(x, rows, tokens)); }
  // dw [E,N,K] = beta * dw + dy^T x.
  void wgrad(const BlockFloat8& dy, const BlockFloat8& x, const Tensor& dw, float beta) const {
    grouped_wgrad(
        BlockFloat8WgradArgs{.a = dy, .b = x, .ends = rows.ends, .c = dw, .beta = beta, .gemms = options.gemms});
  }
  void wgrad(const Tensor& dy, const Tensor& x, const Tensor& dw, float beta) const {
    if (dense())
      gemm({.a = dy, .b = x, .c = dw.select(0, 0), .transpose_a = true, .beta = beta});
    else
      grouped_wgrad(
          GroupedWgradArgs{.a = dy, .b = x, .ends = rows.ends, .c = dw, .beta = beta, .alignment = rows.alignment});
  }
};

struct Backward {
  LayerGemms gemms;
  Weight weight;
  Shape of_each;        // [E,N,K]
  Saved saved_x;        // if x_lines is undefined
  BlockFloat8 x_lines;  // columnwise
  std::shared_ptr<Gradient> dx, dw, dy_of;

  void operator()() const {
    const MemoryScope workspace(MemoryCategory::workspace);
    const Tensor dy = dy_of->value();
    if (dw) weight_gradient(dy);
    if (!dx) return;
    dx->contribute(
        rows_or_sums(rows_of(dy, gemms.rows, false), of_each[2], gemms.rows, gemms.tokens,
                     [&](const Tensor& of_rows) { gemms.dgrad(dy, weight.acquire().value().view(of_each), of_rows); }));
  }

  // Deferred if the producer recomputes x; captures quantized dy.
  void weight_gradient(const Tensor& dy) const {
    dw->begin_use();
    const auto target = [dw = dw, of_each = of_each](const auto& product) {
      finish_weight_gradient(*dw, of_each, product);
    };
    if (!gemms.options.float8.wgrad) {
      const auto finish = [p = gemms, target, dy](const Tensor& recomputed_x) {
        const MemoryScope scope(MemoryCategory::workspace);
        target([&](const Tensor& c, float beta) { p.wgrad(dy, p.rows_in(recomputed_x), c, beta); });
      };
      if (!saved_x.defer(finish)) finish(saved_x.get());
      return;
    }
    const auto multiply = [p = gemms, target,
                           dy_lines = quantize_block_lines(dy, Orientation::transposed)](const BlockFloat8& x) {
      target([&](const Tensor& c, float beta) { p.wgrad(dy_lines, x, c, beta); });
    };
    if (x_lines.defined()) return multiply(x_lines);
    const auto finish = [multiply, p = gemms](const Tensor& recomputed_x) {
      const MemoryScope scope(MemoryCategory::workspace);
      const BlockFloat8 lines = quantize_block_lines(p.rows_in(recomputed_x), Orientation::transposed);
      multiply(lines);
    };
    if (!saved_x.defer(finish)) finish(saved_x.get());
  }
};

Variable run_block_float8(const LayerGemms& gemms, const Variable& x, const Weight& weight) {
  const Tensor in = x.value();
  const std::int64_t experts = gemms.dense() ? 1 : gemms.rows.ends.size(0);
  const Shape of_each = expert_matrices(kName, in, weight, experts);
  QUENCH_CHECK(gemms.dense() || gemms.rows.alignment % kFloat8Block == 0,
               "{}: rows of experts are padded to {}; blocks need {}", kName, gemms.rows.alignment, kFloat8Block);
  const GroupRows of_x = rows_of(in, gemms.rows, gemms.tokens);
  const MemoryScope scope(MemoryCategory::activations);
  Variable y(Tensor::empty({of_x.rows(), of_each[1]}, in.dtype(), in.device()));
  const bool recomputed = !gemms.dense() && is_recomputed_by_producer(x, gemms.tokens);
  const bool keeps_codes = Tape::current() != nullptr && weight.requires_grad() && gemms.options.float8.wgrad &&
                           !recomputed && codes_save_memory(x, of_x);
  BlockFloat8 x_lines;
  {
    Tensor rows = [&] {
      const MemoryScope workspace(MemoryCategory::workspace);
      return copied(of_x);
    }();
    if (keeps_codes) x_lines = quantize_block_lines(rows, Orientation::transposed);
    const MemoryScope workspace(MemoryCategory::workspace);
    gemms.forward(std::move(rows), weight.acquire().value().view(of_each), y.value());
  }
  Tape::record(kName, {x, weight}, std::array{&y}, [&]() -> std::function<void()> {
    const bool needs_x = weight.requires_grad() && !keeps_codes;
    return Backward{gemms,   weight,       of_each,           needs_x ? saved_input(x, recomputed) : Saved(),
                    x_lines, x.gradient(), weight.gradient(), y.gradient()};
  });
  return y;
}

class BlockFloat8Linear final : public nn::LinearKernel {
 public:
  explicit BlockFloat8Linear(const BlockFloat8Options& options) : options_(options) {}
  [[nodiscard]] std::string_view name() const override { return kName; }

 private:
  [[nodiscard]] nn::LinearOutput do_run(const nn::LinearCall& call, const nn::Parameter& weight,
                                        const Weight& bias) const override {
    QUENCH_CHECK(!bias.defined(), "{}: layers with a bias are not converted", kName);
    return {run_block_float8({options_, {}}, call.x, weight.weight())};
  }

  BlockFloat8Options options_;
};

class BlockFloat8Experts final : public nn::ExpertKernel {
 public:
  explicit BlockFloat8Experts(const BlockFloat8Options& options) : options_(options) {}
  [[nodiscard]] std::string_view name() const override { return kName; }
  [[nodiscard]] std::int64_t alignment() const override { return kFloat8Block; }
  [[nodiscard]] Variable apply(const Variable& x, const nn::Parameter& weight,
                               const TokenPermutation& rows) const override {
    return run_block_float8({options_, rows, false}, x, weight.weight());
  }
  [[nodiscard]] Variable apply_to_tokens(const Variable& x, const nn::Parameter& weight,
                                         const TokenPermutation& rows) const override {
    return run_block_float8({options_, rows, true}, x, weight.weight());
  }

 private:
  BlockFloat8Options options_;
};

}  // namespace

std::shared_ptr<const nn::LinearKernel> block_float8_linear(const BlockFloat8Options& options) {
  return std::make_shared<BlockFloat8Linear>(options);
}

std::shared_ptr<const nn::ExpertKernel> block_float8_experts(const BlockFloat8Options& options) {
  return std::make_shared<BlockFloat8Experts>(options);
}

}  // namespace quench::recipes
