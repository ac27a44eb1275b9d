#pragma once
// The differentiable functions of a mixture of experts: router, dispatch, the experts' linear layers, combination.
//
// N tokens choose k of E experts each; their copies stand in R rows sorted by expert
// (core/ops/experts/token_permutation.h).

#include "autograd/tape.h"
#include "core/ops/experts/router.h"

namespace quench::autograd {

// x [N,H] times weight [E,H] transposed, as f32 [N,E] whatever the dtype of x.
Variable router_logits(const Variable& x, const Weight& weight);

// Which rows the tokens take.
struct TokenPermutation {
  std::int64_t choices = 0;    // k
  std::int64_t alignment = 1;  // of the rows of an expert
  Tensor counts;               // f32 [E]
  Tensor ends;                 // i32 [E]
  Tensor rows;                 // i32 [N,k]
  Tensor pairs;                // i32 [R]
};

// Rows for `chosen` i32 [N,k], whose entries are of 0..experts-1, sorted by them.
[[nodiscard]] TokenPermutation sort_tokens(const Tensor& chosen, std::int64_t experts, std::int64_t alignment);

// The same elements in another shape.
Variable reshape(const Variable& x, const Shape& shape);

struct Routing {
  Variable weights;  // f32 [N,k]
  TokenPermutation rows;
};

struct RoutingOptions {
  RouterRule rule;
  std::int64_t choices = 1;    // k
  std::int64_t alignment = 1;  // of the rows of an expert
  Tensor bias;                 // f32 [E] or undefined
  RouterTerms terms;           // whose gradient enters with the logits'; their value is no part of the tape's root
};

// The choice of each token from logits f32 [N,E].
Routing route(const Variable& logits, const RoutingOptions& options);

// Each token's copies in the rows of its experts: [R,H]. Under selective recompute they are copied again.
Variable permute_tokens(const Variable& x, const TokenPermutation& rows);
// The sum of each token's rows: [N,H].
Variable unpermute_tokens(const Variable& y, const TokenPermutation& rows);

// x [R,K] times the expert's part of weight [E*M,K] transposed: [R,M].
Variable expert_linear(const Variable& x, const Weight& weight, const TokenPermutation& rows);

// SwiGLU of each row of gate_up [R,2I] times the weight f32 [N,k] of its pair: [R,I]. `score_before_experts`: of
// gate_up times the weight (core/ops/experts/token_permutation.h). Of the consumer's `request` its `mx` is honoured
// where 32 divides I.
Variable expert_swiglu(const Variable& gate_up, const Variable& weights, const TokenPermutation& rows,
                       bool score_before_experts = false, const QuantOutputRequest& request = {});

}  // namespace quench::autograd
