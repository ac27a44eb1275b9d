#pragma once
// Differentiable functions of MoE. N tokens choose k of E experts; their copies are R rows sorted by expert.

#include <span>

#include "autograd/sequence_exchange.h"
#include "autograd/tape.h"
#include "core/ops/experts/router.h"

namespace quench::autograd {

// x [N,H] * weight [E,H]^T (+ bias [E]): f32 [N,E] for any dtype of x.
Variable router_logits(const Variable& x, const Weight& weight, const Weight& bias = {});

// Order of rows by expert.
struct TokenPermutation {
  std::int64_t choices = 0;    // k
  std::int64_t alignment = 1;  // each expert's row count is a multiple of it
  Tensor counts;               // f32 [E]
  Tensor ends;                 // i32 [E]
  Tensor rows;                 // i32 [N,k]
  Tensor pairs;                // i32 [R]
};

// `chosen` i32 [N,k] in 0..experts-1.
[[nodiscard]] TokenPermutation sort_tokens(const Tensor& chosen, std::int64_t experts, std::int64_t alignment);

// `rows`, distinct, of `count` in host memory: as rows of one choice. -1: a row of zeros.
[[nodiscard]] TokenPermutation select_tokens(std::span<const std::int32_t> rows, std::int64_t count, Device device);

// View of a contiguous x with another shape of as many elements.
Variable reshape(const Variable& x, const Shape& shape);

// Router logits and choices of M of N tokens.
struct CountedTokens {
  Tensor logits;   // f32 [M,E]
  Tensor experts;  // i32 [M,k]
  Tensor counts;   // f32 [E]
};

// Experts of every token.
struct Routing {
  Variable weights;  // f32 [N,k]
  TokenPermutation rows;
  CountedTokens counted;  // RoutingOptions::counted
};

// Rule of a router.
struct RoutingOptions {
  RouterRule rule;
  std::int64_t choices = 1;    // k
  std::int64_t alignment = 1;  // TokenPermutation::alignment
  Tensor bias{};               // f32 [E] or undefined
  RouterTerms terms;           // added to the gradient of the logits; not part of the tape's root value
  // Tokens of `terms`, and of Routing::counted: of select_tokens(). Without pairs: all.
  TokenPermutation counted{};
  // Ranks with the other parts of the sequences, over whose tokens `terms` are means; `part`: share of the counted
  // tokens that are here, may be 0. Null: sequences are whole.
  const SequenceExchange* exchange = nullptr;
  float part = 1.0f;
};

// Top-k experts and their weights (core/ops/experts/router.h).
Routing route(const Variable& logits, const RoutingOptions& options);

// [R,H]; recomputed under selective recompute.
Variable permute_tokens(const Variable& x, const TokenPermutation& rows);
// Sum of each token's rows, [N,H].
Variable unpermute_tokens(const Variable& y, const TokenPermutation& rows);

// Grouped GEMM: x [R,K] * (the expert's part of weight [E*M,K])^T: [R,M].
Variable expert_linear(const Variable& x, const Weight& weight, const TokenPermutation& rows);

// Row r of y [R,M] plus the bias of its expert, times the router weight of its pair if `weights` f32 [N,k] is defined;
// y is overwritten. `bias`: E * M elements.
Variable add_expert_bias(const Variable& y, const Weight& bias, const TokenPermutation& rows,
                         const Variable& weights = {});

}  // namespace quench::autograd
