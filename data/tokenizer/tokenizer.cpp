#include "data/tokenizer/tokenizer.h"

#include <exception>

#include "core/system/check.h"

namespace quench {

std::vector<std::int32_t> Tokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  std::vector<std::int32_t> ids;
  ids.reserve(text.size() / 3 + 2);
  encode(text, options, ids);
  return ids;
}

std::vector<std::vector<std::int32_t>> Tokenizer::encode_batch(std::span<const std::string_view> texts,
                                                               const EncodeOptions& options) const {
  std::vector<std::vector<std::int32_t>> results(texts.size());
  std::exception_ptr failure;
#pragma omp parallel for schedule(dynamic)
  for (std::size_t i = 0; i < texts.size(); ++i) {
    try {
      results[i] = encode(texts[i], options);
    } catch (...) {
#pragma omp critical(quench_encode_batch)
      failure = std::current_exception();
    }
  }
  if (failure) std::rethrow_exception(failure);
  return results;
}

std::unique_ptr<Tokenizer> Tokenizer::with_tokens(std::span<const NewToken> /*tokens*/) const {
  QUENCH_FAIL(ErrorCode::unsupported, "this kind of tokenizer cannot learn tokens; use a tokenizer.json");
}

void Tokenizer::append_decoded(std::int32_t id, const DecodeOptions& options, bool& at_start, std::string& text) const {
  QUENCH_CHECK(id >= 0, "cannot decode {}: token ids are not negative (is it an ignored label?)", id);
  if (options.skip_special && is_special(id)) return;
  if (append_text(id, at_start, text)) at_start = false;
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids, const DecodeOptions& options) const {
  std::string text;
  text.reserve(ids.size() * 4);
  bool at_start = true, final_space = false;
  for (const std::int32_t id : ids) {
    const std::size_t before = text.size();
    append_decoded(id, options, at_start, text);
    if (text.size() > before) final_space = has_final_space(id);
  }
  if (final_space) text.pop_back();
  return text;
}

std::vector<std::size_t> Tokenizer::decoded_ends(std::span<const std::int32_t> ids) const {
  std::vector<std::size_t> ends;
  ends.reserve(ids.size());
  std::string text;
  bool at_start = true;
  for (const std::int32_t id : ids) {
    append_decoded(id, {}, at_start, text);
    ends.push_back(text.size());
  }
  return ends;
}

}  // namespace quench
