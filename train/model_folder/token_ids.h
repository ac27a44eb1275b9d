#pragma once
// BOS, EOS and padding ids, from run config, tokenizer and source model.

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "data/tokenizer/tokenizer.h"
#include "nn/spec/model_config.h"

namespace quench {

struct TokenIds {
  std::optional<std::int64_t> bos, pad;
  std::vector<std::int64_t> eos;  // each ends a text

  friend bool operator==(const TokenIds&, const TokenIds&) = default;
};

// Ids in config.json or generation_config.json. Absent, null and other types: none.
[[nodiscard]] TokenIds token_ids_of(const Json& json);
[[nodiscard]] TokenIds token_ids_of(const nn::ModelConfig& config);
// null for none: readers replace an absent key by the architecture's default.
void set_token_ids(Json& json, const TokenIds& ids);
void set_token_ids(nn::ModelConfig& config, const TokenIds& ids);
// "begin 1, end 2 or 7, padding none"
[[nodiscard]] std::string to_string(const TokenIds& ids);

struct TokenIdSources {
  std::string model;       // for messages: "model.preset tiny"
  bool published = false;  // a model folder, not a preset or fields without a vocabulary
  TokenIds config;
  std::optional<TokenIds> generation;
  Json named = Json::object();  // bos_token_id, eos_token_id, pad_token_id of the run config
  const Tokenizer* tokenizer = nullptr;
  bool models_tokenizer = false;  // the tokenizer is the model folder's
};

struct TokenIdChoice {
  TokenIds config;
  TokenIds generation;                     // for generation_config.json
  std::string report;                      // one line: ids and their sources
  std::vector<std::string> disagreements;  // both sides and the choice
};

// Priority: run config; published model folder with its own tokenizer (chat models may have several EOS ids, which
// tokenizer files do not list); tokenizer; without one, the model.
[[nodiscard]] TokenIdChoice choose_token_ids(const TokenIdSources& sources);

// Ids in the folder's generation_config.json; absent without one. Throws corrupt.
[[nodiscard]] std::optional<TokenIds> stored_generation_ids(const std::filesystem::path& folder);

// `folder` may be empty. The tokenizer is the model's own if the folder holds one of the same fingerprint, with the
// tokens `added`, or none and names its EOS token. Throws corrupt naming generation_config.json.
[[nodiscard]] TokenIdSources token_id_sources(const std::filesystem::path& folder, const nn::ModelConfig& config,
                                              const Tokenizer* tokenizer, std::span<const NewToken> added = {});

[[nodiscard]] bool end_among(const TokenIds& ids, const Tokenizer& tokenizer);

}  // namespace quench
