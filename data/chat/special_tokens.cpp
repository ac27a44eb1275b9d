#include "data/chat/special_tokens.h"

#include <algorithm>

#include "data/jinja/jinja_text.h"

namespace quench {
namespace {

std::vector<std::string> special_texts(const Tokenizer& tokenizer) {
  std::vector<std::string> tokens;
  for (std::int64_t id = 0; id < tokenizer.vocab_size(); ++id) {
    const auto token = static_cast<std::int32_t>(id);
    if (tokenizer.is_special(token)) tokens.push_back(tokenizer.token_text(token));
  }
  return tokens;
}

}  // namespace

SpecialTokens::SpecialTokens(std::vector<std::string> tokens) : tokens_(std::move(tokens)) {
  std::erase(tokens_, std::string());
  for (const std::string& token : tokens_) {
    if (starts_.find(token[0]) == std::string::npos) starts_ += token[0];
    longest_ = std::max(longest_, token.size());
  }
}

SpecialTokens::SpecialTokens(const Tokenizer& tokenizer) : SpecialTokens(special_texts(tokenizer)) {}

std::string_view SpecialTokens::at(std::string_view text, std::size_t at) const {
  std::string_view found;
  if (at >= text.size() || starts_.find(text[at]) == std::string::npos) return found;
  for (const std::string& token : tokens_)
    if (token.size() > found.size() && text.substr(at).starts_with(token)) found = token;
  return found;
}

std::vector<SpecialTokens::Occurrence> SpecialTokens::find(std::string_view text) const {
  std::vector<Occurrence> found;
  for (std::size_t i = text.find_first_of(starts_); i != std::string_view::npos && !starts_.empty();
       i = text.find_first_of(starts_, i)) {
    const std::size_t length = at(text, i).size();
    if (length > 0) found.push_back({i, i + length});
    i += std::max<std::size_t>(length, 1);
  }
  return found;
}

SpecialTokens::Occurrence SpecialTokens::around(std::string_view text, std::size_t byte) const {
  for (std::size_t i = byte - std::min(byte, longest_); i < byte;) {
    const std::size_t length = at(text, i).size();
    if (i + length > byte) return {i, i + length};
    i += std::max<std::size_t>(length, 1);
  }
  return {};
}

bool SpecialTokens::ends(std::string_view text) const {
  text = jinja::strip(text, {}, jinja::StripSide::right);
  return std::ranges::any_of(tokens_, [&](const std::string& token) { return text.ends_with(token); });
}

bool SpecialTokens::alone(std::string_view text) const {
  if (!ends(text)) return false;
  std::size_t rest = 0;
  for (const Occurrence& token : find(text)) {
    if (!jinja::strip(text.substr(rest, token.begin - rest), {}, jinja::StripSide::both).empty()) return false;
    rest = token.end;
  }
  return true;
}

bool SpecialTokens::contains(std::string_view token) const {
  return std::ranges::find(tokens_, token) != tokens_.end();
}

}  // namespace quench
