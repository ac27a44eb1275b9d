#include <array>
#include <filesystem>
#include <optional>

#include "core/ops/quantize/quantize.h"
#include "data/formats/token_format.h"
#include "nn/spec/model_config.h"
#include "nn/spec/rope_override.h"
#include "train/check/checks.h"
#include "train/config/fields/field.h"
#include "train/config/objective_table.h"
#include "train/config/presets.h"
#include "train/config/section_enum_names.h"
#include "train/metrics/run_files.h"
#include "train/model_source/model_source.h"

namespace quench {
namespace {

constexpr std::array<std::string_view, 6> kRequired = {"model_type",        "vocab_size",        "hidden_size",
                                                       "intermediate_size", "num_hidden_layers", "num_attention_heads"};

// nullopt if absent or invalid (reported by the loader).
std::optional<std::int64_t> extent(const Json& config, std::string_view key) {
  const Json* value = config.find(key);
  if (value == nullptr || !value->is_integer() || value->as_double() < 1 || value->as_double() > 2147483647.0)
    return std::nullopt;
  return value->as_int();
}

void check_origin(Checker& checker) {
  const ModelSection& model = checker.config().model;
  if (!checker.usable({"model.preset", "model.path"})) return;
  if (!model.preset.empty() && !model.path.empty()) {
    checker.report("model.path", "\"{}\" contradicts model.preset \"{}\"; give one of the two", model.path,
                   model.preset);
  } else if (model.preset.empty() && model.path.empty()) {
    if (model.fields.as_object().empty()) {
      checker.report("model", "no model: give model.preset, model.path or the fields of a config.json");
      return;
    }
    for (const std::string_view key : kRequired) {
      if (model.fields.find(key) == nullptr && checker.usable({fmt::format("model.{}", key)}))
        checker.report(fmt::format("model.{}", key), "missing from the architecture given here");
    }
  } else if (!model.preset.empty() && find_embedded_config("models", model.preset) == nullptr) {
    checker.report("model.preset", "no embedded model is called \"{}\" (`quench config ls` lists them)", model.preset);
    checker.suggest(nearest_embedded_config("models", model.preset));
  }
  if (model.init == ModelSection::Init::load && model.path.empty() && checker.usable({"model.init"}))
    checker.report("model.init", "load needs model.path; a preset or an inline architecture has no weights");
}

bool check_source(Checker& checker) {
  const ModelSection& model = checker.config().model;
  if (model.path.empty() || !checker.options().files || !checker.usable({"model.path"})) return true;
  try {
    (void)ModelSource::open(model.path).config();
    return true;
  } catch (const Error& error) {
    checker.report("model.path", "{}", error.what());
    if (std::error_code ignored; !std::filesystem::exists(model.path, ignored))
      checker.suggest(kept_model_part(checker.config()));
    return false;
  }
}

// Loaded weights determine their shapes.
void check_changed_shapes(Checker& checker) {
  const ModelSection& model = checker.config().model;
  if (model.path.empty() || model.init != ModelSection::Init::load) return;
  for (const auto& [key, value] : model.fields.as_object()) {
    const std::string path = "model." + key;
    if (key == "vocab_size" && !model.add_tokens.empty()) continue;
    if (key == "num_nextn_predict_layers") continue;  // check_mtp()
    if (find_field(path)->resume == ResumePolicy::fixed && checker.usable({path}))
      checker.report(path, "{} cannot be changed over the weights in {}; model.init random starts from new ones",
                     value.dump(), model.path);
  }
}

// A grown vocabulary keeps the rows of the weights.
void check_vocabulary(Checker& checker) {
  const ModelSection& model = checker.config().model;
  if (!checker.usable({"model.add_tokens", "model.pad_vocab_to_multiple_of", "model.new_token_init"})) return;
  if (model.add_tokens.empty()) {
    if (model.pad_vocab_to_multiple_of)
      checker.report("model.pad_vocab_to_multiple_of", "{}, but the vocabulary grows by model.add_tokens alone",
                     *model.pad_vocab_to_multiple_of);
    if (model.new_token_init != NewTokenInit::mean)
      checker.report("model.new_token_init", "{}, but model.add_tokens is empty", enum_name(model.new_token_init));
    return;
  }
  const Json* named = model.fields.find("vocab_size");
  if (named == nullptr || model.path.empty() || model.init != ModelSection::Init::load || !checker.options().files)
    return;
  const auto stored = extent(ModelSource::open(model.path).config(), "vocab_size");
  if (stored && checker.usable({"model.vocab_size"}) && named->as_int() < *stored)
    checker.report("model.vocab_size", "{}, but the weights in {} have {} rows", named->dump(), model.path, *stored);
}

void check_heads(Checker& checker, const Json& config) {
  const auto hidden = extent(config, "hidden_size");
  const auto heads = extent(config, "num_attention_heads");
  const auto kv_heads = extent(config, "num_key_value_heads");
  const auto head_dim = extent(config, "head_dim");
  if (hidden && heads && !head_dim && *hidden % *heads != 0)
    checker.report("model.hidden_size", "{} is not divisible by num_attention_heads {}, and head_dim is not given",
                   *hidden, *heads);
  if (heads && kv_heads && *heads % *kv_heads != 0)
    checker.report("model.num_key_value_heads", "{} does not divide num_attention_heads {}", *kv_heads, *heads);
  const auto width = head_dim                                   ? head_dim
                     : hidden && heads && *hidden % *heads == 0 ? std::optional(*hidden / *heads)
                                                                : std::nullopt;
  if (width && *width % 2 != 0)
    checker.report(head_dim ? "model.head_dim" : "model.hidden_size",
                   "heads are {} wide; rotary embedding needs an even width", *width);
}

void check_use(Checker& checker, const Json& config) {
  const Json* dropout = config.find("attention_dropout");
  if (dropout != nullptr && dropout->is_number() && dropout->as_double() > 0)
    checker.report("model.attention_dropout", "{} is not supported: attention has no dropout; set it to 0",
                   dropout->dump());
  const Json* vocab = config.find("vocab_size");
  const TokenFormat* format = token_formats().find(checker.config().data.format);
  if (vocab != nullptr && format != nullptr && format->largest_vocab > 0 &&
      static_cast<std::uint64_t>(extent(config, "vocab_size").value_or(0)) > format->largest_vocab)
    checker.report("data.format", "{} files hold ids below {}, but the model's vocab_size is {}", format->name,
                   format->largest_vocab, vocab->dump());
}

// True if reported.
bool report_ropes(Checker& checker, const Json& origin) {
  const Json& fields = checker.config().model.fields;
  const std::string key = fields.find("rope_scaling") != nullptr ? "model.rope_scaling" : "model.rope_parameters";
  if (!checker.usable({key})) return false;
  const std::vector<std::string> faults = nn::rope_override_faults(fields, origin);
  for (const std::string& fault : faults) checker.report(key, "{}", fault);
  return !faults.empty();
}

void report_length(Checker& checker, const nn::ModelConfig& model) {
  const std::int64_t seq_len = checker.config().data.seq_len;
  if (seq_len <= model.context_length() || !checker.usable({"data.seq_len"})) return;
  const bool scaled = model.rope.type != nn::RopeScaling::Type::standard;
  checker.report("data.seq_len", "{} exceeds the model's max_position_embeddings {}; {}", seq_len,
                 model.context_length(),
                 scaled ? "set that too, or a larger factor of its RoPE scaling, to extend it"
                        : "set that too to extend it, or model.rope_scaling");
}

// Missing and rejected fields are reported elsewhere.
bool fields_usable(const Checker& checker) {
  const ModelSection& model = checker.config().model;
  if (model.preset.empty() && model.path.empty()) {
    for (const std::string_view key : kRequired) {
      if (model.fields.find(key) == nullptr) return false;
    }
  }
  for (const Field& field : field_table()) {
    if (field.architecture && !checker.usable({field.path})) return false;
  }
  return true;
}

void check_routers(Checker& checker, const nn::ModelConfig& model) {
  const TrainingSection& training = checker.config().training;
  const bool routes = model.sparse_layers() > 0;
  if (!routes && checker.usable({"training.router_balance_loss", "training.router_z_loss"}) &&
      (training.router_balance_loss.value_or(0) > 0 || training.router_z_loss > 0))
    checker.report(training.router_z_loss > 0 ? "training.router_z_loss" : "training.router_balance_loss",
                   "{} has no experts and so no router", model.architecture);
  const double asked = static_cast<double>(model.router_balance_loss);
  const double balance = training.router_balance_loss.value_or(asked);
  if (routes && training.mlp_tile_tokens > 0 && (balance > 0 || training.router_z_loss > 0) &&
      checker.usable({"training.mlp_tile_tokens", "training.router_balance_loss", "training.router_z_loss"}))
    checker.report("training.mlp_tile_tokens",
                   "{}, but router losses are means over all tokens of a micro-batch; set training.router_balance_loss "
                   "and router_z_loss to 0, or mlp_tile_tokens",
                   training.mlp_tile_tokens);
  if (!checker.usable({"training.router_bias_speed"}) || training.router_bias_speed.value_or(0) == 0) return;
  if (!routes || !model.experts.expert_bias)
    checker.report("training.router_bias_speed", "{} has no expert bias; remove the key", model.architecture);
  else if (checker.config().lora)
    checker.report("training.router_bias_speed",
                   "the expert bias is frozen under lora and not part of adapter checkpoints; remove the key");
}

void check_experts(Checker& checker, const nn::ModelConfig& model) {
  const ParallelSection& parallel = checker.config().parallel;
  if (!checker.usable({"parallel.expert", "parallel.expert_all_to_all"})) return;
  if (parallel.expert > 1 && model.experts.count == 0)
    checker.report("parallel.expert", "{} processes, but {} has no experts", parallel.expert, model.architecture);
  else if (parallel.expert > 1 && model.experts.count % parallel.expert != 0)
    checker.report("parallel.expert", "{} experts are not divisible by {} processes", model.experts.count,
                   parallel.expert);
  if (parallel.expert_all_to_all != ParallelSection::DispatchFormat::mxfp8) return;
  if (parallel.expert == 1)
    checker.report("parallel.expert_all_to_all", "\"mxfp8\", but with parallel.expert 1 there is no all-to-all");
  else if (model.hidden_size % kMxBlockSize != 0)
    checker.report("parallel.expert_all_to_all",
                   "\"mxfp8\", but the model's hidden_size {} is not a multiple of {}, the MX block size",
                   model.hidden_size, kMxBlockSize);
}

}  // namespace

std::string kept_model_part(const RunConfig& config) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  const fs::path kept = fs::path(config.run.folder) / run_files::kModelFolder;
  return fs::is_regular_file(kept / "config.json", ignored) ? kept.string() : std::string();
}

void check_model(Checker& checker) {
  check_origin(checker);
  const bool readable = check_source(checker);
  check_changed_shapes(checker);
  if (readable) check_vocabulary(checker);
  const ModelSection& model = checker.config().model;
  const bool known_preset = model.preset.empty() || find_embedded_config("models", model.preset) != nullptr;
  if (!readable || !known_preset || !checker.usable({"model.preset", "model.path"})) return;
  Json config, origin;
  try {
    origin = origin_config(model);
    config = model_config(model);
  } catch (const Error& error) {
    // else reported by the loader
    if (checker.options().files) checker.report("model.path", "{}", error.what());
    return;
  }
  const std::size_t found = checker.issue_count();
  check_heads(checker, config);
  check_use(checker, config);
  if (checker.issue_count() != found || config.as_object().empty() || !fields_usable(checker)) return;
  if (report_ropes(checker, origin)) return;
  try {
    const nn::ModelConfig parsed = nn::parse_model_config(
        config, model.path.empty() ? model.preset.empty() ? "model" : model.preset : model.path + "/config.json");
    check_routers(checker, parsed);
    check_experts(checker, parsed);
    check_tensor_model(checker, parsed);
    check_pipeline_model(checker, parsed);
    for (const ObjectiveEntry& objective : objective_table())
      if (objective.check_model != nullptr) objective.check_model(checker, parsed);
    report_length(checker, parsed);
  } catch (const Error& error) {
    checker.report("model", "{}", error.what());
  }
}

}  // namespace quench
