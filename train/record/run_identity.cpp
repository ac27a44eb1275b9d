#include "train/record/run_identity.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include "core/system/log.h"
#include "data/formats/validation_cache.h"
#include "data/sampling/open_dataset.h"
#include "data/text/document_encoder.h"
#include "train/config/objective_table.h"
#include "train/config/presets.h"
#include "train/config/section_enum_names.h"
#include "train/session/frozen_model.h"

namespace quench {
namespace {

using Sources = std::vector<std::vector<FileContent>>;
using Changes = std::vector<ConfigChange>;

constexpr std::size_t kMaxNamed = 8;  // files per key
constexpr std::string_view kAbsent = "(absent)";

Sources contents_of(const std::vector<DataSource>& sources, DataSplit split, ValidationCache& checks) {
  Sources all;
  for (const DataSource& source : sources) {
    std::vector<FileContent>& files = all.emplace_back();
    for (const auto& path : source_files({source.path}, split))
      files.push_back({path.string(), checks.content(BinaryFile(path))});
  }
  return all;
}

Json to_json(const Sources& sources) {
  Json list = Json::array();
  for (const auto& source : sources) {
    Json files = Json::array();
    for (const auto& [file, content] : source)
      files.push_back(Json::Object{
          {"file", file}, {"bytes", content.bytes}, {"xxh3_128", content.xxh3_128}, {"sampled", content.sampled}});
    list.push_back(std::move(files));
  }
  return list;
}

Sources sources_from_json(const Json& list) {
  Sources sources;
  for (const Json& files : list.as_array()) {
    std::vector<FileContent>& source = sources.emplace_back();
    for (const Json& file : files.as_array())
      source.push_back({file.at("file").as_string(),
                        {file.at("bytes").as_uint(), file.at("xxh3_128").as_string(), file.at("sampled").as_bool()}});
  }
  return sources;
}

bool same_content(const Sources& a, const Sources& b) {
  const auto same_file = [](const FileContent& x, const FileContent& y) { return x.content == y.content; };
  return std::ranges::equal(a, b, [&](const auto& x, const auto& y) { return std::ranges::equal(x, y, same_file); });
}

std::string describe(const ContentHash& content) {
  return fmt::format("{} bytes, XXH3 {}{}", content.bytes, content.xxh3_128, content.sampled ? " of a sample" : "");
}

std::map<std::string, ContentHash> by_name(const Sources& sources) {
  std::map<std::string, ContentHash> files;
  for (const auto& source : sources)
    for (const FileContent& file : source) files[file.file] = file.content;
  return files;
}

// One change per file; of moved files only new or missing content.
void compare_sources(const std::string& key, const Sources& before, const Sources& after, Changes& changes) {
  if (same_content(before, after)) return;
  const auto old_files = by_name(before), new_files = by_name(after);
  const auto holds = [](const auto& files, const ContentHash& content) {
    return std::ranges::any_of(files, [&](const auto& file) { return file.second == content; });
  };
  Changes found;
  const auto add = [&](std::string from, std::string to) {
    found.push_back({key, std::move(from), std::move(to), ResumePolicy::guarded});
  };
  for (const auto& [name, content] : old_files) {
    const auto now = new_files.find(name);
    if (now != new_files.end() && now->second != content)
      add(fmt::format("{} of {}", name, describe(content)), describe(now->second));
    else if (now == new_files.end() && !holds(new_files, content))
      add(fmt::format("{} of {}", name, describe(content)), std::string(kAbsent));
  }
  for (const auto& [name, content] : new_files)
    if (!old_files.contains(name) && !holds(old_files, content))
      add(std::string(kAbsent), fmt::format("{} of {}", name, describe(content)));
  if (found.empty()) {  // same contents, other order or number
    std::size_t old_count = 0, new_count = 0;
    for (const auto& source : before) old_count += source.size();
    for (const auto& source : after) new_count += source.size();
    add(fmt::format("{} files in {} sources", old_count, before.size()),
        fmt::format("{} files in {} sources, the same in another order or number", new_count, after.size()));
  }
  const std::size_t more = found.size() > kMaxNamed ? found.size() - kMaxNamed : 0;
  found.resize(found.size() - more);
  if (more > 0) add(fmt::format("{} more files", more), "changed, new or absent");
  changes.insert(changes.end(), found.begin(), found.end());
}

bool same_weights(const std::vector<DataSource>& a, const std::vector<DataSource>& b) {
  return std::ranges::equal(a, b, {}, &DataSource::weight, &DataSource::weight);
}

// Key and path of a second model that the run reads; empty: none.
std::pair<std::string, std::string> second_model_of(const RunConfig& config) {
  for (const ObjectiveFolder& folder : objective_folders(config))
    if (folder.is_second_model) return {std::string(folder.key), folder.path};
  return {};
}

std::string hash_second_model(const RunConfig& config, ValidationCache& checks) {
  const std::string path = second_model_of(config).second;
  if (path.empty() || !std::filesystem::exists(path)) return {};
  Hash128 hash;
  add_weight_files(hash, path, checks);
  return hash.text();
}

}  // namespace

RunIdentity run_identity(const RunConfig& config, const Tokenizer* tokenizer, ValidationCache& checks) {
  return {.train = contents_of(config.data.train, DataSplit::train, checks),
          .validation = contents_of(config.data.validation, DataSplit::validation, checks),
          .validation_split = config.data.validation_split,
          .tokenizer = tokenizer != nullptr ? fingerprint_text(*tokenizer) : std::string(),
          .model = model_config(config.model),
          .second_model = hash_second_model(config, checks)};
}

Json to_json(const RunIdentity& identity) {
  Json json = Json::Object{{"train", to_json(identity.train)},
                           {"validation", to_json(identity.validation)},
                           {"tokenizer", identity.tokenizer},
                           {"model", identity.model}};
  if (identity.validation_split) json.set("validation_split", *identity.validation_split);
  if (!identity.second_model.empty()) json.set("second_model", identity.second_model);
  return json;
}

bool same_validation(const Json& stored, const RunIdentity& identity) {
  const Json* split = stored.find("validation_split");
  if ((split != nullptr ? std::optional(split->as_double()) : std::nullopt) != identity.validation_split) return false;
  return same_content(sources_from_json(stored.at("validation")), identity.validation) &&
         (split == nullptr || same_content(sources_from_json(stored.at("train")), identity.train));
}

std::vector<ConfigChange> run_changes(const Json& stored, const RunConfig& before, const RunIdentity& identity,
                                      const RunConfig& after) {
  Changes changes = config_diff(before, after, &stored.at("model"));
  const auto forget = [&](std::string_view key) {
    std::erase_if(changes, [&](const ConfigChange& change) { return change.key == key; });
  };
  const Sources train = sources_from_json(stored.at("train"));
  if (same_content(train, identity.train) && same_weights(before.data.train, after.data.train)) forget("data.train");
  compare_sources("data.train", train, identity.train, changes);
  // Under another name, validation data may differ.
  if (before.data.validation == after.data.validation)
    compare_sources("data.validation", sources_from_json(stored.at("validation")), identity.validation, changes);
  const std::string& tokenizer = stored.at("tokenizer").as_string();
  if (tokenizer == identity.tokenizer)
    forget("data.tokenizer");
  else
    changes.push_back({"data.tokenizer", tokenizer.empty() ? "(none)" : "one of fingerprint " + tokenizer,
                       identity.tokenizer.empty() ? "(none)" : "one of fingerprint " + identity.tokenizer,
                       ResumePolicy::guarded});
  const Json* second = stored.find("second_model");
  const std::string key = second_model_of(after).first;
  if (second == nullptr || identity.second_model.empty() || key != second_model_of(before).first) return changes;
  forget(key);
  if (second->as_string() != identity.second_model)
    changes.push_back({key, "weights of hash " + second->as_string(), "weights of hash " + identity.second_model,
                       ResumePolicy::guarded});
  return changes;
}

std::vector<ConfigChange> train_data_changes(const Json& stored, const Json& now) {
  Changes changes;
  compare_sources("data.train", sources_from_json(stored), sources_from_json(now), changes);
  return changes;
}

}  // namespace quench
