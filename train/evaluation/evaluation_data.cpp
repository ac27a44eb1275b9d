#include "train/evaluation/evaluation_data.h"

#include <algorithm>

#include "data/formats/token_stream.h"
#include "data/sampling/data_formats.h"
#include "data/text/document_encoder.h"
#include "data/text/text_format.h"

namespace quench {
namespace {

using DocumentSink = std::function<void(const ScoredDocument&)>;

// Per read.
constexpr std::uint64_t kBlockTokens = std::uint64_t{1} << 20;

// Token ids, without a tokenizer.
void read_token_records(const std::filesystem::path& path, const EvaluationData& data, const nn::ModelConfig& model,
                        const DocumentSink& each) {
  ReaderOptions options = data.reader;
  options.format = data_format_named(data.format).text;
  options.vocab_size = model.vocab_size;
  // Distinguishes chats from ids; text is not read.
  if (options.chat_template == nullptr && !options.chat_renderer) options.chat_template = &chat_templates().front();
  const auto require_ids = [&](bool ids) {
    QUENCH_CHECK_AS(ErrorCode::bad_config, ids, "{} is text, but {}; name one with --tokenizer", path.string(),
                    data.no_tokenizer);
  };
  const TextFormat* format = options.format != nullptr ? options.format : text_format_of(path);
  require_ids(format != nullptr && format->open_records != nullptr);
  const auto reader = open_document_reader(path, options);
  Document document;
  const auto enough = [&] { return data.enough && data.enough(); };
  while (!enough() && reader->next(document)) {
    require_ids(std::ranges::none_of(document.pieces, [](const DocumentPiece& piece) { return !piece.text.empty(); }));
    std::vector<std::int32_t> tokens;
    std::vector<std::uint8_t> targets;
    for (const DocumentPiece& piece : document.pieces) {
      tokens.insert(tokens.end(), piece.ids.begin(), piece.ids.end());
      targets.insert(targets.end(), piece.targets.begin(), piece.targets.end());
    }
    each({.tokens = tokens, .targets = targets, .text = std::nullopt});
  }
}

void read_documents(const std::filesystem::path& path, const EvaluationData& data, const Tokenizer& tokenizer,
                    const nn::ModelConfig& model, const DocumentSink& each) {
  ReaderOptions options = data.reader;
  options.format = data_format_named(data.format).text;
  options.vocab_size = model.vocab_size;
  resolve_chats(options, tokenizer);
  const auto reader = open_document_reader(path, options);
  const DocumentEncoder encoder(tokenizer, {.eos = EosPolicy::none});
  const ScoredText whole(tokenizer, model, data.special_tokens);
  std::string text;
  Document document;
  const auto enough = [&] { return data.enough && data.enough(); };
  while (!enough() && reader->next(document)) {
    const bool masked = std::ranges::any_of(document.pieces, [](const DocumentPiece& piece) { return !piece.target; });
    if (document.complete || masked) {
      const EncodedDocument encoded = encoder.encode(std::span(&document, 1)).front();
      each({.tokens = encoded.ids, .targets = encoded.targets, .text = std::nullopt});
      continue;
    }
    if (document.begins) text.clear();
    for (const DocumentPiece& piece : document.pieces) text += piece.text;
    if (!document.ends) continue;
    const std::vector<std::int32_t> tokens = whole.encode(text, options.special_text != SpecialText::text);
    each({.tokens = tokens, .targets = {}, .text = text});
  }
}

// Token files; documents of any length.
class ShardDocuments {
 public:
  ShardDocuments(const std::vector<std::string>& files, const EvaluationData& data, const Tokenizer* tokenizer,
                 const nn::ModelConfig& model, const DocumentSink& each)
      : tokenizer_(tokenizer),
        each_(each),
        enough_(data.enough),
        source_(TokenStream::open(files, options(data, tokenizer, model))) {}

  void read() {
    std::vector<std::int32_t> block;
    std::vector<std::uint64_t> starts;
    for (std::uint64_t begin = 0; begin < source_->size() && !enough(); begin += block.size()) {
      block.resize(static_cast<std::size_t>(std::min(kBlockTokens, source_->size() - begin)));
      source_->read(begin, block);
      starts.clear();
      source_->find_document_starts(begin, block, starts);
      // A block's first token is not among its starts.
      if (begin > 0 && starts_at(begin)) starts.insert(starts.begin(), begin);
      std::size_t done = 0;
      for (const std::uint64_t start : starts) {
        const auto end = static_cast<std::size_t>(start - begin);
        append(block, done, end);
        hand_on();
        done = end;
      }
      append(block, done, block.size());
    }
    hand_on();
  }

 private:
  static TokenSourceOptions options(const EvaluationData& data, const Tokenizer* tokenizer,
                                    const nn::ModelConfig& model) {
    TokenSourceOptions options{.format = data_format_named(data.format).tokens,
                               .vocab_size = static_cast<std::uint64_t>(model.vocab_size)};
    if (tokenizer != nullptr) {
      options.eos_id = tokenizer->eos_id();
      options.tokenizer_fingerprint = fingerprint_text(*tokenizer);
    } else if (!model.eos_token_ids.empty()) {
      options.eos_id = static_cast<std::int32_t>(model.eos_token_ids.front());
    }
    return options;
  }

  [[nodiscard]] bool enough() const { return enough_ && enough_(); }

  [[nodiscard]] bool starts_at(std::uint64_t token) const {
    std::vector<std::int32_t> pair(2);
    source_->read(token - 1, pair);
    std::vector<std::uint64_t> starts;
    source_->find_document_starts(token - 1, pair, starts);
    return !starts.empty();
  }

  void append(const std::vector<std::int32_t>& block, std::size_t begin, std::size_t end) {
    tokens_.insert(tokens_.end(), block.begin() + static_cast<std::ptrdiff_t>(begin),
                   block.begin() + static_cast<std::ptrdiff_t>(end));
  }

  void hand_on() {
    if (tokens_.empty()) return;
    targets_.clear();
    if (source_->has_target_mask()) {
      targets_.resize(tokens_.size());
      source_->read_target_mask(first_, targets_);
    }
    const bool all = std::ranges::find(targets_, 0) == targets_.end();
    std::optional<std::string> text;
    if (tokenizer_ != nullptr && all) text = tokenizer_->decode(tokens_, {.skip_special = true});
    each_(
        {.tokens = tokens_, .targets = targets_, .text = text ? std::optional<std::string_view>(*text) : std::nullopt});
    first_ += tokens_.size();
    tokens_.clear();
  }

  const Tokenizer* tokenizer_;
  const DocumentSink& each_;
  const std::function<bool()>& enough_;
  std::unique_ptr<TokenStream> source_;
  std::vector<std::int32_t> tokens_;  // tokens of the document
  std::vector<std::uint8_t> targets_;
  std::uint64_t first_ = 0;  // in the stream
};

}  // namespace

void read_evaluation_data(const EvaluationData& data, const Tokenizer* tokenizer, const nn::ModelConfig& model,
                          const DocumentSink& each) {
  const DataFormat format = data_format_named(data.format);
  std::vector<std::string> token_files;
  for (const auto& path : expand_data_files(data.files, data.split)) {
    if (data.enough && data.enough()) return;
    const bool automatic = format.text == nullptr && format.tokens == nullptr;
    const bool text = format.text != nullptr || (automatic && text_format_of(path) != nullptr);
    if (!text) {
      token_files.push_back(path.string());
      continue;
    }
    if (tokenizer != nullptr)
      read_documents(path, data, *tokenizer, model, each);
    else
      read_token_records(path, data, model, each);
  }
  if (!token_files.empty()) ShardDocuments(token_files, data, tokenizer, model, each).read();
}

}  // namespace quench
