#include "recipes/qat/qat_embedding.h"

#include <array>

#include "core/ops/embedding.h"
#include "recipes/qat/qat_head.h"

namespace quench::recipes {
namespace {

using autograd::GradientTarget;
using autograd::Tape;
using autograd::Variable;
using autograd::Weight;

class QatEmbedding final : public nn::EmbeddingKernel {
 public:
  explicit QatEmbedding(const FakeFormat& format) : format_(format), name_(format.describe()) {}

  [[nodiscard]] Variable apply(const nn::Parameter& parameter, const Tensor& ids) const override {
    const Weight table = parameter.weight();
    const MemoryScope scope(MemoryCategory::activations);
    const Tensor rows = Tensor::empty({ids.size(0), table.shape()[1]}, table.dtype(), table.device());
    embedding({table.acquire().value(), ids, rows});
    FakeQuantized made = fake_quantize(rows, format_, Tape::current() != nullptr && table.requires_grad());
    Variable out(made.values);
    Tape::record("qat_embedding", {table}, std::array{&out}, [&] {
      return [ids, mask = made.mask, dtable = table.gradient(), dout_of = out.gradient()] {
        const MemoryScope workspace(MemoryCategory::workspace);
        // The gradient may have other readers.
        const Tensor dout = dout_of->value().clone();
        stop_gradient(dout, mask);
        GradientTarget into = dtable->target();
        if (!into.accumulate) into.tensor.zero();
        embedding_backward({.dout = dout, .ids = ids, .dtable = into.tensor});
      };
    });
    return out;
  }

  [[nodiscard]] std::unique_ptr<HeadGemms> head_gemms(const nn::Parameter& table) const override {
    return std::make_unique<QatHead>(QatScheme{name_, {}, format_}, fake_quantize(table.weight().acquire().value(),
                                                                                  format_, Tape::current() != nullptr));
  }

  [[nodiscard]] std::string_view name() const override { return name_; }

 private:
  FakeFormat format_;
  std::string name_;
};

}  // namespace

std::shared_ptr<const nn::EmbeddingKernel> qat_embedding(const FakeFormat& format) {
  return std::make_shared<QatEmbedding>(format);
}

}  // namespace quench::recipes
