#pragma once
// Text to token ids and back.
//
// Texts and decoded texts are bytes. Encoding never alters them except where the tokenizer itself says so (Unicode
// normalization, a prefix space, white space that an added token takes along). Byte-level tokenizers encode bytes that
// are not well-formed UTF-8 too: such a run of bytes is a piece of its own, and decode(encode(x)) is x. So do
// SentencePiece models that have a piece for every byte; others replace such bytes by U+FFFD.
//
// All const member functions may be called from any number of threads.

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
  // Surround the ids with what the tokenizer prescribes for one sequence, such as a begin-of-text id.
  bool add_special_tokens = true;
  // Encode occurrences of special tokens in the text as those tokens. This is what Hugging Face tokenizers do; turn it
  // off for text from strangers, where "<|eot_id|>" must stay eleven characters.
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
  // One result per text, in order; texts are spread over OpenMP's threads.
  [[nodiscard]] std::vector<std::vector<std::int32_t>> encode_batch(std::span<const std::string_view> texts,
                                                                    const EncodeOptions& options = {}) const;

  // The bytes that the ids stand for; they need not be well-formed UTF-8, as ids need not end where a character does.
  // Ids that no token has (embedding tables are often padded) stand for nothing; negative ids throw invalid_argument.
  // `skip_special` leaves special tokens out.
  [[nodiscard]] std::string decode(std::span<const std::int32_t> ids, bool skip_special = false) const;

  // How many bytes of the decoded text stand up to and including each id.
  [[nodiscard]] std::vector<std::size_t> decoded_ends(std::span<const std::int32_t> ids) const;

  // The chat templates that came with the tokenizer, as Jinja: chat_template.jinja and additional_chat_templates/, else
  // tokenizer_config.json's.
  struct NamedTemplate {
    std::string name;  // "tool_use", for example
    std::string text;
    std::string source;  // the file, for errors
  };
  struct ChatTemplateText {
    std::string text;                    // the only one, or that named "default"; empty: there are others alone
    std::string source;                  // the file, for errors
    std::vector<NamedTemplate> named{};  // all others
  };
  [[nodiscard]] const std::optional<ChatTemplateText>& chat_template() const noexcept { return chat_template_; }

  // One more than the highest id.
  [[nodiscard]] virtual std::int64_t vocab_size() const = 0;
  [[nodiscard]] std::optional<std::int32_t> bos_id() const noexcept { return bos_id_; }
  [[nodiscard]] std::optional<std::int32_t> eos_id() const noexcept { return eos_id_; }
  [[nodiscard]] std::optional<std::int32_t> pad_id() const noexcept { return pad_id_; }

  // The token's bytes as they stand in decoded text; throws invalid_argument if no token has the id.
  [[nodiscard]] virtual std::string token_text(std::int32_t id) const = 0;
  // The id of the token with exactly these bytes, special or not.
  [[nodiscard]] virtual std::optional<std::int32_t> find_token(std::string_view bytes) const = 0;
  [[nodiscard]] virtual bool is_special(std::int32_t id) const = 0;
  // Whether bytes without a token of their own have tokens such as <0x0A> (byte fallback). Their text, where it is no
  // UTF-8, is decoded with one U+FFFD for each byte; that of byte-level tokenizers with one for each maximal subpart.
  [[nodiscard]] virtual bool has_byte_fallback() const { return false; }

  // A hash of all that determines ids: equal on every machine, and for a saved and loaded copy.
  [[nodiscard]] virtual std::uint64_t fingerprint() const = 0;
  // Writes the files that load_tokenizer and Hugging Face transformers read into a folder, created if need be. Each
  // file is replaced atomically.
  virtual void save(const std::filesystem::path& folder) const = 0;

 protected:
  Tokenizer() = default;
  // Appends what an id, which is not negative, stands for in decoded text; `at_start`: no token stands before it.
  // False if no token has the id.
  virtual bool append_text(std::int32_t id, bool at_start, std::string& text) const = 0;

  std::optional<std::int32_t> bos_id_, eos_id_, pad_id_;
  std::optional<ChatTemplateText> chat_template_;

 private:
  friend class StreamDecoder;
  // Decodes one id of a sequence; at_start is true before the first and is kept up to date.
  void append_decoded(std::int32_t id, bool skip_special, bool& at_start, std::string& text) const;
};

// Loads what data/tokenizer/tokenizer_kind.h lists: a tokenizer.json, a SentencePiece tokenizer.model, a folder that
// holds one (tokenizer.json is preferred, unless it is not supported and there is a tokenizer.model), or "bytes": byte
// i is id i, then 256 begin, 257 end, 258 padding. Files are untrusted: corrupt or unsupported, naming the file, the
// line and the component, for anything that would not give the ids that Hugging Face tokenizers give.
//
// Begin, end and padding ids come from tokenizer_config.json or special_tokens_map.json beside the file; failing those,
// the begin id is what the post-processor puts first, and end and padding are looked up by their usual names.
[[nodiscard]] std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& path);

}  // namespace quench
