#pragma once
// <run>/model: config.json with the run's token ids, generation_config.json, tokenizer files, chat template and
// licences, written at the start. Checkpoints also hold the config: a run folder is relocatable and independent of its
// source model and tokenizer.

#include <filesystem>
#include <memory>
#include <string>

#include "data/sampling/dataset.h"
#include "train/checkpoint/checkpoint_state.h"
#include "train/config/run_config.h"
#include "train/model_folder/model_card.h"
#include "train/model_folder/token_ids.h"

namespace quench {

struct RunModel {
  nn::ModelConfig config;                      // with the run's token ids
  TokenIds generation_ids;                     // for generation_config.json; with the template's end-of-turn id
  std::shared_ptr<const Tokenizer> tokenizer;  // or null
  std::string chat_template;                   // Jinja of data.chat_template; empty: the tokenizer's
  std::string report;                          // one line: ids and their sources
  std::string data = {};                       // training_data_text()
  TrainingFacts training = {};                 // facts of the trained model, for model cards
};

// Chooses the token ids for config `model` (resolve_model_config); `tokenizer` may be null. `train`: training data,
// read for the end of turn of the tokenizer's chat template, or null: no chats by it. Warns if config, tokenizer and
// model folder disagree.
[[nodiscard]] RunModel make_run_model(const RunConfig& config, nn::ModelConfig model,
                                      std::shared_ptr<const Tokenizer> tokenizer, const Dataset* train = nullptr);

// Writes sources.json and model/ in run.folder. An equal model part is untouched; a different one is replaced by file,
// config.json last, with a warning. Other files stay. Throws bad_config for a model folder not written by a run.
void write_run_model(const RunConfig& config, const RunModel& model);

// Config, tokenizer fingerprint, training data and run folder path.
void store_run_model(CheckpointState& state, const RunConfig& config, const RunModel& model);

// training_data_text() of the checkpoint's run; empty: unknown.
[[nodiscard]] std::string stored_data_text(const CheckpointState& state);

// Model of a checkpoint.
struct StoredModel {
  nn::ModelConfig config;
  std::filesystem::path files;  // folder of small files (<run>/model); empty: absent
  std::string fingerprint;      // hash of the training tokenizer; empty: unknown
  std::string missing;          // reason for a missing tokenizer, and remedy; empty: unknown
};

// `checkpoint`: step-N, in its run folder or moved; `run`: its run folder, if known. Throws corrupt for a checkpoint
// that no run saved, and errors of reading the config.
[[nodiscard]] StoredModel stored_model(const CheckpointState& state, const std::filesystem::path& checkpoint,
                                       const std::filesystem::path& run = {});

}  // namespace quench
