#include "core/gguf_types/codebook_search.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

namespace quench {
namespace {

constexpr int kSigns = 8, kChunk = 64;

struct Tables {
  std::vector<float> dots, flipped, norms;
};
thread_local Tables tables;

struct Nearest {
  int point = 0;
  float cost = INFINITY;  // over the scale
};

// Costs of four chunks at a time, whose chains of minima do not wait for each other.
Nearest nearest_point(const float* dots, const float* norms, int points, float scale) {
  float least[32];
  for (int first = 0; first < points; first += 4 * kChunk) {
    float a = INFINITY, b = INFINITY, c = INFINITY, d = INFINITY;
    const auto cost = [&](int p) { return scale * norms[p] - dots[p]; };
#pragma omp simd reduction(min : a, b, c, d)
    for (int p = first; p < first + kChunk; ++p) {
      const float one = cost(p), two = cost(p + kChunk), three = cost(p + 2 * kChunk), four = cost(p + 3 * kChunk);
      a = one < a ? one : a;
      b = two < b ? two : b;
      c = three < c ? three : c;
      d = four < d ? four : d;
    }
    least[first / kChunk] = a;
    least[first / kChunk + 1] = b;
    least[first / kChunk + 2] = c;
    least[first / kChunk + 3] = d;
  }
  const int chunk = static_cast<int>(std::min_element(least, least + points / kChunk) - least);
  for (int p = chunk * kChunk; p < (chunk + 1) * kChunk; ++p)
    if (scale * norms[p] - dots[p] == least[chunk]) return {p, least[chunk]};
  return {};
}

// Twice the products with every point; of `flipped`, with the smallest term negative.
template <std::size_t... I>
void dot_products(const Codebook& book, const float* factors, float* dots, float* flipped, std::index_sequence<I...>) {
  const float* columns = book.columns.data();
  const std::size_t points = static_cast<std::size_t>(book.points);
  if (flipped == nullptr) {
#pragma omp simd
    for (std::size_t p = 0; p < points; ++p) dots[p] = 2.0f * (... + (factors[I] * columns[I * points + p]));
    return;
  }
#pragma omp simd
  for (std::size_t p = 0; p < points; ++p) {
    float low = INFINITY;
    ((low = factors[I] * columns[I * points + p] < low ? factors[I] * columns[I * points + p] : low), ...);
    const float sum = (... + (factors[I] * columns[I * points + p]));
    dots[p] = 2.0f * sum;
    flipped[p] = 2.0f * sum - 4.0f * low;
  }
}

template <std::size_t... I>
void square_norms(const Codebook& book, const float* weights, float* norms, std::index_sequence<I...>) {
  const float* columns = book.columns.data();
  const std::size_t points = static_cast<std::size_t>(book.points);
#pragma omp simd
  for (std::size_t p = 0; p < points; ++p)
    norms[p] = (... + (weights[I] * (columns[I * points + p] * columns[I * points + p])));
}

}  // namespace

CodebookSearch::CodebookSearch(const CodebookForm& form, const float* x, const float* importance)
    : form_(form),
      points_(form.book->points),
      width_(form.book->width),
      cells_(kSuperBlock / width_),
      blocks_(kSuperBlock / form.elements),
      cells_per_block_(form.elements / width_),
      dots_(tables.dots),
      flipped_(tables.flipped),
      norms_(tables.norms),
      shared_norms_(importance == nullptr) {
  const GroupedBlock<kSuperBlock, 1> grouped(x, importance);
  std::copy(grouped.weights[0], grouped.weights[0] + kSuperBlock, weights_);
  std::fill(signs_, signs_ + kSuperBlock / kSigns, std::uint8_t{0});
  for (int i = 0; i < kSuperBlock; ++i) {
    magnitudes_[i] = std::abs(x[i]);
    weighted_[i] = weights_[i] * magnitudes_[i];
    if (x[i] < 0) signs_[i / kSigns] = static_cast<std::uint8_t>(signs_[i / kSigns] | 1 << (i % kSigns));
  }
  const auto size = static_cast<std::size_t>(cells_) * static_cast<std::size_t>(points_);
  if (dots_.size() < size) {
    dots_.resize(size);
    flipped_.resize(size);
    norms_.resize(size);
  }
  for (int cell = 0; cell < cells_; ++cell) load_cell(cell);
}

void CodebookSearch::load_cell(int cell) {
  const auto at = static_cast<std::ptrdiff_t>(cell) * points_;
  const float *factors = weighted_ + cell * width_, *weights = weights_ + cell * width_;
  const bool norms = cell == 0 || !shared_norms_;
  const bool odd = form_.even_signs && std::popcount(signs_[cell * width_ / kSigns]) % 2 == 1;
  float *dots = dots_.data() + at, *flipped = odd ? flipped_.data() + at : nullptr;
  if (width_ == 8) {
    dot_products(*form_.book, factors, dots, flipped, std::make_index_sequence<8>());
    if (norms) square_norms(*form_.book, weights, norms_.data() + at, std::make_index_sequence<8>());
  } else {
    dot_products(*form_.book, factors, dots, flipped, std::make_index_sequence<4>());
    if (norms) square_norms(*form_.book, weights, norms_.data() + at, std::make_index_sequence<4>());
  }
}

ScaleSums CodebookSearch::choose(int block, float scale, Choice* choices) const {
  ScaleSums sums;
  const int together = kSigns / width_;  // cells that share their signs
  for (int first = 0; first < cells_per_block_; first += together) {
    const int cell = block * cells_per_block_ + first;
    const bool odd = form_.even_signs && std::popcount(signs_[cell * width_ / kSigns]) % 2 == 1;
    Nearest plain[2], flipped[2];
    for (int i = 0; i < together; ++i) {
      const auto at = static_cast<std::ptrdiff_t>(cell + i) * points_;
      const float* norms = norms_.data() + (shared_norms_ ? 0 : at);
      if (!odd || together > 1) plain[i] = nearest_point(dots_.data() + at, norms, points_, scale);
      if (odd) flipped[i] = nearest_point(flipped_.data() + at, norms, points_, scale);
    }
    int flip = odd ? 0 : -1;
    if (odd && together == 2 && plain[0].cost + flipped[1].cost < flipped[0].cost + plain[1].cost) flip = 1;
    for (int i = 0; i < together; ++i) {
      const Choice choice{i == flip ? flipped[i].point : plain[i].point, i == flip};
      const auto at = static_cast<std::ptrdiff_t>(cell + i) * points_ + choice.point;
      sums.xv += 0.5f * (choice.flipped ? flipped_ : dots_)[static_cast<std::size_t>(at)];
      sums.vv += norms_[static_cast<std::size_t>(shared_norms_ ? choice.point : at)];
      choices[first + i] = choice;
    }
  }
  return sums;
}

float CodebookSearch::block_scale(int block) const {
  const int begin = block * form_.elements;
  double square = 0, weight = 0;
  for (int i = begin; i < begin + form_.elements; ++i) {
    square += static_cast<double>(weighted_[i]) * magnitudes_[i];
    weight += weights_[i];
  }
  const float rms = static_cast<float>(std::sqrt(square / weight));
  if (!(rms > 1e-30f)) return 0;
  Choice choices[8];
  double most = -1;
  float scale = rms / form_.book->typical;
  const auto take = [&](float start) {
    const ScaleSums sums = choose(block, start, choices);
    if (!(sums.gain() > most * (1 + 1e-6)) || !(sums.xv > 0)) return false;
    most = sums.gain();
    scale = sums.scale();
    return true;
  };
  const float start = scale;
  const float* magnitudes = magnitudes_ + begin;
  const auto [low, high] = std::minmax_element(magnitudes, magnitudes + form_.elements);
  take(*high / form_.book->largest);  // an outlier
  // Equal magnitudes have a point of equal values, the first, far from the typical scale.
  if (*high < 1.5f * *low) take(rms / form_.book->columns.front());
  for (const float factor : {0.7f, 0.9f, 1.15f, 1.45f}) take(start * factor);
  for (int pass = 0; pass < 2; ++pass)
    if (!take(scale)) break;
  return scale;
}

// Error less that of zeros; sums for the least squares of the unit.
double CodebookSearch::round_scales(float unit, CodebookBlock& out, double& numerator, double& denominator) const {
  out.unit = unit;
  double total = 0;
  numerator = denominator = 0;
  const float step = unit * form_.step;
  for (int block = 0; block < blocks_; ++block) {
    const int below = static_cast<int>(nearest_code((scales_[block] / step - 1.0f) / 2.0f - 0.5f, 0, 15));
    double least = INFINITY, xv = 0, vv = 0;
    for (int s = below; s <= std::min(15, below + 1); ++s) {
      const float scale = step * static_cast<float>(2 * s + 1);
      Choice choices[8];
      const ScaleSums sums = choose(block, scale, choices);
      const double error = static_cast<double>(scale) * (static_cast<double>(scale) * sums.vv - 2.0 * sums.xv);
      if (!(error < least)) continue;
      least = error;
      out.scales[block] = s;
      const double factor = static_cast<double>(form_.step) * (2 * s + 1);
      xv = factor * sums.xv;
      vv = factor * factor * sums.vv;
      store(choices, block, out);
    }
    total += least;
    numerator += xv;
    denominator += vv;
  }
  return total;
}

int CodebookSearch::weakest(int cell, int point) const {
  const std::int8_t* values = form_.book->point(point);
  int found = 0;
  for (int i = 1; i < width_; ++i)
    if (weighted_[cell * width_ + i] * static_cast<float>(values[i]) <
        weighted_[cell * width_ + found] * static_cast<float>(values[found]))
      found = i;
  return found;
}

void CodebookSearch::store(const Choice* choices, int block, CodebookBlock& out) const {
  const int bytes = form_.elements / kSigns;
  std::copy(signs_ + block * bytes, signs_ + (block + 1) * bytes, out.signs + block * bytes);
  for (int i = 0; i < cells_per_block_; ++i) {
    const int cell = block * cells_per_block_ + i;
    out.points[cell] = choices[i].point;
    if (!choices[i].flipped) continue;
    const int element = cell * width_ + weakest(cell, choices[i].point);
    out.signs[element / kSigns] = static_cast<std::uint8_t>(out.signs[element / kSigns] ^ 1 << (element % kSigns));
  }
}

CodebookBlock CodebookSearch::find() {
  float largest = 0;
  for (int block = 0; block < blocks_; ++block) {
    scales_[block] = block_scale(block);
    largest = std::max(largest, scales_[block]);
  }
  CodebookBlock best;
  if (largest == 0) return best;
  double least = 0;
  float unit = stored_unit(largest / (31.0f * form_.step));
  if (!std::isfinite(unit)) {
    best.unit = unit;
    return best;
  }
  for (int pass = 0; pass < 3; ++pass) {
    CodebookBlock now;
    double numerator = 0, denominator = 0;
    const double error = round_scales(unit, now, numerator, denominator);
    if (!(error < least)) break;  // zeros are better, or the pass before
    least = error;
    best = now;
    const float next = denominator > 0 ? stored_unit(static_cast<float>(numerator / denominator)) : unit;
    if (next == unit || !(next > 0) || !std::isfinite(next)) break;
    unit = next;
  }
  return best;
}

}  // namespace quench
