#include "nn/modules/low_rank_adapter.h"

#include <cmath>

#include "core/ops/adapters/magnitude.h"
#include "core/ops/elementwise.h"
#include "core/ops/gemm.h"

namespace quench::nn {
namespace {

std::int64_t lay_out(std::vector<LowRankPiece>& pieces) {
  std::int64_t rank = 0;
  for (LowRankPiece& piece : pieces) {
    piece.rank_begin = rank;
    rank += piece.rank;
  }
  return rank;
}

}  // namespace

LowRankAdapter::LowRankAdapter(std::vector<LowRankPiece> pieces, std::int64_t in_features,
                               const ParameterOptions& options, bool magnitudes, TensorSplit split)
    : pieces_(std::move(pieces)),
      a_(make_parameter({lay_out(pieces_), in_features}, options, Initializer::uniform, 0)) {
  a_.adapter = true;
  if (split == TensorSplit::columns) a_.slice.split = split;
  a_.init_std = 1.0f / std::sqrt(3.0f * static_cast<float>(in_features * a_.slice.column_parts()));
  for (const LowRankPiece& piece : pieces_) {
    b_.push_back(std::make_unique<Parameter>(make_parameter({piece.rows, piece.rank}, options, Initializer::zeros)));
    b_.back()->adapter = true;
    if (split == TensorSplit::rows) b_.back()->slice.split = split;
    if (!magnitudes) continue;
    magnitudes_.push_back(std::make_unique<Parameter>(make_parameter({piece.rows}, options, Initializer::ones)));
    magnitudes_.back()->adapter = true;
  }
}

std::vector<KernelParameter> LowRankAdapter::parameters() {
  KernelParameter a{"lora_A.weight", &a_};
  for (const LowRankPiece& piece : pieces_)
    a.pieces.push_back({piece.layer + ".lora_A.weight", piece.rank_begin, piece.rank});
  std::vector<KernelParameter> all{std::move(a)};
  for (std::size_t i = 0; i < pieces_.size(); ++i)
    all.push_back({"lora_B." + pieces_[i].layer + ".weight",
                   b_[i].get(),
                   {{pieces_[i].layer + ".lora_B.weight", 0, pieces_[i].rows}}});
  for (std::size_t i = 0; i < magnitudes_.size(); ++i)
    all.push_back({"lora_magnitude." + pieces_[i].layer,
                   magnitudes_[i].get(),
                   {{pieces_[i].layer + ".lora_magnitude_vector", 0, pieces_[i].rows}}});
  return all;
}

void LowRankAdapter::add(const Tensor& weight, const Tensor& sum, const WholeRows& whole) const {
  const Weight::Acquired a = whole_weight(a_, whole).acquire();
  const bool in_place = sum.raw_data() == weight.raw_data();
  std::int64_t next = 0;
  const auto copy_to = [&](std::int64_t end) {
    if (!in_place && next < end) copy_rows({weight.narrow(0, next, end - next), sum.narrow(0, next, end - next)});
  };
  for (std::size_t i = 0; i < pieces_.size(); ++i) {
    const LowRankPiece& piece = pieces_[i];
    const Weight::Acquired b = whole_weight(*b_[i], whole).acquire();
    copy_to(piece.row_begin);
    next = piece.row_begin + piece.rows;
    gemm({.a = b.value(),
          .b = a.value().narrow(0, piece.rank_begin, piece.rank),
          .c = sum.narrow(0, piece.row_begin, piece.rows),
          .alpha = piece.scale,
          .beta = 1.0f,
          .addend = in_place ? Tensor() : weight.narrow(0, piece.row_begin, piece.rows)});
  }
  copy_to(weight.size(0));
}

void LowRankAdapter::add_to(const Tensor& weight, const WholeRows& whole) const {
  add(weight, weight, whole);
}

Tensor LowRankAdapter::added_to(const Tensor& weight) const {
  const Tensor sum = Tensor::empty_like(weight);
  add(weight, sum, {});
  return sum;
}

void LowRankAdapter::merge_into(const Tensor& weight, const WholeRows& whole) const {
  add_to(weight, whole);
  if (!has_magnitudes()) return;
  const MemoryScope scope(MemoryCategory::workspace);
  const Tensor norms = Tensor::empty({weight.size(0)}, DType::f32, weight.device());
  row_norms({.x = weight, .out = norms});
  for (std::size_t i = 0; i < pieces_.size(); ++i) {
    const LowRankPiece& piece = pieces_[i];
    const Tensor rows = weight.narrow(0, piece.row_begin, piece.rows);
    scale_by_magnitude({.x = rows,
                        .magnitude = whole_weight(*magnitudes_[i], whole).acquire().value(),
                        .norms = norms.narrow(0, piece.row_begin, piece.rows),
                        .bias = {},
                        .out = rows,
                        .by_row = true});
  }
}

Tensor LowRankAdapter::norms(const Tensor& weight) const {
  const MemoryScope scope(MemoryCategory::workspace);
  const Tensor merged = added_to(weight);
  const Tensor result = Tensor::empty({weight.size(0)}, DType::f32, weight.device());
  row_norms({.x = merged, .out = result});
  return result;
}

void LowRankAdapter::set_magnitudes(const Tensor& weight) {
  if (!has_magnitudes()) return;
  const Tensor of_rows = norms(weight);
  for (std::size_t i = 0; i < pieces_.size(); ++i) {
    const Tensor value = magnitudes_[i]->variable.value();
    const std::int64_t begin = pieces_[i].row_begin + magnitudes_[i]->shard.row_begin;
    cast({.from = of_rows.narrow(0, begin, value.size(0)), .to = value});
    magnitudes_[i]->mark_changed();
  }
}

}  // namespace quench::nn
