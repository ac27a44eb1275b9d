#include "data/tokenizer/bpe_tokenizer.h"

#include <algorithm>

#include "core/log.h"
#include "data/tokenizer/code_points.h"
#include "data/tokenizer/unicode.h"

namespace quench {

// A workspace for the duration of one call: an idle one, whose cache is warm, or a new one.
class BpeTokenizer::WorkspaceLease {
 public:
  explicit WorkspaceLease(const BpeTokenizer& owner) : owner_(owner) {
    const std::lock_guard lock(owner_.mutex_);
    if (owner_.idle_workspaces_.empty()) {
      workspace_ = std::make_unique<BpeModel::Workspace>();
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

  BpeModel::Workspace& operator*() { return *workspace_; }

 private:
  const BpeTokenizer& owner_;
  std::unique_ptr<BpeModel::Workspace> workspace_;
};

BpeTokenizer::BpeTokenizer(TokenizerFiles files)
    : BpeTokenizer(std::move(files), read_tokenizer_json(files.vocabulary(), files.source())) {}

BpeTokenizer::BpeTokenizer(TokenizerFiles&& files, TokenizerDescription description)
    : files_(std::move(files)),
      model_(std::move(description.model)),
      pre_tokenizer_(std::move(description.pre_tokenizer)),
      normalize_nfc_(description.normalize_nfc),
      prefix_(std::move(description.prefix)),
      suffix_(std::move(description.suffix)) {
  const auto& tokens = model_.tokens();
  vocab_size_ = std::ssize(tokens);
  for (std::size_t id = 0; id < tokens.size(); ++id) {
    if (!tokens[id].bytes.empty()) ids_by_text_.emplace(tokens[id].bytes, static_cast<std::int32_t>(id));
  }
  add_tokens(std::move(description.added_tokens));
  choose_special_ids();
  if (const auto missing = model_.missing_bytes(); !missing.empty()) {
    QUENCH_LOG_WARN(
        "{}: {} of 256 byte values have no token (the first is 0x{:02X}): text that holds them is not "
        "encoded faithfully",
        files_.source(), missing.size(), missing.front());
  }
}

BpeTokenizer::~BpeTokenizer() = default;

void BpeTokenizer::add_tokens(std::vector<AddedToken> tokens) {
  std::vector<AddedToken> raw, normalized;
  for (AddedToken& token : tokens) {
    vocab_size_ = std::max(vocab_size_, static_cast<std::int64_t>(token.id) + 1);
    ids_by_text_.insert_or_assign(token.content, token.id);
    added_by_id_.emplace(token.id, token);
    if (token.normalized) {
      std::string storage;
      if (normalize_nfc_) token.content = std::string(normalize_nfc(token.content, storage));
      normalized.push_back(std::move(token));
    } else {
      raw.push_back(std::move(token));
    }
  }
  raw_tokens_ = AddedTokens(std::move(raw));
  normalized_tokens_ = AddedTokens(std::move(normalized));
}

std::optional<std::int32_t> BpeTokenizer::first_of(std::initializer_list<std::string_view> contents) const {
  for (const std::string_view content : contents) {
    if (const auto id = find_token(content)) return id;
  }
  return std::nullopt;
}

void BpeTokenizer::choose_special_ids() {
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
  if (!bos_id_ && !prefix_.empty()) bos_id_ = prefix_.front();
  if (!bos_id_) bos_id_ = first_of({"<|begin_of_text|>", "<s>", "<bos>"});
  if (!eos_id_) eos_id_ = first_of({"<|end_of_text|>", "<|endoftext|>", "</s>", "<eos>"});
  if (!pad_id_) pad_id_ = first_of({"<|finetune_right_pad_id|>", "<|pad|>", "<pad>"});
}

void BpeTokenizer::encode(std::string_view text, const EncodeOptions& options, std::vector<std::int32_t>& ids) const {
  WorkspaceLease workspace(*this);
  if (options.add_special_tokens) ids.insert(ids.end(), prefix_.begin(), prefix_.end());
  for (const auto& [segment, id] : raw_tokens_.split(text, options.parse_special)) {
    if (id >= 0) {
      ids.push_back(id);
      continue;
    }
    for_each_stretch(
        segment, [&](std::string_view stretch) { encode_text(stretch, options, *workspace, ids); },
        [&](std::string_view other) { model_.encode(other, *workspace, ids); });
  }
  if (options.add_special_tokens) ids.insert(ids.end(), suffix_.begin(), suffix_.end());
}

void BpeTokenizer::encode_text(std::string_view text, const EncodeOptions& options, BpeModel::Workspace& workspace,
                               std::vector<std::int32_t>& ids) const {
  std::string storage;
  if (normalize_nfc_) text = normalize_nfc(text, storage);
  for (const auto& [segment, id] : normalized_tokens_.split(text, options.parse_special)) {
    if (id >= 0) {
      ids.push_back(id);
    } else {
      pre_tokenizer_.split(segment, [&](std::string_view piece) { model_.encode(piece, workspace, ids); });
    }
  }
}

std::int64_t BpeTokenizer::vocab_size() const {
  return vocab_size_;
}

bool BpeTokenizer::append_text(std::int32_t id, bool, std::string& text) const {
  const auto& tokens = model_.tokens();
  const auto index = static_cast<std::size_t>(id);
  if (index < tokens.size() && !tokens[index].bytes.empty()) {
    text += tokens[index].bytes;
  } else if (const auto added = added_by_id_.find(id); added != added_by_id_.end()) {
    text += added->second.content;
  } else {
    return false;
  }
  return true;
}

std::string BpeTokenizer::token_text(std::int32_t id) const {
  std::string text;
  QUENCH_CHECK(id >= 0 && append_text(id, false, text), "no token has id {}; the vocabulary has {} ids", id,
               vocab_size_);
  return text;
}

std::optional<std::int32_t> BpeTokenizer::find_token(std::string_view bytes) const {
  const auto found = ids_by_text_.find(std::string(bytes));
  return found == ids_by_text_.end() ? std::nullopt : std::optional(found->second);
}

bool BpeTokenizer::is_special(std::int32_t id) const {
  const auto added = added_by_id_.find(id);
  return added != added_by_id_.end() && added->second.special;
}

std::uint64_t BpeTokenizer::fingerprint() const {
  return files_.fingerprint();
}

void BpeTokenizer::save(const std::filesystem::path& folder) const {
  files_.save(folder);
}

}  // namespace quench
