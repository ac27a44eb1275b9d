#include "recipes/float8/block.h"

#include <array>

#include "core/ops/elementwise.h"
#include "core/ops/experts/block_float8_gemm.h"
#include "core/ops/experts/expert_rows.h"
#include "core/ops/experts/grouped_gemm.h"
#include "core/ops/gemm.h"

namespace quench::recipes {
namespace {

using autograd::ExpertRows;
using autograd::Gradient;
using autograd::GradientTarget;
using autograd::Saved;
using autograd::Tape;
using autograd::Variable;
using autograd::Weight;

constexpr std::string_view kName = "float8_blockwise";

// The rows of a layer: those of a matrix, or of experts, which may be copies of tokens.
struct Rows {
  Tensor ends;   // i32 [E]; undefined: one group
  Tensor pairs;  // i32 [R]; undefined: the rows are those of x
  Tensor of_tokens;
  std::int64_t choices = 1, alignment = 1;

  [[nodiscard]] static Rows of(const ExpertRows& rows, bool tokens) {
    return {.ends = rows.ends,
            .pairs = tokens ? rows.pairs : Tensor(),
            .of_tokens = tokens ? rows.rows : Tensor(),
            .choices = rows.choices,
            .alignment = rows.alignment};
  }
  [[nodiscard]] std::int64_t count(const Tensor& x) const { return pairs.defined() ? pairs.size(0) : x.size(0); }
  [[nodiscard]] Tensor copied(const Tensor& x) const {
    if (!pairs.defined()) return x;
    const Tensor out = Tensor::empty({pairs.size(0), x.size(1)}, x.dtype(), x.device());
    gather_rows({.x = x, .pairs = pairs, .choices = choices, .out = out});
    return out;
  }
};

// The three products of rows of groups, in float8 or in high precision.
struct Products {
  BlockFloat8Options options;
  Rows rows;

  [[nodiscard]] BlockProducts units() const {
    return options.emulate ? BlockProducts::emulated : BlockProducts::native;
  }
  // One group: products in high precision go to the library's kernels.
  [[nodiscard]] bool dense() const { return !rows.ends.defined(); }

  // x [R,K], w [E,N,K] -> y [R,N]
  void forward(const Tensor& x, const Tensor& w, const Tensor& y) const {
    if (options.float8.forward)
      grouped_gemm(BlockFloat8GemmArgs{.a = quantize_block_lines(x, Orientation::natural),
                                       .b = quantize_block_squares(w, Orientation::natural),
                                       .ends = rows.ends,
                                       .c = y,
                                       .products = units()});
    else if (dense())
      gemm({.a = x, .b = w.select(0, 0), .c = y, .transpose_b = true});
    else
      grouped_gemm(GroupedGemmArgs{.a = x, .b = w, .ends = rows.ends, .c = y, .transpose_b = true});
  }
  // dy [R,N], w [E,N,K] -> dx [R,K]
  void dgrad(const Tensor& dy, const Tensor& w, const Tensor& dx) const {
    if (options.float8.dgrad)
      grouped_gemm(BlockFloat8GemmArgs{.a = quantize_block_lines(dy, Orientation::natural),
                                       .b = quantize_block_squares(w, Orientation::transposed),
                                       .ends = rows.ends,
                                       .c = dx,
                                       .products = units()});
    else if (dense())
      gemm({.a = dy, .b = w.select(0, 0), .c = dx});
    else
      grouped_gemm(GroupedGemmArgs{.a = dy, .b = w, .ends = rows.ends, .c = dx});
  }
  // dw [E,N,K] += dy^T x, of codes.
  void wgrad(const BlockFloat8& dy, const BlockFloat8& x, const Tensor& dw, float beta) const {
    grouped_wgrad(BlockFloat8WgradArgs{.a = dy, .b = x, .ends = rows.ends, .c = dw, .beta = beta, .products = units()});
  }
  void wgrad(const Tensor& dy, const Tensor& x, const Tensor& dw, float beta) const {
    if (dense())
      gemm({.a = dy, .b = x, .c = dw.select(0, 0), .transpose_a = true, .beta = beta});
    else
      grouped_wgrad(
          GroupedWgradArgs{.a = dy, .b = x, .ends = rows.ends, .c = dw, .beta = beta, .alignment = rows.alignment});
  }
};

// x is there in the backward pass without being saved by the layer.
bool there_again(const Variable& x) {
  return x.kept_by_producer() || (x.recompute() != nullptr && Tape::current() != nullptr &&
                                  Tape::current()->recompute() == autograd::Recompute::selective);
}

struct Backward {
  Products products;
  Weight weight;
  Shape of_each;  // [E,N,K]
  Shape x_shape;
  Saved saved_x;        // where x_columns are not kept
  BlockFloat8 x_lines;  // of its columns
  std::shared_ptr<Gradient> dx, dw, dy_of;

  void operator()() const {
    const MemoryScope workspace(MemoryCategory::workspace);
    const Tensor dy = dy_of->value();
    if (dw) weight_gradient(dy);
    if (!dx) return;
    const bool tokens = products.rows.pairs.defined();
    const auto fresh = [&](const Shape& shape, MemoryCategory category) {
      const MemoryScope scope(category);
      return Tensor::empty(shape, dy.dtype(), dy.device());
    };
    const Tensor of_rows =
        fresh({dy.size(0), of_each[2]}, tokens ? MemoryCategory::workspace : MemoryCategory::activations);
    products.dgrad(dy, weight.use().value().view(of_each), of_rows);
    if (!tokens) return dx->contribute(of_rows);
    const Tensor gradient = fresh(x_shape, MemoryCategory::activations);
    sum_rows({.y = of_rows, .rows = products.rows.of_tokens, .out = gradient});
    dx->contribute(gradient);
  }

  // Waits for x where it is made again anyway; until then the codes of dy are kept, not dy itself.
  void weight_gradient(const Tensor& dy) const {
    dw->begin_use();
    const auto target = [dw = dw, of_each = of_each](const auto& product) {
      const GradientTarget into = dw->target();
      product(into.tensor.view(of_each), into.accumulate ? 1.0f : 0.0f);
      dw->end_use();
    };
    if (!products.options.float8.wgrad) {
      const auto finish = [p = products, target, dy](const Tensor& x_again) {
        const MemoryScope scope(MemoryCategory::workspace);
        target([&](const Tensor& c, float beta) { p.wgrad(dy, p.rows.copied(x_again), c, beta); });
      };
      if (!saved_x.defer(finish)) finish(saved_x.get());
      return;
    }
    const auto multiply = [p = products, target,
                           dy_lines = quantize_block_lines(dy, Orientation::transposed)](const BlockFloat8& x) {
      target([&](const Tensor& c, float beta) { p.wgrad(dy_lines, x, c, beta); });
    };
    if (x_lines.defined()) return multiply(x_lines);
    const auto finish = [multiply, rows = products.rows](const Tensor& x_again) {
      const MemoryScope scope(MemoryCategory::workspace);
      multiply(quantize_block_lines(rows.copied(x_again), Orientation::transposed));
    };
    if (!saved_x.defer(finish)) finish(saved_x.get());
  }
};

Variable run(const BlockFloat8Options& options, const Variable& x, const Weight& weight, std::int64_t experts,
             const Rows& rows) {
  const Tensor in = x.value();
  QUENCH_CHECK(in.rank() == 2 && in.size(1) == weight.shape()[1] && weight.shape()[0] % experts == 0,
               "{}: x is {}, weight is {}, of {} experts; expected [R,K] and [E*N,K]", kName, in.describe(),
               weight.describe(), experts);
  QUENCH_CHECK(!rows.ends.defined() || rows.alignment % kFloat8Block == 0,
               "{}: rows of experts are padded to {}; blocks need {}", kName, rows.alignment, kFloat8Block);
  const Shape of_each{experts, weight.shape()[0] / experts, weight.shape()[1]};
  const Products products{options, rows};
  const MemoryScope scope(MemoryCategory::activations);
  Variable y(Tensor::empty({rows.count(in), of_each[1]}, in.dtype(), in.device()));
  {
    const MemoryScope workspace(MemoryCategory::workspace);
    products.forward(rows.copied(in), weight.use().value().view(of_each), y.value());
  }
  Tape::record(kName, {x, weight}, std::array{&y}, [&]() -> std::function<void()> {
    // A token in several rows takes less memory than their codes.
    const bool codes = weight.requires_grad() && options.float8.wgrad && !there_again(x) && rows.choices == 1;
    BlockFloat8 lines;
    if (codes) {
      const Tensor copies = [&] {
        const MemoryScope workspace(MemoryCategory::workspace);
        return rows.copied(in);
      }();
      lines = quantize_block_lines(copies, Orientation::transposed);
    }
    return Backward{
        products, weight,       of_each,           in.shape(),  weight.requires_grad() && !codes ? Saved(x) : Saved(),
        lines,    x.gradient(), weight.gradient(), y.gradient()};
  });
  return y;
}

class BlockFloat8Linear final : public nn::LinearKernel {
 public:
  explicit BlockFloat8Linear(const BlockFloat8Options& options) : options_(options) {}
  [[nodiscard]] std::string_view name() const override { return kName; }
  [[nodiscard]] Variable apply(const Variable& x, const nn::Parameter& weight, const Weight& bias) const override {
    QUENCH_CHECK(!bias.defined(), "{}: layers with a bias are not converted", kName);
    return run(options_, x, weight.weight(), 1, {});
  }

 private:
  BlockFloat8Options options_;
};

class BlockFloat8Experts final : public nn::ExpertKernel {
 public:
  explicit BlockFloat8Experts(const BlockFloat8Options& options) : options_(options) {}
  [[nodiscard]] std::string_view name() const override { return kName; }
  [[nodiscard]] std::int64_t alignment() const override { return kFloat8Block; }
  [[nodiscard]] Variable apply(const Variable& x, const nn::Parameter& weight, const ExpertRows& rows) const override {
    return run(options_, x, weight.weight(), rows.ends.size(0), Rows::of(rows, false));
  }
  [[nodiscard]] Variable apply_to_tokens(const Variable& x, const nn::Parameter& weight,
                                         const ExpertRows& rows) const override {
    return run(options_, x, weight.weight(), rows.ends.size(0), Rows::of(rows, true));
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
