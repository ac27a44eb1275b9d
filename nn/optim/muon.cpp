#include "nn/optim/muon.h"

#include <algorithm>
#include <cmath>

#include "core/number/random.h"
#include "core/ops/elementwise.h"
#include "core/ops/gemm.h"
#include "core/ops/global_norm.h"
#include "core/ops/optimizer/muon.h"

namespace quench::nn {

bool suits_muon(const Parameter& parameter, const OptimizerOptions& options) {
  return parameter.global_shape.rank() == 2 && !(options.exclude_from_muon && options.exclude_from_muon(parameter));
}

void orthogonalize(const Tensor& x) {
  constexpr float kA = 3.4445f, kB = -4.7750f, kC = 2.0315f;
  constexpr int kIterations = 5;
  const MemoryScope scope(MemoryCategory::workspace);
  const std::int64_t rows = x.size(0), columns = x.size(1);
  const bool tall = rows > columns;  // the smaller Gram matrix is taken
  const std::int64_t n = std::min(rows, columns);
  const Tensor squared = Tensor::empty({1}, DType::f64, x.device());
  squared_norm({.tensors = {&x, 1}, .result = squared});
  divide_by_norm({.x = x, .squared_norm = squared});
  const Tensor gram = Tensor::empty({n, n}, DType::bf16, x.device()), polynomial = Tensor::empty_like(gram);
  Tensor now = x, next = Tensor::empty_like(x);
  for (int i = 0; i < kIterations; ++i) {
    gemm({.a = now, .b = now, .c = gram, .transpose_a = tall, .transpose_b = !tall});
    cast({gram, polynomial});
    gemm({.a = gram, .b = gram, .c = polynomial, .alpha = kC, .beta = kB});
    cast({now, next});
    if (tall)
      gemm({.a = now, .b = polynomial, .c = next, .beta = kA});
    else
      gemm({.a = polynomial, .b = now, .c = next, .beta = kA});
    std::swap(now, next);
  }
  if (now.raw_data() != x.raw_data()) cast({now, x});
}

Muon::Muon(const std::vector<Parameter*>& all, OptimizerOptions options)
    : Optimizer(all), options_(std::move(options)) {
  const MemoryScope scope(MemoryCategory::optimizer);
  for (const Parameter* p : parameters()) {
    const Tensor value = p->variable.value();
    QUENCH_CHECK(value.rank() == 2, "muon: {} is {}; expected a matrix", p->name, value.describe());
    QUENCH_CHECK_AS(ErrorCode::unsupported, value.shape() == p->global_shape,
                    "optimizer.name muon: {} is divided among processes ({} of {}), but its update needs whole "
                    "matrices; train without sharding, or with adamw",
                    p->name, value.shape().to_string(), p->global_shape.to_string());
    entries_.push_back({Tensor::zeros(value.shape(), options_.state_dtype, value.device()), make_master(*p, options_)});
  }
  refresh_master();
}

void Muon::step(double lr, std::int64_t step, const Tensor& grad_scale, ParameterRange part) {
  for (std::size_t i = part.begin; i < part.end; ++i) {
    Parameter& p = *parameters()[i];
    const Entry& entry = entries_[i];
    const Tensor value = p.variable.value();
    const std::int64_t columns = value.size(1);
    const MemoryScope scope(MemoryCategory::workspace);
    const Tensor update = Tensor::empty(value.shape(), DType::bf16, value.device());
    muon_momentum({.grad = gradient_of(i),
                   .momentum = entry.momentum,
                   .update = update,
                   .beta = static_cast<float>(options_.momentum.value_or(0.95)),
                   .nesterov = options_.nesterov.value_or(true),
                   .grad_scale = grad_scale});
    std::vector<ParameterPiece> pieces = p.pieces;
    if (pieces.empty()) pieces.push_back({p.name, 0, value.size(0)});
    for (const ParameterPiece& piece : pieces) {
      const auto rows_of = [&](const Tensor& t) {
        return t.defined() ? t.narrow(0, piece.row_begin, piece.rows) : Tensor();
      };
      orthogonalize(rows_of(update));
      const double like_adamw = 0.2 * std::sqrt(static_cast<double>(std::max(piece.rows, columns)));
      muon_apply({.param = rows_of(value),
                  .master = rows_of(entry.master),
                  .update = rows_of(update),
                  .decay = static_cast<float>(1 - lr * options_.weight_decay_of(p)),
                  .step_size = static_cast<float>(-lr * like_adamw),
                  .grad_scale = grad_scale,
                  .stochastic_rounding = options_.stochastic_rounding,
                  .seed = options_.seed,
                  .random_stream = hash64(p.name),
                  .step = step,
                  .element_offset = piece.row_begin * columns});
    }
    p.mark_changed();
  }
}

std::vector<Optimizer::KeptTensor> Muon::kept(std::size_t index) {
  return {{"momentum", &entries_[index].momentum}, {kMaster, &entries_[index].master}};
}

}  // namespace quench::nn
