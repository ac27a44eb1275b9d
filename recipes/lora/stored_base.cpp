#include "recipes/lora/stored_base.h"

#include "core/ops/quantize/nf4.h"
#include "core/ops/quantize/quantize.h"
#include "nn/linear.h"

namespace quench::recipes {
namespace {

// Values that exist while somebody uses them.
class StoredValues : public autograd::WeightSource {
 public:
  [[nodiscard]] Tensor request() override {
    if (uses_++ == 0) {
      const MemoryScope scope(MemoryCategory::workspace);
      values_ = decode();
    }
    return values_;
  }
  void done() noexcept override {
    if (--uses_ == 0) values_ = Tensor();
  }

 private:
  [[nodiscard]] virtual Tensor decode() const = 0;

  int uses_ = 0;
  Tensor values_;
};

class Nf4Values final : public StoredValues {
 public:
  explicit Nf4Values(const Tensor& weight) : codes_(quantize_nf4(weight)), dtype_(weight.dtype()) {}

 private:
  [[nodiscard]] Tensor decode() const override {
    Tensor out = Tensor::empty(codes_.shape, dtype_, codes_.codes.device());
    dequantize_nf4({codes_, out});
    return out;
  }

  Nf4Tensor codes_;
  DType dtype_;
};

class Float8Values final : public StoredValues {
 public:
  explicit Float8Values(const Tensor& weight)
      : codes_(quantize_float8(weight, {.granularity = Granularity::row, .power_of_two_scale = true})),
        dtype_(weight.dtype()) {}

 private:
  [[nodiscard]] Tensor decode() const override { return dequantize(codes_, dtype_); }

  QuantTensor codes_;
  DType dtype_;
};

std::shared_ptr<autograd::WeightSource> encode(const Tensor& weight, BaseForm form) {
  const MemoryScope scope(MemoryCategory::parameters);
  if (form == BaseForm::nf4) return std::make_shared<Nf4Values>(weight);
  return std::make_shared<Float8Values>(weight);
}

}  // namespace

void store_base(nn::Module& root, BaseForm form) {
  if (form == BaseForm::dense) return;
  root.visit([&](const std::string& name, nn::Module& module) {
    auto* linear = dynamic_cast<nn::Linear*>(&module);
    if (linear == nullptr || name == "lm_head") return;
    nn::Parameter& parameter = linear->weight();
    const Tensor value = parameter.variable.value();
    QUENCH_CHECK(!parameter.variable.requires_grad() && !parameter.whole.defined(),
                 "store_base: {} is trained, or kept elsewhere already", parameter.name);
    QUENCH_CHECK_AS(ErrorCode::unsupported, form != BaseForm::nf4 || value.numel() % Nf4::kBlockSize == 0,
                    "lora.base nf4: the {} elements of {} are no multiple of {}", value.numel(), parameter.name,
                    Nf4::kBlockSize);
    parameter.whole = autograd::Weight(value.shape(), value.dtype(), value.device(), encode(value, form), nullptr);
    parameter.variable = nn::Variable(Tensor::empty({0}, value.dtype(), value.device()));
    parameter.mark_changed();
  });
}

void make_dense(nn::Module& root) {
  const MemoryScope scope(MemoryCategory::parameters);
  for (nn::Parameter* parameter : root.parameters()) {
    // A shard without rows has no values of its own either.
    if (!parameter->whole.defined() || parameter->padded.defined() || parameter->variable.value().numel() > 0) continue;
    parameter->variable = nn::Variable(parameter->whole.use().value().clone());
    parameter->whole = autograd::Weight();
    parameter->mark_changed();
  }
}

}  // namespace quench::recipes
