#include "train/check/run_tokenizer.h"

#include <algorithm>
#include <filesystem>

#include "core/system/key_error.h"
#include "data/tokenizer/tokenizer_kind.h"
#include "train/config/data_files.h"
#include "train/config/presets.h"

namespace quench {
namespace {

namespace fs = std::filesystem;

constexpr const char* kAddTokensKey = "model.add_tokens";

std::shared_ptr<const Tokenizer> named_tokenizer(const RunConfig& config) {
  if (!config.data.tokenizer.empty()) return load_tokenizer(config.data.tokenizer);
  if (holds_tokenizer(config.model.path)) return load_tokenizer(config.model.path);
  for (const DataSource& source : config.data.train)
    for (const std::string& file : expand_pattern(source.path)) {
      const fs::path folder = fs::is_directory(file) ? fs::path(file) : fs::path(file).parent_path();
      if (fs::exists(folder / "dataset.json") && holds_tokenizer(folder / "tokenizer"))
        return load_tokenizer(folder / "tokenizer");
    }
  return nullptr;
}

void name_ids(TokenIndices& indices, const std::vector<NewToken>& tokens, const Tokenizer& tokenizer) {
  if (!std::exchange(indices.added, false)) return;
  for (const NewToken& token : tokens) indices.ids.push_back(tokenizer.find_token(token.text).value());
}

}  // namespace

std::shared_ptr<const Tokenizer> run_tokenizer(const RunConfig& config) {
  std::shared_ptr<const Tokenizer> tokenizer = named_tokenizer(config);
  if (tokenizer == nullptr || config.model.add_tokens.empty()) return tokenizer;
  try {
    return tokenizer->with_tokens(config.model.add_tokens);
  } catch (const Error& error) {
    throw KeyError(error.code(), kAddTokensKey, error.what());
  }
}

void derive_new_tokens(RunConfig& config) {
  ModelSection& model = config.model;
  if (model.add_tokens.empty()) return;
  const std::shared_ptr<const Tokenizer> tokenizer = run_tokenizer(config);
  QUENCH_CHECK_KEY(ErrorCode::bad_config, kAddTokensKey, tokenizer != nullptr,
                   "the run has no tokenizer that could learn tokens; {}; name one in data.tokenizer",
                   no_tokenizer_text());
  const Json architecture = model_config(model);
  const Json* rows = architecture.find("vocab_size");
  if (rows != nullptr && rows->is_integer() && rows->as_int() < tokenizer->vocab_size()) {
    const std::int64_t multiple = model.pad_vocab_to_multiple_of.value_or(1);
    model.fields.set("vocab_size", (tokenizer->vocab_size() + multiple - 1) / multiple * multiple);
  }
  if (!config.lora) return;
  TrainedTokens& trained = config.lora->trainable_token_indices;
  const Json* tied = architecture.find("tie_word_embeddings");
  if (trained.embedding.added && tied != nullptr && *tied == Json(true)) trained.head.added = false;
  name_ids(trained.embedding, model.add_tokens, *tokenizer);
  name_ids(trained.head, model.add_tokens, *tokenizer);
}

}  // namespace quench
