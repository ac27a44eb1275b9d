#pragma once
// Content named by a config: data files, tokenizer, model config; stored in checkpoints, compared on resume.

#include <optional>
#include <string>
#include <vector>

#include "core/json/json.h"
#include "data/formats/validation_cache.h"
#include "data/tokenizer/tokenizer.h"
#include "train/config/config_diff.h"
#include "train/config/run_config.h"

namespace quench {

// A file that a config names, and what it holds.
struct FileContent {
  std::string file;
  ContentHash content;
};

// Content of everything that a config names.
struct RunIdentity {
  // By source, in order.
  std::vector<std::vector<FileContent>> train;
  std::vector<std::vector<FileContent>> validation;
  std::optional<double> validation_split{};
  std::string tokenizer;        // empty: none
  Json model = Json::object();  // preset or config.json with inline fields
  std::string second_model;     // hash of the weights of an objective's second model, or empty
};

// `tokenizer` may be null. Throws errors of reading the files.
[[nodiscard]] RunIdentity run_identity(const RunConfig& config, const Tokenizer* tokenizer, ValidationCache& checks);

// CheckpointState::data.
[[nodiscard]] Json to_json(const RunIdentity& identity);

// Changes of config and content since the run that saved `stored` (CheckpointState::data) with config `before`. A
// content change belongs to the key that refers to it, and must be allowed by that key; a changed path with equal
// content is none. Throws corrupt for content not written by to_json().
[[nodiscard]] std::vector<ConfigChange> run_changes(const Json& stored, const RunConfig& before,
                                                    const RunIdentity& identity, const RunConfig& after);

// False if the held-out data have other content than in `stored` (as run_changes()).
[[nodiscard]] bool same_validation(const Json& stored, const RunIdentity& identity);

// Changes of data.train between two "train" members of to_json(identity); one per file. Throws corrupt as
// run_changes().
[[nodiscard]] std::vector<ConfigChange> train_data_changes(const Json& stored, const Json& now);

}  // namespace quench
