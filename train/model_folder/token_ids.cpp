#include "train/model_folder/token_ids.h"
#include "core/json/json_member.h"
#include "data/tokenizer/tokenizer_kind.h"

#include <algorithm>
#include <array>

namespace quench {
namespace {

namespace fs = std::filesystem;

using Ids = std::vector<std::int64_t>;

struct Role {
  const char* name;
  const char* key;  // in config.json and section model
};
constexpr std::array<Role, 3> kRoles = {
    {{"begin", "bos_token_id"}, {"end", "eos_token_id"}, {"padding", "pad_token_id"}}};
constexpr std::size_t kBegin = 0, kEnd = 1, kPadding = 2;

// One id, a list, or none.
Ids ids_at(const Json& json, std::string_view key) {
  Ids ids;
  const Json* value = find_member(json, {key});
  if (value == nullptr) return ids;
  const auto take = [&](const Json& item) {
    if (item.is_integer() && item.as_double() >= 0 && item.as_double() < 9e15) ids.push_back(item.as_int());
  };
  if (value->is_array()) {
    for (const Json& item : value->as_array()) take(item);
  } else {
    take(*value);
  }
  return ids;
}

template <class Id>
Ids list(const std::optional<Id>& id) {
  return id ? Ids{*id} : Ids{};
}

std::optional<std::int64_t> first(const Ids& ids) {
  return ids.empty() ? std::nullopt : std::optional(ids.front());
}

std::array<Ids, 3> by_role(const TokenIds& ids) {
  return {list(ids.bos), ids.eos, list(ids.pad)};
}

std::array<Ids, 3> by_role(const Tokenizer* tokenizer) {
  if (tokenizer == nullptr) return {};
  return {list(tokenizer->bos_id()), list(tokenizer->eos_id()), list(tokenizer->pad_id())};
}

TokenIds from_roles(const std::array<Ids, 3>& roles) {
  return {.bos = first(roles[kBegin]), .pad = first(roles[kPadding]), .eos = roles[kEnd]};
}

std::string shown(const Ids& ids) {
  return ids.empty() ? "none" : fmt::format("{}", fmt::join(ids, " or "));
}

// 257 "<|end_of_text|>".
std::string shown(const Ids& ids, const Tokenizer* tokenizer) {
  if (ids.size() != 1 || tokenizer == nullptr || ids.front() >= tokenizer->vocab_size()) return shown(ids);
  const std::array<std::int32_t, 1> id = {static_cast<std::int32_t>(ids.front())};
  return fmt::format("{} {}", ids.front(), Json(tokenizer->decode(id)).dump());
}

bool contains(const Ids& ids, const Ids& wanted) {
  return std::ranges::all_of(wanted, [&](std::int64_t id) { return std::ranges::find(ids, id) != ids.end(); });
}

bool holds_this_tokenizer(const fs::path& folder, const Tokenizer& tokenizer, std::span<const NewToken> added) {
  try {
    const std::unique_ptr<Tokenizer> own = load_tokenizer(folder);
    return (added.empty() ? own->fingerprint() : own->with_tokens(added)->fingerprint()) == tokenizer.fingerprint();
  } catch (const Error&) {
    return false;  // unreadable: not the tokenizer in use
  }
}

}  // namespace

TokenIds token_ids_of(const Json& json) {
  std::array<Ids, 3> roles;
  for (std::size_t i = 0; i < kRoles.size(); ++i) roles[i] = ids_at(json, kRoles[i].key);
  return from_roles(roles);
}

TokenIds token_ids_of(const nn::ModelConfig& config) {
  return {.bos = config.bos_token_id, .pad = config.pad_token_id, .eos = config.eos_token_ids};
}

void set_token_ids(Json& json, const TokenIds& ids) {
  const std::array<Ids, 3> roles = by_role(ids);
  for (std::size_t i = 0; i < kRoles.size(); ++i) {
    Json value;
    if (roles[i].size() == 1) value = roles[i].front();
    if (roles[i].size() > 1) {
      value = Json::array();
      for (const std::int64_t id : roles[i]) value.push_back(id);
    }
    json.set(kRoles[i].key, std::move(value));
  }
}

void set_token_ids(nn::ModelConfig& config, const TokenIds& ids) {
  config.bos_token_id = ids.bos;
  config.eos_token_ids = ids.eos;
  config.pad_token_id = ids.pad;
  if (!config.source.is_object()) config.source = Json::object();
  set_token_ids(config.source, ids);
}

std::string to_string(const TokenIds& ids) {
  const std::array<Ids, 3> roles = by_role(ids);
  return fmt::format("begin {}, end {}, padding {}", shown(roles[kBegin]), shown(roles[kEnd]), shown(roles[kPadding]));
}

TokenIdChoice choose_token_ids(const TokenIdSources& sources) {
  const std::array<Ids, 3> own = by_role(sources.tokenizer), model = by_role(sources.config);
  const std::array<Ids, 3> published = by_role(sources.generation.value_or(sources.config));
  std::array<Ids, 3> config, generation;
  TokenIdChoice choice;
  std::string unused;  // ids of a preset that nothing takes
  for (std::size_t i = 0; i < kRoles.size(); ++i) {
    const auto& [name, key] = kRoles[i];
    const Ids named = ids_at(sources.named, key);
    const std::string tokens = shown(own[i], sources.tokenizer);
    std::string origin;
    if (!named.empty()) {
      config[i] = generation[i] = named;
      origin = "the config";
      if (!contains(named, own[i]))
        choice.disagreements.push_back(fmt::format("model.{} is {}, but the tokenizer's {} token is {}: {} is used",
                                                   key, shown(named), name, tokens, shown(named)));
    } else if (sources.tokenizer == nullptr || (sources.models_tokenizer && !(model[i].empty() && i != kPadding))) {
      config[i] = model[i];
      generation[i] = published[i].empty() && i == kEnd ? model[i] : published[i];
      origin = sources.model;
      Ids both = config[i];
      for (const std::int64_t id : generation[i])
        if (!contains(both, {id})) both.push_back(id);
      if (!both.empty() && !contains(both, own[i]))
        choice.disagreements.push_back(
            fmt::format("{} has the {} token {}, but its tokenizer {}: {} is used; override with model.{}",
                        sources.model, name, shown(both), tokens, shown(both), key));
    } else {
      config[i] = generation[i] = own[i];
      origin = "the tokenizer";
      if (!sources.published && !model[i].empty() && model[i] != own[i])
        unused += fmt::format("{}{} {}", unused.empty() ? "" : ", ", name, shown(model[i]));
      if (sources.published && !model[i].empty() && !contains(published[i], own[i]))
        choice.disagreements.push_back(
            fmt::format("{} has the {} token {}, but the tokenizer in use is another one with {}, which is used; "
                        "override with model.{}",
                        sources.model, name, shown(published[i]), tokens, key));
    }
    choice.report += fmt::format("{}{} {}", i == 0 ? "" : ", ", name, shown(generation[i], sources.tokenizer));
    if (!generation[i].empty()) choice.report += fmt::format(" ({})", origin);
  }
  if (!unused.empty()) choice.report += fmt::format("; {} has {}, of another vocabulary", sources.model, unused);
  choice.config = from_roles(config);
  choice.generation = from_roles(generation);
  return choice;
}

std::optional<TokenIds> stored_generation_ids(const fs::path& folder) {
  const fs::path file = folder / "generation_config.json";
  if (!fs::is_regular_file(file)) return std::nullopt;
  return token_ids_of(Json::parse_file(file, {.max_bytes = std::size_t{16} << 20}));
}

TokenIdSources token_id_sources(const fs::path& folder, const nn::ModelConfig& config, const Tokenizer* tokenizer,
                                std::span<const NewToken> added) {
  TokenIdSources sources;
  sources.model = folder.string();
  sources.published = !folder.empty();
  sources.config = token_ids_of(config);
  sources.tokenizer = tokenizer;
  if (!folder.empty()) sources.generation = stored_generation_ids(folder);
  if (tokenizer == nullptr || folder.empty()) return sources;
  sources.models_tokenizer = holds_tokenizer(folder)
                                 ? holds_this_tokenizer(folder, *tokenizer, added)
                                 : end_among(sources.generation.value_or(sources.config), *tokenizer);
  return sources;
}

bool end_among(const TokenIds& ids, const Tokenizer& tokenizer) {
  return tokenizer.eos_id() && contains(ids.eos, {*tokenizer.eos_id()});
}

}  // namespace quench
