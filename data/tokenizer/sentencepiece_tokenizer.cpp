#include "data/tokenizer/sentencepiece_tokenizer.h"

#include <algorithm>

#include "core/system/check.h"
#include "data/tokenizer/new_tokens.h"
#include "data/tokenizer/text/code_points.h"
#include "data/tokenizer/text/json_fields.h"
#include "data/tokenizer/text/normalizer.h"

namespace quench {
namespace {

constexpr std::string_view kMetaSpace = "\u2581";  // a space in pieces

// Meta's Llama 3 under the same name: lines of base64 token and rank.
bool looks_like_tiktoken(std::string_view text) {
  const std::string_view line = text.substr(0, text.substr(0, 200).find('\n'));
  const std::size_t space = line.find(' ');
  constexpr std::string_view kBase64 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=";
  return space != line.npos && space > 0 && line.find_first_not_of(kBase64) == space &&
         line.find_first_not_of("0123456789\r", space + 1) == line.npos;
}

// `part`: view into `text`.
bool ends_with_part(std::string_view text, std::string_view part) {
  return part.data() + part.size() == text.data() + text.size();
}

// ModelProto { normalizer_spec (field 3) { add_dummy_prefix (field 3): false } }, appended to a serialized model:
// repeated messages are merged (Protocol Buffers encoding, "Last One Wins").
constexpr std::string_view kNoDummyPrefix("\x1A\x02\x18\x00", 4);

}  // namespace

SentencePieceTokenizer::SentencePieceTokenizer(TokenizerFiles files) : files_(std::move(files)) {
  load_processors();
  collect_added_tokens();
  const auto id_of = [&](const std::optional<std::string>& name, int model_id) -> std::optional<std::int32_t> {
    if (name) return find_token(*name);
    return model_id >= 0 ? std::optional<std::int32_t>(model_id) : std::nullopt;
  };
  const TokenizerSettings& settings = files_.settings();
  chat_template_ = settings.chat_template;
  warn_of_unmarked_tokens(*this, files_);
  bos_id_ = id_of(settings.bos_token, processor_.bos_id());
  eos_id_ = id_of(settings.eos_token, processor_.eos_id());
  pad_id_ = id_of(settings.pad_token, processor_.pad_id());
}

void SentencePieceTokenizer::load_processors() {
  const std::string& model = files_.vocabulary();
  const auto status = processor_.LoadFromSerializedProto(model);
  if (!status.ok()) {
    QUENCH_CHECK_AS(ErrorCode::unsupported, !looks_like_tiktoken(model),
                    "{}: this is a tiktoken vocabulary, not a SentencePiece model; use the model's tokenizer.json",
                    files_.source());
    QUENCH_FAIL(ErrorCode::corrupt, "{}: not a SentencePiece model: {}", files_.source(), status.ToString());
  }
  const auto prefixless = prefixless_processor_.LoadFromSerializedProto(model + std::string(kNoDummyPrefix));
  QUENCH_CHECK_AS(ErrorCode::corrupt, prefixless.ok(), "{}: not a SentencePiece model: {}", files_.source(),
                  prefixless.ToString());
  const auto pieces = processor_.EncodeAsPieces("a");
  if (!pieces.empty() && files_.settings().add_prefix_space.value_or(true)) {
    has_dummy_prefix_ = pieces.front().starts_with(kMetaSpace);
    has_dummy_suffix_ = pieces.back().ends_with(kMetaSpace);
  }
  for (int byte = 0; byte < 256; ++byte) {
    const int id = processor_.PieceToId(fmt::format("<0x{:02X}>", byte));
    if (!processor_.IsByte(id)) {
      byte_ids_.clear();
      break;
    }
    byte_ids_.push_back(id);
  }
}

void SentencePieceTokenizer::collect_added_tokens() {
  vocab_size_ = processor_.GetPieceSize();
  const auto add = [&](const AddedToken& token) { added_by_id_.insert_or_assign(token.id, token); };
  for (int id = 0; id < processor_.GetPieceSize(); ++id) {
    if (processor_.IsControl(id) || processor_.IsUnknown(id)) {
      add({.id = id, .content = processor_.IdToPiece(id), .special = true});
    }
  }
  for (AddedToken token : files_.settings().added_tokens) {
    QUENCH_CHECK_AS(ErrorCode::corrupt, !is_piece(token.id) || processor_.IdToPiece(token.id) == token.content,
                    "{}: added token \"{}\" has id {}, which is \"{}\" in the model", files_.source(),
                    shortened(token.content), token.id, shortened(processor_.IdToPiece(token.id)));
    const TokenizerSettings& settings = files_.settings();
    for (const auto& name : {settings.bos_token, settings.eos_token, settings.pad_token, settings.unk_token}) {
      token.special = token.special || name == token.content;
    }
    add(token);
  }
  std::vector<AddedToken> tokens;
  for (const auto& [id, token] : added_by_id_) tokens.push_back(token);
  std::ranges::sort(tokens, {}, &AddedToken::id);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (is_piece(tokens[i].id)) continue;
    QUENCH_CHECK_AS(ErrorCode::corrupt, tokens[i].id == vocab_size_,
                    "{}: added token \"{}\" has id {}, expected {}: ids must be without holes", files_.source(),
                    shortened(tokens[i].content), tokens[i].id, vocab_size_);
    ++vocab_size_;
  }
  std::erase_if(tokens, [](const AddedToken& token) { return token.content.empty(); });
  added_ = AddedTokens(std::move(tokens));
}

void SentencePieceTokenizer::encode(std::string_view text, const EncodeOptions& options,
                                    std::vector<std::int32_t>& ids) const {
  const TokenizerSettings& settings = files_.settings();
  if (options.add_special_tokens && settings.add_bos_token.value_or(true) && bos_id_) ids.push_back(*bos_id_);
  const bool prefix_everywhere = settings.legacy.value_or(false);
  for (const auto& [segment, id] : added_.split(text, options.parse_special)) {
    if (id >= 0) {
      ids.push_back(id);
    } else {
      const bool at_edge = has_dummy_suffix_ ? ends_with_part(text, segment) : segment.data() == text.data();
      encode_text(segment, (has_dummy_prefix_ || has_dummy_suffix_) && (prefix_everywhere || at_edge), ids);
    }
  }
  if (options.add_special_tokens && settings.add_eos_token.value_or(false) && eos_id_) ids.push_back(*eos_id_);
}

void SentencePieceTokenizer::encode_text(std::string_view text, bool with_space, std::vector<std::int32_t>& ids) const {
  const auto encode_stretch = [&](std::string_view stretch) {
    const bool at_edge = has_dummy_suffix_ ? ends_with_part(text, stretch) : stretch.data() == text.data();
    std::vector<int> piece_ids;
    const auto status = (with_space && at_edge ? processor_ : prefixless_processor_).Encode(stretch, &piece_ids);
    QUENCH_CHECK_AS(ErrorCode::failed, status.ok(), "{}: SentencePiece cannot encode {} bytes of text: {}",
                    files_.source(), stretch.size(), status.ToString());
    ids.insert(ids.end(), piece_ids.begin(), piece_ids.end());
  };
  if (byte_ids_.empty()) return encode_stretch(text);
  for_each_stretch(text, encode_stretch, [&](std::string_view other) {
    for (const char byte : other) ids.push_back(byte_ids_[static_cast<std::uint8_t>(byte)]);
  });
}

std::int64_t SentencePieceTokenizer::vocab_size() const {
  return vocab_size_;
}

bool SentencePieceTokenizer::append_text(std::int32_t id, bool at_start, std::string& text) const {
  if (const auto added = added_by_id_.find(id); added != added_by_id_.end()) {
    text += added->second.content;
    return true;
  }
  if (!is_piece(id)) return false;
  std::string_view piece = processor_.IdToPiece(id);
  if (processor_.IsByte(id)) {  // <0xNN>
    text += static_cast<char>(std::stoi(std::string(piece.substr(3, 2)), nullptr, 16));
    return true;
  }
  if (at_start && has_dummy_prefix_ && piece.starts_with(kMetaSpace)) piece.remove_prefix(kMetaSpace.size());
  text += replaced(piece, kMetaSpace, " ");
  return true;
}

bool SentencePieceTokenizer::has_final_space(std::int32_t id) const {
  return has_dummy_suffix_ && is_piece(id) && !added_by_id_.contains(id) &&
         std::string_view(processor_.IdToPiece(id)).ends_with(kMetaSpace);
}

std::string SentencePieceTokenizer::token_text(std::int32_t id) const {
  std::string text;
  QUENCH_CHECK(id >= 0 && append_text(id, false, text), "token id {} does not exist; the vocabulary has {} ids", id,
               vocab_size_);
  return text;
}

std::optional<std::int32_t> SentencePieceTokenizer::find_token(std::string_view bytes) const {
  for (const auto& [id, token] : added_by_id_) {
    if (token.content == bytes) return id;
  }
  const int id = processor_.PieceToId(replaced(bytes, " ", kMetaSpace));
  if (!processor_.IsUnknown(id) && !processor_.IsByte(id)) return id;
  if (bytes.size() != 1 || byte_ids_.empty()) return std::nullopt;
  return byte_ids_[static_cast<std::uint8_t>(bytes[0])];
}

bool SentencePieceTokenizer::is_special(std::int32_t id) const {
  const auto added = added_by_id_.find(id);
  return added != added_by_id_.end() && added->second.special;
}

std::uint64_t SentencePieceTokenizer::fingerprint() const {
  return files_.fingerprint();
}

std::unique_ptr<Tokenizer> SentencePieceTokenizer::with_tokens(std::span<const NewToken> tokens) const {
  const auto piece_id = [this](const std::string& text) -> std::optional<std::int32_t> {
    const int id = processor_.PieceToId(text);
    return processor_.IdToPiece(id) == text ? std::optional<std::int32_t>(id) : std::nullopt;
  };
  for (const NewToken& token : tokens)
    for (const auto& [id, added] : added_by_id_)
      if (added.content == token.text) require_changed(token, id, added.special);
  return std::make_unique<SentencePieceTokenizer>(
      with_new_piece_tokens(files_, tokens, named_tokens(*this), piece_id, vocab_size_));
}

void SentencePieceTokenizer::save(const std::filesystem::path& folder) const {
  files_.save(folder);
}

}  // namespace quench
