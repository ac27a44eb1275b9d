#include "export/table/unfit_scheme.h"

#include <algorithm>

namespace quench {
namespace {

bool suits_all(const Scheme& scheme, const std::vector<LayerFit>& layers, const Scheme& instead_of) {
  return std::ranges::all_of(layers, [&](const LayerFit& layer) {
    return layer.scheme != &instead_of ||
           shape_problem(scheme.weights, layer.shape[0], layer.shape[1], scheme.inputs).empty();
  });
}

bool is_run(const Scheme& scheme, const ExportFormat& format, const FolderReader* named) {
  return std::ranges::any_of(folder_readers(), [&](const FolderReader& reader) {
    return (named == nullptr || named == &reader) && reader.reads(format) &&
           reader_verdict(reader, format, {.scheme = &scheme}).result == ReaderResult::runs;
  });
}

}  // namespace

std::optional<UnfitScheme> unfit_scheme(const ExportFormat& format, const std::vector<ModelTensor>& tensors,
                                        const QuantizationRules& rules, const FolderReader* reader) {
  const std::vector<LayerFit> layers = layer_fits(tensors, rules);
  const auto first = std::ranges::find_if(layers, [](const LayerFit& layer) { return !layer.problem.empty(); });
  if (first == layers.end()) return std::nullopt;
  UnfitScheme unfit{.scheme = first->scheme, .problem = first->problem};
  for (const LayerFit& layer : layers) {
    const bool kept = layer.scheme == unfit.scheme && !layer.problem.empty();
    ++unfit.all;
    unfit.layers += kept ? 1 : 0;
    unfit.all_bytes += layer.bytes;
    unfit.bytes += kept ? layer.bytes : 0;
  }
  int least = 0;
  for (const Scheme& scheme : scheme_table()) {
    const bool usable = format.problem(scheme).empty() &&
                        (rules.quantizer == nullptr || rules.quantizer->problem(scheme).empty()) &&
                        suits_all(scheme, layers, *unfit.scheme) && is_run(scheme, format, reader);
    const int distance = scheme_distance(*unfit.scheme, scheme);
    if (!usable || (unfit.fits != nullptr && distance >= least)) continue;
    least = distance;
    unfit.fits = &scheme;
  }
  return unfit;
}

std::string to_text(const UnfitScheme& unfit) {
  const auto megabytes = [](std::uint64_t bytes) { return static_cast<double>(bytes) / 1e6; };
  return fmt::format("scheme {} suits {} of {} linear layers ({}): {:.1f} of {:.1f} MB stay in high precision{}",
                     unfit.scheme->name, unfit.all - unfit.layers, unfit.all, unfit.problem, megabytes(unfit.bytes),
                     megabytes(unfit.all_bytes),
                     unfit.fits == nullptr ? "" : fmt::format("; {} suits all", unfit.fits->name));
}

Json to_json(const UnfitScheme& unfit) {
  Json json = Json::object();
  json.set("scheme", unfit.scheme->name);
  json.set("problem", unfit.problem);
  json.set("layers", static_cast<std::int64_t>(unfit.layers));
  json.set("of_layers", static_cast<std::int64_t>(unfit.all));
  json.set("bytes", unfit.bytes);
  json.set("of_bytes", unfit.all_bytes);
  json.set("suitable_scheme", unfit.fits == nullptr ? Json() : Json(unfit.fits->name));
  return json;
}

}  // namespace quench
