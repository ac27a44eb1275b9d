#include <array>

#include "autograd/functions.h"
#include "autograd/regions/kept_values.h"
#include "core/ops/elementwise.h"
#include "core/ops/experts/token_permutation.h"
#include "core/ops/rope.h"

namespace quench::autograd {
namespace {

// View [N,count,D].
Tensor head_view(const Tensor& qkv, const QkvLayout& layout, std::int64_t first, std::int64_t count) {
  QUENCH_CHECK(qkv.rank() == 2 && qkv.size(1) == layout.width() && qkv.is_contiguous(),
               "fused qkv is {}, expected contiguous [N,{}]", qkv.describe(), layout.width());
  return qkv.strided({qkv.size(0), count, layout.head_dim}, {layout.width(), layout.head_dim, 1},
                     first * layout.head_dim);
}

// Keys and values of a fused QKV matrix: [N, 2 * kv_heads * head_dim].
Tensor key_value_columns(const Tensor& qkv, const QkvLayout& layout) {
  return qkv.narrow(1, layout.heads * layout.head_dim, 2 * layout.kv_heads * layout.head_dim);
}

// Keys and values as attention reads them, and their gradients.
struct KeyValues {
  Tensor fused;  // [M, 2 * kv_heads * head_dim]; undefined: columns of qkv
  Tensor k, v;   // [M,kv_heads,D]
};

KeyValues make_key_values(const Tensor& qkv, const QkvLayout& layout, const KeyRows& rows) {
  if (!rows.defined()) return {{}, key_view(qkv, layout), value_view(qkv, layout)};
  const std::int64_t count = rows.rows.size(0), width = layout.kv_heads * layout.head_dim;
  const Tensor fused = Tensor::empty({count, 2 * width}, qkv.dtype(), qkv.device());
  const auto heads = [&](std::int64_t first) {
    return fused.strided({count, layout.kv_heads, layout.head_dim}, {2 * width, layout.head_dim, 1}, first);
  };
  return {fused, heads(0), heads(width)};
}

// Keys and values [N, 2 * kv_heads * head_dim] that KeyRows count, N of all ranks.
Tensor counted_key_values(const Tensor& qkv, const QkvLayout& layout, const KeyRows& rows) {
  const Tensor columns = key_value_columns(qkv, layout);
  return rows.exchange == nullptr ? columns : rows.exchange->gather(columns);
}

KeyValues read_key_values(const Tensor& qkv, const QkvLayout& layout, const KeyRows& rows) {
  if (!rows.defined()) return make_key_values(qkv, layout, rows);
  const Tensor counted = counted_key_values(qkv, layout, rows);
  const KeyValues values = make_key_values(qkv, layout, rows);
  quench::permute_tokens({.x = counted, .pairs = rows.rows, .out = values.fused});
  return values;
}

// Sums `gradients` [M, 2 * kv_heads * head_dim] of `rows` into the keys and values of dqkv.
void add_up_key_values(const Tensor& gradients, const QkvLayout& layout, const KeyRows& rows, const Tensor& dqkv) {
  const Tensor columns = key_value_columns(dqkv, layout);
  if (rows.exchange == nullptr) return quench::unpermute_tokens({.y = gradients, .rows = rows.readers, .out = columns});
  const Tensor all = Tensor::empty({rows.readers.size(0), columns.size(1)}, dqkv.dtype(), dqkv.device());
  quench::unpermute_tokens({.y = gradients, .rows = rows.readers, .out = all});
  copy_rows({.from = rows.exchange->reduce(all), .to = columns});
}

// For a consumer of the rotated gradient that needs no value of it, where the rotation is one of whole heads.
QuantOutputs rotation_codes(const std::shared_ptr<Gradient>& gradient, const Tensor& like, bool whole_heads) {
  if (!gradient || !whole_heads || !like.is_contiguous()) return {};
  const QuantOutputRequest wanted = gradient->request_to_producer();
  return wanted.value_needed || !wanted.scale.defined() ? QuantOutputs{}
                                                        : make_coded_outputs(wanted, like.shape(), like);
}

}  // namespace

Tensor as_f32(const Weight& weight) {
  if (!weight.defined()) return {};
  const auto values = weight.acquire();
  const Tensor wide = Tensor::empty(weight.shape(), DType::f32, weight.device());
  cast({values.value(), wide});
  return wide;
}

Tensor query_view(const Tensor& qkv, const QkvLayout& layout) {
  return head_view(qkv, layout, 0, layout.heads);
}
Tensor key_view(const Tensor& qkv, const QkvLayout& layout) {
  return head_view(qkv, layout, layout.heads, layout.kv_heads);
}
Tensor value_view(const Tensor& qkv, const QkvLayout& layout) {
  return head_view(qkv, layout, layout.heads + layout.kv_heads, layout.kv_heads);
}

Variable rope(const Variable& qkv, const QkvLayout& layout, const Tensor& cos, const Tensor& sin,
              const Tensor& positions, const RotationOptions& options) {
  const std::int64_t rotated = layout.heads + (options.keys ? layout.kv_heads : 0), dim = 2 * cos.size(1);
  QUENCH_CHECK(dim <= layout.head_dim, "rope: {} rotated elements of heads of {}", dim, layout.head_dim);
  Variable out(qkv.value());
  const bool interleaved = options.interleaved;
  quench::rope({.x = head_view(out.value(), layout, 0, rotated).narrow(2, 0, dim),
                .cos = cos,
                .sin = sin,
                .positions = positions,
                .interleaved = interleaved});
  Tape::record("rope", {qkv}, std::array{&out}, [&] {
    return [layout, rotated, dim, cos, sin, positions, interleaved, dqkv = qkv.gradient(), dout_of = out.gradient()] {
      // In place unless another gradient shares the buffer.
      Tensor dout = dout_of->take_value();
      if (const QuantOutputs codes = rotation_codes(dqkv, dout, dim == layout.head_dim && !interleaved);
          codes.has_codes()) {
        quench::rope_codes({.x = dout,
                            .heads = rotated,
                            .cos = cos,
                            .sin = sin,
                            .positions = positions,
                            .inverse = true,
                            .quant_outputs = codes});
        return dqkv->contribute(FusedValue::codes_only(dout.shape(), dout, codes));
      }
      if (!dout.is_exclusive()) dout = dout.clone();
      quench::rope({.x = head_view(dout, layout, 0, rotated).narrow(2, 0, dim),
                    .cos = cos,
                    .sin = sin,
                    .positions = positions,
                    .inverse = true,
                    .interleaved = interleaved});
      if (dqkv) dqkv->contribute(dout);
    };
  });
  return out;
}

Variable attention(const Variable& qkv, const QkvLayout& layout, std::vector<SequenceRange> sequences, float scale,
                   std::int64_t window, float soft_cap, const KeyRows& keys, const Weight& sinks) {
  const MemoryScope scope(MemoryCategory::activations);
  const Tensor in = qkv.value();
  const std::int64_t tokens = in.size(0);
  const Shape heads_shape{tokens, layout.heads, layout.head_dim};
  const Tensor sink_scores = as_f32(sinks);
  KeptValues* kept = KeptValues::current();
  const bool keep = kept != nullptr || (Tape::current() != nullptr && (qkv.requires_grad() || sinks.requires_grad()));
  const auto compute = [&] {
    const Tensor result = Tensor::empty({tokens, layout.heads * layout.head_dim}, in.dtype(), in.device());
    const Tensor sums = keep ? Tensor::empty({layout.heads, tokens}, DType::f32, in.device()) : Tensor();
    const KeyValues read = read_key_values(in, layout, keys);
    quench::attention({.q = query_view(in, layout),
                       .k = read.k,
                       .v = read.v,
                       .out = result.view(heads_shape),
                       .lse = sums,
                       .sequences = sequences,
                       .window = window,
                       .scale = scale,
                       .soft_cap = soft_cap,
                       .sinks = sink_scores});
    if (kept != nullptr) kept->keep(result, sums);
    return std::pair(result, sums);
  };
  const auto [value, lse] = kept != nullptr && kept->replays() ? kept->take() : compute();
  Variable out(value);

  const bool recorded = Tape::record("attention", {qkv, sinks}, std::array{&out}, [&] {
    return
        [in, layout, heads_shape, lse = lse, scale, window, soft_cap, keys, sink_scores, result = out.value(),
         kept = std::move(sequences), dqkv = qkv.gradient(), dsinks_of = sinks.gradient(), dout_of = out.gradient()] {
          const MemoryScope backward_scope(MemoryCategory::activations);
          const Tensor dx = Tensor::empty_like(in);
          const KeyValues again = read_key_values(in, layout, keys), gradients = make_key_values(dx, layout, keys);
          const Tensor dsinks = dsinks_of ? Tensor::empty_like(sink_scores) : Tensor();
          attention_backward({.dout = dout_of->value().view(heads_shape),
                              .q = query_view(in, layout),
                              .k = again.k,
                              .v = again.v,
                              .out = result.view(heads_shape),
                              .lse = lse,
                              .dq = query_view(dx, layout),
                              .dk = gradients.k,
                              .dv = gradients.v,
                              .sequences = kept,
                              .window = window,
                              .scale = scale,
                              .soft_cap = soft_cap,
                              .sinks = sink_scores,
                              .dsinks = dsinks});
          if (dsinks_of) {
            const GradientTarget into = dsinks_of->target();
            if (into.accumulate)
              accumulate({.x = dsinks, .out = into.tensor});
            else
              cast({dsinks, into.tensor});
          }
          if (keys.defined()) add_up_key_values(gradients.fused, layout, keys, dx);
          if (dqkv) dqkv->contribute(dx);
        };
  });
  if (recorded) out.set_saved_by_producer();
  return out;
}

}  // namespace quench::autograd
