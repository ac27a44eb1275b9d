#include "nn/modules/linear.h"

namespace quench::nn {

Linear::Linear(std::int64_t in_features, std::int64_t out_features, LinearOptions options)
    : options_(options.parameters),
      weight_(make_parameter({out_features, in_features}, options_, Initializer::normal, options.init_std)),
      has_bias_(options.bias),
      parts_(std::move(options.parts)) {
  std::int64_t rows = 0;
  for (const LinearPart& part : parts_) rows += part.rows;
  QUENCH_CHECK(parts_.empty() || rows == out_features, "Linear: parts have {} rows, the layer {}", rows, out_features);
  options_.sharding = options_.expert_sharding = {};
  options_.deferred = false;
  weight_.slice.split = options.split;
  add_parameter("weight", weight_);
  if (has_bias_) {
    bias_ = make_parameter({out_features}, options.parameters, Initializer::zeros);
    if (options.split == TensorSplit::rows) bias_.slice.split = options.split;
    add_parameter("bias", bias_);
  }
}

Variable Linear::forward_with_recompute(const Variable& x) const {
  Variable y = forward(x);
  if (!y.requires_grad()) return y;
  QuantOutputs known;
  known.amax = x.fused().quant_outputs().own_amax();  // spares an amax pass; other outputs are too large to save
  const std::uint64_t pass = autograd::Tape::current() != nullptr ? autograd::Tape::current()->pass() : 0;
  y.set_recompute(
      std::make_shared<autograd::RecomputeHandle>([this, kernel = kernel_, saved = autograd::Saved(x), known, pass] {
        autograd::Tape tape;
        tape.set_pass(pass);
        const autograd::TapeScope scope(tape);
        return kernel->recompute(Variable(autograd::FusedValue(saved.get(), known)), weight_, bias());
      }));
  return y;
}

std::optional<LinearOutput> Linear::run_fused(const LinearCall& call) const {
  const Weight b = bias();
  if (!kernel_->supports(call, weight_, b)) return std::nullopt;
  return kernel_->run(call, weight_, b);
}

LinearOutput Linear::forward_gated(const Variable& x, GatedActivation activation) const {
  const auto fused = run_fused({.x = x, .epilogue = LinearEpilogue::gated_activation, .activation = activation});
  return fused ? *fused : LinearOutput{forward(x)};
}

void Linear::set_kernel(std::shared_ptr<const LinearKernel> kernel) {
  for (const KernelParameter& own : kernel_->parameters()) remove_parameter(*own.parameter);
  kernel_ = std::move(kernel);
  for (const KernelParameter& own : kernel_->parameters()) add_parameter(own.name, *own.parameter);
  if (named()) name_kernel_pieces(path_prefix());
  weight_.amax = kernel_->weight_requirements(weight_).amax
                     ? Tensor::zeros({}, DType::f32, weight_.variable.value().device())
                     : Tensor();
  weight_.amax_version = 0;
}

std::vector<LinearPart> named_parts(const Parameter& weight, std::int64_t rows) {
  constexpr std::string_view kSuffix = ".weight";
  std::vector<LinearPart> parts;
  for (const ParameterPiece& piece : weight.pieces)
    if (piece.row_begin + piece.rows <= rows && piece.hf_name.ends_with(kSuffix))
      parts.push_back({piece.hf_name.substr(0, piece.hf_name.size() - kSuffix.size()), piece.rows});
  return parts;
}

LinearInfo Linear::info(std::string name) const {
  return {std::move(name),
          weight_.global_shape[1],
          weight_.global_shape[0],
          has_bias_,
          weight_.variable.value().device(),
          options_,
          named_parts(weight_, weight_.global_shape[0])};
}

namespace {

// "model.layers.0.self_attn.qkv_proj." -> "model.layers.0.self_attn."
std::string parent_of(const std::string& prefix) {
  return prefix.size() < 2 ? std::string() : prefix.substr(0, prefix.rfind('.', prefix.size() - 2) + 1);
}

}  // namespace

void Linear::name_kernel_pieces(const std::string& prefix) const {
  for (const KernelParameter& own : kernel_->parameters()) {
    if (own.pieces.empty()) continue;
    own.parameter->pieces = own.pieces;
    for (ParameterPiece& piece : own.parameter->pieces) piece.hf_name = parent_of(prefix) + piece.hf_name;
  }
}

void Linear::name_pieces(const std::string& prefix) {
  name_kernel_pieces(prefix);
  if (parts_.empty()) return;
  const std::string parent = parent_of(prefix);
  const auto split = [&](Parameter& parameter, const std::string& suffix) {
    parameter.pieces.clear();
    std::int64_t row = 0;
    for (const LinearPart& part : parts_) {
      parameter.pieces.push_back({parent + part.name + suffix, row, part.rows});
      row += part.rows;
    }
  };
  split(weight_, ".weight");
  if (has_bias_) split(bias_, ".bias");
}

}  // namespace quench::nn
