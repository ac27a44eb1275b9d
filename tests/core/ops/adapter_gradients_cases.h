#pragma once
// Gradients of low-rank updates and what they are in f64.

#include <vector>

#include "core/ops/adapters/adapter_gradients.h"
#include "tests/core/ops/op_testing.h"

namespace quench::testing {

struct AdapterPieceSpan {
  std::int64_t column, width, rank_begin, rank;
  bool accumulate = false;
};

struct AdapterGradientCase {
  AdapterGradientsArgs on_cpu;

  // dY and the hidden values are columns of matrices that have `margin` more on either side.
  AdapterGradientCase(DType dtype, DType gradient_dtype, std::int64_t m, std::int64_t n, std::int64_t ranks,
                      const std::vector<AdapterPieceSpan>& spans, std::int64_t margin = 0) {
    Generator random(static_cast<std::uint32_t>(m + 3 * n + 7 * ranks));
    const auto inner = [&](std::int64_t columns) {
      return random.normal({m, columns + 2 * margin}, dtype).narrow(1, margin, columns);
    };
    on_cpu = {.dy = inner(n), .hidden = inner(ranks), .dhidden = inner(ranks), .pieces = {}};
    for (const AdapterPieceSpan& span : spans)
      on_cpu.pieces.push_back({.b = random.normal({span.width, span.rank}, dtype),
                               .db = random.normal({span.width, span.rank}, gradient_dtype),
                               .column = span.column,
                               .rank_begin = span.rank_begin,
                               .scale = 2.0f,
                               .gradient_scale = 0.5f,
                               .accumulate = span.accumulate});
    for (const AdapterGradientPiece& piece : on_cpu.pieces) expect(piece);
    for (AdapterGradientPiece& piece : on_cpu.pieces)
      if (!piece.accumulate) fill(piece.db, std::nan(""));  // must not be read
  }

  // `roundings` to the dtype of what is at most as large as the terms, and what f32 sums lose.
  void check(const AdapterGradientsArgs& got, double roundings) const {
    for (std::size_t p = 0; p < on_cpu.pieces.size(); ++p) {
      SCOPED_TRACE(fmt::format("piece {}", p));
      const AdapterGradientPiece& piece = on_cpu.pieces[p];
      check_tensor_values(got.dhidden.narrow(1, piece.rank_begin, piece.b.size(1)), dhidden_[p], roundings);
      check_tensor_values(got.pieces[p].db, db_[p], roundings);
    }
  }

 private:
  struct Expected {
    std::vector<double> value, magnitude;
  };

  void expect(const AdapterGradientPiece& piece) {
    const std::int64_t m = on_cpu.dy.size(0), n = piece.b.size(0), rank = piece.b.size(1);
    const std::vector<double> dy = values(on_cpu.dy.narrow(1, piece.column, n));
    const std::vector<double> hidden = values(on_cpu.hidden.narrow(1, piece.rank_begin, rank));
    const std::vector<double> b = values(piece.b), old = values(piece.db);
    Expected dhidden, db;
    for (Expected* e : {&dhidden, &db}) {
      e->value.resize(static_cast<std::size_t>((e == &db ? n : m) * rank));
      e->magnitude.resize(e->value.size());
    }
    const auto add = [](Expected& to, std::int64_t at, double term) {
      to.value[static_cast<std::size_t>(at)] += term;
      to.magnitude[static_cast<std::size_t>(at)] += std::abs(term);
    };
    const auto at = [](const std::vector<double>& v, std::int64_t i) { return v[static_cast<std::size_t>(i)]; };
    if (piece.accumulate)
      for (std::int64_t i = 0; i < n * rank; ++i) add(db, i, at(old, i));
    for (std::int64_t i = 0; i < m; ++i)
      for (std::int64_t j = 0; j < n; ++j)
        for (std::int64_t r = 0; r < rank; ++r) {
          const double gradient = at(dy, i * n + j);
          add(dhidden, i * rank + r, double{piece.scale} * gradient * at(b, j * rank + r));
          add(db, j * rank + r, double{piece.gradient_scale} * gradient * at(hidden, i * rank + r));
        }
    dhidden_.push_back(std::move(dhidden));
    db_.push_back(std::move(db));
  }

  static void check_tensor_values(const Tensor& tensor, const Expected& expected, double roundings) {
    const std::vector<double> got = values(tensor);
    ASSERT_EQ(got.size(), expected.value.size());
    for (std::size_t i = 0; i < got.size(); ++i)
      ASSERT_NEAR(
          got[i], expected.value[i],
          rounding(tensor.dtype()) * (1.01 * std::abs(expected.value[i]) + (roundings - 1) * expected.magnitude[i]) +
              0x1p-19 * expected.magnitude[i])
          << i;
  }

  std::vector<Expected> dhidden_, db_;
};

}  // namespace quench::testing
