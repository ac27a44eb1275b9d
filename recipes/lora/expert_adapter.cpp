#include "recipes/lora/expert_adapter.h"

#include <array>
#include <cmath>

#include "core/ops/elementwise.h"
#include "core/ops/gemm.h"
#include "recipes/lora/adapter_name.h"

namespace quench::recipes {

using autograd::Tape;
using autograd::TokenPermutation;
using autograd::Variable;
using autograd::Weight;

namespace {

// y[:, first:] += factor * update, in place: y has no other reader.
Variable add_to_columns(const Variable& y, const Variable& update, std::int64_t first, float factor) {
  const MemoryScope scope(MemoryCategory::workspace);
  const std::int64_t count = update.value().size(1);
  const Tensor columns = y.value().narrow(1, first, count);
  if (count == y.value().size(1)) {
    accumulate({.x = update.value(), .out = y.value(), .scale = factor});
  } else {
    const Tensor sum = Tensor::empty_like(update.value());
    copy_rows({columns, sum});
    accumulate({.x = update.value(), .out = sum, .scale = factor});
    copy_rows({sum, columns});
  }
  Variable result(y.value());
  Tape::record("lora_experts", {y, update}, std::array{&result}, [&] {
    return [dy = y.gradient(), dupdate = update.gradient(), first, count, factor, of_result = result.gradient()] {
      const MemoryScope backward_scope(MemoryCategory::workspace);
      const Tensor gradient = of_result->value();
      if (dupdate) {
        const Tensor own = Tensor::empty({gradient.size(0), count}, gradient.dtype(), gradient.device());
        copy_rows({gradient.narrow(1, first, count), own});
        scale({.x = own, .factor = factor});
        dupdate->contribute(own);
      }
      if (dy) dy->contribute(of_result->fused());
    };
  });
  return result;
}

}  // namespace

ExpertAdapter::ExpertAdapter(const nn::ExpertLinear& layer, std::vector<ExpertPiece> pieces,
                             const nn::ParameterOptions& options)
    : experts_(layer.experts()), path_(layer.hf_path()), pieces_(std::move(pieces)) {
  const std::int64_t in = layer.weight().global_shape[1];
  const float bound = 1.0f / std::sqrt(3.0f * static_cast<float>(in));  // as a standard deviation
  const auto make = [&](const Shape& shape, nn::Initializer initializer, float std) {
    auto parameter = std::make_unique<nn::Parameter>(nn::make_parameter(shape, options, initializer, std, experts_));
    parameter->adapter = true;
    return parameter;
  };
  for (const ExpertPiece& piece : pieces_) {
    a_.push_back(make({experts_ * piece.rank, in}, nn::Initializer::uniform, bound));
    b_.push_back(make({experts_ * piece.rows, piece.rank}, nn::Initializer::zeros, 0.0f));
  }
}

std::vector<nn::KernelParameter> ExpertAdapter::parameters() const {
  std::vector<nn::KernelParameter> all;
  for (std::size_t i = 0; i < pieces_.size(); ++i)
    for (const auto& [which, parameter] : {std::pair{'A', a_[i].get()}, {'B', b_[i].get()}}) {
      nn::KernelParameter own{fmt::format("lora_{}.{}.weight", which, pieces_[i].layer), parameter};
      const std::int64_t rows = parameter->global_shape[0] / experts_;
      for (std::int64_t expert = 0; expert < experts_; ++expert)
        own.pieces.push_back(
            {fmt::format("{}.{}.{}.lora_{}.weight", path_, expert, pieces_[i].layer, which), expert * rows, rows});
      all.push_back(std::move(own));
    }
  return all;
}

void ExpertAdapter::add_to(const Tensor& weight, const nn::WholeRows& whole) const {
  const std::int64_t out = weight.size(0) / experts_;
  for (std::size_t i = 0; i < pieces_.size(); ++i) {
    const ExpertPiece& piece = pieces_[i];
    const Weight::Acquired a = nn::whole_weight(*a_[i], whole).acquire(), b = nn::whole_weight(*b_[i], whole).acquire();
    for (std::int64_t expert = 0; expert < experts_; ++expert)
      gemm({.a = b.value().narrow(0, expert * piece.rows, piece.rows),
            .b = a.value().narrow(0, expert * piece.rank, piece.rank),
            .c = weight.narrow(0, expert * out + piece.row_begin, piece.rows),
            .alpha = piece.scale,
            .beta = 1.0f});
  }
}

LoraExperts::LoraExperts(std::shared_ptr<const nn::ExpertKernel> base, std::shared_ptr<ExpertAdapter> adapter)
    : base_(std::move(base)),
      adapter_(std::move(adapter)),
      name_(fmt::format("{} + {}", base_->name(), adapter_name("lora", adapter_->pieces()))) {}

Variable LoraExperts::with_updates(Variable y, const Variable& x, const TokenPermutation& rows) const {
  for (std::size_t i = 0; i < adapter_->pieces().size(); ++i) {
    const ExpertPiece& piece = adapter_->pieces()[i];
    const Variable hidden = autograd::expert_linear(x, adapter_->a(i).weight(), rows);
    const Variable update = autograd::expert_linear(hidden, adapter_->b(i).weight(), rows);
    y = add_to_columns(y, update, piece.row_begin, piece.scale);
  }
  return y;
}

Variable LoraExperts::apply(const Variable& x, const nn::Parameter& weight, const TokenPermutation& rows) const {
  return with_updates(base_->apply(x, weight, rows), x, rows);
}

Variable LoraExperts::apply_to_tokens(const Variable& x, const nn::Parameter& weight,
                                      const TokenPermutation& rows) const {
  return with_updates(base_->apply_to_tokens(x, weight, rows), autograd::permute_tokens(x, rows), rows);
}

}  // namespace quench::recipes
