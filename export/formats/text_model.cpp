#include "export/formats/text_model.h"

#include <algorithm>
#include <map>
#include <utility>

#include "core/json/json_member.h"
#include "export/formats/renamed_weights.h"
#include "nn/spec/model_family.h"

namespace quench {
namespace {

// Published checkpoints, and modules of Transformers from version 4.52 on: "language_model.model.norm.weight",
// "model.language_model.norm.weight"; the head under the first prefix, or bare.
constexpr std::string_view kTextPrefix = "language_model.", kModulePrefix = "model.language_model.";
constexpr std::string_view kWholePrefix = "model.", kHeadPrefix = "lm_head.";
constexpr std::string_view kTied = "tie_word_embeddings";

// Family of the text part of a multimodal class; null: not one.
const nn::ModelFamily* text_family_of(const Json& config) {
  const Json* classes = find_member(config, {"architectures"});
  if (classes == nullptr || !classes->is_array() || classes->as_array().empty()) return nullptr;
  const Json& name = classes->as_array().front();
  const auto families = nn::model_families();
  const auto found = std::ranges::find_if(families, [&](const nn::ModelFamily& family) {
    return !family.multimodal_architecture.empty() && name == Json(family.multimodal_architecture);
  });
  return found == families.end() ? nullptr : &*found;
}

class TextWeights final : public RenamedWeights {
 public:
  explicit TextWeights(std::unique_ptr<StoredWeights> weights) : RenamedWeights(std::move(weights)) {
    const std::vector<std::string> all = weights_->names();
    const auto any = [&](std::string_view prefix) {
      return std::ranges::any_of(all, [&](const std::string& name) { return name.starts_with(prefix); });
    };
    modules_ = any(kModulePrefix);
    const bool text = modules_ || any(kTextPrefix);
    bare_head_ = text && any(kHeadPrefix);
    for (const std::string& name : all) {
      if (modules_ && name.starts_with(kModulePrefix))
        names_.push_back(fmt::format("{}{}", kWholePrefix, name.substr(kModulePrefix.size())));
      else if (name.starts_with(kTextPrefix))
        names_.push_back(name.substr(kTextPrefix.size()));
      else if (bare_head_ && name.starts_with(kHeadPrefix))
        names_.push_back(name);
      else
        left_out_.push_back(name);
    }
  }

  [[nodiscard]] bool has_text() const { return !names_.empty(); }
  [[nodiscard]] std::unique_ptr<StoredWeights> release() { return std::move(weights_); }

  [[nodiscard]] std::vector<std::string> names() const override { return names_; }
  [[nodiscard]] std::vector<std::string> left_out() const override { return left_out_; }

 private:
  [[nodiscard]] std::string stored(std::string_view name) const override {
    if (bare_head_ && name.starts_with(kHeadPrefix)) return std::string(name);
    if (modules_ && name.starts_with(kWholePrefix))
      return fmt::format("{}{}", kModulePrefix, name.substr(kWholePrefix.size()));
    return fmt::format("{}{}", kTextPrefix, name);
  }

  bool modules_ = false, bare_head_ = false;
  std::vector<std::string> names_, left_out_;
};

}  // namespace

Json text_model_config(Json config) {
  const nn::ModelFamily* family = text_family_of(config);
  const Json* text = family != nullptr ? config.find("text_config") : nullptr;
  if (text == nullptr || !text->is_object()) return config;
  Json result = *text;
  result.set("architectures", Json(Json::Array{Json(family->architecture)}));
  const auto is_set = [](const Json* value) { return value != nullptr && !value->is_null(); };
  // Another type is refused by parse_model_config: the class holds text models of several families.
  if (!is_set(result.find("model_type"))) result.set("model_type", Json(family->model_type));
  const auto inherit = [&](std::string_view key) {
    const Json* whole = config.find(key);
    if (!is_set(result.find(key)) && is_set(whole)) result.set(key, *whole);
  };
  if (!is_set(result.find("dtype")) && !is_set(result.find("torch_dtype"))) {
    inherit("dtype");
    inherit("torch_dtype");
  }
  // Transformers 5 ties as the whole says, Transformers 4 as text_config; a head with values of its own unties
  // (untie_other_head).
  inherit(kTied);
  if (const Json* tied = config.find(kTied); tied != nullptr && *tied == Json(true)) result.set(kTied, true);
  inherit(kQuantizationConfig);
  // Transformers generates with those of the whole model (Gemma 3: [1, 106]; text_config: 1).
  for (const std::string_view key : {"bos_token_id", "eos_token_id", "pad_token_id"})
    if (const Json* whole = config.find(key); is_set(whole)) result.set(key, *whole);
  return result;
}

std::string summary_of(const std::vector<std::string>& left_out) {
  std::map<std::string, std::int64_t> parts;
  for (std::string name : left_out) {
    if (name.starts_with(kWholePrefix)) name.erase(0, kWholePrefix.size());
    ++parts[name.substr(0, name.find('.'))];
  }
  std::string text;
  for (const auto& [part, count] : parts)
    text += fmt::format("{}{} ({} tensor{})", text.empty() ? "" : ", ", part, count, count == 1 ? "" : "s");
  return text;
}

std::unique_ptr<StoredWeights> text_model_weights(std::unique_ptr<StoredWeights> weights) {
  auto text = std::make_unique<TextWeights>(std::move(weights));
  if (!text->has_text()) return text->release();
  return text;
}

}  // namespace quench
