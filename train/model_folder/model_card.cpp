#include "train/model_folder/model_card.h"

#include "core/json/json.h"
#include "core/system/file.h"

namespace quench {
namespace {

constexpr std::string_view kMark = "<!-- written by quench: an export replaces this file -->";
constexpr std::uint64_t kMaxCardBytes = std::uint64_t{1} << 20;

std::string cell(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '|') out += '\\';
    out += c == '\n' || c == '\r' ? ' ' : c;
  }
  return out;
}

std::string layers_text(const std::vector<LayerReport>& layers) {
  std::uint64_t bytes = 0, dense = 0;
  std::size_t count = 0;
  double worst = 0;
  std::string worst_layer;
  for (const LayerReport& row : layers) {
    bytes += row.bytes;
    dense += row.dense_bytes;
    if (row.scheme.empty()) continue;
    if (count++ == 0 || row.sqnr < worst) {
      worst = row.sqnr;
      worst_layer = row.layer;
    }
  }
  std::string text = fmt::format("| Linear layers | {} of {} quantized, {} of {} |\n", count, layers.size(),
                                 size_text(bytes), size_text(dense));
  return text + fmt::format("| Least signal to noise | {:.1f} dB, {} |\n", worst, cell(worst_layer));
}

std::string kept_text(const std::vector<LayerReport>& layers) {
  std::string text;
  for (const LayerReport& row : layers)
    if (row.scheme.empty()) text += fmt::format("- `{}`: {}\n", row.layer, row.kept_because);
  return text.empty() ? "" : "\nLinear layers in high precision:\n\n" + text;
}

}  // namespace

std::string size_text(std::uint64_t bytes) {
  const auto number = static_cast<double>(bytes);
  return bytes >= 1'000'000'000 ? fmt::format("{:.2f} GB", number / 1e9) : fmt::format("{:.2f} MB", number / 1e6);
}

std::string to_markdown(const ModelCard& card) {
  std::string text = "---\n";
  // no local paths
  if (!card.source.empty() && !std::filesystem::exists(card.source))
    text += "base_model: " + Json(card.source).dump() + "\n";
  text += fmt::format("pipeline_tag: text-generation\ntags:\n- quench\n- {}\n---\n{}\n\n# {}\n\n", card.format.name,
                      kMark, card.title);
  text += "| | |\n|---|---|\n";
  text +=
      fmt::format("| Architecture | {}, {} parameters |\n", card.config.architecture, card.config.parameter_count());
  if (!card.source.empty())
    text += fmt::format("| Made of | {} |\n", cell(std::filesystem::path(card.source).filename().string()));
  text += fmt::format("| Format | {} |\n| High precision | {} |\n", card.format.name, to_string(card.dtype));
  if (card.quantization != nullptr) {
    const QuantizationRules& rules = *card.quantization;
    const Quantizer& quantizer = rules.quantizer != nullptr ? *rules.quantizer : quantizers().front();
    text += fmt::format("| Scheme | `{}`: {} |\n", rules.scheme->name, cell(rules.scheme->summary));
    for (const auto& [pattern, scheme] : rules.rules)
      text += fmt::format("| Layers `{}` | {} |\n", cell(pattern), scheme == nullptr ? "high precision" : scheme->name);
    text += fmt::format("| Method | `{}`: {} |\n", quantizer.name, cell(quantizer.summary));
    text +=
        fmt::format("| Calibration | {} |\n", rules.calibration != nullptr ? cell(rules.calibration->source) : "none");
    text += layers_text(card.layers);
  }
  text += fmt::format("| Weights on disk | {} |\n", size_text(card.weight_bytes));
  if (card.perplexity) {
    text += fmt::format("| Perplexity | {:.4f} a token on {}", *card.perplexity, cell(card.perplexity_data));
    if (card.perplexity_before) text += fmt::format("; {:.4f} before", *card.perplexity_before);
    text += " |\n";
  } else {
    text += "| Perplexity | not measured |\n";
  }
  return text + kept_text(card.layers);
}

bool is_model_card(const std::filesystem::path& file) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(file, error) || std::filesystem::file_size(file, error) > kMaxCardBytes ||
      error)
    return false;
  return read_file(file, kMaxCardBytes).find(kMark) != std::string::npos;
}

}  // namespace quench
