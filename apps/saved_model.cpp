#include "apps/saved_model.h"

#include <algorithm>
#include <cstdio>

#include "apps/common.h"
#include "train/model_folder/model_card.h"

namespace quench {
namespace {

void print_adapters(const SavedModel& saved, bool json) {
  if (!json) {
    std::printf("wrote %s (%zu adapted layers)\n", saved.path.c_str(), saved.adapted_layers);
    return;
  }
  print_json(Json(Json::Object{{"output", saved.path.string()},
                               {"format", saved.format},
                               {"adapted_layers", static_cast<std::int64_t>(saved.adapted_layers)}}));
}

}  // namespace

void print_saved_model(const SavedModel& saved, bool as_json) {
  if (saved.format == kPeftFormat) return print_adapters(saved, as_json);
  const ModelFolderReport& report = saved.report;
  if (as_json) {
    Json json = Json::object();
    json.set("output", saved.path.string());
    json.set("format", saved.format);
    json.set("dtype", to_string(saved.dtype));
    json.set("parameters", saved.parameters);
    json.set("scheme", saved.scheme.empty() ? Json() : Json(saved.scheme));
    if (saved.unfit) json.set("unfit", to_json(*saved.unfit));
    json.set("layers", to_json(report.layers));
    json.set("file_bytes", report.file_bytes);
    if (report.perplexity_before) json.set("perplexity_before", *report.perplexity_before);
    if (report.perplexity) json.set("perplexity", *report.perplexity);
    return print_json(json);
  }
  if (!report.layers.empty()) std::fputs(to_text(report.layers).c_str(), stdout);
  if (report.perplexity) {
    const std::string before =
        report.perplexity_before ? fmt::format(" (before quantization {:.4f})", *report.perplexity_before) : "";
    std::printf("perplexity %.4f%s\n", *report.perplexity, before.c_str());
  }
  const std::string how = saved.scheme.empty() ? "" : fmt::format(", {} as {}", saved.scheme, saved.format);
  std::fputs(fmt::format("wrote {} ({}{}, {} parameters, {})\n", saved.path.string(), to_string(saved.dtype), how,
                         saved.parameters, size_text(report.file_bytes))
                 .c_str(),
             stdout);
}

std::string option_of(std::string_view member) {
  std::string name(member == "rules" ? "rule" : member);
  std::ranges::replace(name, '_', '-');
  return "--" + name;
}

}  // namespace quench
