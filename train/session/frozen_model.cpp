#include "train/session/frozen_model.h"

#include <algorithm>
#include <map>
#include <set>

#include "core/system/key_error.h"
#include "core/system/utf8.h"
#include "data/text/document_encoder.h"
#include "data/tokenizer/tokenizer_kind.h"
#include "distributed/fsdp/gather_parameter.h"
#include "train/model_folder/model_folder.h"
#include "train/session/model_setup.h"
#include "train/session/parallel_setup.h"

namespace quench {
namespace {

using recipes::BaseForm;

// Offloads weights as they are filled, or the rest at the end.
class Offload {
 public:
  explicit Offload(FrozenModel& frozen) : frozen_(frozen) {
    for (const nn::CausalLm::Unit& unit : frozen.model->units())
      for (const nn::Parameter* parameter : unit.parameters) layers_[parameter] = unit.layer;
  }

  // With its quantized values. No-op without an offloader, and for weights offloaded before.
  void operator()(nn::Parameter& parameter) const {
    if (frozen_.offloader == nullptr) return;
    const std::int64_t layer = layers_.at(&parameter);
    std::vector<nn::Parameter*> stored = frozen_.base->parts(parameter);
    if (stored.empty()) stored.push_back(&parameter);
    for (nn::Parameter* part : stored) {
      const Tensor& shard = part->padded;
      if (shard.defined() ? layer >= 0 && shard.nbytes() >= distributed::kSmallBytes : !part->whole.defined())
        frozen_.offloader->offload(*part, layer);
    }
  }
  void rest() const {
    for (nn::Parameter* parameter : frozen_.model->parameters()) (*this)(*parameter);
  }

 private:
  FrozenModel& frozen_;
  std::map<const nn::Parameter*, std::int64_t> layers_;
};

void fill_frozen(FrozenModel& frozen, const RunConfig& config, const FrozenWeights& source,
                 const distributed::Ranks& ranks, const Offload& offload) {
  nn::CausalLm& model = *frozen.model;
  if (source.form == BaseForm::stored) {
    load_base(model, source.folder, [&](nn::Parameter& weight, const PackedMatrix& codes) {
      frozen.base->keep(weight, codes.to(model.options().device), model.options().dtype);
      if (ranks.is_single()) offload(weight);
    });
    return;
  }
  const std::vector<nn::Parameter*> weights = recipes::quantizable_weights(model);
  const std::set<const nn::Parameter*> quantizable(weights.begin(), weights.end());
  const auto store = [&](nn::Parameter& parameter) {
    if (source.form != BaseForm::dense && quantizable.contains(&parameter)) frozen.base->store(parameter, source.form);
    if (ranks.is_single()) offload(parameter);
  };
  if (model.options().device.is_meta()) {
    for (nn::Parameter* parameter : model.parameters()) {
      materialize(*parameter);
      store(*parameter);
    }
    return;
  }
  const nn::ParameterFilled filled = ranks.is_single() ? nn::ParameterFilled(store) : nn::ParameterFilled();
  if (source.folder.empty())
    fill_model(model, config, filled);
  else
    load_weights(model, source.folder, false, filled);
  if (!ranks.is_single())
    frozen.base->store(model, source.form, [&ranks](const nn::Parameter& parameter) {
      return distributed::gather_parameter(parameter, ranks);
    });
}

std::optional<std::string> token_of(const Tokenizer& tokenizer, std::int64_t id) {
  try {
    return tokenizer.token_text(static_cast<std::int32_t>(id));
  } catch (const Error&) {
    return std::nullopt;  // padding of the vocabulary
  }
}

// The first token of `tokenizer` that `other` does not have at its id.
std::optional<std::int64_t> first_other_token(const Tokenizer& other, const Tokenizer& tokenizer) {
  for (std::int64_t id = 0; id < tokenizer.vocab_size(); ++id)
    if (const auto text = token_of(tokenizer, id); text && text != token_of(other, id)) return id;
  return std::nullopt;
}

}  // namespace

FrozenModel make_frozen_model(const RunConfig& config, const nn::ModelConfig& architecture,
                              const FrozenWeights& weights, Device device, const distributed::Ranks& ranks) {
  nn::ParameterOptions options = parameter_options(config, device);
  const ModelSharding sharding = run_sharding(ranks);
  options.sharding = sharding.sharding;
  options.expert_sharding = sharding.experts;
  options.trainable = false;
  options.deferred = (weights.form != BaseForm::dense || weights.offload) && ranks.is_single();
  FrozenModel frozen;
  frozen.model = std::make_unique<nn::CausalLm>(architecture, options);
  frozen.base = std::make_unique<recipes::QuantizedBase>();
  if (weights.offload) frozen.offloader = std::make_unique<nn::WeightOffloader>(*frozen.model);
  const Offload offload(frozen);
  fill_frozen(frozen, config, weights, ranks, offload);
  RunConfig sharded = config;
  sharded.parallel.reshard_after_forward = true;  // no backward pass
  sharded.parallel.float8_all_gather = false;
  frozen.sharded = share_model(*frozen.model, ranks, sharded, frozen.base.get());
  offload.rest();
  return frozen;
}

void add_weight_files(Hash128& hash, const std::filesystem::path& model, ValidationCache& checks) {
  namespace fs = std::filesystem;
  std::vector<fs::path> files;
  if (fs::is_directory(model)) {
    for (const auto& entry : fs::directory_iterator(model))
      if (const fs::path name = entry.path().filename();
          name.extension() == ".safetensors" || name.extension() == ".gguf" || name == "config.json")
        files.push_back(entry.path());
  } else {
    files.push_back(model);
  }
  std::ranges::sort(files);
  for (const fs::path& file : files) {
    hash.add(file.filename().string());
    hash.add(checks.content(BinaryFile(file)).xxh3_128);
  }
}

std::shared_ptr<const Tokenizer> require_same_tokenizer(std::string_view key, const std::string& model,
                                                        const Tokenizer& tokenizer, std::string_view hint) {
  if (!holds_tokenizer(model)) return nullptr;
  std::shared_ptr<const Tokenizer> own = load_tokenizer(model);
  if (own->fingerprint() == tokenizer.fingerprint()) return own;
  const auto id = first_other_token(*own, tokenizer);
  if (!id) return own;
  const auto shown = [&](const Tokenizer& of) {
    const auto text = token_of(of, *id);
    return text ? Json(replace_invalid_utf8(*text)).dump() : std::string("no token");
  };
  QUENCH_CHECK_KEY(ErrorCode::bad_config, std::string(key), false,
                   "{} holds a tokenizer of fingerprint {}, the run's data are tokenized with one of fingerprint {}: a "
                   "token must mean the same to both, but token {} is {} in {} and {} in the run; {}",
                   model, fingerprint_text(*own), fingerprint_text(tokenizer), *id, shown(*own), model,
                   shown(tokenizer), hint);
  return own;
}

}  // namespace quench
