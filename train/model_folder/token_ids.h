#pragma once
// Which token ids begin, end and pad a model's texts, and who says so: the run's config, the tokenizer, or what the
// model came from.

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "data/tokenizer/tokenizer.h"
#include "nn/model_config.h"

namespace quench {

struct TokenIds {
  std::optional<std::int64_t> bos, pad;
  std::vector<std::int64_t> eos;  // each of them ends a text

  friend bool operator==(const TokenIds&, const TokenIds&) = default;
};

// What a config.json or generation_config.json says. Absent, null and values of other types are no ids.
[[nodiscard]] TokenIds token_ids_of(const Json& json);
[[nodiscard]] TokenIds token_ids_of(const nn::ModelConfig& config);
// Makes them the ids of a config.json or generation_config.json; null stands for none, because readers take an absent
// key for a default of the architecture.
void set_token_ids(Json& json, const TokenIds& ids);
// The same for a config and the source that it was read from.
void set_token_ids(nn::ModelConfig& config, const TokenIds& ids);
// "begin 1, end 2 or 7, padding none"
[[nodiscard]] std::string to_string(const TokenIds& ids);

// What can say which ids a model has.
struct TokenIdSources {
  std::string model;                   // how messages call what the model comes from: "model.preset tiny"
  bool published = false;              // a model folder; else a preset or fields, which know no vocabulary
  TokenIds config;                     // of the model's config.json
  std::optional<TokenIds> generation;  // of the generation_config.json beside it
  Json named = Json::object();         // bos_token_id, eos_token_id, pad_token_id that the run's config names
  const Tokenizer* tokenizer = nullptr;
  bool models_tokenizer = false;  // it is the one that the model's folder holds
};

struct TokenIdChoice {
  TokenIds config;                         // for config.json
  TokenIds generation;                     // for generation_config.json: where generated text ends
  std::string report;                      // one line for people: the ids and where they come from
  std::vector<std::string> disagreements;  // each names both sides and what is used
};

// What the run's config names wins. Else the ids are the tokenizer's; those of a published model folder are kept with
// the tokenizer that belongs to it (a chat model may have several end ids, which no tokenizer file lists), and without
// any tokenizer the model's are all there is.
[[nodiscard]] TokenIdChoice choose_token_ids(const TokenIdSources& sources);

// The sources of a model from `folder` (empty: from no folder), whose config is `config`. A tokenizer is the model's
// own if the folder holds one of the same fingerprint, or holds none and names its end token. Throws corrupt naming
// generation_config.json.
[[nodiscard]] TokenIdSources token_id_sources(const std::filesystem::path& folder, const nn::ModelConfig& config,
                                              const Tokenizer* tokenizer);

// Whether the tokenizer's end token is one of these ends.
[[nodiscard]] bool end_among(const TokenIds& ids, const Tokenizer& tokenizer);

}  // namespace quench
