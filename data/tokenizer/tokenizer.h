#pragma once
// Text to ids and back.
//
// Lossless on bytes except for the tokenizer's rules (normalization, prefix space, stripped white space). Byte-level
// tokenizers, and SentencePiece with a piece for every byte, encode invalid UTF-8 as pieces: decode(encode(x)) == x.
// Others replace it by U+FFFD. Const members are thread-safe.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace quench {

// Treatment of special tokens.
struct EncodeOptions {
  // Special tokens of the post-processor, such as BOS.
  bool add_special_tokens = true;
  // As Hugging Face tokenizers; off for untrusted text, where "<|eot_id|>" stays plain.
  bool parse_special = true;
};

// How token ids become text.
struct DecodeOptions {
  bool skip_special = false;  // omits special tokens
};

// Token to learn, matched verbatim before normalization and pre-tokenization.
struct NewToken {
  std::string text;
  bool special = true;  // control: skipped in decoded text, not matched in untrusted text

  friend bool operator==(const NewToken&, const NewToken&) = default;
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  [[nodiscard]] std::vector<std::int32_t> encode(std::string_view text, const EncodeOptions& options = {}) const;
  // Appends to `ids`.
  virtual void encode(std::string_view text, const EncodeOptions& options, std::vector<std::int32_t>& ids) const = 0;
  // In order; parallel (OpenMP).
  [[nodiscard]] std::vector<std::vector<std::int32_t>> encode_batch(std::span<const std::string_view> texts,
                                                                    const EncodeOptions& options = {}) const;

  // Bytes, not necessarily well-formed UTF-8. Ids without a token (padded embedding tables) decode to nothing; negative
  // ids throw invalid_argument.
  [[nodiscard]] std::string decode(std::span<const std::int32_t> ids, const DecodeOptions& options = {}) const;

  // Byte offset of each id's end.
  [[nodiscard]] std::vector<std::size_t> decoded_ends(std::span<const std::int32_t> ids) const;

  // chat_template.jinja and additional_chat_templates/, else tokenizer_config.json.
  struct NamedTemplate {
    std::string name;  // "tool_use"
    std::string text;
    std::string source;
  };
  // Chat templates stored with the tokenizer.
  struct ChatTemplateText {
    std::string text;  // the only one, or "default"; empty: named ones only
    std::string source;
    std::vector<NamedTemplate> named{};
  };
  [[nodiscard]] const std::optional<ChatTemplateText>& chat_template() const noexcept { return chat_template_; }

  // Highest id + 1.
  [[nodiscard]] virtual std::int64_t vocab_size() const = 0;
  [[nodiscard]] std::optional<std::int32_t> bos_id() const noexcept { return bos_id_; }
  [[nodiscard]] std::optional<std::int32_t> eos_id() const noexcept { return eos_id_; }
  [[nodiscard]] std::optional<std::int32_t> pad_id() const noexcept { return pad_id_; }

  // In decoded text; throws invalid_argument without a token.
  [[nodiscard]] virtual std::string token_text(std::int32_t id) const = 0;
  // Exactly these bytes, special or not.
  [[nodiscard]] virtual std::optional<std::int32_t> find_token(std::string_view bytes) const = 0;
  [[nodiscard]] virtual bool is_special(std::int32_t id) const = 0;
  // Such as <0x0A>. Invalid UTF-8 then decodes to one U+FFFD per byte; else per maximal subpart.
  [[nodiscard]] virtual bool has_byte_fallback() const { return false; }
  // Bytes that encode() drops or replaces, of a byte-level vocabulary.
  [[nodiscard]] virtual std::vector<std::uint8_t> bytes_without_token() const { return {}; }

  // Hash of everything that affects ids: equal on every machine, and after save and load.
  [[nodiscard]] virtual std::uint64_t fingerprint() const = 0;
  // With `tokens`, whose ids follow the highest one, in order. As in Transformers, a token of the vocabulary keeps its
  // id and is matched whole from then on. Throws bad_config naming the text (empty, repeated, added already), and
  // unsupported for a kind that cannot learn tokens.
  [[nodiscard]] virtual std::unique_ptr<Tokenizer> with_tokens(std::span<const NewToken> tokens) const;

  // For load_tokenizer and Hugging Face transformers; creates the folder. Files are replaced atomically.
  virtual void save(const std::filesystem::path& folder) const = 0;

 protected:
  Tokenizer() = default;
  // id >= 0; `at_start`: first token. False without a token.
  virtual bool append_text(std::int32_t id, bool at_start, std::string& text) const = 0;
  // The text of `id` ends with a space that is left out at the end of decoded text, where encode() adds it.
  [[nodiscard]] virtual bool has_final_space(std::int32_t /*id*/) const { return false; }

  std::optional<std::int32_t> bos_id_, eos_id_, pad_id_;
  std::optional<ChatTemplateText> chat_template_;

 private:
  friend class StreamDecoder;
  // at_start is updated; true before the first id.
  void append_decoded(std::int32_t id, const DecodeOptions& options, bool& at_start, std::string& text) const;
};

// Kinds of tokenizer_kind.h: tokenizer.json, SentencePiece tokenizer.model, a folder (tokenizer.json first,
// tokenizer.model if unsupported), or "bytes". Untrusted: throws corrupt or unsupported, with file, line and component,
// unless the ids of Hugging Face tokenizers are reproduced.
//
// BOS, EOS and padding: tokenizer_config.json or special_tokens_map.json; by default BOS is the post-processor's first
// token, EOS and padding have their usual names.
[[nodiscard]] std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& path);

}  // namespace quench
