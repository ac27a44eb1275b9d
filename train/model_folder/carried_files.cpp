#include "train/model_folder/carried_files.h"

#include <algorithm>
#include <array>
#include <span>

#include "core/json/json.h"
#include "core/system/file.h"
#include "nn/spec/config_reader.h"
#include "nn/spec/rope_override.h"

namespace quench {
namespace {

namespace fs = std::filesystem;

constexpr std::array kTokenizerFiles = {"tokenizer.json",    "tokenizer_config.json", "special_tokens_map.json",
                                        "added_tokens.json", "tokenizer.model",       "vocab.json",
                                        "merges.txt",        "chat_template.jinja",   "chat_template.json"};
constexpr std::array kLicences = {"LICENSE", "LICENSE.txt", "NOTICE", "USE_POLICY.md"};
constexpr std::uint64_t kMaxCarriedBytes = std::uint64_t{256} << 20;

// Files in `from` and not in `to`.
void carry(std::span<const char* const> names, const fs::path& from, const fs::path& to) {
  if (from.empty()) return;
  for (const char* name : names)
    if (fs::is_regular_file(from / name) && !fs::exists(to / name))
      write_file_atomically(to / name, read_file(from / name, kMaxCarriedBytes));
}

// Published file, with the ids to write if different.
std::string generation_config(const Json& config, const SmallFiles& files) {
  const fs::path published = files.model / "generation_config.json";
  Json json = Json(Json::Object{{"_from_model_config", true}});
  if (!files.model.empty() && fs::is_regular_file(published)) {
    const std::string text = read_file(published, kMaxCarriedBytes);
    json = Json::parse(text, {.source = published.string()});
    QUENCH_CHECK_AS(ErrorCode::corrupt, json.is_object(), "{}: expected a JSON object, got {}", published.string(),
                    json.type_name());
    if (files.generation_ids.value_or(token_ids_of(json)) == token_ids_of(json)) return text;
  }
  set_token_ids(json, files.generation_ids.value_or(token_ids_of(config)));
  for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id"})
    if (json.at(key).is_null()) json.erase(key);
  return json.dump(2) + "\n";
}

// Transformers 5's name of the class, which version 4 does not have, is replaced by that of both. In place: numbers as
// 1e+30 keep their form.
void rename_tokenizer_class(std::string& text) {
  constexpr std::string_view kKey = "\"tokenizer_class\"", kNew = "\"TokenizersBackend\"",
                             kBoth = "\"PreTrainedTokenizerFast\"";
  const auto skip = [&](std::size_t at, std::string_view characters) {
    return std::min(text.find_first_not_of(characters, at), text.size());
  };
  for (std::size_t key = text.find(kKey); key != std::string::npos; key = text.find(kKey, key + 1)) {
    std::size_t at = skip(key + kKey.size(), " \t\r\n");
    if (at == text.size() || text[at] != ':') continue;
    at = skip(at + 1, " \t\r\n");
    if (std::string_view(text).substr(at).starts_with(kNew)) text.replace(at, kNew.size(), kBoth);
  }
}

}  // namespace

void adapt_tokenizer_config(const fs::path& file) {
  if (!fs::is_regular_file(file)) return;
  const std::string stored = read_file(file, kMaxCarriedBytes);
  std::string text = stored;
  if (text.find(kAutoMap) != std::string::npos) {
    Json json = Json::parse(text, {.source = file.string()});
    if (json.is_object() && json.find(kAutoMap) != nullptr) {
      json.erase(kAutoMap);
      text = json.dump(2) + "\n";
    }
  }
  rename_tokenizer_class(text);
  if (text != stored) write_file_atomically(file, text);
}

void extend_model_max_length(const Json& config, const fs::path& file) {
  constexpr std::string_view kLength = "model_max_length";
  if (!fs::is_regular_file(file)) return;
  const std::string text = read_file(file, kMaxCarriedBytes);
  if (text.find(kLength) == std::string::npos) return;
  Json json = Json::parse(text, {.source = file.string()});
  const Json* stored = json.is_object() ? json.find(kLength) : nullptr;
  if (stored == nullptr || !stored->is_integer() || stored->as_double() > nn::kMaxDimension) return;
  Json unquantized = config;
  unquantized.erase("quantization_config");
  const nn::ModelConfig model = nn::parse_model_config(unquantized, "config.json");
  if (stored->as_int() != nn::unscaled_length(model) || stored->as_int() >= model.max_position_embeddings) return;
  json.set(kLength, model.max_position_embeddings);
  write_file_atomically(file, json.dump(2) + "\n");
}

void name_special_tokens(const Tokenizer& tokenizer, const fs::path& folder) {
  const fs::path file = folder / "tokenizer_config.json";
  if (!fs::exists(folder / "tokenizer.json") || fs::exists(file)) return;
  Json config = Json::Object{{"tokenizer_class", "PreTrainedTokenizerFast"}, {"clean_up_tokenization_spaces", false}};
  const auto name = [&](const char* key, std::optional<std::int32_t> id) {
    if (id) config.set(key, tokenizer.token_text(*id));
  };
  name("bos_token", tokenizer.bos_id());
  name("eos_token", tokenizer.eos_id());
  name("pad_token", tokenizer.pad_id());
  write_file_atomically(file, config.dump(2) + "\n");
}

void write_small_files(const Json& config, const SmallFiles& files, const fs::path& to) {
  if (files.tokenizer != nullptr) files.tokenizer->save(to);
  carry(kTokenizerFiles, files.tokenizer_folder, to);
  adapt_tokenizer_config(to / "tokenizer_config.json");
  extend_model_max_length(config, to / "tokenizer_config.json");
  // Readers prefer it to the template in tokenizer_config.json.
  if (!files.chat_template.empty())
    write_file_atomically(to / "chat_template.jinja", files.chat_template);
  else if (files.tokenizer != nullptr && files.tokenizer->chat_template() &&
           !files.tokenizer->chat_template()->named.empty())
    fs::remove(to / "chat_template.jinja");  // all are in tokenizer_config.json
  carry(kLicences, files.model.empty() ? files.tokenizer_folder : files.model, to);
  write_file_atomically(to / "generation_config.json", generation_config(config, files));
  write_file_atomically(to / "config.json", config.dump(2) + "\n");  // last: marks the folder complete
}

bool is_tokenizer_part(std::string_view name) {
  return std::ranges::find(kTokenizerFiles, name) != kTokenizerFiles.end();
}

bool is_small_file(std::string_view name) {
  return name == "config.json" || name == "generation_config.json" || is_tokenizer_part(name) ||
         std::ranges::find(kLicences, name) != kLicences.end();
}

}  // namespace quench
