#include "nn/experts/expert_linear.h"

namespace quench::nn {
namespace {

std::int64_t total_rows(const std::vector<LinearPart>& parts) {
  std::int64_t rows = 0;
  for (const LinearPart& part : parts) rows += part.rows;
  return rows;
}

// "model.layers.0.mlp.experts.gate_up_proj." -> "model.layers.0."
std::string layer_prefix(std::string_view prefix) {
  prefix.remove_suffix(1);
  for (int level = 0; level < 3; ++level) {
    const std::size_t dot = prefix.rfind('.');
    prefix = dot == std::string_view::npos ? std::string_view() : prefix.substr(0, dot);
  }
  return prefix.empty() ? std::string() : std::string(prefix) + ".";
}

}  // namespace

ExpertLinear::ExpertLinear(std::int64_t experts, std::int64_t in_features, std::string hf_path, LinearOptions options)
    : experts_(experts),
      hf_path_(std::move(hf_path)),
      parts_(std::move(options.parts)),
      weight_(make_parameter({experts * total_rows(parts_), in_features}, options.parameters, Initializer::normal,
                             options.init_std, experts)),
      has_bias_(options.bias) {
  add_parameter("weight", weight_);
  if (!has_bias_) return;
  bias_ = make_parameter({experts * total_rows(parts_)}, options.parameters, Initializer::zeros, 0.0f, experts);
  add_parameter("bias", bias_);
}

Variable ExpertLinear::forward_and_sum(const Variable& x, const Variable& weights,
                                       const autograd::TokenPermutation& rows) const {
  if (!has_bias_) return kernel_->apply_and_sum(x, weight_, rows);
  return autograd::unpermute_tokens(
      autograd::add_expert_bias(kernel_->apply(x, weight_, rows), bias_.weight(), rows, weights), rows);
}

Variable ExpertLinear::forward_tokens_with_recompute(const Variable& x, const autograd::TokenPermutation& rows) const {
  Variable y = forward_tokens(x, rows);
  if (!y.requires_grad()) return y;
  y.set_recompute(
      std::make_shared<autograd::RecomputeHandle>([this, kernel = kernel_, saved = autograd::Saved(x), rows] {
        const autograd::NoGrad no_grad;
        return with_bias(kernel->apply_to_tokens(Variable(saved.get()), weight_, rows), rows).value();
      }));
  return y;
}

LinearInfo ExpertLinear::info(std::string name) const {
  const std::int64_t rows = weight_.global_shape[0] / experts_;
  return {std::move(name),           weight_.global_shape[1], rows, false, weight_.variable.value().device(), {},
          named_parts(weight_, rows)};
}

void ExpertLinear::set_kernel(std::shared_ptr<const ExpertKernel> kernel) {
  for (const KernelParameter& own : kernel_->parameters()) remove_parameter(*own.parameter);
  kernel_ = std::move(kernel);
  for (const KernelParameter& own : kernel_->parameters()) add_parameter(own.name, *own.parameter);
  if (named()) name_kernel_pieces(path_prefix());
}

void ExpertLinear::name_kernel_pieces(const std::string& prefix) const {
  for (const KernelParameter& own : kernel_->parameters()) {
    own.parameter->pieces = own.pieces;
    for (ParameterPiece& piece : own.parameter->pieces) piece.hf_name = layer_prefix(prefix) + piece.hf_name;
  }
}

void ExpertLinear::name_pieces(const std::string& prefix) {
  name_kernel_pieces(prefix);
  const std::string layer = layer_prefix(prefix);
  const auto split = [&](Parameter& parameter, std::string_view suffix) {
    parameter.pieces.clear();
    std::int64_t row = 0;
    for (std::int64_t expert = 0; expert < experts_; ++expert)
      for (const LinearPart& part : parts_) {
        parameter.pieces.push_back(
            {fmt::format("{}{}.{}.{}{}", layer, hf_path_, expert, part.name, suffix), row, part.rows});
        row += part.rows;
      }
  };
  split(weight_, ".weight");
  if (has_bias_) split(bias_, ".bias");
}

}  // namespace quench::nn
