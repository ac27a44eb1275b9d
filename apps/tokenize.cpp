// quench tokenize: token shards from text, records and chats; quench tokenize train: a BPE tokenizer from text; quench
// tokenize show: token ids of a text.

#include <algorithm>
#include <cstdio>

#include "apps/common.h"
#include "apps/options/reader_options.h"
#include "apps/tokenize_show.h"
#include "apps/verbs.h"
#include "core/system/log.h"
#include "core/system/output_folder.h"
#include "core/system/signals.h"
#include "data/files/text_input.h"
#include "data/formats/token_stream.h"
#include "data/text/data_files.h"
#include "data/text/tokenize.h"
#include "data/tokenizer/bpe_trainer.h"
#include "data/tokenizer/tokenizer_kind.h"
#include "train/check/load.h"
#include "train/check/run_tokenizer.h"
#include "train/metrics/progress_line.h"
#include "train/metrics/step_metrics.h"
#include "train/model_folder/export_folder.h"

namespace quench {
namespace {

struct TokenizeArguments {
  std::string tokenizer;
  std::string config;
  std::vector<std::string> add_tokens;
  TokenizeOptions options;
  ReaderArguments reader;
  std::string eos = "auto";
  std::string validation_split = "tail";
  bool no_special = false;
  bool json = false;
  bool quiet = false;
  int threads = 0;
};

Json shards_json(const std::vector<TokenizedShard>& shards) {
  Json list = Json::array();
  for (const TokenizedShard& shard : shards) {
    Json item = Json::object();
    item.set("file", shard.file);
    item.set("tokens", shard.tokens);
    item.set("documents", shard.documents);
    list.push_back(std::move(item));
  }
  return list;
}

void print_shards(const TokenizeArguments& a, const TokenizeResult& result) {
  const auto print = [&](const char* kind, const std::vector<TokenizedShard>& shards) {
    for (const TokenizedShard& s : shards)
      std::printf("%-11s %s/%s  %s tokens, %s documents\n", kind, a.options.output.c_str(), s.file.c_str(),
                  format_count(static_cast<std::int64_t>(s.tokens)).c_str(),
                  format_count(static_cast<std::int64_t>(s.documents)).c_str());
  };
  print("train", result.train);
  print("validation", result.validation);
}

// Tokenizer of --tokenizer, or of a run's config; with --add-token.
std::shared_ptr<const Tokenizer> chosen_tokenizer(const TokenizeArguments& a) {
  std::shared_ptr<const Tokenizer> tokenizer;
  if (!a.config.empty()) {
    const RunConfig config = load_run_config(a.config, {}, {.data = false, .files = false});
    tokenizer = run_tokenizer(config);
    QUENCH_CHECK_AS(ErrorCode::not_found, tokenizer != nullptr, "--config {}: the run has no tokenizer: {}", a.config,
                    no_tokenizer_text());
  } else {
    tokenizer = load_tokenizer(a.tokenizer);
  }
  if (a.add_tokens.empty()) return tokenizer;
  std::vector<NewToken> tokens;
  for (const std::string& text : a.add_tokens) tokens.push_back({text});
  try {
    return tokenizer->with_tokens(tokens);
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("--add-token: {}", error.what()));
  }
}

void run_tokenize(TokenizeArguments& a) {
  QUENCH_CHECK_AS(ErrorCode::bad_config,
                  (!a.tokenizer.empty() || !a.config.empty()) && !a.options.inputs.empty() && !a.options.output.empty(),
                  "quench tokenize needs --tokenizer or --config, --input and --output (or the subcommand train)");
  QUENCH_CHECK_AS(ErrorCode::bad_config, a.tokenizer.empty() || a.config.empty(),
                  "--config {} has a tokenizer of its own; omit --tokenizer {}", a.config, a.tokenizer);
  set_threads(a.threads);
  if (a.quiet) quieten_log();
  const std::shared_ptr<const Tokenizer> tokenizer = chosen_tokenizer(a);
  a.options.reader = reader_options(a.reader);
  a.options.reader.vocab_size = tokenizer->vocab_size();
  a.options.encoder = {.eos = require_enum<EosPolicy>(a.eos, "--eos"), .add_special_tokens = !a.no_special};
  a.options.validation_split = require_enum<ValidationSplit>(a.validation_split, "--validation-split");
  const TokenizeResult result = [&] {
    ProgressLine line("tokenizing");
    TokenizeOptions options = a.options;
    options.progress = [&](const TokenizeProgress& progress) { line.update(progress.bytes, progress.total_bytes); };
    options.journal = true;
    // Reads of stdin may block forever: signals then terminate the process at once. The journal is kept.
    if (std::find(options.inputs.begin(), options.inputs.end(), kStandardInput) == options.inputs.end())
      options.stop = poll_stop_signals();
    return tokenize_files(*tokenizer, options);
  }();
  for (const std::string& warning : result.warnings) QUENCH_LOG_WARN("{}", warning);
  if (a.json) {
    Json json = Json::object();
    json.set("output", a.options.output.string());
    json.set("train", shards_json(result.train));
    json.set("validation", shards_json(result.validation));
    json.set("documents", result.report.documents);
    json.set("bad_records", result.report.bad_records);
    return print_json(json);
  }
  if (!a.quiet) print_shards(a, result);
  if (result.report.bad_records > 0) {
    QUENCH_LOG_WARN("{} bad records were skipped", result.report.bad_records);
    for (const std::string& first : result.report.first_bad) QUENCH_LOG_WARN("  {}", first);
  }
}

struct TrainArguments {
  std::vector<std::string> inputs;
  std::string output;
  bool overwrite = false;
  bool json = false;
  ReaderArguments reader;
  BpeTrainingOptions options;
};

// Rejects a folder that holds a tokenizer or model, whose meaning a new file would change.
void require_tokenizer_folder(const std::filesystem::path& folder, bool overwrite) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  const fs::file_status status = fs::status(folder, ignored);
  QUENCH_CHECK_AS(ErrorCode::bad_config, !fs::exists(status) || fs::is_directory(status),
                  "--output {}: it exists and is not a folder", folder.string());
  if (overwrite || !fs::exists(status)) return;
  std::vector<std::string> names;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder))
    if (const std::string name = entry.path().filename().string(); is_export_file(name)) names.push_back(name);
  std::sort(names.begin(), names.end());
  QUENCH_CHECK_AS(
      ErrorCode::bad_config, names.empty(),
      "--output {}: the folder holds {}; choose another folder, or --overwrite to replace its tokenizer.json",
      folder.string(), list_names(names));
}

void run_train(const TrainArguments& a) {
  require_tokenizer_folder(a.output, a.overwrite);
  ReaderOptions reader_settings = reader_options(a.reader);
  // Any template yields a chat's text; its special tokens are omitted.
  QUENCH_CHECK_AS(
      ErrorCode::bad_config, reader_settings.chat_template_file.empty(),
      "--chat-template {}: training a tokenizer needs one of {}, since the special tokens of a file are unknown",
      reader_settings.chat_template_file.string(), fmt::join(chat_template_names(), ", "));
  if (reader_settings.chat_template == nullptr) reader_settings.chat_template = &chat_templates().front();
  const std::vector<std::filesystem::path> files = expand_data_files(a.inputs);
  std::size_t next_file = 0;
  std::unique_ptr<DocumentReader> reader;
  // Documents of all files, in order.
  const DocumentSource documents = [&](std::string& text) {
    Document document;
    while (true) {
      if (!reader) {
        if (next_file == files.size()) return false;
        reader = open_document_reader(files[next_file++], reader_settings);
      }
      const bool part = files.size() > 1 && reader->is_empty();
      if (!part && reader->next(document)) break;
      reader.reset();
    }
    text.clear();
    for (const DocumentPiece& piece : document.pieces)
      if (!piece.special) text += piece.text;
    return true;
  };
  const auto tokenizer = train_bpe(documents, a.options);
  tokenizer->save(a.output);
  const auto tokens = static_cast<std::int64_t>(tokenizer->vocab_size());
  if (a.json) return print_json(Json(Json::Object{{"output", a.output}, {"tokens", tokens}}));
  std::printf("wrote %s/tokenizer.json with %lld tokens\n", a.output.c_str(), static_cast<long long>(tokens));
}

}  // namespace

void add_tokenize_verb(const Command& app) {
  auto a = std::make_shared<TokenizeArguments>();
  const Command verb = app.add_command("tokenize", "Text, records and chats to token shards; train a BPE tokenizer");
  verb.footer(
      "Example: quench tokenize --tokenizer models/llama --input corpus.jsonl --output shards --validation 0.01");
  verb.require_commands(0, 1);
  verb.add_option("--tokenizer", a->tokenizer, tokenizer_option_help("Tokenizer file, model folder")).takes_hub_name();
  verb.add_option("--config", a->config,
                  "Run config whose tokenizer is used, with the tokens of model.add_tokens, in place of --tokenizer");
  verb.add_option("--add-token", a->add_tokens, "Special token that the tokenizer learns; may be repeated");
  verb.add_option("--input", a->options.inputs,
                  "Files, patterns or folders, packed by gzip or zstd or not; - for standard input")
      .takes_hub_name();
  verb.add_option("--output", a->options.output, "Folder to write");
  verb.add_flag("--overwrite", a->options.overwrite, "Replace a folder that holds token shards and nothing else");
  verb.add_option("--validation", a->options.validation_fraction, "Fraction to hold out").show_default();
  verb.add_option("--validation-split", a->validation_split,
                  fmt::format("{}", fmt::join(enum_names<ValidationSplit>(), " or ")))
      .show_default();
  verb.add_option("--max-shard-tokens", a->options.max_shard_tokens, "Tokens of the largest shard")
      .positive()
      .show_default();
  verb.add_option(
          "--eos", a->eos,
          fmt::format("End-of-sequence token after each document: {}", fmt::join(enum_names<EosPolicy>(), ", ")))
      .show_default();
  verb.add_flag("--no-special", a->no_special, "Leave out the tokenizer's added special tokens (such as BOS)");
  verb.add_option("--threads", a->threads, "CPU threads; 0: all").show_default();
  verb.add_flag("--json", a->json, "Print the result as JSON");
  verb.add_flag("--quiet", a->quiet, "Show warnings and errors only");
  add_reader_options(verb, a->reader);
  add_answers_option(verb, a->reader);

  auto t = std::make_shared<TrainArguments>();
  t->options.vocab_size = 4096;
  const Command train = verb.add_command("train", "Train a byte-level BPE tokenizer");
  train.footer("Example: quench tokenize train --input corpus.txt --vocab-size 4096 --output tokenizer");
  train
      .add_option("--input", t->inputs,
                  "Files, patterns or folders, packed by gzip or zstd or not; - for standard input")
      .takes_hub_name()
      .required();
  train.add_option("--output", t->output, "Folder to write").required();
  train.add_flag("--overwrite", t->overwrite, "Replace the tokenizer that the folder holds");
  train.add_option("--vocab-size", t->options.vocab_size, "Tokens, special ones included").show_default();
  train.add_option("--split-pattern", t->options.split_pattern, "Published split pattern: llama3, gpt2, qwen2, ...")
      .show_default();
  train.add_option("--min-frequency", t->options.min_frequency, "Occurrences a merged pair needs").show_default();
  train.add_option("--special", t->options.special_tokens, "Further special tokens, with the highest ids");
  train.add_flag("--json", t->json, "Print the result as JSON");
  add_reader_options(train, t->reader);
  add_tokenize_show(verb);
  verb.on_run([verb, train, a, t] {
    if (train.given()) return run_train(*t);
    if (!verb.any_command_given()) run_tokenize(*a);
  });
}

}  // namespace quench
