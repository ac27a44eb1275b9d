#include "train/hf/carried_files.h"

#include <array>

#include "core/file.h"
#include "core/json.h"

namespace quench {
namespace {

namespace fs = std::filesystem;

constexpr std::array kCarried = {"tokenizer.json",    "tokenizer_config.json", "special_tokens_map.json",
                                 "added_tokens.json", "tokenizer.model",       "vocab.json",
                                 "merges.txt",        "chat_template.jinja",   "chat_template.json",
                                 "LICENSE",           "LICENSE.txt",           "NOTICE",
                                 "USE_POLICY.md"};

Json generation_config(const nn::ModelConfig& config) {
  const Json model = nn::to_hf_json(config, DType::f32);
  Json json = Json::object();
  json.set("_from_model_config", true);
  for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id"})
    if (const Json* value = model.find(key); value != nullptr && !value->is_null()) json.set(key, *value);
  return json;
}

}  // namespace

void carry_files(const nn::ModelConfig& config, const fs::path& from, const fs::path& to) {
  if (!from.empty()) {
    for (const char* name : kCarried)
      if (fs::is_regular_file(from / name))
        write_file_atomically(to / name, read_file(from / name, std::uint64_t{256} << 20));
    if (fs::is_regular_file(from / "generation_config.json"))
      return write_file_atomically(to / "generation_config.json", read_file(from / "generation_config.json", 16 << 20));
  }
  write_file_atomically(to / "generation_config.json", generation_config(config).dump(2) + "\n");
}

void replace_folder(const fs::path& fresh, const fs::path& target) {
  if (!fs::exists(target)) return rename_durably(fresh, target);
  const fs::path old = temporary_name(target);
  rename_durably(target, old);
  try {
    rename_durably(fresh, target);
  } catch (...) {
    rename_durably(old, target);
    throw;
  }
  fs::remove_all(old);
}

}  // namespace quench
