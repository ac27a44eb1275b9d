#include "train/model_folder/model_card.h"

#include <algorithm>
#include <map>

#include "core/json/json.h"
#include "core/system/file.h"
#include "recipes/convert.h"

namespace quench {
namespace {

constexpr std::string_view kMark = "<!-- written by quench: an export replaces this file -->";
constexpr std::string_view kBaseKey = "base_model: ", kTrainingHead = "## Training\n\n| | |\n|---|---|\n";
constexpr std::string_view kRunExport = "export";  // in a run folder, by default
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

// Layers that are alike have one line.
std::string kept_text(const std::vector<LayerReport>& layers) {
  std::vector<std::pair<std::string, std::string>> kept;
  std::map<std::pair<std::string, std::string>, int> counts;
  for (const LayerReport& row : layers) {
    if (!row.scheme.empty()) continue;
    const std::pair line{recipes::without_index(row.layer), row.kept_because};
    if (++counts[line] == 1) kept.push_back(line);
  }
  std::string text;
  for (const auto& line : kept)
    text += fmt::format("- `{}`{}: {}\n", line.first, counts[line] == 1 ? "" : fmt::format(" ({})", counts[line]),
                        line.second);
  return text.empty() ? "" : "\nLinear layers in high precision:\n\n" + text;
}

bool is_nearest(const QuantizationRules& rules) {
  return rules.quantizer == nullptr || rules.quantizer == &quantizers().front();
}

// Front matter of the Hub. `relation` to the base; empty: unnamed.
std::string metadata(const TrainingFacts& training, std::string_view library, std::string_view relation,
                     const std::vector<std::string>& tags) {
  std::string text = "---\n";
  if (!training.base.empty()) text += fmt::format("{}{}\n", kBaseKey, Json(training.base).dump());
  if (!training.base.empty() && !relation.empty()) text += fmt::format("base_model_relation: {}\n", relation);
  text += fmt::format("library_name: {}\npipeline_tag: text-generation\ntags:\n", library);
  for (const std::string& tag : tags) text += fmt::format("- {}\n", tag);
  return text + "---\n";
}

std::string training_text(const TrainingFacts& training) {
  return training.rows.empty() ? "" : fmt::format("\n{}{}", kTrainingHead, training.rows);
}

}  // namespace

std::string size_text(std::uint64_t bytes) {
  const auto number = static_cast<double>(bytes);
  return bytes >= 1'000'000'000 ? fmt::format("{:.2f} GB", number / 1e9) : fmt::format("{:.2f} MB", number / 1e6);
}

void TrainingFacts::add(std::string_view label, std::string_view text) {
  rows += fmt::format("| {} | {} |\n", label, cell(text));
}

std::string model_name(const std::filesystem::path& path) {
  const std::filesystem::path whole = std::filesystem::absolute(path / "").lexically_normal().parent_path();
  constexpr std::string_view kCached = "models--";
  for (const std::filesystem::path& part : whole) {
    const std::string name = part.string();
    if (const std::size_t end = name.find("--", kCached.size()); name.starts_with(kCached) && end != std::string::npos)
      return name.substr(kCached.size(), end - kCached.size()) + "/" + name.substr(end + 2);
  }
  if (whole.filename() == kRunExport && whole.parent_path().has_filename()) return model_name(whole.parent_path());
  return whole.extension() == ".gguf" ? whole.stem().string() : whole.filename().string();
}

TrainingFacts training_in(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / kModelCardName;
  if (!is_model_card(file)) return {.base = model_name(folder)};
  const std::string text = read_file(file, kMaxCardBytes);
  const auto between = [&](std::string_view begin, std::string_view end) {
    const std::size_t from = text.find(begin);
    if (from == std::string::npos) return std::string();
    const std::size_t first = from + begin.size();
    return text.substr(first, std::min(text.find(end, first), text.size()) - first);
  };
  std::string base = between(kBaseKey, "\n");
  if (base.size() > 1 && base.front() == '"' && base.back() == '"') base = base.substr(1, base.size() - 2);
  const std::string rows = between(kTrainingHead, "\n\n");
  TrainingFacts facts{.base = base};
  if (!rows.empty()) facts.rows = rows.ends_with('\n') ? rows : rows + "\n";
  if (facts.base.empty() && facts.rows.empty()) facts.base = model_name(folder);
  return facts;
}

std::string to_markdown(const ModelCard& card) {
  const bool trains_codes = card.quantization != nullptr && card.training.scheme != nullptr &&
                            card.training.scheme == card.quantization->scheme && is_nearest(*card.quantization);
  const bool gguf = !card.format.weights_file.empty();
  std::string text =
      metadata(card.training, gguf ? "gguf" : "transformers",
               card.training.rows.empty() ? card.quantization != nullptr || !card.kv_cache.empty() ? "quantized" : ""
                                          : "finetune",
               {"quench", std::string(card.format.name)});
  text += fmt::format("{}\n\n# {}\n\n", kMark, card.title);
  text += "| | |\n|---|---|\n";
  text +=
      fmt::format("| Architecture | {}, {} parameters |\n", card.config.architecture, card.config.parameter_count());
  if (!card.source.empty())
    text += fmt::format("| Made of | {} |\n", cell(std::filesystem::path(card.source).filename().string()));
  text += fmt::format("| Format | {} |\n| High precision | {} |\n", card.format.name, to_string(card.dtype));
  if (card.rotated) text += "| Rotation | residual stream and values of each head, folded into the weights |\n";
  if (card.quantization != nullptr) {
    const QuantizationRules& rules = *card.quantization;
    const Quantizer& quantizer = rules.quantizer != nullptr ? *rules.quantizer : quantizers().front();
    text += fmt::format("| Scheme | `{}`: {} |\n", rules.scheme->name, cell(rules.scheme->summary));
    for (const auto& [pattern, scheme] : rules.rules)
      text += fmt::format("| Layers `{}` | {} |\n", cell(pattern), scheme == nullptr ? "high precision" : scheme->name);
    if (trains_codes)
      text += "| Method | quantization-aware training: the values that it simulated |\n";
    else
      text += fmt::format("| Method | `{}`: {} |\n", quantizer.name, cell(quantizer.summary));
    if (rules.calibration != nullptr || !trains_codes)
      text += fmt::format("| Calibration | {} |\n",
                          rules.calibration != nullptr ? cell(rules.calibration->source) : "none");
    if (!rules.imatrix.empty())
      text +=
          fmt::format("| Importance matrix | {} |\n", cell(std::filesystem::path(rules.imatrix).filename().string()));
    text += layers_text(card.layers);
  }
  if (!card.kv_cache.empty()) text += fmt::format("| KV cache | {} |\n", cell(card.kv_cache));
  text += fmt::format("| Weights on disk | {} |\n", size_text(card.weight_bytes));
  if (card.perplexity) {
    text += fmt::format("| Perplexity | {:.4f} a token on {}", *card.perplexity, cell(card.perplexity_data));
    if (card.perplexity_before) text += fmt::format("; {:.4f} before", *card.perplexity_before);
    text += " |\n";
  } else if (card.training.rows.empty()) {
    text += "| Perplexity | not measured |\n";
  }
  return text + training_text(card.training) + kept_text(card.layers);
}

std::string adapter_card(std::string_view title, std::string_view adapters, const TrainingFacts& training) {
  std::string text = metadata(training, "peft", "adapter", {"quench", "lora"});
  text += fmt::format("{}\n\n# {}\n\n| | |\n|---|---|\n| Adapters | {} |\n", kMark, title, cell(adapters));
  return text + training_text(training);
}

bool is_model_card(const std::filesystem::path& file) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(file, error) || std::filesystem::file_size(file, error) > kMaxCardBytes ||
      error)
    return false;
  return read_file(file, kMaxCardBytes).find(kMark) != std::string::npos;
}

}  // namespace quench
