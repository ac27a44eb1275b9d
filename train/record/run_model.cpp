#include "train/record/run_model.h"

#include <algorithm>
#include <functional>

#include "core/json/json_member.h"
#include "core/system/file.h"
#include "core/system/log.h"
#include "core/system/output_folder.h"
#include "core/system/replacement.h"
#include "core/system/temporary.h"
#include "data/text/chat_prompt.h"
#include "data/text/document_encoder.h"
#include "data/text/document_reader.h"
#include "train/check/load.h"
#include "train/checkpoint/manifest.h"
#include "train/config/run_plugins.h"
#include "train/metrics/run_files.h"
#include "train/model_folder/carried_files.h"
#include "train/model_folder/model_folder.h"
#include "train/model_source/model_source.h"
#include "train/run_folder/run_folder.h"
#include "train/session/model_setup.h"

namespace quench {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kModelKey = "model";  // key in CheckpointState::extra: {"config", "tokenizer", "run_folder"}
constexpr std::uint64_t kMaxFileBytes = std::uint64_t{256} << 20;

std::string origin_of(const ModelSection& model) {
  if (!model.path.empty()) return fmt::format("model.path {}", model.path);
  return model.preset.empty() ? "the section model" : fmt::format("model.preset {}", model.preset);
}

// Folder of data.tokenizer, else of the model.
fs::path tokenizer_folder(const RunConfig& config) {
  if (config.data.tokenizer.empty()) return config.model.path;
  return fs::is_directory(config.data.tokenizer) ? fs::path(config.data.tokenizer) : fs::path();
}

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename().string());
  std::ranges::sort(names);
  return names;
}

// JSON files by their values: versions of the program order keys differently.
bool same_file(const fs::path& a, const fs::path& b) {
  if (!fs::is_regular_file(b)) return false;
  const std::string text = read_file(a, kMaxFileBytes), other = read_file(b, kMaxFileBytes);
  if (text == other || a.extension() != ".json") return text == other;
  try {
    return Json::parse(text) == Json::parse(other);
  } catch (const Error&) {
    return false;
  }
}

// Removes the old model's files without successor: stale tokenizer files would be read.
void replace_model_part(StagingFolder& staging, const fs::path& folder) {
  const fs::path& fresh = staging.path();
  std::vector<std::string> changed, stale;
  for (const std::string& name : names_in(fresh))
    if (!same_file(fresh / name, folder / name)) changed.push_back(name);
  for (const std::string& name : names_in(folder))
    if (is_small_file(name) && !fs::exists(fresh / name)) stale.push_back(name);
  if (changed.empty() && stale.empty()) return;
  std::vector<std::string> all = changed;
  all.insert(all.end(), stale.begin(), stale.end());
  QUENCH_LOG_WARN("{} was of another model or tokenizer and is replaced: {}", folder.string(), fmt::join(all, ", "));
  if (foreign_entries(folder, is_small_file).empty()) return replace_folder(staging, folder, is_small_file);
  // config.json marks completeness: the first to go, the last to come.
  const auto is_config = [](const std::string& name) { return name == "config.json"; };
  std::vector<std::string> arriving = names_in(fresh), leaving;
  for (const std::string& name : names_in(folder))
    if (is_small_file(name)) leaving.push_back(name);
  std::ranges::stable_partition(arriving, std::not_fn(is_config));
  std::ranges::stable_partition(leaving, is_config);
  remove_replaced(exchange_files(fresh, folder, arriving, leaving), leaving);
}

// In the checkpoint's run folder, or at the recorded path.
fs::path find_model_part(const fs::path& checkpoint, const fs::path& run, const fs::path& recorded) {
  const fs::path around = fs::absolute(checkpoint / ".").lexically_normal().parent_path().parent_path().parent_path();
  for (const fs::path& candidate : {run, around, recorded})
    if (!candidate.empty() && fs::is_regular_file(candidate / run_files::kModelFolder / "config.json"))
      return candidate / run_files::kModelFolder;
  return {};
}

// training.mtp_loss_weight of a run's config.
bool trains_mtp(const Json& config) {
  const Json* weight = find_member(config, {"training", "mtp_loss_weight"});
  return weight != nullptr && weight->is_number() && weight->as_double() > 0;
}

// Whether `id` is a target among the first tokens of each source; false for sources without masks, as plain text is.
bool trains_token(const Dataset& train, std::int32_t id) {
  constexpr std::uint64_t kMaxTokens = std::uint64_t{1} << 20, kBlock = std::uint64_t{1} << 16;
  std::vector<std::int32_t> tokens;
  std::vector<std::uint8_t> targets;
  const auto trains = [&](const TokenSource& source, std::uint64_t begin, std::uint64_t end) {
    for (; begin < end; begin += kBlock) {
      tokens.resize(static_cast<std::size_t>(std::min(kBlock, end - begin)));
      targets.resize(tokens.size());
      source.read(begin, tokens);
      source.read_target_mask(begin, targets);
      for (std::size_t i = 0; i < tokens.size(); ++i)
        if (tokens[i] == id && targets[i] != 0) return true;
    }
    return false;
  };
  for (const WeightedRows& rows : train.sources()) {
    const TokenSource& source = rows.rows->source();
    if (!source.has_target_mask()) continue;
    std::vector<SourcePart> parts = rows.parts;
    if (parts.empty()) parts.push_back({{}, 0, source.size()});
    for (const SourcePart& part : parts)
      if (trains(source, part.begin, part.begin + std::min(part.tokens, kMaxTokens))) return true;
  }
  return false;
}

bool has_target_mask(const Dataset& train) {
  return std::ranges::any_of(train.sources(),
                             [](const WeightedRows& rows) { return rows.rows->source().has_target_mask(); });
}

// End of a turn of the template of section data. None without one, or for a tokenizer's that fails, with a warning:
// data other than chats need none.
std::optional<std::int32_t> end_of_turn(const DataSection& data, const Tokenizer& tokenizer) {
  const std::string& name = data.chat_template;
  const bool is_named = !chat_template_text(name).empty();
  try {
    if (is_named) return ChatPrompt(tokenizer, name, is_chat_template_file(name) ? data.chat_date : "").end_of_turn();
    const Json::Object& kwargs = data.chat_template_kwargs;
    return ChatPrompt(tokenizer, name, data.chat_date, kwargs.empty() ? Json() : Json(kwargs)).end_of_turn();
  } catch (const Error& error) {
    if (is_named) throw;
    if (tokenizer.chat_template())
      QUENCH_LOG_WARN("token ids: the token that ends a turn of the tokenizer's chat template is unknown: {}",
                      error.what());
    return std::nullopt;
  }
}

// A chat answer ends at the template's end of turn, which may differ from EOS. Ids of the config are kept. A template
// that the config does not name counts if the run trains its end of turn.
void add_end_of_turn(const RunConfig& config, const Tokenizer& tokenizer, const Dataset* train, TokenIdChoice& ids) {
  if (config.model.fields.find("eos_token_id") != nullptr) return;
  const bool is_named = !chat_template_text(config.data.chat_template).empty();
  if (!is_named && (train == nullptr || !has_target_mask(*train))) return;
  const std::optional<std::int32_t> end = end_of_turn(config.data, tokenizer);
  if (!end || std::ranges::find(ids.generation.eos, *end) != ids.generation.eos.end()) return;
  if (!is_named && !trains_token(*train, *end)) return;
  ids.generation.eos.push_back(*end);
  ids.report += fmt::format("; generated text also ends with {} \"{}\" ({})", *end, tokenizer.token_text(*end),
                            is_named ? "data.chat_template" : "the chat template");
}

}  // namespace

RunModel make_run_model(const RunConfig& config, nn::ModelConfig model, std::shared_ptr<const Tokenizer> tokenizer,
                        const Dataset* train) {
  TokenIdSources sources = token_id_sources(config.model.path, model, tokenizer.get(), config.model.add_tokens);
  sources.model = origin_of(config.model);
  sources.named = config.model.fields;
  TokenIdChoice ids = choose_token_ids(sources);
  if (tokenizer != nullptr) add_end_of_turn(config, *tokenizer, train, ids);
  for (const std::string& disagreement : ids.disagreements) QUENCH_LOG_WARN("token ids: {}", disagreement);
  // Else only the model folder's ids are known.
  if (tokenizer != nullptr || config.model.path.empty()) set_token_ids(model, ids.config);
  return {.config = std::move(model),
          .generation_ids = ids.generation,
          .tokenizer = std::move(tokenizer),
          .chat_template = chat_template_text(config.data.chat_template),
          .report = ids.report};
}

void write_run_model(const RunConfig& config, const RunModel& model) {
  const fs::path folder = fs::path(config.run.folder) / run_files::kModelFolder;
  fs::create_directories(config.run.folder);
  QUENCH_CHECK_AS(ErrorCode::bad_config, !has_foreign_model_part(config.run.folder),
                  "{} exists and was not written by a run; choose another run.folder, or rename it", folder.string());
  // Identifies the run: first.
  write_file_atomically(folder.parent_path() / run_files::kSources, run_sources(config).dump(2) + "\n");
  remove_stale_temporaries(config.run.folder, run_files::kModelFolder);
  StagingFolder fresh(folder);
  write_small_files(model.config.source,
                    {.model = config.model.path,
                     .tokenizer_folder = tokenizer_folder(config),
                     .tokenizer = model.tokenizer.get(),
                     .chat_template = model.chat_template,
                     .generation_ids = model.generation_ids},
                    fresh.path());
  if (fs::exists(folder)) return replace_model_part(fresh, folder);
  sync_directory(fresh.path());
  rename_durably(fresh.path(), folder);
  fresh.release();
}

void store_run_model(CheckpointState& state, const RunConfig& config, const RunModel& model) {
  Json json = Json::object();
  json.set("config", model.config.source);
  json.set("tokenizer", model.tokenizer ? Json(fingerprint_text(*model.tokenizer)) : Json());
  json.set("data", model.data);
  json.set("run_folder", fs::absolute(config.run.folder).lexically_normal().string());
  state.extra.set(kModelKey, std::move(json));
}

std::string stored_data_text(const CheckpointState& state) {
  return find_text(state.extra, {kModelKey, "data"});
}

StoredModel stored_model(const CheckpointState& state, const fs::path& checkpoint, const fs::path& run) {
  require_plugins(state);
  const std::string recorded = find_text(state.extra, {kModelKey, "run_folder"});
  StoredModel model;
  model.fingerprint = find_text(state.extra, {kModelKey, "tokenizer"});
  model.files = find_model_part(checkpoint, run, recorded);
  const Json* config = recorded.empty() ? nullptr : find_member(state.extra, {kModelKey, "config"});
  QUENCH_CHECK_AS(ErrorCode::corrupt, config != nullptr, "{} holds no model config", checkpoint.string());
  model.config = nn::parse_model_config(*config, (checkpoint / Manifest::kFileName).string());
  if (trains_mtp(state.config)) model.config.mtp.layers = model.config.mtp.declared;
  if (model.files.empty())
    model.missing = fmt::format("{} was copied out of its run folder ({}), whose folder {} has the tokenizer",
                                checkpoint.string(), recorded, run_files::kModelFolder);
  return model;
}

}  // namespace quench
