#include "data/tokenizer/tokenizer_files.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <iterator>

#include "core/system/file.h"
#include "core/system/file_type.h"
#include "core/system/log.h"
#include "core/system/output_folder.h"
#include "core/system/replacement.h"
#include "core/system/temporary.h"
#include "data/tokenizer/text/json_fields.h"

namespace quench {
namespace {

constexpr std::string_view kConfigFile = "tokenizer_config.json", kTemplateFile = "chat_template.jinja";
constexpr std::array<std::string_view, 4> kCompanions{kConfigFile, "special_tokens_map.json", "added_tokens.json",
                                                      kTemplateFile};

Json parse(const std::string& name, const std::string& text) {
  Json::ParseOptions options;
  options.source = name;
  options.max_bytes = TokenizerFiles::kMaxOtherBytes;
  return Json::parse(text, options);
}

// Token in a settings file: string, or object with its content. Absent or null: none.
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

constexpr std::array<std::string_view, 7> kNamedTokens{"bos_token", "eos_token", "unk_token", "sep_token",
                                                       "pad_token", "cls_token", "mask_token"};

void add_special(const Json& token, TokenizerSettings& result) {
  const Json* content = token.is_object() ? token.find("content") : &token;
  if (content == nullptr || !content->is_string() || content->as_string().empty()) return;
  const std::string& name = content->as_string();
  if (std::ranges::find(result.special_tokens, name) == result.special_tokens.end())
    result.special_tokens.push_back(name);
}

// Lists of tokens, or, in newer files, objects.
void read_special_tokens(const Json& settings, TokenizerSettings& result) {
  for (const std::string_view key : kNamedTokens)
    if (const Json* token = settings.find(key); token != nullptr) add_special(*token, result);
  for (const std::string_view key : {"additional_special_tokens", "extra_special_tokens"}) {
    const Json* list = settings.find(key);
    if (list == nullptr) continue;
    if (list->is_array())
      for (const Json& token : list->as_array()) add_special(token, result);
    if (list->is_object())
      for (const auto& [name, token] : list->as_object()) add_special(token, result);
  }
  const Json* added = settings.find("added_tokens_decoder");
  if (added == nullptr || !added->is_object()) return;
  for (const auto& [id, token] : added->as_object())
    if (token.is_object() && bool_field(token, "special", false)) add_special(token, result);
}

void read_named_tokens(const Json& settings, TokenizerSettings& result) {
  read_special_tokens(settings, result);
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

constexpr std::string_view kDefaultTemplate = "default", kTemplateFolder = "additional_chat_templates/",
                           kTemplateEnding = ".jinja";

void add_template(std::optional<Tokenizer::ChatTemplateText>& templates, std::string_view name, const std::string& text,
                  const std::string& source) {
  if (!templates) templates = Tokenizer::ChatTemplateText{};  // Clang 16: no default constructor found here
  if (name == kDefaultTemplate) {
    templates->text = text;
    templates->source = source;
  } else {
    templates->named.push_back({std::string(name), text, source});
  }
}

// String, or a list of {"name": ..., "template": ...}.
void read_templates(const Json& config, std::optional<Tokenizer::ChatTemplateText>& templates) {
  const Json* value = optional_field(config, "chat_template");
  if (value == nullptr) return;
  if (!value->is_array()) return add_template(templates, kDefaultTemplate, value->as_string(), "");
  for (const Json& entry : value->as_array())
    add_template(templates, entry.at("name").as_string(), entry.at("template").as_string(), "");
}

// "tool_use" from additional_chat_templates/tool_use.jinja; empty for other files.
std::string_view template_name(std::string_view file) {
  if (!file.starts_with(kTemplateFolder) || !file.ends_with(kTemplateEnding)) return {};
  file.remove_prefix(kTemplateFolder.size());
  file.remove_suffix(kTemplateEnding.size());
  return file.find('/') == std::string_view::npos ? file : std::string_view();
}

void read_config(const Json& config, TokenizerSettings& result) {
  read_named_tokens(config, result);
  read_templates(config, result.chat_template);
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

// Legacy list of added tokens: {"content": id}.
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
  refuse_lfs_pointer(vocabulary.string(), files.back().second);
  const auto read_if_there = [&](std::string_view name, std::uint64_t max_bytes) {
    const auto path = vocabulary.parent_path() / name;
    if (std::filesystem::exists(path)) files.emplace_back(name, read_file(path, max_bytes));
  };
  for (const std::string_view name : kCompanions) read_if_there(name, kMaxOtherBytes);
  for (const std::string& name : others) read_if_there(name, kMaxVocabularyBytes);
  std::error_code none;
  std::vector<std::string> templates;
  for (const auto& entry : std::filesystem::directory_iterator(vocabulary.parent_path() / kTemplateFolder, none)) {
    std::string name = std::string(kTemplateFolder) + entry.path().filename().string();
    if (!template_name(name).empty() && entry.is_regular_file(none)) templates.push_back(std::move(name));
  }
  std::ranges::sort(templates);
  for (const std::string& name : templates) read_if_there(name, kMaxOtherBytes);
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
  const std::string source = (folder / "tokenizer_config.json").string() + " (chat_template)";
  if (settings_.chat_template) {
    settings_.chat_template->source = source;
    for (Tokenizer::NamedTemplate& named : settings_.chat_template->named) named.source = source;
  }
  // Template files override all templates of the config.
  std::optional<Tokenizer::ChatTemplateText> in_files;
  for (const auto& [name, text] : files_) {
    const std::string_view named = name == "chat_template.jinja" ? kDefaultTemplate : template_name(name);
    if (!named.empty()) add_template(in_files, named, text, (folder / name).string());
  }
  if (in_files) settings_.chat_template = std::move(in_files);
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

void TokenizerFiles::save(const std::filesystem::path& given) const {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path folder = resolved_path(given);
  const bool exists = fs::exists(folder, error);
  std::vector<fs::path> made;
  for (fs::path path = folder.parent_path(); !fs::exists(path, error); path = path.parent_path()) made.push_back(path);
  const bool several = std::ranges::any_of(files_, [](const auto& file) { return !template_name(file.first).empty(); });
  try {
    const fs::path place = exists ? folder / "tokenizer" : folder;
    remove_stale_temporaries(place.parent_path(), place.filename().string());
    StagingFolder fresh(place);
    std::vector<std::string> names;
    const auto write = [&](const std::string& name, const std::string& contents) {
      write_file_atomically(fresh.path() / name, contents);
      names.push_back(name);
    };
    if (several) write(std::string(kConfigFile), config_with_templates());
    for (std::size_t i = files_.size(); i-- > 0;) {  // the vocabulary completes the tokenizer
      const auto& [name, contents] = files_[i];
      if (several && (name == kTemplateFile || name == kConfigFile || !template_name(name).empty())) continue;
      // Canonical name for readers, whatever the file was called.
      const bool model = fs::path(name).extension() == ".model";
      write(i > 0 ? name : model ? "tokenizer.model" : "tokenizer.json", contents);
    }
    if (!exists) {
      sync_directory(fresh.path());
      rename_durably(fresh.path(), folder);
      return fresh.release();
    }
    std::vector<std::string> old;
    std::ranges::copy_if(names, std::back_inserter(old), [&](const std::string& n) { return fs::exists(folder / n); });
    std::ranges::reverse(old);
    remove_replaced(exchange_files(fresh.path(), folder, names, old), old);
  } catch (...) {
    for (const fs::path& path : made) fs::remove(path, error);  // empty ones
    throw;
  }
}

// tokenizer_config.json including all chat templates.
std::string TokenizerFiles::config_with_templates() const {
  const auto file = std::ranges::find(files_, kConfigFile, [](const auto& f) -> std::string_view { return f.first; });
  Json config = file != files_.end() ? parse(source_, file->second) : Json::object();
  Json::Array list;
  const auto add = [&](std::string_view name, const std::string& text) {
    list.push_back(Json::Object{{"name", name}, {"template", text}});
  };
  if (!settings_.chat_template->text.empty()) add(kDefaultTemplate, settings_.chat_template->text);
  for (const auto& named : settings_.chat_template->named) add(named.name, named.text);
  config.set("chat_template", std::move(list));
  return config.dump(2) + "\n";
}

void warn_of_unmarked_tokens(const Tokenizer& tokenizer, const TokenizerFiles& files) {
  constexpr std::size_t kNamed = 20;
  std::vector<std::string> names;
  std::size_t count = 0;
  for (const std::string& name : files.settings().special_tokens) {
    const std::optional<std::int32_t> id = tokenizer.find_token(name);
    if (id && tokenizer.is_special(*id)) continue;
    if (++count <= kNamed) names.push_back(name);
  }
  if (names.empty()) return;
  QUENCH_LOG_WARN(
      "{}: special tokens that only tokenizer_config.json or special_tokens_map.json names are plain text here: {}{}; "
      "Transformers encodes each as one token: list them in model.add_tokens, or save the tokenizer with its "
      "save_pretrained(), which writes them into tokenizer.json",
      files.source(), fmt::join(names, ", "), count > kNamed ? fmt::format(" and {} more", count - kNamed) : "");
}

bool is_tokenizer_companion(std::string_view name) noexcept {
  return std::ranges::find(kCompanions, name) != kCompanions.end();
}

}  // namespace quench
