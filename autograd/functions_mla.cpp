#include "autograd/functions_mla.h"

#include <array>

#include "core/ops/elementwise.h"

namespace quench::autograd {
namespace {

// Undefined `from`: zeros.
void put_columns(const Tensor& from, const Tensor& to) {
  copy_rows({from.defined() ? from : Tensor::zeros(to.shape(), to.dtype(), to.device()), to});
}

}  // namespace

std::pair<Variable, Variable> split_columns(const Variable& x, std::int64_t width) {
  const Tensor in = x.value();
  QUENCH_CHECK(in.rank() == 2 && width >= 0 && width <= in.size(1), "split_columns: {} columns of {}", width,
               in.describe());
  const MemoryScope scope(MemoryCategory::activations);
  const std::int64_t rest = in.size(1) - width;
  const auto copied = [&](std::int64_t first, std::int64_t columns) {
    const Tensor out = Tensor::empty({in.size(0), columns}, in.dtype(), in.device());
    copy_rows({in.narrow(1, first, columns), out});
    return Variable(out);
  };
  Variable first = copied(0, width), second = copied(width, rest);
  Tape::record("split_columns", {x}, std::array{&first, &second}, [&] {
    return [shape = in.shape(), dtype = in.dtype(), device = in.device(), width, rest, dx = x.gradient(),
            dfirst = first.gradient(), dsecond = second.gradient()] {
      const MemoryScope backward_scope(MemoryCategory::activations);
      const Tensor gradient = Tensor::empty(shape, dtype, device);
      put_columns(dfirst->value(), gradient.narrow(1, 0, width));
      put_columns(dsecond->value(), gradient.narrow(1, width, rest));
      dx->contribute(gradient);
    };
  });
  return {first, second};
}

Variable head_columns(const Variable& x, std::int64_t heads, std::int64_t width) {
  const Tensor in = x.value();
  QUENCH_CHECK(in.rank() == 2 && heads >= 1 && in.size(1) % heads == 0 && width <= in.size(1) / heads,
               "head_columns: {} columns of each of {} heads of {}", width, heads, in.describe());
  const std::int64_t rows = in.size(0) * heads, columns = in.size(1) / heads;
  if (width == columns) return x;
  const MemoryScope scope(MemoryCategory::activations);
  Variable out(Tensor::empty({in.size(0), heads * width}, in.dtype(), in.device()));
  copy_rows({in.view({rows, columns}).narrow(1, 0, width), out.value().view({rows, width})});
  Tape::record("head_columns", {x}, std::array{&out}, [&] {
    return [shape = in.shape(), rows, columns, width, dx = x.gradient(), dout_of = out.gradient()] {
      const MemoryScope backward_scope(MemoryCategory::activations);
      const Tensor dout = dout_of->value();
      const Tensor gradient = Tensor::zeros(shape, dout.dtype(), dout.device());
      copy_rows({dout.view({rows, width}), gradient.view({rows, columns}).narrow(1, 0, width)});
      dx->contribute(gradient);
    };
  });
  return out;
}

Variable mla_heads(const Variable& q, const Variable& kv, const Variable& key, const MlaHeadsShape& shape,
                   const Tensor& cos, const Tensor& sin, const Tensor& positions) {
  const MemoryScope scope(MemoryCategory::activations);
  const Tensor in = q.value();
  Variable out(Tensor::empty({in.size(0), 3 * shape.heads * shape.width()}, in.dtype(), in.device()));
  quench::mla_heads({.q = in,
                     .kv = kv.value(),
                     .key = key.value(),
                     .cos = cos,
                     .sin = sin,
                     .positions = positions,
                     .out = out.value(),
                     .shape = shape});
  Tape::record("mla_heads", {q, kv, key}, std::array{&out}, [&] {
    return [shape, cos, sin, positions, q_shape = in.shape(), kv_shape = kv.value().shape(),
            key_shape = key.value().shape(), dq = q.gradient(), dkv = kv.gradient(), dkey = key.gradient(),
            dout_of = out.gradient()] {
      const MemoryScope backward_scope(MemoryCategory::activations);
      const Tensor dout = dout_of->value();
      const auto like = [&](const Shape& of) { return Tensor::empty(of, dout.dtype(), dout.device()); };
      const Tensor of_q = like(q_shape), of_kv = like(kv_shape), of_key = like(key_shape);
      mla_heads_backward({.dout = dout,
                          .cos = cos,
                          .sin = sin,
                          .positions = positions,
                          .dq = of_q,
                          .dkv = of_kv,
                          .dkey = of_key,
                          .shape = shape});
      if (dq) dq->contribute(of_q);
      if (dkv) dkv->contribute(of_kv);
      if (dkey) dkey->contribute(of_key);
    };
  });
  return out;
}

}  // namespace quench::autograd
