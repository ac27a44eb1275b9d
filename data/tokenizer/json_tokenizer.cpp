#include "data/tokenizer/json_tokenizer.h"

#include <algorithm>
#include <utility>

#include "core/system/log.h"
#include "data/tokenizer/model/byte_tokens.h"
#include "data/tokenizer/new_tokens.h"
#include "data/tokenizer/text/code_points.h"

namespace quench {

// An idle one with a warm cache, or a new one.
class JsonTokenizer::WorkspaceLease {
 public:
  explicit WorkspaceLease(const JsonTokenizer& owner) : owner_(owner) {
    const std::lock_guard lock(owner_.mutex_);
    if (owner_.idle_workspaces_.empty()) {
      workspace_ = owner_.description_.model->make_workspace();
    } else {
      workspace_ = std::move(owner_.idle_workspaces_.back());
      owner_.idle_workspaces_.pop_back();
    }
  }
  ~WorkspaceLease() {
    const std::lock_guard lock(owner_.mutex_);
    owner_.idle_workspaces_.push_back(std::move(workspace_));
  }
  WorkspaceLease(const WorkspaceLease&) = delete;
  WorkspaceLease& operator=(const WorkspaceLease&) = delete;

  TokenModel::Workspace& operator*() { return *workspace_; }

 private:
  const JsonTokenizer& owner_;
  std::unique_ptr<TokenModel::Workspace> workspace_;
};

JsonTokenizer::JsonTokenizer(TokenizerFiles files)
    : JsonTokenizer(std::move(files), read_tokenizer_json(files.vocabulary(), files.source())) {}

JsonTokenizer::JsonTokenizer(TokenizerFiles&& files, TokenizerDescription description)
    : files_(std::move(files)), description_(std::move(description)) {
  const auto& tokens = description_.tokens;
  vocab_size_ = std::ssize(tokens);
  const auto add_texts = [&](bool of_bytes) {
    for (std::size_t id = 0; id < tokens.size(); ++id) {
      if (tokens[id].empty() || byte_of_token(tokens[id]).has_value() != of_bytes) continue;
      std::string text;
      description_.decoder.append(tokens[id], false, text);
      ids_by_text_.emplace(std::move(text), static_cast<std::int32_t>(id));
    }
  };
  add_texts(false);
  add_texts(true);  // after the character's own
  add_tokens(std::exchange(description_.added_tokens, {}));
  choose_special_ids();
  chat_template_ = files_.settings().chat_template;
  warn_of_unmarked_tokens(*this, files_);
}

JsonTokenizer::~JsonTokenizer() = default;

void JsonTokenizer::add_tokens(std::vector<AddedToken> tokens) {
  std::vector<AddedToken> raw, normalized;
  for (AddedToken& token : tokens) {
    vocab_size_ = std::max(vocab_size_, static_cast<std::int64_t>(token.id) + 1);
    ids_by_text_.insert_or_assign(token.content, token.id);
    if (token.normalized) {  // decoded form, too
      std::string storage;
      token.content = std::string(description_.normalizer.apply(token.content, true, storage));
    }
    added_by_id_.emplace(token.id, token);
    (token.normalized ? normalized : raw).push_back(std::move(token));
  }
  raw_tokens_ = AddedTokens(std::move(raw));
  normalized_tokens_ = AddedTokens(std::move(normalized));
}

std::optional<std::int32_t> JsonTokenizer::first_of(std::initializer_list<std::string_view> contents) const {
  for (const std::string_view content : contents) {
    if (const auto id = find_token(content)) return id;
  }
  return std::nullopt;
}

void JsonTokenizer::choose_special_ids() {
  const auto named = [&](const std::optional<std::string>& name, std::string_view role) {
    const auto id = name ? find_token(*name) : std::nullopt;
    if (name && !id) {
      QUENCH_LOG_WARN("{}: the {} token \"{}\" of the tokenizer's settings is not in its vocabulary", files_.source(),
                      role, *name);
    }
    return id;
  };
  const TokenizerSettings& settings = files_.settings();
  bos_id_ = named(settings.bos_token, "begin-of-text");
  eos_id_ = named(settings.eos_token, "end-of-text");
  pad_id_ = named(settings.pad_token, "padding");
  if (!bos_id_ && !description_.prefix.empty()) bos_id_ = description_.prefix.front();
  if (!bos_id_) bos_id_ = first_of({"<|begin_of_text|>", "<s>", "<bos>"});
  if (!eos_id_) eos_id_ = first_of({"<|end_of_text|>", "<|endoftext|>", "</s>", "<eos>"});
  if (!pad_id_) pad_id_ = first_of({"<|finetune_right_pad_id|>", "<|pad|>", "<pad>"});
}

void JsonTokenizer::encode(std::string_view text, const EncodeOptions& options, std::vector<std::int32_t>& ids) const {
  using Place = PreTokenizer::Place;
  const auto& prefix = description_.prefix;
  const auto& suffix = description_.suffix;
  WorkspaceLease workspace(*this);
  if (options.add_special_tokens) ids.insert(ids.end(), prefix.begin(), prefix.end());
  for (const auto& [segment, id] : raw_tokens_.split(text, options.parse_special)) {
    if (id >= 0) {
      ids.push_back(id);
      continue;
    }
    for_each_stretch(
        segment,
        [&](std::string_view stretch) {
          const Place place = stretch.data() == text.data()      ? Place::text
                              : stretch.data() == segment.data() ? Place::segment
                                                                 : Place::inside;
          encode_text(stretch, place, options, *workspace, ids);
        },
        [&](std::string_view other) { description_.model->encode_other(other, *workspace, ids); });
  }
  if (options.add_special_tokens) ids.insert(ids.end(), suffix.begin(), suffix.end());
}

void JsonTokenizer::encode_text(std::string_view text, PreTokenizer::Place place, const EncodeOptions& options,
                                TokenModel::Workspace& workspace, std::vector<std::int32_t>& ids) const {
  std::string storage;
  text = description_.normalizer.apply(text, place != PreTokenizer::Place::inside, storage);
  for (const auto& [segment, id] : normalized_tokens_.split(text, options.parse_special)) {
    if (id >= 0) {
      ids.push_back(id);
      continue;
    }
    const bool is_first = segment.data() == text.data();
    description_.pre_tokenizer.split(
        segment, is_first ? place : PreTokenizer::Place::segment,
        [&](std::string_view piece) { description_.model->encode(piece, workspace, ids); });
  }
}

std::int64_t JsonTokenizer::vocab_size() const {
  return vocab_size_;
}

bool JsonTokenizer::append_text(std::int32_t id, bool at_start, std::string& text) const {
  const auto index = static_cast<std::size_t>(id);
  const bool in_vocabulary = index < description_.tokens.size() && !description_.tokens[index].empty();
  const auto added = added_by_id_.find(id);
  if (added != added_by_id_.end() && (added->second.normalized || !in_vocabulary)) {
    description_.decoder.append(added->second.content, at_start, text);
    return true;
  }
  if (in_vocabulary) description_.decoder.append(description_.tokens[index], at_start, text);
  return in_vocabulary;
}

std::string JsonTokenizer::token_text(std::int32_t id) const {
  std::string text;
  QUENCH_CHECK(id >= 0 && append_text(id, false, text), "token id {} does not exist; the vocabulary has {} ids", id,
               vocab_size_);
  return text;
}

std::optional<std::int32_t> JsonTokenizer::find_token(std::string_view bytes) const {
  const auto found = ids_by_text_.find(std::string(bytes));
  return found == ids_by_text_.end() ? std::nullopt : std::optional(found->second);
}

bool JsonTokenizer::is_special(std::int32_t id) const {
  const auto added = added_by_id_.find(id);
  return added != added_by_id_.end() && added->second.special;
}

std::vector<std::uint8_t> JsonTokenizer::bytes_without_token() const {
  return description_.decoder.is_byte_level() ? description_.model->missing_bytes() : std::vector<std::uint8_t>();
}

std::uint64_t JsonTokenizer::fingerprint() const {
  return files_.fingerprint();
}

std::unique_ptr<Tokenizer> JsonTokenizer::with_tokens(std::span<const NewToken> tokens) const {
  return std::make_unique<JsonTokenizer>(with_new_json_tokens(files_, tokens, named_tokens(*this)));
}

void JsonTokenizer::save(const std::filesystem::path& folder) const {
  files_.save(folder);
}

}  // namespace quench
