#include "data/tokenizer/pre_tokenizer.h"

#include "data/tokenizer/json_fields.h"

namespace quench {

PreTokenizer::PreTokenizer(const Json& description) {
  Json::Array components;
  if (description.is_object() && component_type(description) == "Sequence") {
    components = description.at("pretokenizers").as_array();
  } else if (!description.is_null()) {
    components.push_back(description);
  }
  QUENCH_CHECK_AS(
      ErrorCode::unsupported, !components.empty(),
      "pre_tokenizer: none; only byte-level BPE is supported, whose pre_tokenizer is or ends with ByteLevel");
  for (std::size_t i = 0; i < components.size(); ++i) add_component(components[i], i + 1 == components.size());
}

void PreTokenizer::add_component(const Json& component, bool is_last) {
  const std::string& type = component_type(component);
  const std::string where = position(component);
  QUENCH_CHECK_AS(ErrorCode::unsupported, is_last == (type == "ByteLevel"),
                  "{}: pre_tokenizer: {} {}; only byte-level BPE is supported, whose pre_tokenizer is or ends with "
                  "ByteLevel",
                  where, type, is_last ? "is the last component" : "is not the last component");
  if (type == "ByteLevel") {
    add_prefix_space_ = bool_field(component, "add_prefix_space", true);
    if (bool_field(component, "use_regex", true)) byte_level_pattern_ = &SplitPattern::named("gpt2");
  } else if (type == "Digits") {
    const bool individual = bool_field(component, "individual_digits", false);
    steps_.push_back(&SplitPattern::named(individual ? "individual_digits" : "digits"));
  } else if (type == "Split") {
    const Json* expression = component.at("pattern").find("Regex");
    QUENCH_CHECK_AS(ErrorCode::unsupported, expression != nullptr,
                    "{}: pre_tokenizer: Split by a fixed string is not supported, only by a published Regex", where);
    const SplitPattern* pattern = SplitPattern::find(expression->as_string());
    QUENCH_CHECK_AS(ErrorCode::unsupported, pattern != nullptr,
                    "{}: pre_tokenizer: the Split expression '{}' is not one of the published ones; expressions from "
                    "files are not run. Known: {}",
                    where, shortened(expression->as_string()), fmt::join(SplitPattern::names(), ", "));
    const std::string& behavior = component.at("behavior").as_string();
    const bool invert = bool_field(component, "invert", false);
    // With nothing between matches, removing what does not match is keeping everything.
    const bool keeps_all =
        (behavior == "Isolated") || (behavior == "Removed" && invert && pattern->matches_everything());
    QUENCH_CHECK_AS(ErrorCode::unsupported, keeps_all,
                    "{}: pre_tokenizer: Split with behavior {} and invert {} is not "
                    "supported with the expression {}",
                    where, shortened(behavior), invert, pattern->name());
    steps_.push_back(pattern);
  } else {
    QUENCH_FAIL(ErrorCode::unsupported, "{}: pre_tokenizer {} is not supported; Split, Digits and ByteLevel are", where,
                shortened(type));
  }
}

void PreTokenizer::split(std::string_view text, const PieceSink& sink) const {
  split_from(0, text, sink);
}

void PreTokenizer::split_from(std::size_t step, std::string_view text, const PieceSink& sink) const {
  if (step < steps_.size()) {
    steps_[step]->split(text, [&](std::string_view piece) { split_from(step + 1, piece, sink); });
    return;
  }
  std::string prefixed;
  if (add_prefix_space_ && !text.starts_with(' ')) {
    prefixed.reserve(text.size() + 1);
    prefixed += ' ';
    prefixed += text;
    text = prefixed;
  }
  if (byte_level_pattern_ != nullptr) {
    byte_level_pattern_->split(text, sink);
  } else {
    sink(text);
  }
}

}  // namespace quench
