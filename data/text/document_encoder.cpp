#include "data/text/document_encoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>

#include "core/system/check.h"

namespace quench {

std::string fingerprint_text(const Tokenizer& tokenizer) {
  return fmt::format("{:016x}", tokenizer.fingerprint());
}

DocumentEncoder::DocumentEncoder(const Tokenizer& tokenizer, const EncoderOptions& options)
    : tokenizer_(tokenizer), options_(options) {
  if (options.eos != EosPolicy::none) eos_ = tokenizer.eos_id();
  QUENCH_CHECK_AS(
      ErrorCode::bad_config, options.eos != EosPolicy::append || eos_,
      "the tokenizer has no end-of-sequence token to put after each document; name one in its files, or set "
      "eos to none");
  if (!options.add_special_tokens) return;
  // Tokens that add_special_tokens puts around a text.
  const auto plain = tokenizer.encode("a", {.add_special_tokens = false, .parse_special = false});
  const auto framed = tokenizer.encode("a", {.add_special_tokens = true, .parse_special = false});
  const auto at = std::search(framed.begin(), framed.end(), plain.begin(), plain.end());
  QUENCH_CHECK_AS(ErrorCode::unsupported, at != framed.end() || plain.empty(),
                  "the tokenizer's special tokens change the text between them");
  prefix_.assign(framed.begin(), at);
  suffix_.assign(at + static_cast<std::ptrdiff_t>(plain.size()), framed.end());
}

std::vector<EncodedDocument> DocumentEncoder::encode(std::span<const Document> documents) const {
  std::vector<std::string_view> texts[2];
  std::deque<std::string> joined;
  for (const Document& document : documents) {
    for (std::size_t i = 0; i < document.pieces.size(); ++i) {
      const DocumentPiece& piece = document.pieces[i];
      if (piece.special || piece.text.empty()) continue;
      std::string_view text = piece.text;
      if (piece.joined && i > 0) text = joined.emplace_back(document.pieces[i - 1].text + piece.text);
      texts[piece.markup ? 1 : 0].push_back(text);
    }
  }
  std::vector<std::vector<std::int32_t>> encoded[2];
  for (const bool parse : {false, true})
    encoded[parse ? 1 : 0] =
        tokenizer_.encode_batch(texts[parse ? 1 : 0], {.add_special_tokens = false, .parse_special = parse});

  std::vector<EncodedDocument> results(documents.size());
  std::size_t next[2] = {0, 0};
  for (std::size_t d = 0; d < documents.size(); ++d) {
    const Document& document = documents[d];
    EncodedDocument& out = results[d];
    const bool keep_targets = document.mark.has_value() || std::any_of(document.pieces.begin(), document.pieces.end(),
                                                                       [](const DocumentPiece& piece) {
                                                                         return !piece.target || !piece.targets.empty();
                                                                       });
    std::vector<std::int32_t> last;
    for (const DocumentPiece& piece : document.pieces) {
      std::vector<std::int32_t> ids;
      if (!piece.special && !piece.text.empty()) {
        const int kind = piece.markup ? 1 : 0;
        ids = std::move(encoded[kind][next[kind]++]);
      }
      if (piece.joined) {
        // Ids shared with the preceding text alone stay with it.
        const auto shared = std::mismatch(last.begin(), last.end(), ids.begin(), ids.end()).second - ids.begin();
        out.ids.resize(out.ids.size() - last.size() + static_cast<std::size_t>(shared));
        if (keep_targets) out.targets.resize(out.ids.size());
        ids.erase(ids.begin(), ids.begin() + shared);
      }
      last = ids;
      append_piece(piece, std::move(ids), keep_targets, out);
    }
    if (!document.complete) add_frame(document, keep_targets, out);
    if (document.mark && !out.targets.empty()) out.targets.front() = *document.mark ? 1 : 0;
  }
  return results;
}

void DocumentEncoder::add_frame(const Document& document, bool keep_targets, EncodedDocument& out) const {
  const auto has_prefix = [&] { return std::ranges::mismatch(prefix_, out.ids).in1 == prefix_.end(); };
  if (document.begins && !has_prefix()) {
    out.ids.insert(out.ids.begin(), prefix_.begin(), prefix_.end());
    if (keep_targets) out.targets.insert(out.targets.begin(), prefix_.size(), 1);
  }
  if (document.ends && !has_end(out.ids)) {
    out.ids.insert(out.ids.end(), suffix_.begin(), suffix_.end());
    if (eos_ && (out.ids.empty() || out.ids.back() != *eos_)) out.ids.push_back(*eos_);
    if (keep_targets) out.targets.resize(out.ids.size(), 1);
  }
}

bool DocumentEncoder::has_end(std::span<const std::int32_t> ids) const {
  const bool only_eos = eos_ && suffix_.size() == 1 && suffix_.front() == *eos_;
  if (!suffix_.empty() && !only_eos)
    return ids.size() >= suffix_.size() && std::ranges::equal(ids.last(suffix_.size()), suffix_) &&
           (!eos_ || suffix_.back() == *eos_);
  if (!eos_) return false;
  const auto last = std::find(ids.rbegin(), ids.rend(), *eos_);
  if (last == ids.rend()) return false;
  const std::string after = tokenizer_.decode(ids.last(static_cast<std::size_t>(last - ids.rbegin())));
  return after.find_first_not_of(" \t\r\n") == std::string::npos;
}

void DocumentEncoder::append_piece(const DocumentPiece& piece, std::vector<std::int32_t>&& encoded, bool keep_targets,
                                   EncodedDocument& out) const {
  if (piece.special) {
    const auto id = tokenizer_.find_token(piece.text);
    QUENCH_CHECK_AS(ErrorCode::bad_config, id && tokenizer_.is_special(*id),
                    "the tokenizer has no special token {}, which the chat template needs; add it to model.add_tokens "
                    "(--add-token of quench tokenize), or choose another template (data.chat_template, "
                    "--chat-template) or tokenizer",
                    piece.text);
    out.ids.push_back(*id);
  } else if (!piece.ids.empty()) {
    out.ids.insert(out.ids.end(), piece.ids.begin(), piece.ids.end());
  } else {
    out.ids.insert(out.ids.end(), encoded.begin(), encoded.end());
  }
  if (!keep_targets) return;
  if (!piece.targets.empty()) {
    out.targets.insert(out.targets.end(), piece.targets.begin(), piece.targets.end());
  } else if (!piece.target_bytes.empty()) {
    const std::vector<std::uint8_t> flags = flags_of(piece, std::span(out.ids).subspan(out.targets.size()));
    out.targets.insert(out.targets.end(), flags.begin(), flags.end());
  } else {
    out.targets.resize(out.ids.size(), piece.target ? 1 : 0);
  }
}

std::vector<std::uint8_t> DocumentEncoder::flags_of(const DocumentPiece& piece,
                                                    std::span<const std::int32_t> ids) const {
  const std::vector<std::size_t> ends = tokenizer_.decoded_ends(ids);
  // After normalization the decoded text differs: its bytes before a position.
  const bool same = !ends.empty() && ends.back() == piece.text.size();
  const auto decoded = [&](std::size_t byte) {
    if (same) return byte;
    const EncodeOptions options{.add_special_tokens = false, .parse_special = piece.markup};
    return tokenizer_.decode(tokenizer_.encode(std::string_view(piece.text).substr(0, byte), options)).size();
  };
  std::vector<std::uint8_t> flags(ids.size(), 0);
  for (const auto& [first, last] : piece.target_bytes) {
    const std::size_t begin = decoded(first), end = decoded(last);
    for (std::size_t i = 0; i < ids.size(); ++i)
      if (ends[i] > begin && (i > 0 ? ends[i - 1] : 0) < end) flags[i] = 1;
  }
  return flags;
}

}  // namespace quench
