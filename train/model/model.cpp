#include "train/model/model.h"

#include "core/system/log.h"
#include "data/text/document_encoder.h"
#include "data/tokenizer/tokenizer_kind.h"
#include "train/check/load.h"
#include "train/checkpoint/checkpoint_reader.h"
#include "train/evaluation/evaluation_data.h"
#include "train/metrics/run_files.h"
#include "train/run/end_report.h"
#include "train/run/training_facts.h"
#include "train/session/adapter_setup.h"

namespace quench {
namespace {

namespace fs = std::filesystem;

TrainingFacts facts_of(const ModelSource& source) {
  if (!source.is_trained()) return training_in(source.path());
  const fs::path checkpoint = source.checkpoint();
  const CheckpointState state = read_manifest(checkpoint).state;
  const RunConfig config = run_config_from_json(state.config, checkpoint.string(), {}, {.data = false, .files = false});
  TrainedState trained{.step = state.step, .tokens = state.tokens_seen, .data = stored_data_text(state)};
  if (const fs::path run = source.run(); !run.empty())
    if (const auto last = read_validation_losses((run / run_files::kMetricsFolder).string(), state.step).last)
      trained.validation_loss = last->loss;
  return training_facts(config, trained);
}

}  // namespace

void Model::warn_of_other_base(const fs::path& adapter) const {
  if (adapter.empty() || is_quantized_ || adapters_ != nullptr) return;
  const AdapterBase base = adapter_base(adapter);
  const DType stored = stored_.config.dtype, dtype = model_->options().dtype;
  // The hash of the trained weights cannot be verified against a narrower dtype.
  const bool narrower = dtype == DType::bf16 && base.dtype == DType::f32 && stored != DType::bf16;
  if (base.hash.empty() || narrower) return;
  const std::string hash = base_hash_as(*model_, base.dtype, peft_.stored_vocabulary);
  if (hash != base.hash)
    QUENCH_LOG_WARN(
        "the adapter in {} was trained over other weights than those in {} (hash {}, here {}): the merged model "
        "differs from the trained one",
        adapter.string(), source_.path().string(), base.hash, hash);
}

std::unique_ptr<Tokenizer> Model::find_tokenizer(const std::string& name) const {
  if (!name.empty()) return load_tokenizer(name);
  if (!peft_.tokenizer.empty()) return load_tokenizer(peft_.tokenizer);
  if (!holds_tokenizer(stored_.files)) return nullptr;
  std::unique_ptr<Tokenizer> tokenizer = load_tokenizer(stored_.files);
  QUENCH_CHECK_AS(ErrorCode::bad_config,
                  stored_.fingerprint.empty() || stored_.fingerprint == fingerprint_text(*tokenizer),
                  "the tokenizer in {} is not the one of the checkpoint (fingerprint {}, expected {}); name that one "
                  "with --tokenizer",
                  stored_.files.string(), fingerprint_text(*tokenizer), stored_.fingerprint);
  return tokenizer;
}

void Model::check_tokenizer(const Tokenizer& tokenizer) const {
  QUENCH_CHECK_AS(ErrorCode::bad_config, tokenizer.vocab_size() <= config().vocab_size,
                  "the tokenizer has {} tokens, but the model's vocabulary only {}", tokenizer.vocab_size(),
                  config().vocab_size);
}

std::unique_ptr<Tokenizer> Model::require_tokenizer(const std::string& name) const {
  std::unique_ptr<Tokenizer> tokenizer = find_tokenizer(name);
  QUENCH_CHECK_AS(ErrorCode::not_found, tokenizer != nullptr, "{}; name one with --tokenizer", no_tokenizer());
  check_tokenizer(*tokenizer);
  return tokenizer;
}

std::string Model::no_tokenizer() const {
  return stored_.missing.empty() ? no_tokenizer_text() : stored_.missing;
}

TokenIdChoice Model::token_ids(const Tokenizer* tokenizer) const {
  TokenIdSources sources = token_id_sources(stored_.files, stored_.config, tokenizer);
  if (!peft_.tokenizer.empty()) sources.models_tokenizer = true;
  if (!peft_.folder.empty())
    if (const auto ids = stored_generation_ids(peft_.folder)) sources.generation = ids;
  // A checkpoint outside its run folder has token ids but no reference to their tokenizer.
  if (tokenizer != nullptr && !stored_.missing.empty())
    sources.models_tokenizer = end_among(sources.config, *tokenizer);
  TokenIdChoice ids = choose_token_ids(sources);
  // No warning for a model folder's own tokenizer.
  if (!sources.models_tokenizer)
    for (const std::string& disagreement : ids.disagreements) QUENCH_LOG_WARN("token ids: {}", disagreement);
  return ids;
}

TrainingFacts Model::training() const {
  if (peft_.folder.empty()) return facts_of(source_);
  TrainingFacts facts = facts_of(ModelSource::open(peft_.folder));
  if (facts.rows.empty()) facts.base = model_name(source_.path());  // an adapter of another program
  return facts;
}

// The tokenizer is only used during this call.
std::function<double(nn::CausalLm&)> Model::perplexity_meter(const std::vector<std::string>& files,
                                                             const Tokenizer* tokenizer) const {
  const EvaluationData data{.files = files, .no_tokenizer = no_tokenizer()};
  struct Kept {
    std::vector<std::int32_t> tokens;
    std::vector<std::uint8_t> targets;
  };
  auto documents = std::make_shared<std::vector<Kept>>();
  read_evaluation_data(data, tokenizer, config(), [&](const ScoredDocument& document) {
    documents->push_back(
        {{document.tokens.begin(), document.tokens.end()}, {document.targets.begin(), document.targets.end()}});
  });
  const PerplexityOptions options{.window = config().max_position_embeddings,
                                  .prefix = prefix_token(tokenizer, config())};
  return [documents, options](nn::CausalLm& model) {
    PerplexityMeter meter(model, options);
    for (const Kept& document : *documents)
      meter.add({.tokens = document.tokens, .targets = document.targets, .text = std::nullopt});
    return meter.finish().token_perplexity();
  };
}

double Model::perplexity(const std::vector<std::string>& files, const std::string& tokenizer) const {
  const std::unique_ptr<Tokenizer> found = find_tokenizer(tokenizer);
  if (found != nullptr) check_tokenizer(*found);
  return perplexity_meter(files, found.get())(*model_);
}

}  // namespace quench
