#include "data/tokenizer/token_decoder.h"

#include "data/tokenizer/model/byte_tokens.h"
#include "data/tokenizer/text/json_fields.h"
#include "data/tokenizer/text/normalizer.h"

namespace quench {

TokenDecoder::TokenDecoder(const Json* description) {
  QUENCH_CHECK_AS(ErrorCode::unsupported, description != nullptr,
                  "decoder: none; ByteLevel, Metaspace or a Sequence with Replace is expected");
  if (component_type(*description) == "Sequence") {
    for (const Json& part : description->at("decoders").as_array()) add_component(part);
  } else {
    add_component(*description);
  }
}

void TokenDecoder::add_component(const Json& component) {
  const std::string& type = component_type(component);
  const std::string where = position(component);
  QUENCH_CHECK_AS(ErrorCode::unsupported, !byte_level_ && start_ == Start::whole,
                  "{}: decoder {} after one that must be the last is not supported", where, shortened(type));
  if (type == "ByteLevel") {
    QUENCH_CHECK_AS(ErrorCode::unsupported, mark_.empty() && !byte_tokens_ && !fused_,
                    "{}: decoder ByteLevel is only supported alone", where);
    byte_level_ = true;
  } else if (type == "Metaspace") {
    QUENCH_CHECK_AS(ErrorCode::unsupported, mark_.empty() && !byte_tokens_ && !fused_,
                    "{}: decoder Metaspace is only supported alone", where);
    const auto [replacement, scheme, split] = read_metaspace(component);
    mark_ = replacement;
    replacement_ = " ";
    start_ = scheme == PrependScheme::never ? Start::whole : Start::without_marks;
  } else if (type == "Replace") {
    QUENCH_CHECK_AS(ErrorCode::unsupported, mark_.empty() && !byte_tokens_ && !fused_,
                    "{}: decoder: Replace is only supported as the first component", where);
    mark_ = fixed_pattern(component, "decoder");
    replacement_ = component.at("content").as_string();
  } else if (type == "ByteFallback") {
    byte_tokens_ = true;
  } else if (type == "Fuse") {
    fused_ = true;
  } else if (type == "Strip") {
    const std::int64_t left = component.at("start").as_int(), right = component.at("stop").as_int();
    QUENCH_CHECK_AS(
        ErrorCode::unsupported,
        fused_ && component.at("content").as_string() == " " && left >= 0 && left <= 1 && right == 0,
        "{}: decoder: Strip of {} leading and {} trailing \"{}\" is not supported; one leading space after Fuse is",
        where, left, right, shortened(component.at("content").as_string()));
    if (left == 1) start_ = Start::without_space;
  } else {
    QUENCH_FAIL(ErrorCode::unsupported,
                "{}: decoder {} is not supported; ByteLevel, Metaspace, Replace, ByteFallback, Fuse and Strip are",
                where, shortened(type));
  }
}

void TokenDecoder::append(std::string_view token, bool at_start, std::string& text) const {
  if (byte_level_) {
    text += token;
    return;
  }
  const std::size_t begin = text.size();
  if (const auto byte = byte_tokens_ ? byte_of_token(token) : std::nullopt) {
    text += static_cast<char>(*byte);
  } else if (mark_.empty()) {
    text += token;
  } else {
    text += replaced(token, mark_, at_start && start_ == Start::without_marks ? std::string_view() : replacement_);
  }
  if (at_start && start_ == Start::without_space && text.size() > begin && text[begin] == ' ') text.erase(begin, 1);
}

}  // namespace quench
