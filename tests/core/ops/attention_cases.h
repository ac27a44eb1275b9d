#pragma once
// Problems of attention and their float64 reference: output, log-sum-exp and every gradient.

#include "core/ops/attention.h"

#include "tests/core/ops/op_testing.h"

namespace quench::testing {

struct AttentionProblem {
  Tensor q, k, v, dout;
  std::vector<SequenceRange> sequences;
  bool causal;
  float scale, soft_cap = 0;
  std::int64_t window = 0;
  Tensor sinks{};
};

struct AttentionReference {
  std::vector<double> out, lse, dq, dk, dv, dsinks;
};

inline AttentionReference attention_reference(const AttentionProblem& p) {
  const std::int64_t nq = p.q.size(0), heads = p.q.size(1), dim = p.q.size(2), kv_heads = p.k.size(1);
  const auto q = values(p.q), k = values(p.k), v = values(p.v), dout = values(p.dout);
  AttentionReference r{
      std::vector<double>(q.size()), std::vector<double>(static_cast<std::size_t>(heads * nq), -INFINITY),
      std::vector<double>(q.size()), std::vector<double>(k.size()),
      std::vector<double>(k.size()), std::vector<double>(static_cast<std::size_t>(heads))};
  std::vector<double> s, weight;
  for (const SequenceRange& range : p.sequences)
    for (std::int64_t h = 0; h < heads; ++h)
      for (std::int64_t i = 0; i < range.q_length; ++i) {
        std::int64_t visible = range.k_length;
        if (p.causal) visible = std::clamp<std::int64_t>(i + 1 + range.k_length - range.q_length, 0, range.k_length);
        if (visible == 0) continue;
        const std::int64_t unseen = p.window == 0 ? 0 : std::max<std::int64_t>(0, visible - p.window);
        const std::int64_t kv = h / (heads / kv_heads);
        const auto q_at = static_cast<std::size_t>(((range.q_begin + i) * heads + h) * dim);
        const auto k_at = [&](std::int64_t j) {
          return static_cast<std::size_t>(((range.k_begin + j) * kv_heads + kv) * dim);
        };
        const auto dot = [&](const std::vector<double>& a, std::size_t x, const std::vector<double>& b, std::size_t y) {
          double sum = 0;
          for (std::size_t d = 0; d < static_cast<std::size_t>(dim); ++d) sum += a[x + d] * b[y + d];
          return sum;
        };
        s.assign(static_cast<std::size_t>(visible), 0);
        double best = -INFINITY, sum = 0;
        const auto score = [&](std::int64_t j) {
          const double plain = static_cast<double>(p.scale) * dot(q, q_at, k, k_at(j)), cap = p.soft_cap;
          return cap > 0 ? cap * std::tanh(plain / cap) : plain;
        };
        for (std::int64_t j = unseen; j < visible; ++j)
          best = std::max(best, s[static_cast<std::size_t>(j)] = score(j));
        for (std::int64_t j = 0; j < visible; ++j) {
          double& x = s[static_cast<std::size_t>(j)];
          sum += x = j < unseen ? 0 : std::exp(x - best);
        }
        double sink = 0;
        if (p.sinks.defined()) {
          const double own = p.sinks.data<float>()[h], top = std::max(best, own);
          for (double& x : s) x *= std::exp(best - top);
          sum = sum * std::exp(best - top) + (sink = std::exp(own - top));
          best = top;
          sink /= sum;
        }
        r.lse[static_cast<std::size_t>(h * nq + range.q_begin + i)] = best + std::log(sum);
        double delta = 0;
        for (std::int64_t j = 0; j < visible; ++j) {
          const double w = s[static_cast<std::size_t>(j)] /= sum;
          for (std::int64_t d = 0; d < dim; ++d) {
            r.out[q_at + static_cast<std::size_t>(d)] += w * v[k_at(j) + static_cast<std::size_t>(d)];
            r.dv[k_at(j) + static_cast<std::size_t>(d)] += w * dout[q_at + static_cast<std::size_t>(d)];
          }
          delta += w * dot(dout, q_at, v, k_at(j));
        }
        r.dsinks[static_cast<std::size_t>(h)] -= sink * delta;
        for (std::int64_t j = 0; j < visible; ++j) {
          const double bounded = p.soft_cap > 0 ? score(j) / static_cast<double>(p.soft_cap) : 0;
          const double ds = s[static_cast<std::size_t>(j)] * (dot(dout, q_at, v, k_at(j)) - delta) *
                            static_cast<double>(p.scale) * (1 - bounded * bounded);
          for (std::int64_t d = 0; d < dim; ++d) {
            r.dq[q_at + static_cast<std::size_t>(d)] += ds * k[k_at(j) + static_cast<std::size_t>(d)];
            r.dk[k_at(j) + static_cast<std::size_t>(d)] += ds * q[q_at + static_cast<std::size_t>(d)];
          }
        }
      }
  return r;
}

struct AttentionResult {
  Tensor out, lse, dq, dk, dv, dsinks;
  explicit AttentionResult(const AttentionProblem& p)
      : out(Tensor::empty(p.q.shape(), p.q.dtype())),
        lse(Tensor::empty({p.q.size(1), p.q.size(0)}, DType::f32)),
        dq(Tensor::empty(p.q.shape(), p.q.dtype())),
        dk(Tensor::empty(p.k.shape(), p.q.dtype())),
        dv(Tensor::empty(p.k.shape(), p.q.dtype())),
        dsinks(Tensor::empty({p.q.size(1)}, DType::f32)) {
    for (const Tensor& t : {out, lse, dq, dk, dv, dsinks}) testing::fill(t, std::nan(""));
  }
  void forward(const AttentionProblem& p) const {
    attention({.q = p.q,
               .k = p.k,
               .v = p.v,
               .out = out,
               .lse = lse,
               .sequences = p.sequences,
               .causal = p.causal,
               .window = p.window,
               .scale = p.scale,
               .soft_cap = p.soft_cap,
               .sinks = p.sinks});
  }
  void backward(const AttentionProblem& p) const {
    attention_backward({.dout = p.dout,
                        .q = p.q,
                        .k = p.k,
                        .v = p.v,
                        .out = out,
                        .lse = lse,
                        .dq = dq,
                        .dk = dk,
                        .dv = dv,
                        .sequences = p.sequences,
                        .causal = p.causal,
                        .window = p.window,
                        .scale = p.scale,
                        .soft_cap = p.soft_cap,
                        .sinks = p.sinks,
                        .dsinks = p.sinks.defined() ? dsinks : Tensor()});
  }
};

// Queries and keys of all sequences side by side, with `gap` rows in no sequence in front.
inline AttentionProblem make_attention(Generator& random, std::vector<std::pair<std::int64_t, std::int64_t>> lengths,
                                       std::int64_t heads, std::int64_t kv_heads, std::int64_t dim, DType dtype,
                                       bool causal, std::int64_t gap = 0) {
  AttentionProblem p{.sequences = {}, .causal = causal, .scale = 1.0f / std::sqrt(static_cast<float>(dim))};
  std::int64_t nq = gap, nk = gap;
  for (const auto& [queries, keys] : lengths) {
    p.sequences.push_back({nq, queries, nk, keys});
    nq += queries;
    nk += keys;
  }
  p.q = random.normal_view({nq, heads, dim}, dtype, 5);
  p.k = random.normal_view({nk, kv_heads, dim}, dtype, 3);
  p.v = random.normal_view({nk, kv_heads, dim}, dtype, 0);
  p.dout = random.normal({nq, heads, dim}, dtype);
  return p;
}

inline void check_attention(const AttentionProblem& p) {
  SCOPED_TRACE(fmt::format("q {} k {} causal {} window {} sequences {} first {}x{}", p.q.describe(), p.k.describe(),
                           p.causal, p.window, p.sequences.size(), p.sequences.empty() ? 0 : p.sequences[0].q_length,
                           p.sequences.empty() ? 0 : p.sequences[0].k_length));
  const AttentionResult result(p);
  const AttentionReference expected = attention_reference(p);
  result.forward(p);
  const bool bf16 = p.q.dtype() == DType::bf16;
  EXPECT_TRUE(close(result.out, expected.out, rounding(p.q.dtype()) * 1.01, bf16 ? 4e-3 : 3e-6));
  EXPECT_TRUE(close(result.lse, expected.lse, 1e-6, bf16 ? 2e-5 : 4e-6));
  result.backward(p);
  EXPECT_TRUE(close(result.dq, expected.dq, rounding(p.q.dtype()) * 1.01, bf16 ? 2e-2 : 1e-5));
  EXPECT_TRUE(close(result.dk, expected.dk, rounding(p.q.dtype()) * 1.01, bf16 ? 2e-2 : 2e-5));
  EXPECT_TRUE(close(result.dv, expected.dv, rounding(p.q.dtype()) * 1.01, bf16 ? 2e-2 : 2e-5));
  if (p.sinks.defined()) {
    // Sum over rows of terms rounded once.
    const double noise = (bf16 ? 2e-2 : 1e-5) * std::sqrt(static_cast<double>(p.q.size(0)));
    EXPECT_TRUE(close(result.dsinks, expected.dsinks, 1e-5, noise));
  }
}

}  // namespace quench::testing
