#include "export/table/fused_layers.h"

#include <map>

namespace quench {
namespace {

std::string scheme_text(const Scheme* scheme) {
  return scheme == nullptr ? "no scheme" : "scheme " + scheme->name;
}

// Name of the first layer whose parts differ; "": none.
std::string mixed_layer(const std::vector<ModelTensor>& tensors, const QuantizationRules& rules) {
  std::map<std::string, const ModelTensor*> by_layer;
  for (const ModelTensor& tensor : tensors) by_layer.try_emplace(tensor.layer, &tensor);
  std::map<std::string, std::pair<std::string, const Scheme*>> first;  // by fused_layer()
  for (const auto& [layer, scheme] : chosen_schemes(tensors, rules)) {
    const auto& [other, expected] = first.try_emplace(fused_layer(*by_layer.at(layer)), layer, scheme).first->second;
    if (scheme != expected)
      return fmt::format("{} has {}, {} {}", other, scheme_text(expected), layer, scheme_text(scheme));
  }
  return {};
}

}  // namespace

std::string fused_layer(const ModelTensor& tensor) {
  constexpr std::string_view kExperts = ".experts.";
  if (tensor.parameter->experts > 0)
    if (const std::size_t at = tensor.layer.find(kExperts); at != std::string::npos) return tensor.layer.substr(0, at);
  return tensor.parameter->name;
}

std::vector<std::string> check_fused_layers(const ExportFormat& format, const std::vector<ModelTensor>& tensors,
                                            const QuantizationRules& rules, const FolderReader* named) {
  std::vector<std::string> warnings;
  if (!format.quantized || (named != nullptr && !named->fuses_layers)) return warnings;
  const std::string mixed = mixed_layer(tensors, rules);
  if (mixed.empty()) return warnings;
  for (const FolderReader& reader : folder_readers()) {
    if (!reader.fuses_layers || !reader.reads(format) || (named != nullptr && named != &reader)) continue;
    warnings.push_back(
        fmt::format("{}: {} {} runs them as one layer and does not load it under different schemes; choose one scheme "
                    "(or none) for both",
                    mixed, reader.title, reader.release));
  }
  QUENCH_CHECK_AS(ErrorCode::bad_config, named == nullptr || warnings.empty(), "{}", fmt::join(warnings, "; "));
  return warnings;
}

}  // namespace quench
