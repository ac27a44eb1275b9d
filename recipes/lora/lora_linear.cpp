#include "recipes/lora/lora_linear.h"

#include <algorithm>
#include <array>

#include "autograd/swiglu.h"
#include "core/ops/adapters/adapter_gradients.h"
#include "core/ops/adapters/low_rank_gemm.h"
#include "core/ops/adapters/magnitude.h"
#include "core/ops/dropout.h"
#include "core/ops/elementwise.h"
#include "core/ops/gemm.h"
#include "recipes/lora/adapter_name.h"

namespace quench::recipes {

using autograd::Gradient;
using autograd::GradientTarget;
using autograd::Saved;
using autograd::Tape;
using autograd::Variable;
using autograd::Weight;

namespace {

Tensor dropped(const Tensor& x, double probability, const std::optional<RandomKey>& key) {
  if (!key) return x;
  const MemoryScope scope(MemoryCategory::workspace);
  const Tensor out = Tensor::empty_like(x);
  dropout({.x = x, .out = out, .probability = static_cast<float>(probability), .key = *key});
  return out;
}

Tensor output_of(const Tensor& x, const nn::Parameter& weight) {
  return Tensor::empty({x.size(0), weight.global_shape[0]}, x.dtype(), x.device());
}

float common_scale(const std::vector<nn::LowRankPiece>& pieces) {
  for (const nn::LowRankPiece& piece : pieces)
    if (piece.scale != pieces.front().scale) return 1.0f;
  return pieces.empty() ? 1.0f : pieces.front().scale;
}

}  // namespace

// Gradients of the update; also dgrad of the frozen base if both are one GEMM.
struct LoraLinear::Backward {
  std::shared_ptr<nn::LowRankAdapter> adapter;
  double probability;
  std::optional<RandomKey> key;
  float hidden_scale;
  Weight weight;  // if base and update are one GEMM
  Saved saved_x;
  Tensor hidden;
  std::shared_ptr<Gradient> dx, da, base, dy_of;
  std::vector<std::shared_ptr<Gradient>> db;

  void operator()() const {
    const MemoryScope scope(MemoryCategory::workspace);
    const Tensor dy = dy_of->value();
    if (base) base->contribute(dy_of->fused());
    const Tensor dhidden = Tensor::empty(hidden.shape(), hidden.dtype(), hidden.device());
    const auto& pieces = adapter->pieces();
    std::vector<Weight::Acquired> b;
    AdapterGradientsArgs args{.dy = dy, .hidden = hidden, .dhidden = dhidden, .pieces = {}};
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      const nn::LowRankPiece& piece = pieces[i];
      b.push_back(adapter->b(i).weight().acquire());
      const GradientTarget into = db[i] ? db[i]->target() : GradientTarget{};
      args.pieces.push_back({.b = b.back().value(),
                             .db = into.tensor,
                             .column = piece.row_begin,
                             .rank_begin = piece.rank_begin,
                             .scale = piece.scale,
                             .gradient_scale = piece.scale / hidden_scale,
                             .accumulate = into.accumulate});
    }
    adapter_gradients(args);
    if (da) gradient_of_a(dhidden);
    if (dx) weight.defined() ? whole_input_gradient(dy, dhidden) : input_gradient(dhidden);
  }

  // Deferred if the producer recomputes x.
  void gradient_of_a(const Tensor& dhidden) const {
    da->begin_use();
    const auto finish = [da = da, dhidden, p = probability, key = key](const Tensor& recomputed_x) {
      const GradientTarget into = da->target();
      gemm({.a = dhidden,
            .b = dropped(recomputed_x, p, key),
            .c = into.tensor,
            .transpose_a = true,
            .beta = into.accumulate ? 1.0f : 0.0f});
      da->end_use();
    };
    if (!saved_x.defer(finish)) finish(saved_x.get());
  }

  void whole_input_gradient(const Tensor& dy, const Tensor& dhidden) const {
    const Weight::Acquired a = adapter->a().weight().acquire(), w = weight.acquire();
    if (const auto fused = dx->fused_backward<autograd::SwigluBackward>())
      return low_rank_gemm({.a = dy,
                            .b = w.value(),
                            .u = dhidden,
                            .c = {},
                            .blocks = {{.v = a.value()}},
                            .gate_up = fused->gate_up,
                            .dgate_up = fused->dgate_up,
                            .activation = fused->activation});
    const GradientTarget into = dx->target();
    if (!into.accumulate)
      return low_rank_gemm({.a = dy, .b = w.value(), .u = dhidden, .c = into.tensor, .blocks = {{.v = a.value()}}});
    gemm({.a = dhidden, .b = a.value(), .c = into.tensor, .beta = 1.0f});
    gemm({.a = dy, .b = w.value(), .c = into.tensor, .beta = 1.0f});
  }

  void input_gradient(const Tensor& dhidden) const {
    const Weight::Acquired a = adapter->a().weight().acquire();
    if (!key) {
      const GradientTarget into = dx->target();
      gemm({.a = dhidden, .b = a.value(), .c = into.tensor, .beta = into.accumulate ? 1.0f : 0.0f});
      return;
    }
    const Tensor product = Tensor::empty({dhidden.size(0), a.value().size(1)}, dhidden.dtype(), dhidden.device());
    gemm({.a = dhidden, .b = a.value(), .c = product});
    dropout({.x = product, .out = product, .probability = static_cast<float>(probability), .key = *key});
    dx->contribute(product);
  }
};

LoraLinear::LoraLinear(std::shared_ptr<const nn::LinearKernel> base, std::shared_ptr<nn::LowRankAdapter> adapter,
                       LoraDropout dropout)
    : LinearKernelWrapper(std::move(base)),
      adapter_(std::move(adapter)),
      dropout_(dropout),
      hidden_scale_(common_scale(adapter_->pieces())),
      name_(fmt::format("{} + {}", wrapped().name(),
                        adapter_name(adapter_->has_magnitudes() ? "dora" : "lora", adapter_->pieces()))) {}

std::vector<nn::KernelParameter> LoraLinear::parameters() const {
  std::vector<nn::KernelParameter> all = wrapped().parameters();
  for (nn::KernelParameter& own : adapter_->parameters()) all.push_back(std::move(own));
  return all;
}

std::optional<RandomKey> LoraLinear::draws() const {
  const std::optional<std::uint64_t> pass = Tape::current_pass();
  if (dropout_.probability == 0 || !pass) return std::nullopt;
  RandomKey key = dropout_.key;
  key.step = *pass;
  return key;
}

Tensor LoraLinear::hidden_of(const Tensor& x, const std::optional<RandomKey>& key) const {
  const Tensor hidden = Tensor::empty({x.size(0), adapter_->rank()}, x.dtype(), x.device());
  gemm({.a = dropped(x, dropout_.probability, key),
        .b = adapter_->a().weight().acquire().value(),
        .c = hidden,
        .transpose_b = true,
        .alpha = hidden_scale_});
  return hidden;
}

Tensor LoraLinear::add_update(const Tensor& x, const Tensor& y, const std::optional<RandomKey>& key, float beta) const {
  const Tensor hidden = hidden_of(x, key);
  const auto& pieces = adapter_->pieces();
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const nn::LowRankPiece& piece = pieces[i];
    gemm({.a = hidden.narrow(1, piece.rank_begin, piece.rank),
          .b = adapter_->b(i).weight().acquire().value(),
          .c = y.narrow(1, piece.row_begin, piece.rows),
          .transpose_b = true,
          .alpha = piece.scale / hidden_scale_,
          .beta = beta});
  }
  return hidden;
}

bool LoraLinear::is_one_product(const nn::Parameter& weight, const Weight& bias,
                                const std::optional<RandomKey>& key) const {
  const auto& pieces = adapter_->pieces();
  return &wrapped() == nn::high_precision_linear_kernel().get() && !weight.weight().requires_grad() &&
         !bias.defined() && !key &&
         std::ranges::all_of(pieces, [&](const nn::LowRankPiece& piece) { return piece.scale == hidden_scale_; });
}

Tensor LoraLinear::in_one_product(const Tensor& x, const nn::Parameter& weight, const Tensor& hidden,
                                  const Tensor& gated, GatedActivation activation) const {
  const Tensor y = output_of(x, weight);
  const Weight::Acquired w = weight.weight().acquire();
  std::vector<Weight::Acquired> b;
  LowRankGemmArgs args{.a = x,
                       .b = w.value(),
                       .u = hidden,
                       .c = y,
                       .blocks = {},
                       .transpose_b = true,
                       .gated = gated,
                       .activation = activation};
  for (std::size_t i = 0; i < adapter_->pieces().size(); ++i) {
    const nn::LowRankPiece& piece = adapter_->pieces()[i];
    b.push_back(adapter_->b(i).weight().acquire());
    args.blocks.push_back({b.back().value(), piece.row_begin, piece.rank_begin});
  }
  low_rank_gemm(args);
  return y;
}

bool LoraLinear::update_is_first(const nn::Parameter& weight, const Weight& bias) const {
  std::int64_t covered = 0;
  for (const nn::LowRankPiece& piece : adapter_->pieces())
    if (piece.row_begin == covered) covered += piece.rows;
  return covered == weight.global_shape[0] &&
         wrapped().supports({.epilogue = nn::LinearEpilogue::accumulate}, weight, bias);
}

namespace {

// Columns without adapter get only the bias.
void scale_outputs(const nn::LowRankAdapter& adapter, const Tensor& u, const Tensor& norms, const Tensor& bias,
                   const Tensor& y) {
  const auto scale_columns = [&](std::int64_t first, std::int64_t end, const Weight& magnitude) {
    if (first == end) return;
    const std::int64_t count = end - first;
    scale_by_magnitude({.x = u.narrow(1, first, count),
                        .magnitude = magnitude.acquire().value(),
                        .norms = norms.narrow(0, first, count),
                        .bias = bias.defined() ? bias.narrow(0, first, count) : bias,
                        .out = y.narrow(1, first, count)});
  };
  std::int64_t next = 0;
  for (std::size_t i = 0; i < adapter.pieces().size(); ++i) {
    const nn::LowRankPiece& piece = adapter.pieces()[i];
    scale_columns(next, piece.row_begin, {});
    next = piece.row_begin + piece.rows;
    scale_columns(piece.row_begin, next, adapter.magnitude(i).weight());
  }
  scale_columns(next, u.size(1), {});
}

}  // namespace

Variable LoraLinear::with_magnitudes(const Variable& u, const nn::Parameter& weight, const Weight& bias) const {
  const MemoryScope scope(MemoryCategory::activations);
  const Tensor norms = adapter_->norms(weight.weight().acquire().value());
  Variable y(Tensor::empty_like(u.value()));
  scale_outputs(*adapter_, u.value(), norms, bias.acquire().value(), y.value());
  std::vector<Tape::Input> inputs{u, bias};
  std::vector<std::shared_ptr<Gradient>> of_magnitudes;
  for (std::size_t i = 0; i < adapter_->pieces().size(); ++i) {
    inputs.emplace_back(adapter_->magnitude(i).weight());
    of_magnitudes.push_back(adapter_->magnitude(i).weight().gradient());
  }
  Tape::record("dora", inputs, std::array{&y}, [&] {
    return [adapter = adapter_, of_magnitudes, saved = u.value(), norms, du = u.gradient(), db = bias.gradient(),
            dy_of = y.gradient()] {
      const MemoryScope backward_scope(MemoryCategory::workspace);
      const Tensor dy = dy_of->value();
      for (std::size_t i = 0; i < of_magnitudes.size(); ++i) {
        if (!of_magnitudes[i]) continue;
        const nn::LowRankPiece& piece = adapter->pieces()[i];
        const GradientTarget into = of_magnitudes[i]->target();
        magnitude_gradient({.dy = dy.narrow(1, piece.row_begin, piece.rows),
                            .x = saved.narrow(1, piece.row_begin, piece.rows),
                            .norms = norms.narrow(0, piece.row_begin, piece.rows),
                            .out = into.tensor,
                            .accumulate = into.accumulate});
      }
      if (db) {
        const GradientTarget into = db->target();
        column_sum({.x = dy, .out = into.tensor, .accumulate = into.accumulate});
      }
      if (!du) return;
      const Tensor scaled = Tensor::empty_like(dy);
      scale_outputs(*adapter, dy, norms, {}, scaled);
      du->contribute(scaled);
    };
  });
  return y;
}

bool LoraLinear::supports(const nn::LinearCall& call, const nn::Parameter& weight, const Weight& bias) const {
  if (!call.is_fused()) return true;
  return call.norm == nullptr && call.epilogue == nn::LinearEpilogue::gated_activation &&
         call.mode == nn::LinearMode::recorded && !adapter_->has_magnitudes() && is_one_product(weight, bias, draws());
}

nn::LinearOutput LoraLinear::do_run(const nn::LinearCall& call, const nn::Parameter& weight, const Weight& bias) const {
  const Variable& x = call.x;
  if (call.mode == nn::LinearMode::recompute) return {Variable(recomputed(x, weight, bias))};
  if (adapter_->has_magnitudes()) return {with_magnitudes(apply_update(x, weight, {}), weight, bias)};
  if (call.epilogue == nn::LinearEpilogue::none) return {apply_update(x, weight, bias)};
  nn::LinearOutput out;
  out.y = apply_update(x, weight, bias, &out.gated, call.activation);
  return out;
}

Variable LoraLinear::apply_update(const Variable& x, const nn::Parameter& weight, const Weight& bias, Tensor* gated,
                                  GatedActivation activation) const {
  const MemoryScope scope(MemoryCategory::activations);
  const std::optional<RandomKey> key = draws();
  const bool one_product = is_one_product(weight, bias, key);
  Tensor hidden;
  const Variable base = [&] {
    if (one_product) {
      hidden = hidden_of(x.value(), key);
      if (gated != nullptr)
        *gated = Tensor::empty({x.value().size(0), weight.global_shape[0] / 2}, x.value().dtype(), x.value().device());
      return Variable(in_one_product(x.value(), weight, hidden, gated != nullptr ? *gated : Tensor(), activation));
    }
    if (!update_is_first(weight, bias)) {
      Variable u = wrapped().apply(x, weight, bias);
      hidden = add_update(x.value(), u.value(), key, 1.0f);
      return u;
    }
    const Tensor u = output_of(x.value(), weight);
    hidden = add_update(x.value(), u, key, 0.0f);
    return wrapped().run({.x = x, .epilogue = nn::LinearEpilogue::accumulate, .out = u}, weight, bias).y;
  }();
  Variable y(base.value());
  std::vector<Tape::Input> inputs{x, one_product ? Tape::Input(weight.weight()) : Tape::Input(base),
                                  adapter_->a().weight()};
  for (std::size_t i = 0; i < adapter_->pieces().size(); ++i) inputs.emplace_back(adapter_->b(i).weight());
  Tape::record("lora", inputs, std::array{&y}, [&] {
    Backward backward{adapter_,
                      dropout_.probability,
                      key,
                      hidden_scale_,
                      one_product ? weight.weight() : Weight(),
                      adapter_->a().weight().requires_grad() ? Saved(x) : Saved(),
                      hidden,
                      x.gradient(),
                      adapter_->a().weight().gradient(),
                      base.gradient(),
                      y.gradient(),
                      {}};
    for (std::size_t i = 0; i < adapter_->pieces().size(); ++i)
      backward.db.push_back(adapter_->b(i).weight().gradient());
    // The base's quantization request applies to the gradient of y, which the adapter reads as well.
    if (base.gradient()) {
      autograd::QuantOutputRequest request = base.gradient()->quant_request();
      request.value_needed = true;
      y.gradient()->set_quant_request(request);
    }
    return backward;
  });
  return y;
}

Tensor LoraLinear::recomputed(const Variable& x, const nn::Parameter& weight, const Weight& bias) const {
  const std::optional<RandomKey> key = draws();
  const bool scales = adapter_->has_magnitudes();
  const Weight of_product = scales ? Weight() : bias;
  const bool one_product = is_one_product(weight, of_product, key);
  const autograd::NoGrad no_grad;
  const MemoryScope scope(MemoryCategory::activations);
  Tensor y;
  if (one_product) {
    y = in_one_product(x.value(), weight, hidden_of(x.value(), key));
  } else if (update_is_first(weight, of_product)) {
    y = output_of(x.value(), weight);
    (void)add_update(x.value(), y, key, 0.0f);
    y = wrapped().run({.x = x, .epilogue = nn::LinearEpilogue::accumulate, .out = y}, weight, of_product).y.value();
  } else {
    y = wrapped().recompute(x, weight, of_product);
    (void)add_update(x.value(), y, key, 1.0f);
  }
  if (scales)
    scale_outputs(*adapter_, y, adapter_->norms(weight.weight().acquire().value()), bias.acquire().value(), y);
  return y;
}

}  // namespace quench::recipes
