#include "nn/optim/muon.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <utility>

#include "core/number/random.h"
#include "core/ops/elementwise.h"
#include "core/ops/gemm.h"
#include "core/ops/global_norm.h"
#include "core/ops/optimizer/muon.h"

namespace quench::nn {

bool suits_muon(const Parameter& parameter, const OptimizerOptions& options) {
  return parameter.global_shape.rank() == 2 && !parameter.scales &&
         !(options.exclude_from_muon && options.exclude_from_muon(parameter));
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
    QUENCH_CHECK_AS(ErrorCode::unsupported, value.shape() == p->global_shape || options_.rows != nullptr,
                    "muon: {} is divided among processes ({} of {}), and nothing brings its rows together", p->name,
                    value.shape().to_string(), p->global_shape.to_string());
    entries_.push_back({Tensor::zeros(value.shape(), options_.state_dtype, value.device()), make_master(*p, options_)});
  }
  refresh_master();
}

std::vector<Muon::Matrix> Muon::matrices(ParameterRange part) const {
  std::vector<Matrix> all;
  for (std::size_t i = part.begin; i < part.end; ++i) {
    const Parameter& p = *parameters()[i];
    const std::int64_t columns = p.global_shape[1];
    if (p.pieces.empty()) all.push_back({i, {p.name, 0, p.global_shape[0]}, columns});
    for (const ParameterPiece& piece : p.pieces) all.push_back({i, piece, columns});
  }
  return all;
}

ShardSpec Muon::own_rows(const Matrix& matrix) const {
  const Parameter& p = *parameters()[matrix.parameter];
  const std::int64_t first = p.shard.row_begin, last = first + p.variable.value().size(0);
  const std::int64_t begin = std::clamp(matrix.piece.row_begin, first, last),
                     end = std::clamp(matrix.piece.row_begin + matrix.piece.rows, first, last);
  return {begin - first, end - begin};
}

void Muon::step_momentum(const Matrix& matrix, const Step& step, const Tensor& update) {
  const ShardSpec rows = own_rows(matrix);
  if (rows.rows == 0) return;
  muon_momentum({.grad = gradient_of(matrix.parameter).narrow(0, rows.row_begin, rows.rows),
                 .momentum = entries_[matrix.parameter].momentum.narrow(0, rows.row_begin, rows.rows),
                 .update = update,
                 .beta = static_cast<float>(options_.momentum.value_or(0.95)),
                 .nesterov = options_.nesterov.value_or(true),
                 .grad_scale = step.grad_scale});
}

void Muon::apply(const Matrix& matrix, const Step& step, const Tensor& update) {
  const ShardSpec rows = own_rows(matrix);
  if (rows.rows == 0) return;
  Parameter& p = *parameters()[matrix.parameter];
  const Tensor& master = entries_[matrix.parameter].master;
  const double like_adamw = 0.2 * std::sqrt(static_cast<double>(std::max(matrix.piece.rows, matrix.columns)));
  muon_apply({.param = p.variable.value().narrow(0, rows.row_begin, rows.rows),
              .master = master.defined() ? master.narrow(0, rows.row_begin, rows.rows) : Tensor(),
              .update = update,
              .decay = static_cast<float>(1 - step.lr * options_.weight_decay_of(p)),
              .step_size = static_cast<float>(-step.lr * like_adamw),
              .grad_scale = step.grad_scale,
              .stochastic_rounding = options_.stochastic_rounding,
              .seed = options_.seed,
              .random_stream = hash64(p.name),
              .step = step.number,
              .element_offset = (p.shard.row_begin + rows.row_begin) * matrix.columns});
}

void Muon::step_round(std::span<const Matrix> round, const Step& step) {
  const Sharding sharding = options_.rows->sharding();
  const auto processes = static_cast<std::size_t>(sharding.count), own = static_cast<std::size_t>(sharding.index);
  // Matrix j goes to process j.
  std::vector<std::int64_t> of_round(processes), of_whole(processes);
  std::int64_t elements = 0;
  for (std::size_t j = 0; j < round.size(); ++j) elements += of_round[j] = own_rows(round[j]).rows * round[j].columns;
  Tensor whole = Tensor::empty({0, 1}, DType::bf16, entries_[round.front().parameter].momentum.device());
  if (own < round.size()) {
    const Matrix& matrix = round[own];
    for (std::size_t j = 0; j < processes; ++j) {
      const Sharding there{static_cast<std::int64_t>(j), sharding.count};
      const ShardSpec rows = there.of(parameters()[matrix.parameter]->global_shape[0]);
      const std::int64_t begin = std::max(rows.row_begin, matrix.piece.row_begin),
                         end = std::min(rows.row_begin + rows.rows, matrix.piece.row_begin + matrix.piece.rows);
      of_whole[j] = std::max<std::int64_t>(end - begin, 0) * matrix.columns;
    }
    whole = Tensor::empty({matrix.piece.rows, matrix.columns}, DType::bf16, whole.device());
  }
  const Tensor updates = Tensor::empty({elements}, DType::bf16, whole.device());
  const auto update_of = [&](std::size_t j) {
    const std::int64_t begin =
        std::accumulate(of_round.begin(), of_round.begin() + static_cast<std::ptrdiff_t>(j), std::int64_t{0});
    return updates.narrow(0, begin, of_round[j]).view({of_round[j] / round[j].columns, round[j].columns});
  };
  for (std::size_t j = 0; j < round.size(); ++j) step_momentum(round[j], step, update_of(j));
  const Tensor flat = whole.view({whole.numel()});
  options_.rows->exchange(updates, flat, of_round, of_whole);
  if (own < round.size()) orthogonalize(whole);
  options_.rows->exchange(flat, updates, of_whole, of_round);
  for (std::size_t j = 0; j < round.size(); ++j) apply(round[j], step, update_of(j));
}

void Muon::step(double lr, std::int64_t number, const Tensor& grad_scale, ParameterRange part) {
  const MemoryScope scope(MemoryCategory::workspace);
  const Step step{lr, number, grad_scale};
  std::vector<Matrix> all = matrices(part);
  if (options_.rows != nullptr) {
    // Those of one size at a time, so that no process waits for another's larger one.
    std::ranges::stable_sort(all, std::ranges::greater(), [](const Matrix& matrix) {
      return std::pair(matrix.piece.rows * matrix.columns, matrix.columns);
    });
    const auto processes = static_cast<std::size_t>(options_.rows->sharding().count);
    for (std::size_t i = 0; i < all.size(); i += processes)
      step_round(std::span(all).subspan(i, std::min(processes, all.size() - i)), step);
  } else {
    for (const Matrix& matrix : all) {
      const Tensor update =
          Tensor::empty({matrix.piece.rows, matrix.columns}, DType::bf16, entries_[matrix.parameter].momentum.device());
      step_momentum(matrix, step, update);
      orthogonalize(update);
      apply(matrix, step, update);
    }
  }
  for (std::size_t i = part.begin; i < part.end; ++i) parameters()[i]->mark_changed();
}

std::vector<Optimizer::KeptTensor> Muon::kept(std::size_t index) {
  return {{"momentum", &entries_[index].momentum}, {kMaster, &entries_[index].master}};
}

}  // namespace quench::nn
