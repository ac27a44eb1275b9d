#include "data/tokenizer/text/pre_tokenizer.h"

#include <algorithm>

namespace quench {

PreTokenizer::PreTokenizer(const Json& description, bool byte_level, const Normalizer& normalizer) {
  if (description.is_object() && component_type(description) == "Sequence") {
    for (const Json& component : description.at("pretokenizers").as_array()) add_component(component, normalizer);
  } else if (!description.is_null()) {
    add_component(description, normalizer);
  }
  QUENCH_CHECK_AS(ErrorCode::unsupported, has_byte_level_ == byte_level, "pre_tokenizer: {}; the decoder is {}",
                  has_byte_level_ ? "ByteLevel" : "none that is or ends with ByteLevel",
                  byte_level ? "ByteLevel" : "of another kind");
}

void PreTokenizer::add_component(const Json& component, const Normalizer& normalizer) {
  const std::string& type = component_type(component);
  const std::string where = position(component);
  QUENCH_CHECK_AS(ErrorCode::unsupported, !has_byte_level_ && !metaspace_,
                  "{}: pre_tokenizer: {} is not the last component; {} follows it", where,
                  has_byte_level_ ? "ByteLevel" : "Metaspace", shortened(type));
  if (type == "ByteLevel") {
    has_byte_level_ = true;
    add_prefix_space_ = bool_field(component, "add_prefix_space", true);
    if (bool_field(component, "use_regex", true)) byte_level_pattern_ = &SplitPattern::named("gpt2");
  } else if (type == "Metaspace") {
    metaspace_ = read_metaspace(component);
  } else if (type == "Digits") {
    const bool individual = bool_field(component, "individual_digits", false);
    steps_.push_back(&SplitPattern::named(individual ? "individual_digits" : "digits"));
  } else if (type == "Split") {
    const Json* expression = component.at("pattern").find("Regex");
    // Gemma's: the normalizer has replaced the string, so nothing is split.
    const Json* text = component.at("pattern").find("String");
    if (expression == nullptr && text != nullptr && text->is_string() && normalizer.removes(text->as_string())) return;
    QUENCH_CHECK_AS(ErrorCode::unsupported, expression != nullptr,
                    "{}: pre_tokenizer: Split by a fixed string is supported only if the normalizer replaces that "
                    "string everywhere; else only by a published Regex",
                    where);
    const SplitPattern* pattern = SplitPattern::find(expression->as_string());
    QUENCH_CHECK_AS(ErrorCode::unsupported, pattern != nullptr,
                    "{}: pre_tokenizer: the Split expression '{}' is not one of the published ones; expressions from "
                    "files are not run. Known: {}",
                    where, shortened(expression->as_string()), fmt::join(SplitPattern::names(), ", "));
    const std::string& behavior = component.at("behavior").as_string();
    const bool invert = bool_field(component, "invert", false);
    // Gapless: nothing to remove.
    const bool keeps_all =
        (behavior == "Isolated") || (behavior == "Removed" && invert && pattern->matches_everything());
    QUENCH_CHECK_AS(ErrorCode::unsupported, keeps_all,
                    "{}: pre_tokenizer: Split with behavior {} and invert {} is not "
                    "supported with the expression {}",
                    where, shortened(behavior), invert, pattern->name());
    steps_.push_back(pattern);
  } else {
    QUENCH_FAIL(ErrorCode::unsupported,
                "{}: pre_tokenizer {} is not supported; Split, Digits, ByteLevel and Metaspace are", where,
                shortened(type));
  }
}

void PreTokenizer::split(std::string_view text, Place place, const PieceSink& sink) const {
  split_from(0, text, place, sink);
}

void PreTokenizer::split_from(std::size_t step, std::string_view text, Place place, const PieceSink& sink) const {
  if (step < steps_.size()) {
    steps_[step]->split(text, [&](std::string_view piece) {
      const bool is_first = piece.data() == text.data();  // later ones: segment
      split_from(step + 1, piece, is_first ? place : Place::segment, sink);
    });
    return;
  }
  if (metaspace_) return split_metaspace(text, place, sink);
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

// Marks replace spaces; one may be prepended. With splitting, each mark of a run is a piece, except the last, which
// starts the next.
void PreTokenizer::split_metaspace(std::string_view text, Place place, const PieceSink& sink) const {
  const auto& [mark, scheme, cut] = *metaspace_;
  std::string marked = replaced(text, " ", mark);
  const bool wants_prefix = scheme == PrependScheme::always  ? place != Place::inside
                            : scheme == PrependScheme::first ? place == Place::text
                                                             : false;
  if (wants_prefix && !marked.starts_with(mark)) marked.insert(0, mark);
  const std::string_view whole = marked;
  if (!cut) return sink(whole);
  std::size_t start = 0;
  while (start < whole.size()) {
    const std::size_t search = start + (whole.substr(start).starts_with(mark) ? mark.size() : 0);
    const std::size_t end = std::min(whole.find(mark, search), whole.size());
    sink(whole.substr(start, end - start));
    start = end;
  }
}

}  // namespace quench
