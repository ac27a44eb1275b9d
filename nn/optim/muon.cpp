#include "nn/optim/muon.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <utility>

#include "core/number/random.h"
#include "core/ops/optimizer/muon.h"
#include "nn/optim/orthogonalize.h"

namespace quench::nn {
namespace {

// Bytes of updates orthogonalised per batch and rank; temporaries take twice as much, plus the Gram matrices. Nine
// matrices of 2048 x 8192 nearly fill whole waves of tiles on 132 SMs.
constexpr std::int64_t kBatchBytes = std::int64_t{288} << 20;

// Neighbouring ranks hold different experts (distributed/ranks.cpp).
Sharding share_of(std::int64_t process, const Sharding& own) {
  return {process / own.parts, own.count, process % own.parts, own.parts};
}

}  // namespace

bool suits_muon(const Parameter& parameter, const OptimizerOptions& options) {
  return parameter.global_shape.rank() == 2 && !parameter.scales &&
         !(options.exclude_from_muon && options.exclude_from_muon(parameter));
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
    entries_.push_back({make_state(value.shape(), options_.state_dtype, value.device(), options_.host_state),
                        make_master(*p, options_)});
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

// A round assigns matrix j to rank j.
struct Muon::Round {
  std::span<const Matrix> matrices;
  std::vector<std::int64_t> of_round, of_whole;  // elements per rank
  Tensor updates;                                // of_round
  Tensor whole;                                  // empty if this rank has no matrix

  [[nodiscard]] Tensor update(std::size_t j) const {
    const auto end = of_round.begin() + static_cast<std::ptrdiff_t>(j);
    return updates.narrow(0, std::accumulate(of_round.begin(), end, std::int64_t{0}), of_round[j])
        .view({of_round[j] / matrices[j].columns, matrices[j].columns});
  }
};

Muon::Round Muon::make_round(std::span<const Matrix> matrices, const Tensor& whole) const {
  const Sharding sharding = options_.rows ? options_.rows->sharding() : Sharding{};
  const auto processes = static_cast<std::size_t>(sharding.count), own = static_cast<std::size_t>(sharding.index);
  Round round{matrices, std::vector<std::int64_t>(processes), std::vector<std::int64_t>(processes), {}, whole};
  std::int64_t elements = 0;
  for (std::size_t j = 0; j < matrices.size(); ++j)
    elements += round.of_round[j] = own_rows(matrices[j]).rows * matrices[j].columns;
  if (own < matrices.size()) {
    const Matrix& matrix = matrices[own];
    for (std::size_t j = 0; j < processes; ++j) {
      const Parameter& p = *parameters()[matrix.parameter];
      const ShardSpec rows = share_of(static_cast<std::int64_t>(j), p.sharding).of(p.global_shape[0]);
      const std::int64_t begin = std::max(rows.row_begin, matrix.piece.row_begin),
                         end = std::min(rows.row_begin + rows.rows, matrix.piece.row_begin + matrix.piece.rows);
      round.of_whole[j] = std::max<std::int64_t>(end - begin, 0) * matrix.columns;
    }
  }
  round.updates = options_.rows ? Tensor::empty({elements}, DType::bf16, whole.device()) : whole;
  return round;
}

void Muon::step_rounds(std::span<const Matrix> matrices, const Step& step) {
  const Sharding sharding = options_.rows ? options_.rows->sharding() : Sharding{};
  const auto processes = static_cast<std::size_t>(sharding.count), own = static_cast<std::size_t>(sharding.index);
  const Matrix* mine = own < matrices.size() ? &matrices[own] : nullptr;
  const Shape shape = mine != nullptr ? Shape{mine->piece.rows, mine->columns} : Shape{0, 1};
  const std::size_t count = mine != nullptr ? (matrices.size() - own - 1) / processes + 1 : 0;
  const Tensor batch = Tensor::empty({static_cast<std::int64_t>(count), shape[0], shape[1]}, DType::bf16,
                                     entries_[matrices.front().parameter].momentum.device());
  const Tensor flat = batch.view({batch.numel()});
  std::vector<Round> rounds;
  for (std::size_t first = 0; first < matrices.size(); first += processes) {
    const std::int64_t size = rounds.size() < count ? shape.numel() : 0;
    const Tensor whole = flat.narrow(0, static_cast<std::int64_t>(rounds.size()) * size, size);
    rounds.push_back(make_round(matrices.subspan(first, std::min(processes, matrices.size() - first)), whole));
    const Round& round = rounds.back();
    for (std::size_t j = 0; j < round.matrices.size(); ++j) step_momentum(round.matrices[j], step, round.update(j));
    if (options_.rows) options_.rows->exchange(round.updates, round.whole, round.of_round, round.of_whole);
  }
  if (count > 0) orthogonalize(batch);
  for (const Round& round : rounds) {
    if (options_.rows) options_.rows->exchange(round.whole, round.updates, round.of_whole, round.of_round);
    for (std::size_t j = 0; j < round.matrices.size(); ++j) apply(round.matrices[j], step, round.update(j));
  }
}

void Muon::step(double lr, std::int64_t number, const Tensor& grad_scale, ParameterRange part) {
  const MemoryScope scope(MemoryCategory::workspace);
  const Step step{lr, number, grad_scale};
  std::vector<Matrix> all = matrices(part);
  const auto shape = [](const Matrix& matrix) { return std::pair(matrix.piece.rows * matrix.columns, matrix.columns); };
  // Equal shapes in sequence, for batches and equal work per rank.
  std::ranges::stable_sort(all, std::ranges::greater(), shape);
  const std::size_t processes = options_.rows ? static_cast<std::size_t>(options_.rows->sharding().count) : 1;
  for (std::size_t first = 0; first < all.size();) {
    const std::int64_t bytes = 2 * shape(all[first]).first;
    const auto rounds =
        static_cast<std::size_t>(std::max<std::int64_t>(kBatchBytes / std::max<std::int64_t>(bytes, 1), 1));
    const std::size_t most = std::min(all.size() - first, rounds * processes);
    std::size_t count = 1;
    while (count < most && shape(all[first + count]) == shape(all[first])) ++count;
    // A round of mixed shapes is a batch of its own.
    if (count < std::min(processes, most))
      count = std::min(processes, most);
    else if (first + count < all.size())
      count -= count % processes;
    step_rounds(std::span(all).subspan(first, count), step);
    first += count;
  }
  for (std::size_t i = part.begin; i < part.end; ++i) parameters()[i]->mark_changed();
}

std::vector<Optimizer::KeptTensor> Muon::kept(std::size_t index) {
  return {{"momentum", &entries_[index].momentum}, {kMaster, &entries_[index].master}};
}

}  // namespace quench::nn
