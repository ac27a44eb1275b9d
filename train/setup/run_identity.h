#pragma once
// What a run computes from that its config only points to: the content of data files, tokenizer and model config.
// Stored in every checkpoint; a resume compares it with what is there now.

#include <string>
#include <vector>

#include "core/json/json.h"
#include "data/formats/validation_cache.h"
#include "data/tokenizer/tokenizer.h"
#include "train/config/config_diff.h"
#include "train/config/run_config.h"

namespace quench {

struct FileContent {
  std::string file;
  ContentHash content;
};

struct RunIdentity {
  // The files of each source in order.
  std::vector<std::vector<FileContent>> train;
  std::vector<std::vector<FileContent>> validation;
  std::string tokenizer;        // its fingerprint; empty: none
  Json model = Json::object();  // its Hugging Face config: preset or config.json, and the inline fields
};

// `tokenizer` may be null. Throws what opening and reading the files throws.
[[nodiscard]] RunIdentity run_identity(const RunConfig& config, const Tokenizer* tokenizer, ValidationCache& checks);

// CheckpointState::data.
[[nodiscard]] Json to_json(const RunIdentity& identity);

// What differs between the run that saved `stored` (CheckpointState::data) under the config `before`, and this one: the
// differences of the configs and those of content. Each change of content is of the key that points to it and must be
// allowed by that name. What a changed path leads to may be the same content, which is no change. A checkpoint without
// such a record, by an older program, is compared by its config alone, with a warning. Throws corrupt for anything that
// to_json() does not write.
[[nodiscard]] std::vector<ConfigChange> run_changes(const Json& stored, const RunConfig& before,
                                                    const RunIdentity& identity, const RunConfig& after);

}  // namespace quench
