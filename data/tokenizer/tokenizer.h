#pragma once
// Text to token ids and back.
//
// Encoding is lossless on bytes except for the tokenizer's own rules (Unicode normalization, prefix space, stripped
// white space). Byte-level tokenizers, and SentencePiece models with a piece for every byte, encode each run of invalid
// UTF-8 as a piece: decode(encode(x)) == x. Others replace it by U+FFFD. Const member functions are thread-safe.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace quench {

struct EncodeOptions {
  // Add the post-processor's tokens of one sequence, such as BOS.
  bool add_special_tokens = true;
  // Parse special tokens in the text, as Hugging Face tokenizers do; off for untrusted text, where "<|eot_id|>" must
  // stay plain.
  bool parse_special = true;
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  [[nodiscard]] std::vector<std::int32_t> encode(std::string_view text, const EncodeOptions& options = {}) const;
  // Appends to `ids`.
  virtual void encode(std::string_view text, const EncodeOptions& options, std::vector<std::int32_t>& ids) const = 0;
  // One result per text, in order; parallel over texts (OpenMP).
  [[nodiscard]] std::vector<std::vector<std::int32_t>> encode_batch(std::span<const std::string_view> texts,
                                                                    const EncodeOptions& options = {}) const;

  // Decoded bytes, not necessarily well-formed UTF-8, as ids may end within a character. Ids without a token (padded
  // embedding tables) decode to nothing; negative ids throw invalid_argument. `skip_special` omits special tokens.
  [[nodiscard]] std::string decode(std::span<const std::int32_t> ids, bool skip_special = false) const;

  // Byte offset in the decoded text of the end of each id.
  [[nodiscard]] std::vector<std::size_t> decoded_ends(std::span<const std::int32_t> ids) const;

  // Jinja chat templates of the tokenizer: chat_template.jinja and additional_chat_templates/, else
  // tokenizer_config.json.
  struct NamedTemplate {
    std::string name;  // e.g. "tool_use"
    std::string text;
    std::string source;
  };
  struct ChatTemplateText {
    std::string text;  // the only template, or "default"; empty: named ones only
    std::string source;
    std::vector<NamedTemplate> named{};
  };
  [[nodiscard]] const std::optional<ChatTemplateText>& chat_template() const noexcept { return chat_template_; }

  // Highest id + 1.
  [[nodiscard]] virtual std::int64_t vocab_size() const = 0;
  [[nodiscard]] std::optional<std::int32_t> bos_id() const noexcept { return bos_id_; }
  [[nodiscard]] std::optional<std::int32_t> eos_id() const noexcept { return eos_id_; }
  [[nodiscard]] std::optional<std::int32_t> pad_id() const noexcept { return pad_id_; }

  // Bytes of the token in decoded text; throws invalid_argument for ids without a token.
  [[nodiscard]] virtual std::string token_text(std::int32_t id) const = 0;
  // Id of the token with exactly these bytes, special or not.
  [[nodiscard]] virtual std::optional<std::int32_t> find_token(std::string_view bytes) const = 0;
  [[nodiscard]] virtual bool is_special(std::int32_t id) const = 0;
  // True for byte fallback tokens such as <0x0A>. Invalid UTF-8 then decodes to one U+FFFD per byte; otherwise one per
  // maximal subpart.
  [[nodiscard]] virtual bool has_byte_fallback() const { return false; }

  // Hash of everything that affects ids: equal on every machine, and after save and load.
  [[nodiscard]] virtual std::uint64_t fingerprint() const = 0;
  // Writes the files of load_tokenizer and Hugging Face transformers; creates the folder. Each file is replaced
  // atomically.
  virtual void save(const std::filesystem::path& folder) const = 0;

 protected:
  Tokenizer() = default;
  // Appends the decoded text of an id >= 0; `at_start`: no token before it. False for ids without a token.
  virtual bool append_text(std::int32_t id, bool at_start, std::string& text) const = 0;

  std::optional<std::int32_t> bos_id_, eos_id_, pad_id_;
  std::optional<ChatTemplateText> chat_template_;

 private:
  friend class StreamDecoder;
  // at_start is true before the first id, updated here.
  void append_decoded(std::int32_t id, bool skip_special, bool& at_start, std::string& text) const;
};

// Loads any kind of data/tokenizer/tokenizer_kind.h: tokenizer.json, SentencePiece tokenizer.model, a folder
// (tokenizer.json first, tokenizer.model if that is unsupported), or "bytes": byte i is id i, 256 BOS, 257 EOS, 258
// padding. Files are untrusted: throws corrupt or unsupported, with file, line and component, for anything that would
// not reproduce the ids of Hugging Face tokenizers.
//
// BOS, EOS and padding ids come from tokenizer_config.json or special_tokens_map.json; by default BOS is the
// post-processor's first token, EOS and padding have their usual names.
[[nodiscard]] std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& path);

}  // namespace quench
