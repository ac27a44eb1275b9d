#include "apps/common.h"

#include <omp.h>

#include <cstdio>

#include "core/ops/elementwise.h"
#include "train/checkpoint/checkpoint_list.h"
#include "train/config/load.h"
#include "train/hf/model_folder.h"
#include "train/metrics/run_files.h"
#include "train/model_setup.h"
#include "train/training_state.h"

namespace quench {

namespace {

namespace fs = std::filesystem;

// The checkpoint that a path means: itself, or the newest of a run or checkpoint folder; empty if it means none.
fs::path checkpoint_of(const fs::path& path) {
  if (fs::exists(path / Manifest::kFileName)) return path;
  for (const fs::path& folder : {path / run_files::kCheckpointFolder, path}) {
    if (!fs::is_directory(folder)) continue;
    if (const auto latest = latest_valid(folder)) return latest->path;
  }
  return {};
}

DType chosen_dtype(const std::string& name, DType stored) {
  if (name == "auto") return stored == DType::f16 ? DType::f32 : stored;
  const auto parsed = dtype_from_string(name);
  QUENCH_CHECK_AS(ErrorCode::bad_config, parsed == DType::f32 || parsed == DType::bf16,
                  "--dtype '{}' is not supported; use auto, f32 or bf16", name);
  return *parsed;
}

LoadedModel load_checkpoint(const fs::path& folder, nn::ParameterOptions options, const std::string& dtype) {
  CheckpointReader reader(folder);
  const RunConfig run =
      run_config_from_json(reader.state().config, folder.string(), {}, {.data = false, .files = false});
  LoadedModel loaded;
  loaded.config = resolve_model_config(run.model);
  loaded.tokenizer = run.data.tokenizer;
  loaded.small_files = run.model.path;
  const DType stored = run.training.dtype, wanted = chosen_dtype(dtype, stored);
  options.dtype = stored;
  loaded.model = std::make_unique<nn::CausalLm>(loaded.config, options);
  restore_parameters(reader, *loaded.model);
  if (wanted == stored) return loaded;
  options.dtype = wanted;
  auto converted = std::make_unique<nn::CausalLm>(loaded.config, options);
  const auto from = loaded.model->parameters(), to = converted->parameters();
  for (std::size_t i = 0; i < from.size(); ++i) cast({from[i]->variable.value(), to[i]->variable.value()});
  loaded.model = std::move(converted);
  return loaded;
}

}  // namespace

LoadedModel load_model(const fs::path& folder, const std::string& device, const std::string& dtype, bool trainable) {
  nn::ParameterOptions options;
  options.device = parse_device(device);
  options.grad_dtype = DType::f32;
  options.trainable = trainable;
  QUENCH_CHECK_AS(ErrorCode::not_found, fs::is_directory(folder), "model folder {} does not exist", folder.string());
  if (!fs::exists(folder / "config.json") || fs::exists(folder / run_files::kEnvironment)) {
    const fs::path checkpoint = checkpoint_of(folder);
    if (!checkpoint.empty()) return load_checkpoint(checkpoint, options, dtype);
  }
  LoadedModel loaded;
  loaded.config = read_model_config(folder);
  loaded.small_files = folder;
  options.dtype = chosen_dtype(dtype, loaded.config.dtype);
  loaded.model = std::make_unique<nn::CausalLm>(loaded.config, options);
  load_weights(*loaded.model, folder);
  return loaded;
}

std::unique_ptr<Tokenizer> find_model_tokenizer(const LoadedModel& loaded, const std::string& name) {
  if (!name.empty()) return load_tokenizer(name);
  if (!loaded.tokenizer.empty()) return load_tokenizer(loaded.tokenizer);
  const bool beside =
      fs::exists(loaded.small_files / "tokenizer.json") || fs::exists(loaded.small_files / "tokenizer.model");
  return beside && !loaded.small_files.empty() ? load_tokenizer(loaded.small_files) : nullptr;
}

std::unique_ptr<Tokenizer> require_model_tokenizer(const LoadedModel& loaded, const std::string& name) {
  std::unique_ptr<Tokenizer> tokenizer = find_model_tokenizer(loaded, name);
  QUENCH_CHECK_AS(ErrorCode::not_found, tokenizer != nullptr,
                  "the model folder has no tokenizer.json or tokenizer.model; name one with --tokenizer");
  QUENCH_CHECK_AS(ErrorCode::bad_config, tokenizer->vocab_size() <= loaded.config.vocab_size,
                  "the tokenizer has {} tokens, the model only {}: they do not belong together",
                  tokenizer->vocab_size(), loaded.config.vocab_size);
  return tokenizer;
}

void set_threads(int threads) {
  if (threads > 0) omp_set_num_threads(threads);
}

void print_json(const Json& json) {
  std::printf("%s\n", json.dump(2).c_str());
}

}  // namespace quench
