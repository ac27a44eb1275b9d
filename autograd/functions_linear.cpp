#include <array>

#include "autograd/functions.h"
#include "core/ops/elementwise.h"
#include "core/ops/embedding.h"
#include "core/ops/gemm.h"

namespace quench::autograd {

Variable linear(const Variable& x, const Weight& weight, const Weight& bias, const Tensor& onto) {
  QUENCH_CHECK(x.value().rank() == 2 && weight.shape().rank() == 2 && x.value().size(1) == weight.shape()[1],
               "linear: x is {}, weight is {}; expected [N,K] and [M,K]", x.value().describe(), weight.describe());
  const MemoryScope scope(MemoryCategory::activations);
  const Shape shape{x.value().size(0), weight.shape()[0]};
  Variable y(onto.defined() ? onto : Tensor::empty(shape, x.value().dtype(), x.value().device()));
  gemm({.a = x.value(),
        .b = weight.acquire().value(),
        .c = y.value(),
        .transpose_b = true,
        .beta = onto.defined() ? 1.0f : 0.0f,
        .bias = bias.acquire().value()});

  Tape::record("linear", {x, weight, bias}, std::array{&y}, [&] {
    return [saved_x = weight.requires_grad() ? Saved(x) : Saved(), weight, dx = x.gradient(), dw = weight.gradient(),
            db = bias.gradient(), dy_of = y.gradient()] {
      const Tensor dy = dy_of->value();
      if (dw) {
        const auto wgrad = [dw, dy](const Tensor& recomputed_x) {
          const GradientTarget into = dw->target();
          gemm({.a = dy,
                .b = recomputed_x,
                .c = into.tensor,
                .transpose_a = true,
                .beta = into.accumulate ? 1.0f : 0.0f});
        };
        dw->begin_use();
        const auto finish = [wgrad, dw](const Tensor& recomputed_x) {
          wgrad(recomputed_x);
          dw->end_use();
        };
        if (!saved_x.defer(finish)) finish(saved_x.get());
      }
      if (db) {
        const GradientTarget into = db->target();
        column_sum({.x = dy, .out = into.tensor, .accumulate = into.accumulate});
      }
      if (dx) {
        const GradientTarget into = dx->target();
        gemm({.a = dy, .b = weight.acquire().value(), .c = into.tensor, .beta = into.accumulate ? 1.0f : 0.0f});
      }
    };
  });
  return y;
}

Variable add(const Variable& a, const Variable& b) {
  const MemoryScope scope(MemoryCategory::activations);
  Variable sum(Tensor::empty_like(a.value()));
  quench::add({a.value(), b.value(), sum.value()});
  Tape::record("add", {a, b}, std::array{&sum}, [&] {
    return [da = a.gradient(), db = b.gradient(), dsum = sum.gradient()] {
      if (da) da->contribute(dsum->value());
      if (db) db->contribute(dsum->value());
    };
  });
  return sum;
}

Variable scale(const Variable& x, float factor) {
  const MemoryScope scope(MemoryCategory::activations);
  Variable out(x.value().clone());
  quench::scale({out.value(), factor});
  Tape::record("scale", {x}, std::array{&out}, [&] {
    return [factor, dx = x.gradient(), dout = out.gradient()] {
      if (!dx) return;
      const MemoryScope backward_scope(MemoryCategory::activations);
      const Tensor gradient = dout->value().clone();
      quench::scale({gradient, factor});
      dx->contribute(gradient);
    };
  });
  return out;
}

Variable embedding(const Weight& table, const Tensor& ids) {
  const MemoryScope scope(MemoryCategory::activations);
  Variable out(Tensor::empty({ids.size(0), table.shape()[1]}, table.dtype(), table.device()));
  quench::embedding({table.acquire().value(), ids, out.value()});
  Tape::record("embedding", {table}, std::array{&out}, [&] {
    return [ids, dtable = table.gradient(), dout = out.gradient()] {
      GradientTarget into = dtable->target();
      if (!into.accumulate) into.tensor.zero();
      embedding_backward({.dout = dout->value(), .ids = ids, .dtable = into.tensor});
    };
  });
  return out;
}

}  // namespace quench::autograd
