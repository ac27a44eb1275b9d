#pragma once
// The model part of a run folder: what using the run's checkpoints needs besides their weights.
//
// <run>/model holds config.json with the run's token ids, generation_config.json, the tokenizer's files, chat template
// and licences: a model folder without weights, written at the start of the run. Checkpoints hold the config too. So a
// run folder can be moved and copied, whatever becomes of the model and the tokenizer that it started from.

#include <filesystem>
#include <memory>
#include <string>

#include "train/checkpoint/checkpoint_state.h"
#include "train/config/run_config.h"
#include "train/model_folder/token_ids.h"

namespace quench {

struct RunModel {
  nn::ModelConfig config;                      // with the run's token ids
  TokenIds generation_ids;                     // of generation_config.json; a named chat template's end of turn too
  std::shared_ptr<const Tokenizer> tokenizer;  // null: there is none
  std::string chat_template;                   // that data.chat_template names, as Jinja; empty: the tokenizer's own
  std::string report;                          // the ids and where they come from, one line
};

// Chooses the token ids of a run whose model is described by `model` (resolve_model_config); `tokenizer` may be null.
// Warns where config, tokenizer and model folder disagree.
[[nodiscard]] RunModel make_run_model(const RunConfig& config, nn::ModelConfig model,
                                      std::shared_ptr<const Tokenizer> tokenizer);

// Writes <run.folder>/sources.json and <run.folder>/model. One that is there already and equal stays untouched; of one
// that differs, the files are replaced one by one, config.json last, which a warning says. Other files in it stay.
// Throws bad_config where a folder of that name stood there before the run.
void write_run_model(const RunConfig& config, const RunModel& model);

// Puts the model's config, its tokenizer's fingerprint and where the run folder is into the state that a checkpoint
// stores.
void store_run_model(CheckpointState& state, const RunConfig& config, const RunModel& model);

// What a checkpoint is used with.
struct StoredModel {
  nn::ModelConfig config;
  std::filesystem::path files;      // folder of the small files (<run>/model); empty: it is not there
  std::string tokenizer;            // of runs that kept none: what their config names; empty: the one in `files`
  std::string fingerprint;          // of the tokenizer that the checkpoint was trained with; empty: not known
  Json named_ids = Json::object();  // of such runs: token ids that their config names
  std::string missing;              // why there may be no tokenizer, and what to do; empty: no reason known
};

// `checkpoint` is the folder step-N, in its run folder or away from it; `run` the run folder it was found in, if that
// is known. Checkpoints of programs that did not store the model's config take it from where their run's config says.
// Throws not_found naming what is missing, and what the config's reader throws.
[[nodiscard]] StoredModel stored_model(const CheckpointState& state, const std::filesystem::path& checkpoint,
                                       const std::filesystem::path& run = {});

}  // namespace quench
