#pragma once
// What stored targets belong to: targets.json.

#include <map>
#include <string>

#include "core/json/json.h"
#include "train/config/run_config.h"
#include "train/objectives/distillation/run/stored_targets.h"
#include "train/record/run_identity.h"

namespace quench {

struct TargetRecord {
  TargetsFormat format;
  double temperature = 1;
  std::string tokenizer;            // fingerprint; empty: none
  std::vector<std::uint64_t> rows;  // by source
  Json keys = Json::object();       // config keys that rows depend on, and their values
  Json train = Json::array();       // contents of the data files
  Json teacher = Json::object();    // empty: not compared
  std::int64_t seed = 0;            // seed of the run, for information
};

// Without teacher.
[[nodiscard]] TargetRecord target_record(const RunConfig& config, const RunIdentity& identity, const Dataset& data,
                                         std::int64_t vocab);
// Name, storage, dtype and a hash of the weights' files, or of the model's config and seed.
[[nodiscard]] Json teacher_record(const RunConfig& config, ValidationCache& checks);

// Metadata of the record's shards.
[[nodiscard]] std::map<std::string, std::string> shard_names(const TargetRecord& record);

// Throws KeyError for targets of other weights than those of distill.teacher. A folder that does not exist is not
// compared.
void require_same_teacher(const TargetRecord& stored, const RunConfig& config, const std::string& folder,
                          ValidationCache& checks);

// Throws KeyError: absent or no folder of targets.
void require_targets_folder(const std::string& folder);
// With the identity of its shards. Throws corrupt naming the file.
[[nodiscard]] TargetRecord read_target_record(const std::string& folder);
void write_target_record(const TargetRecord& record, const std::string& folder);

// Throws KeyError with the first difference, by the config key that must change. The teacher's weights are compared by
// require_same_teacher().
void require_same_targets(const TargetRecord& stored, const TargetRecord& run, const std::string& folder);

}  // namespace quench
