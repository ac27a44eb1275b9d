#include "train/run/export_validation.h"

#include <fmt/format.h>

#include <cmath>

#include "train/config/sections/quantization_section.h"
#include "train/model_folder/model_folder.h"

namespace quench {

// Also for NaN.
bool ExportValidation::is_notable() const {
  return !(kept.loss - trained <= kNotableLossRise);
}

std::string describe(const ExportValidation& validation) {
  const auto& [trained, kept, discarded] = validation;
  return fmt::format("validation loss {:.4f} as trained, {:.4f} as exported by {} (perplexity {:.4f}, {:.4f}){}",
                     trained, kept.loss, kept.method, std::exp(trained), std::exp(kept.loss),
                     discarded ? fmt::format("; {:.4f} by {}", discarded->loss, discarded->method) : "");
}

EvaluationMetrics validate_export(const std::filesystem::path& folder, Device device,
                                  std::shared_ptr<const Dataset> data, const ValidationOptions& options) {
  const nn::ModelConfig config = read_model_config(folder);
  nn::ParameterOptions parameters;
  parameters.device = device;
  parameters.dtype = config.dtype == DType::f16 ? DType::f32 : config.dtype;
  parameters.trainable = false;
  parameters.deferred = true;
  nn::CausalLm model(config, parameters);
  load_weights(model, folder, true);
  return validate(model, std::move(data), options);
}

}  // namespace quench
