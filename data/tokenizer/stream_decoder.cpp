#include "data/tokenizer/stream_decoder.h"

#include <utility>

#include "core/system/utf8.h"
#include "data/tokenizer/text/code_points.h"

namespace quench {

std::string StreamDecoder::push(std::int32_t id) {
  std::string text = std::exchange(held_back_, {});
  const std::size_t before = text.size();
  tokenizer_->append_decoded(id, options_, at_start_, text);
  if (text.size() > before) final_space_ = tokenizer_->has_final_space(id);
  const std::size_t complete = text.size() - (final_space_ ? 1 : incomplete_utf8_suffix(text));
  held_back_ = text.substr(complete);
  text.resize(complete);
  return text;
}

std::string StreamDecoder::valid(std::string_view text) const {
  return tokenizer_->has_byte_fallback() ? replace_invalid_utf8(text) : replace_invalid_subparts(text);
}

std::string StreamDecoder::finish() {
  at_start_ = true;
  if (std::exchange(final_space_, false)) held_back_.pop_back();
  return std::exchange(held_back_, {});
}

}  // namespace quench
