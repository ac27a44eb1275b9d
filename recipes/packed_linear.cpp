#include "recipes/packed_linear.h"

#include <array>
#include <optional>
#include <utility>

#include "core/device/determinism.h"
#include "core/ops/block_scaled_gemm.h"
#include "core/ops/elementwise.h"
#include "core/ops/gated_linear.h"
#include "core/ops/gemm.h"
#include "core/ops/packed_linear.h"
#include "recipes/nvfp4_weight.h"
#include "recipes/pad_and_bias.h"

namespace quench::recipes {
namespace {

using autograd::GradientTarget;
using autograd::Tape;
using autograd::Variable;
using autograd::Weight;

class PackedValues final : public autograd::WeightStorage {
 public:
  PackedValues(PackedMatrix weight, DType dtype) : weight_(std::move(weight)), dtype_(dtype) {}
  Tensor acquire() override {
    if (uses_++ == 0) {
      const MemoryScope scope(MemoryCategory::workspace);
      values_ = Tensor::empty(weight_.codes().shape(), dtype_, weight_.device());
      unpack({weight_, values_});
    }
    return values_;
  }
  void release() noexcept override {
    if (--uses_ == 0) values_ = Tensor();
  }

 private:
  PackedMatrix weight_;
  DType dtype_;
  Tensor values_;
  int uses_ = 0;
};

// Up to here GEMMs are bound by reading the weight.
constexpr std::int64_t kFewTokens = 4 * kPackedRows;

class PackedGemms {
 public:
  PackedGemms(PackedMatrix weight, InputRounding rounding)
      : weight_(std::move(weight)), rounding_(std::move(rounding)) {
    if (rounding_.integers() && has_integer_products(weight_)) {
      const MemoryScope scope(MemoryCategory::parameters);
      row_sums_ = packed_row_sums(weight_);
    }
    if (rounding_.nvfp4() && Nvfp4Weight::fits(weight_) &&
        has_block_scaled_gemms(weight_.device(), ElementFormat::e2m1))
      nvfp4_ = Nvfp4Weight(weight_);
  }
  [[nodiscard]] const PackedMatrix& weight() const noexcept { return weight_; }
  [[nodiscard]] bool rounds_inputs() const { return static_cast<bool>(rounding_); }

  // Many tokens: a floating-point GEMM over fake-quantized x in its dtype.
  void multiply(const Tensor& x, const Tensor& y, const Tensor& bias) const {
    const MemoryScope scope(MemoryCategory::workspace);
    if (row_sums_.defined() && x.size(0) <= kPackedRows && !batch_invariant() &&
        (!bias.defined() || bias.dtype() == y.dtype())) {
      const IntQuantized codes = quantize_int(x, *rounding_.integers());
      return packed_integer_linear({.x = codes.codes,
                                    .scales = codes.scales.scales,
                                    .zero_points = codes.scales.zero_points,
                                    .weight = weight_,
                                    .weight_sums = row_sums_,
                                    .y = y,
                                    .bias = bias});
    }
    if (nvfp4_.defined() && x.size(0) > kFewTokens && !batch_invariant()) {
      nvfp4_.multiply(rounding_.nvfp4()(x), y);
      if (bias.defined()) add_bias(y, bias);
      return;
    }
    packed_linear({.x = rounding_ ? rounding_(x) : x, .weight = weight_, .y = y, .bias = bias});
  }

 private:
  PackedMatrix weight_;
  InputRounding rounding_;
  Tensor row_sums_;    // for integer GEMMs
  Nvfp4Weight nvfp4_;  // for block-scaled GEMMs
};

class PackedHead final : public HeadGemms {
 public:
  PackedHead(PackedGemms gemms, Weight values) : gemms_(std::move(gemms)), values_(std::move(values)) {}
  void logits(const Tensor& hidden, const Tensor& out) override { gemms_.multiply(hidden, out, {}); }
  void gradients(const Tensor& dlogits, const Tensor&, const Tensor& dhidden, const Tensor& dweight, float) override {
    QUENCH_CHECK(!dweight.defined(), "a packed head has no gradient");
    if (!dhidden.defined()) return;
    if (!acquired_) acquired_.emplace(values_.acquire());
    gemm({.a = dlogits, .b = acquired_->value(), .c = dhidden});
  }

 private:
  PackedGemms gemms_;
  Weight values_;
  std::optional<Weight::Acquired> acquired_;  // from the first gradient on
};

class PackedLinear final : public nn::LinearKernel {
 public:
  PackedLinear(PackedMatrix weight, InputRounding rounding) : gemms_(std::move(weight), std::move(rounding)) {}

  [[nodiscard]] bool supports(const nn::LinearCall& call, const nn::Parameter&, const Weight&) const override {
    if (!call.is_fused()) return call.mode != nn::LinearMode::recompute;
    const bool fuses =
        call.epilogue == nn::LinearEpilogue::none || call.epilogue == nn::LinearEpilogue::gated_activation;
    return call.mode == nn::LinearMode::inference && fuses && !gemms_.rounds_inputs();
  }
  [[nodiscard]] std::unique_ptr<HeadGemms> head_gemms(const nn::Parameter& weight) const override {
    return std::make_unique<PackedHead>(gemms_, weight.weight());
  }
  [[nodiscard]] std::string_view name() const override { return "packed"; }

 private:
  [[nodiscard]] nn::LinearOutput do_run(const nn::LinearCall& call, const nn::Parameter& weight,
                                        const Weight& bias) const override {
    if (!call.is_fused()) return {plain(call.x, weight, bias)};
    const bool gated = call.epilogue == nn::LinearEpilogue::gated_activation;
    const MemoryScope scope(MemoryCategory::activations);
    const Tensor x = call.x.value();
    const auto b = bias.acquire();
    const Tensor y = Tensor::empty({x.size(0), gemms_.weight().rows() / (gated ? 2 : 1)}, x.dtype(), x.device());
    if (call.norm != nullptr)
      normed_linear({.x = x,
                     .norm = *call.norm,
                     .values = {},
                     .packed = gemms_.weight(),
                     .y = y,
                     .bias = b.value(),
                     .gated = gated ? std::optional(call.activation) : std::nullopt});
    else
      gated_packed_linear(
          {.x = x, .weight = gemms_.weight(), .y = y, .bias = b.value(), .activation = call.activation});
    return gated ? nn::LinearOutput{{}, y} : nn::LinearOutput{Variable(y)};
  }
  [[nodiscard]] Variable plain(const Variable& x, const nn::Parameter& weight, const Weight& bias) const {
    const MemoryScope scope(MemoryCategory::activations);
    const Tensor in = x.value();
    Variable y(Tensor::empty({in.size(0), gemms_.weight().rows()}, in.dtype(), in.device()));
    gemms_.multiply(in, y.value(), bias.acquire().value());
    Tape::record("packed_linear", {x, bias}, std::array{&y}, [&] {
      return [values = weight.weight(), dx = x.gradient(), db = bias.gradient(), dy_of = y.gradient()] {
        const Tensor dy = dy_of->value();
        if (db) {
          const GradientTarget into = db->target();
          column_sum({.x = dy, .out = into.tensor, .accumulate = into.accumulate});
        }
        if (dx) {
          const GradientTarget into = dx->target();
          gemm({.a = dy, .b = values.acquire().value(), .c = into.tensor, .beta = into.accumulate ? 1.0f : 0.0f});
        }
      };
    });
    return y;
  }

  PackedGemms gemms_;
};

}  // namespace

void use_packed_weight(nn::Linear& layer, PackedMatrix weight, DType dtype, InputRounding rounding) {
  nn::Parameter& parameter = layer.weight();
  QUENCH_CHECK(weight.codes().shape() == parameter.global_shape, "{}: a packed weight of shape {}, expected {}",
               parameter.name, weight.codes().shape().to_string(), parameter.global_shape.to_string());
  parameter.whole =
      Weight(parameter.global_shape, dtype, weight.device(), std::make_shared<PackedValues>(weight, dtype), nullptr);
  layer.set_kernel(std::make_shared<PackedLinear>(std::move(weight), std::move(rounding)));
}

void unpack_weight(nn::Linear& layer) {
  if (!has_packed_weight(layer)) return;
  nn::Parameter& parameter = layer.weight();
  const Weight packed = std::exchange(parameter.whole, Weight());
  materialize(parameter);
  Tensor own = parameter.variable.value();
  own.copy_from(packed.acquire().value());
  parameter.mark_changed();
  layer.set_kernel(nn::high_precision_linear_kernel());
}

bool has_packed_weight(const nn::Linear& layer) {
  return dynamic_cast<const PackedLinear*>(&layer.kernel()) != nullptr;
}

}  // namespace quench::recipes
