#include "data/tokenizer/tokenizer_files.h"

#include <xxhash.h>

#include <algorithm>
#include <array>

#include "core/system/file.h"
#include "data/tokenizer/text/json_fields.h"

namespace quench {
namespace {

constexpr std::array<std::string_view, 4> kCompanions{"tokenizer_config.json", "special_tokens_map.json",
                                                      "added_tokens.json", "chat_template.jinja"};

Json parse(const std::string& name, const std::string& text) {
  Json::ParseOptions options;
  options.source = name;
  options.max_bytes = TokenizerFiles::kMaxOtherBytes;
  return Json::parse(text, options);
}

// A token named in a settings file: a string, or an object with its content. Absent or null: none.
std::optional<std::string> token_name(const Json& settings, std::string_view key) {
  const Json* value = optional_field(settings, key);
  if (value == nullptr) return std::nullopt;
  return value->is_object() ? value->at("content").as_string() : value->as_string();
}

void take(std::optional<std::string>& target, const Json& settings, std::string_view key) {
  if (!target) target = token_name(settings, key);
}

void take(std::optional<bool>& target, const Json& settings, std::string_view key) {
  if (const Json* value = optional_field(settings, key)) target = value->as_bool();
}

void read_named_tokens(const Json& settings, TokenizerSettings& result) {
  take(result.bos_token, settings, "bos_token");
  take(result.eos_token, settings, "eos_token");
  take(result.pad_token, settings, "pad_token");
  take(result.unk_token, settings, "unk_token");
}

std::int32_t parse_id(std::string_view text) {
  std::int32_t id = 0;
  for (const char digit : text) {
    QUENCH_CHECK_AS(ErrorCode::corrupt, digit >= '0' && digit <= '9' && id < 100'000'000, "\"{}\" is not a token id",
                    shortened(text));
    id = id * 10 + (digit - '0');
  }
  return id;
}

// A string, or a list of {"name": ..., "template": ...}.
std::optional<std::string> template_of(const Json& config) {
  const Json* value = optional_field(config, "chat_template");
  if (value == nullptr) return std::nullopt;
  if (!value->is_array()) return value->as_string();
  for (const Json& entry : value->as_array())
    if (entry.at("name").as_string() == "default") return entry.at("template").as_string();
  return std::nullopt;
}

void read_config(const Json& config, TokenizerSettings& result) {
  read_named_tokens(config, result);
  if (auto text = template_of(config)) result.chat_template = {.text = std::move(*text), .source = ""};
  take(result.add_bos_token, config, "add_bos_token");
  take(result.add_eos_token, config, "add_eos_token");
  take(result.legacy, config, "legacy");
  take(result.add_prefix_space, config, "add_prefix_space");
  const Json* added = optional_field(config, "added_tokens_decoder");
  if (added == nullptr) return;
  for (const auto& [id, token] : added->as_object()) {
    result.added_tokens.push_back({.id = parse_id(id),
                                   .content = token.at("content").as_string(),
                                   .single_word = bool_field(token, "single_word", false),
                                   .lstrip = bool_field(token, "lstrip", false),
                                   .rstrip = bool_field(token, "rstrip", false),
                                   .normalized = bool_field(token, "normalized", false),
                                   .special = bool_field(token, "special", false)});
  }
}

// The older list of added tokens: {"content": id}.
void read_added_tokens(const Json& list, TokenizerSettings& result) {
  if (!result.added_tokens.empty()) return;
  for (const auto& [content, id] : list.as_object()) {
    const std::int64_t value = id.as_int();
    QUENCH_CHECK_AS(ErrorCode::corrupt, value >= 0 && value <= INT32_MAX, "{}: {} is not a token id", position(id),
                    value);
    result.added_tokens.push_back({.id = static_cast<std::int32_t>(value), .content = content});
  }
}

}  // namespace

TokenizerFiles::TokenizerFiles(std::string source, std::vector<std::pair<std::string, std::string>> files)
    : source_(std::move(source)), files_(std::move(files)) {
  read_settings();
}

TokenizerFiles TokenizerFiles::read(const std::filesystem::path& vocabulary, const std::vector<std::string>& others) {
  std::vector<std::pair<std::string, std::string>> files;
  files.emplace_back(vocabulary.filename().string(), read_file(vocabulary, kMaxVocabularyBytes));
  const auto read_if_there = [&](std::string_view name, std::uint64_t max_bytes) {
    const auto path = vocabulary.parent_path() / name;
    if (std::filesystem::exists(path)) files.emplace_back(name, read_file(path, max_bytes));
  };
  for (const std::string_view name : kCompanions) read_if_there(name, kMaxOtherBytes);
  for (const std::string& name : others) read_if_there(name, kMaxVocabularyBytes);
  return {vocabulary.string(), std::move(files)};
}

void TokenizerFiles::read_settings() {
  const auto with = [&](std::string_view name, auto&& reader) {
    const auto file = std::ranges::find(files_, name, [](const auto& f) -> std::string_view { return f.first; });
    if (file == files_.end()) return;
    const std::string where = (std::filesystem::path(source_).parent_path() / file->first).string();
    const Json json = parse(where, file->second);
    try {
      reader(json, settings_);
    } catch (const Error& error) {
      throw Error(error.code(), fmt::format("{}: {}", where, error.what()));
    }
  };
  with("tokenizer_config.json", read_config);
  with("special_tokens_map.json", read_named_tokens);
  with("added_tokens.json", read_added_tokens);
  const std::filesystem::path folder = std::filesystem::path(source_).parent_path();
  if (settings_.chat_template)
    settings_.chat_template->source = (folder / "tokenizer_config.json").string() + " (chat_template)";
  for (const auto& [name, text] : files_)
    if (name == "chat_template.jinja") settings_.chat_template = {.text = text, .source = (folder / name).string()};
}

std::uint64_t TokenizerFiles::fingerprint() const {
  const auto mix = [](std::uint64_t hash, std::string_view bytes) {
    return XXH3_64bits_withSeed(bytes.data(), bytes.size(), hash);
  };
  const auto mix_name = [&](std::uint64_t hash, const std::optional<std::string>& name) {
    return mix(hash, name ? "+" + *name : std::string("-"));
  };
  std::uint64_t hash = mix(0, vocabulary());
  for (const auto& name : {settings_.bos_token, settings_.eos_token, settings_.pad_token, settings_.unk_token}) {
    hash = mix_name(hash, name);
  }
  for (const auto flag :
       {settings_.add_bos_token, settings_.add_eos_token, settings_.legacy, settings_.add_prefix_space}) {
    hash = mix(hash, flag ? (*flag ? "1" : "0") : "-");
  }
  for (const AddedToken& token : settings_.added_tokens) {
    hash = mix(hash, fmt::format("{} {:d}{:d}{:d}{:d}{:d} {}", token.id, token.single_word, token.lstrip, token.rstrip,
                                 token.normalized, token.special, token.content));
  }
  return hash;
}

void TokenizerFiles::save(const std::filesystem::path& folder) const {
  namespace fs = std::filesystem;
  std::error_code error;
  std::vector<fs::path> made;  // the folder and those above it that are not there yet
  for (fs::path path = folder; !path.empty() && !fs::exists(path, error); path = path.parent_path())
    made.push_back(path);
  fs::create_directories(folder, error);
  QUENCH_CHECK_AS(ErrorCode::io, !error, "{}: cannot create the folder: {}", folder.string(), error.message());
  std::vector<fs::path> written;
  try {
    for (std::size_t i = 0; i < files_.size(); ++i) {
      const auto& [name, contents] = files_[i];
      // The vocabulary may have been read from a file of any name; readers look for these.
      const bool model = fs::path(name).extension() == ".model";
      const fs::path path = folder / (i > 0 ? name : model ? "tokenizer.model" : "tokenizer.json");
      write_file_atomically(path, contents);
      written.push_back(path);
    }
  } catch (const Error&) {
    // A folder without a whole tokenizer is of no use. One that was there before keeps what it has.
    if (!made.empty())
      for (const fs::path& path : written) fs::remove(path, error);
    for (const fs::path& path : made) fs::remove(path, error);
    throw;
  }
}

bool is_tokenizer_companion(std::string_view name) noexcept {
  return std::ranges::find(kCompanions, name) != kCompanions.end();
}

}  // namespace quench
