#include "data/tokenizer/text/normalizer.h"

#include <algorithm>

#include "data/tokenizer/text/json_fields.h"
#include "data/tokenizer/text/unicode.h"

namespace quench {

std::string replaced(std::string_view text, std::string_view from, std::string_view to) {
  std::string result;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t found = std::min(text.find(from, at), text.size());
    result += text.substr(at, found - at);
    if (found < text.size()) result += to;
    at = found + from.size();
  }
  return result;
}

Normalizer::Normalizer(const Json& description) {
  add_component(description);
}

void Normalizer::add_component(const Json& component) {
  const std::string& type = component_type(component);
  if (type == "Sequence") {
    for (const Json& part : component.at("normalizers").as_array()) add_component(part);
  } else if (type == "NFC") {
    steps_.push_back({Step::Kind::nfc, {}, {}});
  } else if (type == "Prepend") {
    steps_.push_back({Step::Kind::prepend, {}, component.at("prepend").as_string()});
  } else if (type == "Replace") {
    steps_.push_back(
        {Step::Kind::replace, fixed_pattern(component, "normalizer"), component.at("content").as_string()});
  } else {
    QUENCH_FAIL(ErrorCode::unsupported, "{}: normalizer {} is not supported; NFC, Prepend, Replace and Sequence are",
                position(component), shortened(type));
  }
  if (type == "Replace")
    growth_ *=
        std::max<std::size_t>(1, (steps_.back().to.size() + steps_.back().from.size() - 1) / steps_.back().from.size());
  QUENCH_CHECK_AS(
      ErrorCode::unsupported,
      growth_ <= kMaxGrowth && steps_.size() <= kMaxSteps && (steps_.empty() || steps_.back().to.size() <= kMaxContent),
      "{}: normalizer: more than {} steps, a replacement of more than {} bytes, or text that becomes more "
      "than {} times as long",
      position(component), kMaxSteps, kMaxContent, kMaxGrowth);
}

bool Normalizer::removes(std::string_view text) const {
  bool removed = false;
  for (const Step& step : steps_) {
    if (step.kind == Step::Kind::nfc) continue;
    const bool adds = step.to.find(text) != std::string::npos;
    removed = !adds && (removed || (step.kind == Step::Kind::replace && step.from == text));
  }
  return removed;
}

std::string_view Normalizer::apply(std::string_view text, bool at_start, std::string& storage) const {
  std::string changed;
  for (const Step& step : steps_) {
    if (text.empty()) return text;
    if (step.kind == Step::Kind::nfc) {
      if (const std::string_view normal = normalize_nfc(text, changed); normal.data() == text.data()) continue;
    } else if (step.kind == Step::Kind::prepend) {
      if (!at_start) continue;
      changed.assign(step.to).append(text);
    } else {
      if (text.find(step.from) == text.npos) continue;
      changed = replaced(text, step.from, step.to);
    }
    storage.swap(changed);
    text = storage;
  }
  return text;
}

}  // namespace quench
