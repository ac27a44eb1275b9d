#include "autograd/functions_moe.h"

#include <array>

#include "core/ops/elementwise.h"
#include "core/ops/experts/group_bias.h"
#include "core/ops/experts/grouped_gemm.h"
#include "core/ops/experts/token_permutation.h"
#include "core/ops/gemm.h"

namespace quench::autograd {

Variable router_logits(const Variable& x, const Weight& weight, const Weight& bias) {
  QUENCH_CHECK(x.value().rank() == 2 && weight.shape().rank() == 2 && x.value().size(1) == weight.shape()[1],
               "router_logits: x is {}, weight is {}; expected [N,H] and [E,H]", x.value().describe(),
               weight.describe());
  const MemoryScope scope(MemoryCategory::activations);
  Variable logits(Tensor::empty({x.value().size(0), weight.shape()[0]}, DType::f32, x.value().device()));
  gemm({.a = x.value(),
        .b = weight.acquire().value(),
        .c = logits.value(),
        .transpose_b = true,
        .bias = bias.acquire().value()});
  Tape::record("router_logits", {x, weight, bias}, std::array{&logits}, [&] {
    return [saved_x = weight.requires_grad() ? Saved(x) : Saved(), weight, dtype = x.value().dtype(), dx = x.gradient(),
            dw = weight.gradient(), db = bias.gradient(), dlogits_of = logits.gradient()] {
      const MemoryScope backward_scope(MemoryCategory::workspace);
      const Tensor wide = dlogits_of->value();
      Tensor dy = wide;
      if (dtype != DType::f32) {
        dy = Tensor::empty(wide.shape(), dtype, wide.device());
        cast({wide, dy});
      }
      if (db) {
        const GradientTarget into = db->target();
        column_sum(
            {.x = into.tensor.dtype() == DType::f32 ? wide : dy, .out = into.tensor, .accumulate = into.accumulate});
      }
      if (dw) {
        dw->begin_use();
        const auto finish = [dw, dy](const Tensor& recomputed_x) {
          const GradientTarget into = dw->target();
          gemm({.a = dy,
                .b = recomputed_x,
                .c = into.tensor,
                .transpose_a = true,
                .beta = into.accumulate ? 1.0f : 0.0f});
          dw->end_use();
        };
        if (!saved_x.defer(finish)) finish(saved_x.get());
      }
      if (dx) {
        const GradientTarget into = dx->target();
        gemm({.a = dy, .b = weight.acquire().value(), .c = into.tensor, .beta = into.accumulate ? 1.0f : 0.0f});
      }
    };
  });
  return logits;
}

TokenPermutation sort_tokens(const Tensor& chosen, std::int64_t experts, std::int64_t alignment) {
  const MemoryScope scope(MemoryCategory::activations);
  const Device device = chosen.device();
  TokenPermutation rows;
  rows.choices = chosen.size(1);
  rows.alignment = alignment;
  rows.counts = Tensor::empty({experts}, DType::f32, device);
  rows.ends = Tensor::empty({experts}, DType::i32, device);
  rows.rows = Tensor::empty(chosen.shape(), DType::i32, device);
  rows.pairs = Tensor::empty({permuted_row_capacity(chosen.numel(), experts, alignment)}, DType::i32, device);
  token_permutation({.experts = chosen,
                     .alignment = alignment,
                     .counts = rows.counts,
                     .ends = rows.ends,
                     .rows = rows.rows,
                     .pairs = rows.pairs});
  return rows;
}

TokenPermutation select_tokens(std::span<const std::int32_t> rows, std::int64_t count, Device device) {
  std::vector<std::int32_t> places(static_cast<std::size_t>(count), -1);
  for (std::size_t i = 0; i < rows.size(); ++i)
    if (rows[i] >= 0) places[static_cast<std::size_t>(rows[i])] = static_cast<std::int32_t>(i);
  TokenPermutation selected;
  selected.choices = 1;
  selected.pairs = Tensor::from_values<std::int32_t>({static_cast<std::int64_t>(rows.size())}, rows).to(device);
  selected.rows = Tensor::from_values<std::int32_t>({count, 1}, places).to(device);
  return selected;
}

Variable reshape(const Variable& x, const Shape& shape) {
  Variable out(x.value().view(shape));
  Tape::record("reshape", {x}, std::array{&out}, [&] {
    return [shape = x.value().shape(), dx = x.gradient(), dout_of = out.gradient()] {
      dx->contribute(dout_of->value().view(shape));
    };
  });
  return out;
}

namespace {

// A token's choice depends on its logits alone.
CountedTokens count_tokens(const Tensor& logits, const RoutingOptions& options) {
  const std::int64_t tokens = options.counted.pairs.numel(), experts = logits.size(1);
  const Device device = logits.device();
  CountedTokens counted{Tensor::empty({tokens, experts}, DType::f32, device),
                        Tensor::empty({tokens, options.choices}, DType::i32, device),
                        {}};
  quench::permute_tokens({.x = logits, .pairs = options.counted.pairs, .choices = 1, .out = counted.logits});
  router({.logits = counted.logits,
          .bias = options.bias,
          .experts = counted.experts,
          .weights = Tensor::empty({tokens, options.choices}, DType::f32, device),
          .rule = options.rule});
  counted.counts = sort_tokens(counted.experts, experts, 1).counts;
  return counted;
}

// Gradient of the terms alone, f32 [N,E].
Tensor gradient_of_terms(const CountedTokens& counted, const RoutingOptions& options) {
  const Device device = counted.logits.device();
  const Tensor part = Tensor::empty(counted.logits.shape(), DType::f32, device);
  router_backward({.dweights = Tensor::zeros(counted.experts.shape(), DType::f32, device),
                   .logits = counted.logits,
                   .experts = counted.experts,
                   .counts = counted.counts,
                   .dlogits = part,
                   .rule = options.rule,
                   .terms = options.terms});
  const Tensor& places = options.counted.rows;
  const Tensor gradient = Tensor::empty({places.size(0), part.size(1)}, DType::f32, device);
  quench::unpermute_tokens({.y = part, .rows = places, .out = gradient});
  return gradient;
}

// Counts by which the terms weigh experts: of all parts, scaled to the tokens of this one.
Tensor counts_of_terms(const Tensor& own, const RoutingOptions& options) {
  if (options.exchange == nullptr || options.terms.balance == 0.0f) return own;
  const Tensor counts = own.clone();
  options.exchange->sum(counts);
  quench::scale({.x = counts, .factor = options.part});
  return counts;
}

}  // namespace

Routing route(const Variable& logits, const RoutingOptions& options) {
  const MemoryScope scope(MemoryCategory::activations);
  const Tensor in = logits.value();
  const std::int64_t tokens = in.size(0), experts = in.size(1);
  const Device device = in.device();
  const Tensor chosen = Tensor::empty({tokens, options.choices}, DType::i32, device);
  Routing result;
  result.weights = Variable(Tensor::empty({tokens, options.choices}, DType::f32, device));
  router(
      {.logits = in, .bias = options.bias, .experts = chosen, .weights = result.weights.value(), .rule = options.rule});
  result.rows = sort_tokens(chosen, experts, options.alignment);
  const bool all = !options.counted.pairs.defined();
  result.counted = all ? CountedTokens{in, chosen, result.rows.counts} : count_tokens(in, options);
  CountedTokens counted_by_terms = result.counted;
  counted_by_terms.counts = counts_of_terms(result.counted.counts, options);
  Tape::record("route", {logits}, std::array{&result.weights}, [&] {
    RoutingOptions saved = options;
    saved.bias = Tensor();
    saved.terms = {.balance = options.part * options.terms.balance, .z = options.part * options.terms.z};
    return [in, chosen, all, counted = counted_by_terms, saved, dlogits = logits.gradient(),
            dweights_of = result.weights.gradient()] {
      const MemoryScope backward_scope(MemoryCategory::activations);
      const Tensor gradient = Tensor::empty(in.shape(), DType::f32, in.device());
      router_backward({.dweights = dweights_of->value(),
                       .logits = in,
                       .experts = chosen,
                       .counts = counted.counts,
                       .dlogits = gradient,
                       .rule = saved.rule,
                       .terms = all ? saved.terms : RouterTerms{}});
      dlogits->contribute(gradient);
      if (!all && saved.terms.wanted() && counted.logits.size(0) > 0)
        dlogits->contribute(gradient_of_terms(counted, saved));
    };
  });
  return result;
}

Variable permute_tokens(const Variable& x, const TokenPermutation& rows) {
  const MemoryScope scope(MemoryCategory::activations);
  const Tensor in = x.value();
  Variable out(Tensor::empty({rows.pairs.size(0), in.size(1)}, in.dtype(), in.device()));
  quench::permute_tokens({.x = in, .pairs = rows.pairs, .choices = rows.choices, .out = out.value()});
  const bool recorded = Tape::record("permute_tokens", {x}, std::array{&out}, [&] {
    return [shape = in.shape(), dtype = in.dtype(), rows, dx = x.gradient(), dout_of = out.gradient()] {
      const MemoryScope backward_scope(MemoryCategory::activations);
      const Tensor dout = dout_of->value();
      const Tensor gradient = Tensor::empty(shape, dtype, dout.device());
      quench::unpermute_tokens({.y = dout, .rows = rows.rows, .out = gradient});
      dx->contribute(gradient);
    };
  });
  if (!recorded) return out;
  out.set_recompute(std::make_shared<RecomputeHandle>([saved = Saved(x), rows, shape = out.shape()] {
    const MemoryScope again_scope(MemoryCategory::workspace);
    const Tensor kept = saved.get();
    const Tensor value = Tensor::empty(shape, kept.dtype(), kept.device());
    quench::permute_tokens({.x = kept, .pairs = rows.pairs, .choices = rows.choices, .out = value});
    return value;
  }));
  return out;
}

Variable unpermute_tokens(const Variable& y, const TokenPermutation& rows) {
  const MemoryScope scope(MemoryCategory::activations);
  const Tensor in = y.value();
  Variable out(Tensor::empty({rows.rows.size(0), in.size(1)}, in.dtype(), in.device()));
  quench::unpermute_tokens({.y = in, .rows = rows.rows, .out = out.value()});
  Tape::record("unpermute_tokens", {y}, std::array{&out}, [&] {
    return [shape = in.shape(), rows, dy = y.gradient(), dout_of = out.gradient()] {
      const MemoryScope backward_scope(MemoryCategory::activations);
      const Tensor dout = dout_of->value();
      const Tensor gradient = Tensor::empty(shape, dout.dtype(), dout.device());
      quench::permute_tokens({.x = dout, .pairs = rows.pairs, .choices = rows.choices, .out = gradient});
      dy->contribute(gradient);
    };
  });
  return out;
}

Variable expert_linear(const Variable& x, const Weight& weight, const TokenPermutation& rows) {
  const std::int64_t experts = rows.ends.size(0);
  QUENCH_CHECK(x.value().rank() == 2 && weight.shape().rank() == 2 && x.value().size(1) == weight.shape()[1] &&
                   weight.shape()[0] % experts == 0,
               "expert_linear: x is {}, weight is {}, of {} experts; expected [R,K] and [E*M,K]", x.value().describe(),
               weight.describe(), experts);
  const MemoryScope scope(MemoryCategory::activations);
  const Shape of_each{experts, weight.shape()[0] / experts, weight.shape()[1]};
  Variable y(Tensor::empty({x.value().size(0), of_each[1]}, x.value().dtype(), x.value().device()));
  grouped_gemm({.a = x.value(),
                .b = weight.acquire().value().view(of_each),
                .ends = rows.ends,
                .c = y.value(),
                .transpose_b = true});
  Tape::record("expert_linear", {x, weight}, std::array{&y}, [&] {
    return [saved_x = weight.requires_grad() ? Saved(x) : Saved(), weight, of_each, ends = rows.ends,
            alignment = rows.alignment, shape = x.value().shape(), dx = x.gradient(), dw = weight.gradient(),
            dy_of = y.gradient()] {
      const MemoryScope backward_scope(MemoryCategory::activations);
      const Tensor dy = dy_of->value();
      if (dw) {
        dw->begin_use();
        const auto finish = [dw, dy, ends, alignment, of_each](const Tensor& recomputed_x) {
          const GradientTarget into = dw->target();
          grouped_wgrad({.a = dy,
                         .b = recomputed_x,
                         .ends = ends,
                         .c = into.tensor.view(of_each),
                         .beta = into.accumulate ? 1.0f : 0.0f,
                         .alignment = alignment});
          dw->end_use();
        };
        if (!saved_x.defer(finish)) finish(saved_x.get());
      }
      if (dx) {
        const Tensor gradient = Tensor::empty(shape, dy.dtype(), dy.device());
        grouped_gemm({.a = dy, .b = weight.acquire().value().view(of_each), .ends = ends, .c = gradient});
        dx->contribute(gradient);
      }
    };
  });
  return y;
}

Variable add_expert_bias(const Variable& y, const Weight& bias, const TokenPermutation& rows, const Variable& weights) {
  const std::int64_t experts = rows.ends.size(0);
  QUENCH_CHECK(bias.shape().numel() == experts * y.value().size(1),
               "add_expert_bias: y is {}, bias is {}, of {} experts", y.value().describe(), bias.describe(), experts);
  const MemoryScope scope(MemoryCategory::activations);
  const Shape of_each{experts, y.value().size(1)};
  const Tensor factors = weights.defined() ? weights.value() : Tensor();
  Variable out(y.value());
  quench::add_group_bias({.y = out.value(),
                          .bias = bias.acquire().value().view(of_each),
                          .ends = rows.ends,
                          .pairs = rows.pairs,
                          .weights = factors});
  Tape::record("add_expert_bias", {y, bias, weights}, std::array{&out}, [&] {
    return [bias, of_each, factors, ends = rows.ends, pairs = rows.pairs, dy = y.gradient(), db = bias.gradient(),
            dweights = weights.gradient(), dout_of = out.gradient()] {
      const MemoryScope backward_scope(MemoryCategory::activations);
      const Tensor dout = dout_of->value();
      const GradientTarget into = db ? db->target() : GradientTarget{};
      const Tensor df = dweights ? Tensor::empty_like(factors) : Tensor();
      if (db || dweights)
        group_bias_backward({.dy = dout,
                             .bias = bias.acquire().value().view(of_each),
                             .ends = ends,
                             .pairs = pairs,
                             .weights = factors,
                             .dbias = db ? into.tensor.view(of_each) : Tensor(),
                             .accumulate = into.accumulate,
                             .dweights = df});
      if (dweights) dweights->contribute(df);
      if (dy) dy->contribute(dout);
    };
  });
  return out;
}

}  // namespace quench::autograd
