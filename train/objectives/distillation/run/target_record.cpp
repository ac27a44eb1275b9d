#include "train/objectives/distillation/run/target_record.h"

#include <algorithm>
#include <array>
#include <filesystem>

#include "core/system/file.h"
#include "core/system/key_error.h"
#include "data/formats/content_hash.h"
#include "train/check/load.h"
#include "train/config/config_diff.h"
#include "train/config/fields/field.h"
#include "train/config/presets.h"
#include "train/config/section_enum_names.h"
#include "train/objectives/distillation/distill_section.h"
#include "train/objectives/distillation/run/target_setup.h"
#include "train/session/frozen_model.h"
#include "train/session/model_setup.h"

namespace quench {
namespace {

namespace fs = std::filesystem;

constexpr int kTargetsVersion = 1;
constexpr std::uint64_t kMaxRecordBytes = std::uint64_t{64} << 20;
constexpr const char* kTargetsKey = "distill.targets";

// Keys that decide which tokens a row has and which of them are targets; contents of files are compared apart.
constexpr std::array kRowKeys = {
    "data.seq_len",   "data.validation_split",     "data.packing",    "data.multipack", "data.on_long",
    "data.eos",       "data.special_text",         "data.text_field", "data.columns",   "data.chat_template",
    "data.chat_date", "data.chat_template_kwargs", "data.train_on"};

// Hash of the teacher's weights.
std::string teacher_hash(const RunConfig& config, ValidationCache& checks) {
  Hash128 hash;
  if (!has_own_teacher(*distill_section(config))) {
    add_weight_files(hash, distill_section(config)->teacher, checks);
    return hash.text();
  }
  hash.add(without_neutral_keys(model_config(config.model)).dump());
  if (loads_weights(config))
    add_weight_files(hash, config.model.path, checks);
  else
    hash.add(std::to_string(config.training.seed));
  return hash.text();
}

Json to_json(const TargetRecord& record) {
  Json::Array rows;
  for (const std::uint64_t count : record.rows) rows.emplace_back(count);
  return Json::Object{{"version", kTargetsVersion},
                      {"tokens", record.format.k},
                      {"dtype", to_string(record.format.dtype)},
                      {"vocab_size", record.format.vocab},
                      {"temperature", record.temperature},
                      {"tokenizer", record.tokenizer},
                      {"rows", std::move(rows)},
                      {"keys", record.keys},
                      {"train", record.train},
                      {"teacher", record.teacher},
                      {"seed", record.seed}};
}

}  // namespace

TargetRecord target_record(const RunConfig& config, const RunIdentity& identity, const Dataset& data,
                           std::int64_t vocab) {
  const DistillSection& distill = *distill_section(config);
  TargetRecord record{.format = {.k = kept_tokens(distill, vocab), .dtype = distill.targets_dtype, .vocab = vocab},
                      .temperature = distill.temperature,
                      .tokenizer = identity.tokenizer,
                      .train = to_json(identity).at("train"),
                      .seed = config.training.seed};
  for (const WeightedRows& source : data.sources()) record.rows.push_back(source.rows->size());
  for (const char* key : kRowKeys) record.keys.set(key, find_field(key)->write(config));
  return record;
}

Json teacher_record(const RunConfig& config, ValidationCache& checks) {
  const DistillSection& distill = *distill_section(config);
  const recipes::BaseForm form = distill.teacher == kBaseTeacher ? config.lora.value().base : distill.teacher_weights;
  return Json::Object{{"name", distill.teacher},
                      {"weights", enum_name(form)},
                      {"dtype", to_string(config.training.dtype)},
                      {"xxh3_128", teacher_hash(config, checks)}};
}

std::map<std::string, std::string> shard_names(const TargetRecord& record) {
  Json json = to_json(record);
  for (const char* key : {"version", "seed"}) json.erase(key);
  Hash128 hash;
  hash.add(json.dump());
  return {{kShardIdentity, hash.text()},
          {kShardTeacher, record.teacher.dump()},
          {kShardTokenizer, record.tokenizer.empty() ? "(none)" : record.tokenizer}};
}

void require_same_teacher(const TargetRecord& stored, const RunConfig& config, const std::string& folder,
                          ValidationCache& checks) {
  const std::string& teacher = distill_section(config)->teacher;
  if (!has_own_teacher(*distill_section(config)) && !fs::exists(teacher)) return;
  const std::string& wanted = stored.teacher.at("xxh3_128").as_string();
  const std::string now = teacher_hash(config, checks);
  QUENCH_CHECK_KEY(ErrorCode::bad_config, "distill.teacher", wanted == now,
                   "the targets in {} are those of {}, weights of hash {}; {} has weights of hash {}: undo the change, "
                   "or name a new folder in distill.targets and run `{}`",
                   folder, stored.teacher.at("name").as_string(), wanted, teacher, now, kTargetsRemedy);
}

void require_targets_folder(const std::string& folder) {
  QUENCH_CHECK_KEY(ErrorCode::bad_config, kTargetsKey, fs::exists(fs::path(folder) / kTargetsFile),
                   "{} holds no targets of a teacher ({}); run `{}` with this config first", folder, kTargetsFile,
                   kTargetsRemedy);
}

TargetRecord read_target_record(const std::string& folder) {
  const fs::path path = fs::path(folder) / kTargetsFile;
  try {
    const Json json = Json::parse_file(path);
    const std::int64_t version = json.at("version").as_int();
    QUENCH_CHECK_AS(ErrorCode::corrupt, version == kTargetsVersion, "version {}, expected {}", version,
                    kTargetsVersion);
    TargetRecord record;
    const std::optional<DType> dtype = dtype_from_string(json.at("dtype").as_string());
    QUENCH_CHECK_AS(ErrorCode::corrupt, dtype == DType::f16 || dtype == DType::f32, "dtype '{}', expected f16 or f32",
                    json.at("dtype").as_string());
    record.format = {.k = json.at("tokens").as_int(), .dtype = *dtype, .vocab = json.at("vocab_size").as_int()};
    QUENCH_CHECK_AS(ErrorCode::corrupt, record.format.k >= 1 && record.format.k <= record.format.vocab,
                    "{} tokens of a vocabulary of {}", record.format.k, record.format.vocab);
    record.temperature = json.at("temperature").as_double();
    record.tokenizer = json.at("tokenizer").as_string();
    for (const Json& count : json.at("rows").as_array()) record.rows.push_back(count.as_uint());
    record.keys = json.at("keys");
    record.train = json.at("train");
    record.teacher = json.at("teacher");
    record.seed = json.at("seed").as_int();
    record.format.identity = shard_names(record).at(kShardIdentity);
    return record;
  } catch (const Error& error) {
    QUENCH_FAIL(ErrorCode::corrupt, "{}: {}; remove the folder and run `{}` again", path.string(), error.what(),
                kTargetsRemedy);
  }
}

void write_target_record(const TargetRecord& record, const std::string& folder) {
  write_file_atomically(fs::path(folder) / kTargetsFile, to_json(record).dump(2) + "\n");
}

void require_same_targets(const TargetRecord& stored, const TargetRecord& run, const std::string& folder) {
  const std::string remedy =
      fmt::format("; undo the change, or name a new folder in distill.targets and run `{}`", kTargetsRemedy);
  const auto require = [&](const char* key, bool same, std::string_view what, const auto& before, const auto& now) {
    QUENCH_CHECK_KEY(ErrorCode::bad_config, key, same, "the targets in {} are for {} {}, the run has {}{}", folder,
                     what, before, now, remedy);
  };
  const auto named = [](const std::string& fingerprint) { return fingerprint.empty() ? "(none)" : fingerprint; };
  require("data.tokenizer", stored.tokenizer == run.tokenizer, "a tokenizer of fingerprint", named(stored.tokenizer),
          named(run.tokenizer));
  require("model.vocab_size", stored.format.vocab == run.format.vocab, "a vocabulary of", stored.format.vocab,
          run.format.vocab);
  for (const auto& [key, value] : run.keys.as_object()) {
    const Json* before = stored.keys.find(key);
    const Json then = before != nullptr ? *before : Json();
    require(key.c_str(), then == value, key, then.dump(), value.dump());
  }
  if (const auto changes = train_data_changes(stored.train, run.train); !changes.empty())
    require("data.train", false, "other data:", changes.front().before, changes.front().after);
  require("data.train", stored.rows == run.rows, "sequences of the sources",
          fmt::format("{}", fmt::join(stored.rows, ", ")), fmt::format("{}", fmt::join(run.rows, ", ")));
  require("distill.temperature", stored.temperature == run.temperature, "temperature", stored.temperature,
          run.temperature);
  require("distill.top_k", stored.format.k == run.format.k, "top_k", stored.format.k, run.format.k);
  require("distill.targets_dtype", stored.format.dtype == run.format.dtype, "targets_dtype",
          to_string(stored.format.dtype), to_string(run.format.dtype));
  if (run.teacher.as_object().empty()) return;
  require("distill.teacher",
          stored.teacher.at("weights") == run.teacher.at("weights") &&
              stored.teacher.at("dtype") == run.teacher.at("dtype"),
          "the teacher", stored.teacher.dump(), run.teacher.dump());
}

}  // namespace quench
