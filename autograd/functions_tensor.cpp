#include "autograd/functions_tensor.h"

#include <array>

#include "core/ops/basic/mul.h"
#include "core/ops/basic/softmax.h"
#include "core/ops/elementwise.h"
#include "core/ops/gemm.h"
#include "core/ops/loss/cross_entropy.h"
#include "core/ops/reduce_sum.h"
#include "core/tensor/op_checks.h"

namespace quench::autograd {
namespace {

// Throws for values that the functions do not take.
void check_value(std::string_view function, std::string_view name, const Tensor& value) {
  QUENCH_CHECK(value.defined() && value.rank() > 0, "{}: {} is {}, expected f32 or bf16 of rank 1 or more", function,
               name, value.describe());
  check_float_tensor(function, name, value, value.rank());
  check_contiguous(function, name, value);
}

// x as rows of its last axis.
Tensor rows_of(const Tensor& x) {
  const std::int64_t width = x.size(-1);
  return x.view({width == 0 ? 0 : x.numel() / width, width});
}

// f32 [C]: sum of the rows of x [N,C].
Tensor sum_rows(const Tensor& x) {
  const Tensor sum = Tensor::empty({x.size(1)}, DType::f32, x.device());
  column_sum({.x = x, .out = sum});
  return sum;
}

// a * b in a new tensor.
Tensor product(const Tensor& a, const Tensor& b, DType dtype) {
  const Tensor out = Tensor::empty(a.shape(), dtype, a.device());
  quench::mul({a, b, out});
  return out;
}

}  // namespace

Variable mul(const Variable& a, const Variable& b) {
  check_value("mul", "a", a.value());
  const MemoryScope scope(MemoryCategory::activations);
  Variable out(product(a.value(), b.value(), a.value().dtype()));
  Tape::record("mul", {a, b}, std::array{&out}, [&] {
    return [saved_a = b.requires_grad() ? Saved(a) : Saved(), saved_b = a.requires_grad() ? Saved(b) : Saved(),
            da = a.gradient(), db = b.gradient(), dout = out.gradient(), shape_b = b.value().shape()] {
      const MemoryScope backward_scope(MemoryCategory::activations);
      const Tensor dy = dout->value();
      if (da) da->contribute(product(dy, saved_b.get(), dy.dtype()));
      if (!db) return;
      if (shape_b == dy.shape())
        db->contribute(product(dy, saved_a.get(), dy.dtype()));
      else
        db->contribute(sum_rows(rows_of(product(dy, saved_a.get(), DType::f32))));
    };
  });
  return out;
}

Variable matmul(const Variable& a, const Variable& b, const MatmulOptions& options) {
  const bool ta = options.transpose_a, tb = options.transpose_b;
  const auto is_matrix = [](const Tensor& t) { return t.defined() && t.rank() == 2; };
  QUENCH_CHECK(is_matrix(a.value()) && is_matrix(b.value()) &&
                   a.value().size(ta ? 0 : 1) == b.value().size(tb ? 1 : 0) && a.value().dtype() == b.value().dtype(),
               "matmul: a is {}{}, b is {}{}; expected [M,K] and [K,N] of one dtype", a.value().describe(),
               ta ? ", transposed" : "", b.value().describe(), tb ? ", transposed" : "");
  const MemoryScope scope(MemoryCategory::activations);
  const Shape shape{a.value().size(ta ? 1 : 0), b.value().size(tb ? 0 : 1)};
  Variable out(Tensor::empty(shape, a.value().dtype(), a.value().device()));
  gemm({.a = a.value(), .b = b.value(), .c = out.value(), .transpose_a = ta, .transpose_b = tb});
  Tape::record("matmul", {a, b}, std::array{&out}, [&] {
    return [ta, tb, saved_a = b.requires_grad() ? Saved(a) : Saved(), saved_b = a.requires_grad() ? Saved(b) : Saved(),
            da = a.gradient(), db = b.gradient(), dout = out.gradient()] {
      const Tensor dy = dout->value();
      // first * second, or its transpose second^T * first^T where the operand was read transposed.
      const auto add_product = [](Gradient& to, bool transposed, const Tensor& first, bool transpose_first,
                                  const Tensor& second, bool transpose_second) {
        const GradientTarget into = to.target();
        gemm({.a = transposed ? second : first,
              .b = transposed ? first : second,
              .c = into.tensor,
              .transpose_a = transposed ? !transpose_second : transpose_first,
              .transpose_b = transposed ? !transpose_first : transpose_second,
              .beta = into.accumulate ? 1.0f : 0.0f});
      };
      if (da) add_product(*da, ta, dy, false, saved_b.get(), !tb);
      if (db) add_product(*db, tb, saved_a.get(), !ta, dy, false);
    };
  });
  return out;
}

Variable softmax(const Variable& x) {
  check_value("softmax", "x", x.value());
  const MemoryScope scope(MemoryCategory::activations);
  Variable y(Tensor::empty_like(x.value()));
  quench::softmax({rows_of(x.value()), rows_of(y.value())});
  Tape::record("softmax", {x}, std::array{&y}, [&] {
    return [saved = Saved(y.value()), dx = x.gradient(), dy = y.gradient()] {
      const MemoryScope backward_scope(MemoryCategory::activations);
      const Tensor value = saved.get(), gradient = Tensor::empty_like(value);
      softmax_backward({rows_of(dy->value()), rows_of(value), rows_of(gradient)});
      dx->contribute(gradient);
    };
  });
  return y;
}

Variable gelu(const Variable& x, GeluForm form) {
  check_value("gelu", "x", x.value());
  const MemoryScope scope(MemoryCategory::activations);
  Variable y(Tensor::empty_like(x.value()));
  quench::gelu({x.value(), y.value(), form});
  Tape::record("gelu", {x}, std::array{&y}, [&] {
    return [form, saved = Saved(x), dx = x.gradient(), dy = y.gradient()] {
      const MemoryScope backward_scope(MemoryCategory::activations);
      const Tensor value = saved.get(), gradient = Tensor::empty_like(value);
      gelu_backward({.dy = dy->value(), .x = value, .dx = gradient, .form = form});
      dx->contribute(gradient);
    };
  });
  return y;
}

Variable mean(const Variable& x) {
  const Tensor in = x.value();
  check_value("mean", "x", in);
  QUENCH_CHECK(in.numel() > 0, "mean: x is {}, expected at least one element", in.describe());
  const MemoryScope scope(MemoryCategory::activations);
  Variable out(Tensor::empty({1}, DType::f32, in.device()));
  const float share = static_cast<float>(1.0 / static_cast<double>(in.numel()));
  reduce_sum({.x = sum_rows(rows_of(in)), .out = out.value(), .scale = share});
  Tape::record("mean", {x}, std::array{&out}, [&] {
    return [share, shape = in.shape(), dtype = in.dtype(), dx = x.gradient(), dout = out.gradient()] {
      const MemoryScope backward_scope(MemoryCategory::activations);
      const Tensor gradient = Tensor::empty(shape, dtype, dout->value().device());
      broadcast_rows({.from = dout->value(), .out = rows_of(gradient), .scale = share});
      dx->contribute(gradient);
    };
  });
  return out;
}

Variable cross_entropy(const Variable& logits, const Tensor& labels, float scale) {
  const Tensor in = logits.value();
  check_value("cross_entropy", "logits", in);
  QUENCH_CHECK(
      in.rank() == 2 && labels.defined() && labels.dtype() == DType::i32 && labels.shape() == Shape({in.size(0)}),
      "cross_entropy: logits are {}, labels {}; expected [N,C] and i32 [N]", in.describe(),
      labels.defined() ? labels.describe() : "undefined");
  const MemoryScope scope(MemoryCategory::activations);
  const Tensor losses = Tensor::empty({in.size(0)}, DType::f32, in.device());
  const Tensor dlogits = Tape::current() != nullptr && logits.requires_grad() ? Tensor::empty_like(in) : Tensor();
  quench::cross_entropy({.logits = in, .labels = labels, .losses = losses, .dlogits = dlogits, .grad_scale = scale});
  Variable out(Tensor::empty({1}, DType::f32, in.device()));
  reduce_sum({.x = losses, .out = out.value(), .scale = scale});
  Tape::record("cross_entropy", {logits}, std::array{&out}, [&] {
    return [dlogits, dx = logits.gradient(), dout = out.gradient()] {
      const MemoryScope backward_scope(MemoryCategory::activations);
      const Tensor factor = Tensor::empty({dlogits.size(1)}, dlogits.dtype(), dlogits.device()),
                   gradient = Tensor::empty_like(dlogits);
      broadcast_rows({.from = dout->value(), .out = factor.view({factor.numel(), 1})});
      quench::mul({dlogits, factor, gradient});
      dx->contribute(gradient);
    };
  });
  return out;
}

Variable mean_rows(const Variable& x) {
  const Tensor in = x.value();
  check_value("mean_rows", "x", in);
  QUENCH_CHECK(in.rank() == 2 && in.size(0) > 0, "mean_rows: x is {}, expected [N,C] with N > 0", in.describe());
  const MemoryScope scope(MemoryCategory::activations);
  Variable out(Tensor::empty({1, in.size(1)}, in.dtype(), in.device()));
  const float share = static_cast<float>(1.0 / static_cast<double>(in.size(0)));
  const Tensor sum = sum_rows(in);
  quench::scale({sum, share});
  cast({sum.view(out.value().shape()), out.value()});
  Tape::record("mean_rows", {x}, std::array{&out}, [&] {
    return [share, shape = in.shape(), dtype = in.dtype(), dx = x.gradient(), dout = out.gradient()] {
      const MemoryScope backward_scope(MemoryCategory::activations);
      const Tensor dy = dout->value(), gradient = Tensor::empty(shape, dtype, dy.device());
      broadcast_rows({.from = dy.view({dy.numel()}), .out = gradient, .scale = share});
      dx->contribute(gradient);
    };
  });
  return out;
}

}  // namespace quench::autograd
