#include "nn/low_rank_adapter.h"

#include <cmath>

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
                               const ParameterOptions& options)
    : pieces_(std::move(pieces)),
      a_(make_parameter({lay_out(pieces_), in_features}, options, Initializer::uniform,
                        1.0f / std::sqrt(3.0f * static_cast<float>(in_features)))) {
  for (const LowRankPiece& piece : pieces_)
    b_.push_back(std::make_unique<Parameter>(make_parameter({piece.rows, piece.rank}, options, Initializer::zeros)));
  a_.adapter = true;
  for (const auto& b : b_) b->adapter = true;
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
  return all;
}

void LowRankAdapter::add_to(const Tensor& weight) const {
  const Weight::Use a = a_.weight().use();
  for (std::size_t i = 0; i < pieces_.size(); ++i) {
    const LowRankPiece& piece = pieces_[i];
    const Weight::Use b = b_[i]->weight().use();
    gemm({.a = b.value(),
          .b = a.value().narrow(0, piece.rank_begin, piece.rank),
          .c = weight.narrow(0, piece.row_begin, piece.rows),
          .alpha = piece.scale,
          .beta = 1.0f});
  }
}

}  // namespace quench::nn
