#include "export/methods/method_table.h"

#include <algorithm>
#include <array>

#include "export/methods/awq.h"
#include "export/methods/hqq.h"
#include "export/methods/rtn.h"
#include "export/methods/smoothquant.h"
#include "export/methods/tuned_weight.h"

namespace quench {
namespace {

std::string no_problem(const Scheme&) {
  return {};
}
std::string hqq_scheme_problem(const Scheme& scheme) {
  return hqq_problem(scheme.weights);
}
std::string gptq_scheme_problem(const Scheme& scheme) {
  return gptq_problem(scheme.weights);
}
std::string search_scheme_problem(const Scheme& scheme) {
  return grid_problem(scheme.weights, "scale search");
}
std::string autoround_scheme_problem(const Scheme& scheme) {
  return autoround_problem(scheme.weights);
}
std::string smoothing_problem(const Scheme& scheme) {
  return scheme.inputs ? "" : "SmoothQuant is for schemes with quantized inputs";
}
std::string smoothing_gptq_problem(const Scheme& scheme) {
  const std::string problem = smoothing_problem(scheme);
  return problem.empty() ? gptq_scheme_problem(scheme) : problem;
}

QuantizedWeight quantize_rtn(const WeightJob& job) {
  return rtn(job.weight, job.scheme, job.name, job.scale_dtype, job.shared_amax, job.importance, job.device);
}
QuantizedWeight quantize_awq(const WeightJob& job) {
  return awq_weight(job.weight, job.scheme, job.name, job.scale_dtype, job.shared_amax, job.inputs);
}
QuantizedWeight quantize_hqq(const WeightJob& job) {
  return hqq(job.weight, job.scheme, job.name, job.scale_dtype);
}
QuantizedWeight quantize_searched(const WeightJob& job) {
  return TunedWeight(job.weight, job.scheme, job.name, job.scale_dtype, job.shared_amax,
                     job.inputs != nullptr && job.inputs->rows() > 0 ? importance_of(*job.inputs) : Tensor())
      .quantized();
}
QuantizedWeight quantize_gptq(const WeightJob& job) {
  QUENCH_CHECK(job.inputs != nullptr, "gptq: {} without statistics", job.name);
  return gptq(job.weight, job.scheme, job.name, job.scale_dtype, *job.inputs,
              {.damping = job.options.damping,
               .activation_order = job.options.activation_order,
               .shared_amax = job.shared_amax});
}

constexpr std::string_view kGptqOptions[] = {kDampingOption, kActivationOrderOption};
constexpr std::string_view kAutoRoundOptions[] = {kIterationsOption, kBatchSizeOption};
constexpr std::string_view kSmoothOptions[] = {kSmoothingOption};
constexpr std::string_view kSmoothGptqOptions[] = {kSmoothingOption, kDampingOption, kActivationOrderOption};

constexpr std::array kQuantizers = {
    Quantizer{"rtn", "round to nearest, scales from the amax", no_problem, quantize_rtn},
    Quantizer{"mse", "round to nearest, scales of least squared error; no data", search_scheme_problem,
              quantize_searched},
    Quantizer{"hqq", "half-quadratic optimization of scales and zero points; integers only, no data",
              hqq_scheme_problem, quantize_hqq},
    Quantizer{.name = "gptq",
              .summary = "second-order error compensation, column by column; calibrated",
              .problem = gptq_scheme_problem,
              .quantize = quantize_gptq,
              .calibrated = true,
              .options = kGptqOptions},
    Quantizer{.name = "autoround",
              .summary = "rounding and scales tuned by signed gradients against the outputs of each decoder layer; "
                         "calibrated",
              .problem = autoround_scheme_problem,
              .quantize = quantize_searched,
              .calibrated = true,
              .tunes_blocks = true,
              .options = kAutoRoundOptions},
    Quantizer{.name = "awq",
              .summary = "activation-aware channel scales; calibrated",
              .problem = no_problem,
              .quantize = quantize_awq,
              .scales = awq_scales,
              .scales_linear_outputs = true,
              .calibrated = true},
    Quantizer{.name = "smoothquant",
              .summary = "channel scales that move activation outliers into the weights, for schemes with quantized "
                         "inputs; calibrated",
              .problem = smoothing_problem,
              .quantize = quantize_rtn,
              .scales = smoothquant_scales,
              .calibrated = true,
              .options = kSmoothOptions},
    Quantizer{.name = "smoothquant_gptq",
              .summary = "smoothquant, then gptq",
              .problem = smoothing_gptq_problem,
              .quantize = quantize_gptq,
              .scales = smoothquant_scales,
              .calibrated = true,
              .options = kSmoothGptqOptions},
};

}  // namespace

std::span<const Quantizer> quantizers() {
  return kQuantizers;
}

std::vector<std::string> quantizer_names() {
  std::vector<std::string> names;
  for (const Quantizer& quantizer : kQuantizers) names.emplace_back(quantizer.name);
  return names;
}

const Quantizer& require_quantizer(std::string_view name, std::string_view key) {
  for (const Quantizer& quantizer : kQuantizers)
    if (quantizer.name == name) return quantizer;
  QUENCH_FAIL(ErrorCode::bad_config, "{} '{}' is unknown; known: {}", key, name, fmt::join(quantizer_names(), ", "));
}

void require_method_option(const Quantizer& quantizer, std::string_view option, std::string_view key) {
  if (std::ranges::find(quantizer.options, option) != quantizer.options.end()) return;
  std::string methods;
  for (const Quantizer& other : kQuantizers)
    if (std::ranges::find(other.options, option) != other.options.end())
      methods += fmt::format("{}{}", methods.empty() ? "" : ", ", other.name);
  QUENCH_FAIL(ErrorCode::bad_config, "{} has no effect on method {}; it acts on: {}", key, quantizer.name, methods);
}

}  // namespace quench
