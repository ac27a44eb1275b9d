#include "train/report/report_facts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/json/json_member.h"
#include "core/system/check.h"
#include "core/system/utf8.h"
#include "nn/spec/model_config.h"
#include "train/config/adapter_words.h"
#include "train/config/presets.h"
#include "train/config/recipe_choice.h"
#include "train/metrics/step_metrics.h"

namespace quench {
namespace {

constexpr std::size_t kMaxFactBytes = 200;

std::string text_at(const Json& object, std::initializer_list<std::string_view> path) {
  const Json* value = find_member(object, path);
  if (value == nullptr || value->is_object() || value->is_array()) return "";
  return shorten_utf8(value->is_string() ? value->as_string() : value->dump(), kMaxFactBytes);
}

// In the run folder, else by the config alone.
Json model_fields(const RunData& run) {
  if (run.model.is_object()) return run.model;
  const Json* section = find_member(run.config, {"model"});
  if (section == nullptr || !section->is_object() || !text_at(*section, {"path"}).empty()) return {};
  ModelSection model{.preset = text_at(*section, {"preset"})};
  for (const auto& [key, value] : section->as_object())
    if (key != "preset" && key != "path" && key != "init") model.fields.set(key, value);
  return model_config(model);
}

std::string join(const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& part : parts)
    if (!part.empty()) text += (text.empty() ? "" : ", ") + part;
  return text;
}

std::string model_fact(const RunData& run) {
  std::string name = text_at(run.config, {"model", "preset"});
  if (name.empty()) name = text_at(run.config, {"model", "path"});
  try {
    const Json fields = model_fields(run);
    if (fields.is_object()) {
      const nn::ModelConfig m = nn::parse_model_config(fields, "config.json");
      return join({name, m.architecture, format_count(m.parameter_count()) + " parameters",
                   fmt::format("{} layers of width {}", m.num_hidden_layers, m.hidden_size)});
    }
  } catch (const Error&) {
    // Arbitrary content: the name.
  }
  return name;
}

std::string precision_fact(const RunData& run) {
  std::string recipe = text_at(run.config, {"recipe", "name"});
  if (const std::string chosen = text_at(run.recipe, {"name"}); recipe == "auto" && !chosen.empty())
    recipe = "auto, which is " + chosen;
  if (text_at(run.config, {"recipe", "emulate"}) == "true") recipe += " (emulated)";
  const std::string dtype = text_at(run.config, {"training", "dtype"});
  const std::string master = text_at(run.config, {"training", "master_dtype"});
  const bool split = text_at(run.config, {"training", "master_split"}) == "true";
  const std::string shown = shown_recipe(recipe, dtype);
  return join({recipe.empty()    ? ""
               : shown == recipe ? "recipe " + recipe
                                 : shown,
               dtype.empty() ? "" : "parameters " + dtype,
               dtype == "bf16" && !master.empty() ? "master weights " + master + (split ? ", split" : "") : ""});
}

// "nf4 base + lora r16, alpha 32"; or empty.
std::string adapters_fact(const RunData& run) {
  const std::string rank = text_at(run.config, {"lora", "rank"});
  if (rank.empty()) return {};
  const std::string alpha = text_at(run.config, {"lora", "alpha"});
  return join(
      {adapter_words(text_at(run.config, {"lora", "base"}), rank, text_at(run.config, {"lora", "dora"}) == "true"),
       alpha.empty() ? "" : "alpha " + alpha});
}

// QAT bits, export scheme.
std::string quantization_fact(const RunData& run) {
  std::vector<std::string> parts;
  const std::string bits = text_at(run.config, {"recipe", "weight_bits"});
  const std::string group = text_at(run.config, {"recipe", "group_size"});
  if (text_at(run.config, {"recipe", "name"}).starts_with("qat"))
    parts.push_back(fmt::format("trained for {}{}{}", text_at(run.config, {"recipe", "name"}),
                                bits.empty() ? "" : fmt::format(", {} bits", bits),
                                group.empty() ? "" : fmt::format(", groups of {}", group)));
  const std::string scheme = text_at(run.config, {"export", "scheme"});
  if (!scheme.empty())
    parts.push_back(fmt::format("exported as {} ({})", scheme, text_at(run.config, {"export", "format"})));
  return join(parts);
}

std::string hardware_fact(const RunData& run) {
  std::string device = text_at(run.environment, {"device_name"});
  const double devices = maximum(run.curve("devices"));
  if (devices > 1 && devices < 1e6 && !device.empty()) device = fmt::format("{:.0f} x {}", devices, device);
  const std::string threads = text_at(run.environment, {"threads"}), host = text_at(run.environment, {"host"});
  return join({device, threads.empty() ? "" : threads + " threads", host.empty() ? "" : "on " + host});
}

// The others wait for it.
std::string ranks_fact(const RunData& run) {
  double sum = 0, slowest = 0;
  int count = 0, which = 0;
  for (; !run.curve(fmt::format("rank_ms.{}", count)).empty(); ++count) {
    const double ms = median(run.curve(fmt::format("rank_ms.{}", count)));
    sum += ms;
    if (ms > slowest) which = count;
    slowest = std::max(slowest, ms);
  }
  if (count < 2 || !std::isfinite(sum)) return {};
  return fmt::format("{}; rank {} computes longest, {:.1f} ms a step, {:.1f} in the mean", count, which, slowest,
                     sum / count);
}

std::string version_fact(const RunData& run) {
  std::vector<std::string> parts;
  for (const char* key : {"quench", "commit", "compiler", "cuda", "driver", "cublas", "cudnn", "onednn"}) {
    const std::string value = text_at(run.environment, {key});
    if (!value.empty()) parts.push_back(std::string_view(key) == "compiler" ? value : fmt::format("{} {}", key, value));
  }
  return join(parts);
}

}  // namespace

std::vector<std::pair<std::string, std::string>> run_facts(const RunData& run) {
  std::vector<std::pair<std::string, std::string>> facts{
      {"Model", model_fact(run)},       {"Precision", precision_fact(run)},
      {"Adapters", adapters_fact(run)}, {"Quantization", quantization_fact(run)},
      {"Hardware", hardware_fact(run)}, {"Ranks", ranks_fact(run)},
      {"Versions", version_fact(run)}};
  std::erase_if(facts, [](const auto& fact) { return fact.second.empty(); });
  return facts;
}

}  // namespace quench
