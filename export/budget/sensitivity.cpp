#include "export/budget/sensitivity.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <numeric>

#include "core/number/random.h"
#include "core/ops/elementwise.h"
#include "core/ops/gemm.h"
#include "export/imatrix/importance.h"
#include "nn/experts/expert_linear.h"
#include "nn/modules/linear.h"

namespace quench {
namespace {

using autograd::Tape;
using autograd::Variable;

constexpr std::int64_t kMostTokens = 16384;

Tensor host_values(const Tensor& values) {
  const Tensor host = values.to(Device{}), out = Tensor::empty(values.shape(), DType::f32);
  cast({host, out});
  return out;
}

// Column sums of squares of rows [first, first + count).
void add_squares(const Tensor& values, std::int64_t first, std::int64_t count, std::vector<double>& sums,
                 std::string_view layer) {
  const std::int64_t columns = values.size(1);
  sums.resize(static_cast<std::size_t>(columns));
  const float* x = values.data<float>() + first * columns;
  for (std::int64_t row = 0; row < count; ++row)
    for (std::int64_t c = 0; c < columns; ++c) {
      const double value = x[row * columns + c];
      sums[static_cast<std::size_t>(c)] += value * value;
    }
  QUENCH_CHECK_AS(ErrorCode::nonfinite, std::ranges::all_of(sums, [](double sum) { return std::isfinite(sum); }),
                  "{}: the calibration data lead to NaN or infinite inputs or gradients", layer);
}

// Weight gradient of tokens [first, first + count).
void add_gradient(const Tensor& x, const Tensor& gradient, std::int64_t first, std::int64_t count,
                  Sensitivity::Sums& sums, std::string_view layer) {
  const MemoryScope scope(MemoryCategory::workspace);
  const Tensor dw = Tensor::empty({gradient.size(1), x.size(1)}, DType::f32, x.device());
  gemm({.a = gradient.narrow(0, first, count), .b = x.narrow(0, first, count), .c = dw, .transpose_a = true});
  const Tensor host = dw.to(Device{});
  const std::int64_t rows = host.size(0), columns = host.size(1);
  sums.rows.resize(static_cast<std::size_t>(rows));
  for (std::int64_t row = 0; row < rows; ++row) {
    double sum = 0;
    for (std::int64_t c = 0; c < columns; ++c) {
      const double value = host.data<float>()[row * columns + c];
      sum += value * value;
    }
    sums.rows[static_cast<std::size_t>(row)] += sum;
  }
  add_squares(host, 0, rows, sums.columns, layer);
}

// `y` as a variable whose gradient `read` sees before the layer's backward function.
Variable observed(const Variable& y, const std::function<void(const Tensor& gradient)>& read) {
  Variable seen(y.value());
  const bool recorded = Tape::record("observed layer", {y}, std::array{&seen}, [&] {
    return [read, dy = y.gradient(), dy_of = seen.gradient()] {
      read(dy_of->value());
      dy->contribute(dy_of->fused());
    };
  });
  return recorded ? seen : y;
}

class LinearSums final : public nn::LinearObserver {
 public:
  LinearSums(std::string name, Sensitivity::Sums& sums)
      : LinearObserver(nn::high_precision_linear_kernel()), name_(std::move(name)), sums_(sums) {}

 private:
  [[nodiscard]] Variable observe(const Variable& x, const nn::Parameter& weight,
                                 const nn::Weight& bias) const override {
    add_squares(host_values(x.value()), 0, x.value().size(0), sums_.inputs, name_);
    sums_.tokens += x.value().size(0);
    return observed(wrapped().apply(x, weight, bias),
                    [&sums = sums_, name = name_, inputs = x.value()](const Tensor& gradient) {
                      add_gradient(inputs, gradient, 0, inputs.size(0), sums, name);
                    });
  }

  std::string name_;
  Sensitivity::Sums& sums_;
};

class ExpertSums final : public nn::ExpertKernel {
 public:
  ExpertSums(std::string name, std::vector<Sensitivity::Sums>& sums) : name_(std::move(name)), sums_(sums) {}
  [[nodiscard]] Variable apply(const Variable& x, const nn::Parameter& weight,
                               const autograd::TokenPermutation& rows) const override {
    // First row and count of each expert, without padding.
    const Tensor ends = rows.ends.to(Device{}), counts = rows.counts.to(Device{});
    std::vector<std::pair<std::int64_t, std::int64_t>> parts;
    std::int64_t begin = 0;
    for (std::size_t e = 0; e < sums_.size(); ++e) {
      const auto at = static_cast<std::int64_t>(e);
      parts.emplace_back(begin, static_cast<std::int64_t>(counts.data<float>()[at]));
      begin = ends.data<std::int32_t>()[at];
    }
    const Tensor host = host_values(x.value());
    for (std::size_t e = 0; e < parts.size(); ++e) {
      if (parts[e].second > 0) add_squares(host, parts[e].first, parts[e].second, sums_[e].inputs, name_);
      sums_[e].tokens += parts[e].second;
    }
    return observed(nn::high_precision_expert_kernel()->apply(x, weight, rows),
                    [&sums = sums_, name = name_, parts, inputs = x.value()](const Tensor& gradient) {
                      for (std::size_t e = 0; e < parts.size(); ++e)
                        if (parts[e].second > 0)
                          add_gradient(inputs, gradient, parts[e].first, parts[e].second, sums[e], name);
                    });
  }
  [[nodiscard]] std::string_view name() const override { return "observed"; }

 private:
  std::string name_;
  std::vector<Sensitivity::Sums>& sums_;
};

// Layers of the model in high precision; `observe`: with sums.
void set_kernels(nn::CausalLm& model, std::map<const nn::Parameter*, std::vector<Sensitivity::Sums>>* sums) {
  model.visit([&](const std::string& name, nn::Module& module) {
    if (auto* linear = dynamic_cast<nn::Linear*>(&module)) {
      if (sums == nullptr) return linear->set_kernel(nn::high_precision_linear_kernel());
      auto& own = (*sums)[&linear->weight()];
      own.resize(1);
      linear->set_kernel(std::make_shared<LinearSums>(name, own.front()));
    }
    if (auto* experts = dynamic_cast<nn::ExpertLinear*>(&module)) {
      if (sums == nullptr) return experts->set_kernel(nn::high_precision_expert_kernel());
      auto& own = (*sums)[&experts->weight()];
      own.resize(static_cast<std::size_t>(experts->experts()));
      experts->set_kernel(std::make_shared<ExpertSums>(name, own));
    }
  });
}

struct Observation {
  nn::CausalLm& model;
  Observation(nn::CausalLm& of, std::map<const nn::Parameter*, std::vector<Sensitivity::Sums>>& sums) : model(of) {
    set_kernels(model, &sums);
  }
  ~Observation() { set_kernels(model, nullptr); }
  Observation(const Observation&) = delete;
  Observation& operator=(const Observation&) = delete;
};

std::vector<double> scaled(std::span<const double> values, double factor) {
  std::vector<double> result(values.begin(), values.end());
  for (double& value : result) value *= factor;
  return result;
}

}  // namespace

Sensitivity::Sensitivity(nn::CausalLm& model, const CalibrationData& data) {
  tied_ = model.config().tie_word_embeddings;
  const Observation observation(model, linear_);
  for (const std::vector<std::int32_t>& sequence : data.sequences) {
    const auto length = static_cast<std::int64_t>(sequence.size());
    if (sequences_ > 0 && tokens_ + length > kMostTokens) break;
    run(model, sequence, sequences_++);
    tokens_ += length;
  }
}

Tensor Sensitivity::draw_labels(const Tensor& logits, std::uint64_t number) {
  const std::int64_t rows = logits.size(0), vocabulary = logits.size(1);
  head_.rows.resize(static_cast<std::size_t>(vocabulary));
  const Tensor labels = Tensor::empty({rows}, DType::i32);
  std::vector<double> p(static_cast<std::size_t>(vocabulary));
  for (std::int64_t row = 0; row < rows; ++row) {
    const float* x = logits.data<float>() + row * vocabulary;
    const float most = *std::max_element(x, x + vocabulary);
    double sum = 0;
    for (std::int64_t v = 0; v < vocabulary; ++v)
      sum += p[static_cast<std::size_t>(v)] = static_cast<double>(std::exp(x[v] - most));
    QUENCH_CHECK_AS(ErrorCode::nonfinite, std::isfinite(sum), "lm_head: the calibration data lead to NaN logits");
    const double drawn = sum * static_cast<double>(to_uniform(
                                   random_word({number, hash64("sensitivity"), 0}, static_cast<std::uint64_t>(row))));
    double below = 0;
    std::int64_t label = -1;
    for (std::int64_t v = 0; v < vocabulary; ++v) {
      const double share = p[static_cast<std::size_t>(v)] / sum;
      head_.rows[static_cast<std::size_t>(v)] += share * (1 - share);
      below += p[static_cast<std::size_t>(v)];
      if (label < 0 && (below > drawn || v + 1 == vocabulary)) label = v;
    }
    labels.data<std::int32_t>()[row] = static_cast<std::int32_t>(label);
  }
  return labels;
}

void Sensitivity::run(nn::CausalLm& model, const std::vector<std::int32_t>& sequence, std::uint64_t number) {
  const auto tokens = static_cast<std::int64_t>(sequence.size());
  const MemoryScope scope(MemoryCategory::activations);
  std::vector<const nn::DecoderLayer*> layers;
  const nn::RmsNorm* norm = nullptr;
  model.visit([&](const std::string& name, nn::Module& module) {
    if (auto* layer = dynamic_cast<nn::DecoderLayer*>(&module);
        layer != nullptr && std::ssize(layers) < model.config().num_hidden_layers)
      layers.push_back(layer);
    if (auto* found = dynamic_cast<nn::RmsNorm*>(&module); found != nullptr && name == "model.norm") norm = found;
  });
  const nn::Parameter* table = nullptr;
  for (const nn::Parameter* parameter : model.parameters()) {
    if (parameter->name == "model.embed_tokens.weight") table = parameter;
    if (parameter->name == std::string(nn::kHeadName) + ".weight") head_weight_ = parameter;
  }
  QUENCH_CHECK(table != nullptr && norm != nullptr, "Sensitivity: the model has no embedding or no final norm");
  const Device device = model.options().device;
  const nn::ForwardContext context = model.make_context({{0, tokens, 0, tokens}}, tokens);
  const Tensor ids = Tensor::from_values<std::int32_t>({tokens}, sequence).to(device);
  const Variable looked_up = autograd::embedding(table->weight(), ids);
  // A leaf, so that gradients reach every layer though no weight has one.
  const Variable rows = Variable::leaf(looked_up.value());
  Tape tape;
  Variable loss;
  {
    const autograd::TapeScope recording(tape);
    Variable residual = model.scaled_embedding(rows), delta;
    for (const nn::DecoderLayer* layer : layers) std::tie(residual, delta) = layer->forward(residual, delta, context);
    const Variable hidden = delta.defined()
                                ? autograd::add_rms_norm(residual, delta, norm->weight(), norm->form()).second
                                : autograd::rms_norm(residual, norm->weight(), norm->form());
    add_squares(host_values(hidden.value()), 0, tokens, head_.inputs, "model.norm");
    loss = model.head_loss(hidden, draw_labels(model.logits(hidden).to(Device{}), number).to(device), 1.0f);
  }
  tape.backward(loss);
  add_squares(host_values(rows.grad()), 0, tokens, table_.columns, "model.embed_tokens");
}

const Sensitivity::Sums* Sensitivity::sums_of(const ModelTensor& tensor) const {
  const auto found = linear_.find(tensor.parameter);
  if (tensor.embedding || found == linear_.end()) return nullptr;
  const Sums& sums = found->second.at(static_cast<std::size_t>(matrix_of(tensor)));
  return sums.tokens == 0 || sums.rows.empty() ? nullptr : &sums;
}

std::vector<float> Sensitivity::inputs(const ModelTensor& tensor) const {
  const Sums* sums = sums_of(tensor);
  if (sums == nullptr) return {};
  std::vector<float> means;
  for (const double sum : sums->inputs) means.push_back(static_cast<float>(sum / static_cast<double>(sums->tokens)));
  return means;
}

std::vector<ErrorWeights> Sensitivity::of(const ModelTensor& tensor) const {
  const double each = 0.5 / static_cast<double>(tokens_);
  const ErrorWeights as_head{head_.rows, scaled(head_.inputs, each / static_cast<double>(tokens_))};
  if (tensor.embedding) {
    const auto rows = static_cast<std::size_t>(tensor.shape[0]);
    std::vector<ErrorWeights> weights{
        {std::vector<double>(rows, 1.0 / static_cast<double>(rows)), scaled(table_.columns, each)}};
    if (tied_) weights.push_back(as_head);
    return weights;
  }
  if (tensor.parameter == head_weight_) return {as_head};
  const Sums* sums = sums_of(tensor);
  if (sums == nullptr) return {};
  const double total = std::accumulate(sums->rows.begin(), sums->rows.end(), 0.0);
  if (total == 0) return {};
  const std::int64_t rows = std::ssize(sums->rows), first = tensor.piece->row_begin - matrix_of(tensor) * rows;
  QUENCH_CHECK(first >= 0 && first + tensor.shape[0] <= rows, "{}: rows outside of its weight", tensor.name);
  const auto own =
      std::span(sums->rows).subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(tensor.shape[0]));
  return {{scaled(own, 1.0), scaled(sums->columns, each / total)}};
}

}  // namespace quench
