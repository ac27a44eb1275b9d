#include "export/rotate/orthogonal.h"

#include <algorithm>
#include <cmath>

#include "core/system/check.h"

namespace quench {
namespace {

bool is_prime(std::int64_t n) {
  if (n < 2) return false;
  for (std::int64_t d = 2; d * d <= n; ++d)
    if (n % d == 0) return false;
  return true;
}

bool is_power_of_two(std::int64_t n) {
  return n > 0 && (n & (n - 1)) == 0;
}

// Quadratic characters modulo a prime: 0 of 0, else 1 of squares and -1 of others.
std::vector<std::int8_t> characters(std::int64_t prime) {
  std::vector<std::int8_t> all(static_cast<std::size_t>(prime), -1);
  for (std::int64_t i = 0; i < prime; ++i) all[static_cast<std::size_t>(i * i % prime)] = 1;
  all[0] = 0;
  return all;
}

// Order q + 1, 0 on the diagonal: skew for primes of remainder 3 by 4, else symmetric.
std::vector<std::int8_t> conference_matrix(std::int64_t prime) {
  const std::int64_t n = prime + 1;
  const std::vector<std::int8_t> of = characters(prime);
  std::vector<std::int8_t> matrix(static_cast<std::size_t>(n * n));
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j < n; ++j) {
      std::int8_t& entry = matrix[static_cast<std::size_t>(i * n + j)];
      if (i == j)
        entry = 0;
      else if (i == 0)
        entry = 1;
      else if (j == 0)
        entry = prime % 4 == 3 ? -1 : 1;
      else
        entry = of[static_cast<std::size_t>((i - j + prime) % prime)];
    }
  return matrix;
}

// In place, unscaled.
void sylvester(double* x, std::int64_t size) {
  for (std::int64_t half = 1; half < size; half *= 2)
    for (std::int64_t first = 0; first < size; first += 2 * half)
      for (std::int64_t i = first; i < first + half; ++i) {
        const double a = x[i], b = x[i + half];
        x[i] = a + b;
        x[i + half] = a - b;
      }
}

std::vector<double> random_orthogonal(std::int64_t size, const RandomKey& key) {
  std::vector<float> drawn(static_cast<std::size_t>(size * size));
  fill_random_normal(key, 0, drawn);
  std::vector<double> rows(drawn.begin(), drawn.end());
  for (std::int64_t i = 0; i < size; ++i) {
    double* row = rows.data() + i * size;
    std::vector<double> products(static_cast<std::size_t>(i));
    for (int pass = 0; pass < 2; ++pass) {  // the second removes what rounding left
#pragma omp parallel for schedule(static)
      for (std::int64_t k = 0; k < i; ++k) {
        double sum = 0;
        for (std::int64_t c = 0; c < size; ++c) sum += row[c] * rows[static_cast<std::size_t>(k * size + c)];
        products[static_cast<std::size_t>(k)] = sum;
      }
#pragma omp parallel for schedule(static)
      for (std::int64_t c = 0; c < size; ++c)
        for (std::int64_t k = 0; k < i; ++k)
          row[c] -= products[static_cast<std::size_t>(k)] * rows[static_cast<std::size_t>(k * size + c)];
    }
    double norm = 0;
    for (std::int64_t c = 0; c < size; ++c) norm += row[c] * row[c];
    for (std::int64_t c = 0; c < size; ++c) row[c] /= std::sqrt(norm);
  }
  return rows;
}

}  // namespace

std::vector<std::int8_t> paley_matrix(std::int64_t order) {
  if (order == 1) return {1};
  const auto at = [](std::vector<std::int8_t> & matrix, std::int64_t n, std::int64_t i, std::int64_t j) -> auto& {
    return matrix[static_cast<std::size_t>(i * n + j)];
  };
  if (order % 4 == 0 && is_prime(order - 1)) {
    std::vector<std::int8_t> matrix = conference_matrix(order - 1);
    for (std::int64_t i = 0; i < order; ++i) at(matrix, order, i, i) = 1;
    return matrix;
  }
  const std::int64_t half = order / 2;
  if (order % 2 != 0 || half % 4 != 2 || !is_prime(half - 1)) return {};
  std::vector<std::int8_t> conference = conference_matrix(half - 1), matrix(static_cast<std::size_t>(order * order));
  for (std::int64_t i = 0; i < half; ++i)
    for (std::int64_t j = 0; j < half; ++j) {
      const std::int8_t c = at(conference, half, i, j), d = i == j ? 1 : 0;
      at(matrix, order, 2 * i, 2 * j) = static_cast<std::int8_t>(c + d);
      at(matrix, order, 2 * i, 2 * j + 1) = at(matrix, order, 2 * i + 1, 2 * j) = static_cast<std::int8_t>(c - d);
      at(matrix, order, 2 * i + 1, 2 * j + 1) = static_cast<std::int8_t>(-c - d);
    }
  return matrix;
}

OrthogonalMatrix::OrthogonalMatrix(std::int64_t size, const RandomKey& key) : size_(size) {
  QUENCH_CHECK(size > 0, "OrthogonalMatrix: size {}", size);
  for (std::int64_t order = 1; order <= size && base_.empty(); ++order)
    if (size % order == 0 && is_power_of_two(size / order)) {
      base_ = paley_matrix(order);
      power_ = size / order;
    }
  if (base_.empty()) {
    dense_ = random_orthogonal(size, key);
    return;
  }
  signs_.resize(static_cast<std::size_t>(size));
  const double scale = 1.0 / std::sqrt(static_cast<double>(size));
  for (std::int64_t i = 0; i < size; ++i)
    signs_[static_cast<std::size_t>(i)] = random_word(key, static_cast<std::uint64_t>(i)) % 2 == 0 ? scale : -scale;
}

void OrthogonalMatrix::apply(double* row, std::vector<double>& scratch) const {
  const auto size = static_cast<std::size_t>(size_);
  if (!is_hadamard()) {
    scratch.assign(size, 0.0);
    for (std::size_t i = 0; i < size; ++i)
      for (std::size_t c = 0; c < size; ++c) scratch[c] += row[i] * dense_[i * size + c];
    std::copy(scratch.begin(), scratch.end(), row);
    return;
  }
  for (std::size_t i = 0; i < size; ++i) row[i] *= signs_[i];
  const std::int64_t order = size_ / power_;
  for (std::int64_t b = 0; b < order; ++b) sylvester(row + b * power_, power_);
  if (order == 1) return;
  scratch.assign(size, 0.0);
  for (std::int64_t from = 0; from < order; ++from)
    for (std::int64_t to = 0; to < order; ++to) {
      const double sign = base_[static_cast<std::size_t>(from * order + to)];
      const double* x = row + from * power_;
      double* y = scratch.data() + to * power_;
      for (std::int64_t i = 0; i < power_; ++i) y[i] += sign * x[i];
    }
  std::copy(scratch.begin(), scratch.end(), row);
}

}  // namespace quench
