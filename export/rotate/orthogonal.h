#pragma once
// Seeded orthogonal matrix: a randomized Hadamard matrix where the size has one, else random.

#include <cstdint>
#include <optional>
#include <vector>

#include "core/number/random.h"

namespace quench {

// Rows of a matrix of +-1 with orthogonal rows, by Paley's constructions (1933); its order is 1, q + 1 for a prime q of
// remainder 3 by 4, or 2 (q + 1) for one of remainder 1. Empty for other orders.
[[nodiscard]] std::vector<std::int8_t> paley_matrix(std::int64_t order);

// Q = diag(random signs) * (P x S) / sqrt(size), P of the smallest Paley order whose quotient is a power of two, S
// Sylvester's matrix of that power. Sizes without one, such as odd ones: Gram-Schmidt of normal random rows, in f64.
// Deterministic.
class OrthogonalMatrix {
 public:
  OrthogonalMatrix(std::int64_t size, const RandomKey& key);

  [[nodiscard]] std::int64_t size() const noexcept { return size_; }
  [[nodiscard]] bool is_hadamard() const noexcept { return dense_.empty(); }
  // row * Q, in place; [size]. Thread-safe. `scratch`: any, resized.
  void apply(double* row, std::vector<double>& scratch) const;

 private:
  std::int64_t size_, power_ = 0;
  std::vector<double> signs_;
  std::vector<std::int8_t> base_;  // P
  std::vector<double> dense_;      // Q, without a Hadamard matrix
};

}  // namespace quench
