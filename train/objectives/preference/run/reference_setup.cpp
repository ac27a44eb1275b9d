#include "train/objectives/preference/run/reference_setup.h"

#include <cmath>
#include <filesystem>
#include <functional>
#include <optional>

#include "core/safetensors/safetensors.h"
#include "core/system/log.h"
#include "data/formats/content_hash.h"
#include "data/sampling/loader.h"
#include "recipes/base_kernels.h"
#include "train/check/load.h"
#include "train/checkpoint/hash.h"
#include "train/config/config_diff.h"
#include "train/config/fields/field.h"
#include "train/config/presets.h"
#include "train/config/section_enum_names.h"
#include "train/model_folder/model_folder.h"
#include "train/objectives/preference/preference_section.h"
#include "train/session/frozen_model.h"
#include "train/session/model_setup.h"
#include "train/step/train_step.h"

namespace quench {
namespace {

namespace fs = std::filesystem;

using Values = StoredReference::Values;

// Keys of section model by which weights start.
std::string start_of_weights(const RunConfig& config) {
  std::string text;
  for (const char* key : {"model.init", "model.add_tokens", "model.new_token_init", "model.pad_vocab_to_multiple_of"})
    text += find_field(key)->write(config).dump() + "\n";
  return text;
}

// The run's model at step 0.
void add_initial(Hash128& key, const RunConfig& config, ValidationCache& checks) {
  key.add(start_of_weights(config));
  key.add(without_neutral_keys(model_config(config.model)).dump());
  key.add(std::to_string(config.training.seed));
  if (config.lora) key.add(enum_name(config.lora->base));
  if (loads_weights(config)) add_weight_files(key, config.model.path, checks);
}

// Key of the weights and the answers.
std::string reference_key(const RunConfig& config, const Dataset& data, ValidationCache& checks) {
  Hash128 key;
  const std::string_view reference = reference_of(config);
  key.add(enum_name(answer_records(config)));
  key.add(to_string(config.training.dtype));
  if (reference == kInitialReference)
    add_initial(key, config, checks);
  else
    add_weight_files(key, fs::path(reference), checks);
  constexpr std::uint64_t kBlock = 1 << 16;
  std::vector<std::int32_t> tokens;
  std::vector<std::uint8_t> targets;
  for (const WeightedRows& source : data.sources()) {
    key.add(fmt::format("{} {} {}", source.rows->seq_len(), source.rows->item_count(), source.rows->size()));
    const TokenSource& stream = source.rows->source();
    for (std::uint64_t begin = 0; begin < stream.size(); begin += kBlock) {
      tokens.resize(static_cast<std::size_t>(std::min(kBlock, stream.size() - begin)));
      targets.resize(tokens.size());
      stream.read(begin, tokens);
      stream.read_target_mask(begin, targets);
      key.add({reinterpret_cast<const char*>(tokens.data()), tokens.size() * sizeof(std::int32_t)});
      key.add({reinterpret_cast<const char*>(targets.data()), targets.size()});
    }
    // Cuts depend on the treatment of long answers.
    const PackedRows::Losses& losses = source.rows->losses();
    key.add(fmt::format("{} {}", losses.truncated_tokens, losses.dropped_tokens));
  }
  return key.text();
}

std::string file_name(const std::string& key) {
  return fmt::format("reference-{}.safetensors", key);
}

Values compute(const nn::CausalLm& model, const Dataset& data, const RunConfig& config,
               const distributed::Ranks& ranks) {
  const std::int64_t unit = config.training.micro_batch_size;
  const Device device = model.options().device;
  Values values;
  for (const WeightedRows& source : data.sources()) {
    const auto single = std::make_shared<const Dataset>(std::vector<WeightedRows>{{source.rows, 1.0}},
                                                        SamplerOptions{.shuffle = false});
    const std::int64_t readers = ranks.mesh.data();
    BatchLoader loader(single, {unit, unit * readers, ranks.data_rank(), readers},
                       {.end_sample = source.rows->size(), .device = device, .part = sequence_part(ranks)});
    std::vector<double>& own = values.emplace_back(2 * source.rows->item_count());
    while (const std::optional<Batch> batch = loader.next()) {
      if (ranks.is_single() && batch->pairs.empty()) continue;
      const std::int64_t tokens = batch->input_ids.numel();
      const Tensor logps = answer_logps(model, {.batch = *batch,
                                                .ids = batch->input_ids.view({tokens}).to(device),
                                                .labels = batch->labels.view({tokens}).to(device),
                                                .context = batch_context(model, *batch)});
      const Tensor host = logps.to(Device{});
      if (!is_first_part(*batch)) continue;
      const double* sums = host.data<double>();
      for (const AnswerPair& pair : batch->pairs) {
        own[2 * pair.item] = sums[pair.sequence];
        own[2 * pair.item + 1] = sums[pair.sequence + 1];
      }
    }
    distributed::all_reduce_numbers(*ranks.host, own, distributed::ReduceOp::sum, "reference");
    const auto bad = std::ranges::find_if_not(own, [](double x) { return std::isfinite(x); });
    QUENCH_CHECK_AS(ErrorCode::nonfinite, bad == own.end(),
                    "preference.reference: the log-probability of an answer (pair {} of source {}) is {} under the "
                    "reference model ({}); name a reference with finite weights",
                    (bad - own.begin()) / 2, values.size() - 1, *bad, reference_of(config));
  }
  return values;
}

constexpr std::string_view kChecksums = "checksums";  // u64 by source

std::uint64_t checksum_of(const std::vector<double>& values) {
  StreamHash hash;
  hash.update(std::as_bytes(std::span(values)));
  return hash.digest();
}

void write_values(const fs::path& path, const Values& values) {
  std::vector<SafetensorsItem> items;
  std::vector<std::uint64_t> sums;
  for (const std::vector<double>& source : values) sums.push_back(checksum_of(source));
  for (std::size_t i = 0; i < values.size(); ++i)
    items.push_back({.name = fmt::format("source.{}", i),
                     .dtype = DType::f64,
                     .shape = {std::ssize(values[i])},
                     .data = std::as_bytes(std::span(values[i]))});
  items.push_back({.name = std::string(kChecksums),
                   .dtype = DType::u64,
                   .shape = {std::ssize(sums)},
                   .data = std::as_bytes(std::span(sums))});
  fs::create_directories(path.parent_path());
  write_safetensors(path, items);
}

Values read_values(const fs::path& path, const Dataset& data) {
  Values values;
  try {
    const SafetensorsReader file(path);
    for (std::size_t i = 0; i < data.sources().size(); ++i) {
      const SafetensorsEntry& entry = file.at(fmt::format("source.{}", i));
      std::vector<double>& own = values.emplace_back(2 * data.sources()[i].rows->item_count());
      QUENCH_CHECK_AS(ErrorCode::corrupt, entry.dtype == DType::f64 && entry.nbytes() == own.size() * sizeof(double),
                      "{}: {} of {} pairs, expected {}", path.string(), entry.name, entry.nbytes() / 16,
                      own.size() / 2);
      file.read(entry, std::as_writable_bytes(std::span(own)));
    }
    const SafetensorsEntry& stored = file.at(kChecksums);
    std::vector<std::uint64_t> sums(values.size());
    QUENCH_CHECK_AS(ErrorCode::corrupt,
                    stored.dtype == DType::u64 && stored.nbytes() == sums.size() * sizeof(std::uint64_t),
                    "{}: checksums of another number of sources", path.string());
    file.read(stored, std::as_writable_bytes(std::span(sums)));
    for (std::size_t i = 0; i < values.size(); ++i)
      QUENCH_CHECK_AS(ErrorCode::corrupt, sums[i] == checksum_of(values[i]),
                      "{}: the figures of source {} differ from their checksum", path.string(), i);
  } catch (const Error& error) {
    throw Error(error.code(),
                fmt::format("{}; restore it, or remove it, and a run that starts anew computes it", error.what()));
  }
  return values;
}

void fill_one(StoredReference& reference, const RunConfig& config, const Dataset& data,
              const std::function<Values()>& computed, ValidationCache& checks, const distributed::Ranks& ranks) {
  const fs::path path = fs::path(config.data.cache) / reference_file(config, data, checks);
  std::array<std::int64_t, 1> missing = {fs::exists(path) ? 0 : 1};
  distributed::all_reduce_numbers(*ranks.host, missing, distributed::ReduceOp::max, "reference");
  if (missing[0] == 0) return reference.set(read_values(path, data));
  Values values = computed();
  distributed::together(ranks, "reference", [&] {
    if (ranks.is_first()) write_values(path, values);
  });
  reference.set(std::move(values));
}

// Ending of an error about another vocabulary.
std::string other_references(const RunConfig& config) {
  if (config.model.add_tokens.empty()) return {};
  return fmt::format(", which has the {} tokens of model.add_tokens too, or the reference \"{}\"",
                     config.model.add_tokens.size(), config.lora ? kBaseReference : kInitialReference);
}

}  // namespace

std::string reference_file(const RunConfig& config, const Dataset& data, ValidationCache& checks) {
  return file_name(reference_key(config, data, checks));
}

void fill_references(const StoredReferences& references, const RunConfig& config, nn::CausalLm& model,
                     const ObjectiveStart& start, const distributed::Ranks& ranks) {
  const DataSetup& data = start.data;
  const bool initial = start.is_initial;
  const Device device = model.options().device;
  const std::string_view reference = reference_of(config);
  if (reference != kInitialReference && data.tokenizer)
    (void)require_same_tokenizer("preference.reference", std::string(reference), *data.tokenizer,
                                 "name a reference with the run's tokenizer" + other_references(config));
  std::optional<FrozenModel> folder;
  const auto compute_over = [&](const Dataset& answers) {
    QUENCH_CHECK_AS(ErrorCode::bad_config, reference != kInitialReference || initial || config.lora,
                    "preference.reference: the log-probabilities of the initial model are not in {}, and the weights "
                    "are those of a later step; restore the files reference-*.safetensors of the run's start, or name "
                    "the folder of the initial model",
                    config.data.cache);
    QUENCH_LOG_INFO("log-probabilities of the reference model ({}) are computed once, for {} sequences of answers",
                    reference == kInitialReference ? "the model before the first step" : reference,
                    answers.row_count());
    if (reference != kInitialReference) {
      if (!folder)
        folder.emplace(make_frozen_model(
            config, read_model_config(reference),
            {.folder = std::string(reference), .offload = preference_section(config)->offload}, device, ranks));
      const std::int64_t expected = model.config().vocab_size, actual = folder->model->config().vocab_size;
      QUENCH_CHECK_AS(ErrorCode::bad_config, actual >= expected,
                      "preference.reference: the model in {} has a vocabulary of {} tokens, the trained one {}; name a "
                      "model of the same family{}",
                      reference, actual, expected, other_references(config));
      return compute(*folder->model, answers, config, ranks);
    }
    const recipes::BaseKernels base(model);
    return compute(model, answers, config, ranks);
  };
  fill_one(
      references.train, config, *data.train, [&] { return compute_over(*data.train); }, start.checks, ranks);
  if (data.validation)
    fill_one(
        references.validation, config, *data.validation, [&] { return compute_over(*data.validation); }, start.checks,
        ranks);
}

Tensor StoredReference::answer_logps(const ObjectiveInput& in) {
  const auto answers = std::ssize(whole_of(in.batch).sequences);
  if (in.ids.device().is_meta()) return Tensor::empty({answers}, DType::f64, in.ids.device());
  std::vector<double> sums(static_cast<std::size_t>(answers));
  for (const AnswerPair& pair : in.batch.pairs) {
    QUENCH_CHECK_AS(ErrorCode::corrupt, pair.source < values_.size() && 2 * pair.item + 1 < values_[pair.source].size(),
                    "no log-probabilities of the reference model for pair {} of source {}", pair.item, pair.source);
    const std::vector<double>& source = values_[pair.source];
    sums.at(pair.sequence) = source[2 * pair.item];
    sums.at(pair.sequence + 1) = source[2 * pair.item + 1];
  }
  return Tensor::from_values<double>({answers}, sums).to(in.ids.device());
}

}  // namespace quench
