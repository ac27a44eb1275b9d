#include "nn/optim/orthogonalize.h"

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "core/ops/elementwise.h"
#include "core/ops/gemm.h"
#include "core/ops/optimizer/muon.h"
#include "core/ops/optimizer/symmetric_gemm.h"

namespace quench::nn {
namespace {

constexpr float kA = 3.4445f, kB = -4.7750f, kC = 2.0315f;
// Iterations between GEMMs with x.
constexpr std::array kPlain{1, 1, 1, 1, 1};
constexpr std::array kOnGram{3, 2};

// Gram-matrix iterations if cheaper and large enough for rounding errors to average out.
std::span<const int> schedule(std::int64_t n, std::int64_t other) {
  constexpr std::int64_t kFewestRows = 256;
  if (n >= kFewestRows && 2 * other >= 3 * n) return kOnGram;
  return kPlain;
}

// Polynomials of one matrix commute.
class Polynomials {
 public:
  Polynomials(std::int64_t batch, std::int64_t n, Device device)
      : gram_(Tensor::empty({batch, n, n}, DType::bf16, device)),
        polynomial_(Tensor::empty_like(gram_)),
        product_(Tensor::empty_like(gram_)),
        inverse_norms_(Tensor::empty({batch}, DType::f32, device)) {}

  // Factor on x: [batch, n, n], valid until the next call. In the first call it includes 1 / |x|.
  const Tensor& of(const Tensor& x, bool tall, int iterations) {
    symmetric_gemm({.a = x, .b = x, .c = gram_, .transpose = tall});
    const Tensor norms = std::exchange(inverse_norms_, Tensor());
    if (norms.defined()) normalize_gram({.gram = gram_, .inverse_norms = norms});
    if (iterations > 1 && !other_.defined()) other_ = Tensor::empty_like(gram_);
    for (int i = 0; i < iterations; ++i) {
      symmetric_gemm({.a = gram_,
                      .b = gram_,
                      .c = polynomial_,
                      .alpha = kC,
                      .beta = kB,
                      .addend = gram_,
                      .diagonal = kA,
                      .factors = iterations == 1 ? norms : Tensor()});
      if (i + 1 < iterations) {
        symmetric_gemm({.a = polynomial_, .b = gram_, .c = other_});
        symmetric_gemm({.a = other_, .b = polynomial_, .c = gram_});
      }
      if (i == 0) {
        std::swap(product_, polynomial_);
      } else {
        symmetric_gemm(
            {.a = polynomial_, .b = product_, .c = other_, .factors = i + 1 == iterations ? norms : Tensor()});
        std::swap(product_, other_);
      }
    }
    return product_;
  }

 private:
  Tensor gram_, polynomial_, product_, other_, inverse_norms_;
};

}  // namespace

void orthogonalize(const Tensor& x) {
  QUENCH_CHECK(x.dtype() == DType::bf16 && (x.rank() == 2 || x.rank() == 3),
               "orthogonalize: {}; expected a matrix of bf16, or a batch", x.describe());
  const MemoryScope scope(MemoryCategory::workspace);
  const Tensor all = x.rank() == 2 ? x.view({1, x.size(0), x.size(1)}) : x;
  const std::int64_t batch = all.size(0), rows = all.size(1), columns = all.size(2);
  const bool tall = rows > columns;
  const std::int64_t n = std::min(rows, columns), other = std::max(rows, columns);
  Polynomials polynomials(batch, n, x.device());
  Tensor now = all, next = Tensor::empty_like(all);
  for (const int iterations : schedule(n, other)) {
    const Tensor& product = polynomials.of(now, tall, iterations);
    for (std::int64_t i = 0; i < batch; ++i) {
      const Tensor from = now.select(0, i), factor = product.select(0, i), to = next.select(0, i);
      tall ? gemm({.a = from, .b = factor, .c = to}) : gemm({.a = factor, .b = from, .c = to});
    }
    std::swap(now, next);
  }
  if (now.raw_data() != all.raw_data()) cast({now, all});
}

}  // namespace quench::nn
