// quench eval: perplexity of texts and token files, and accuracy on multiple-choice tasks, for one or several models.

#include <algorithm>
#include <cstdio>

#include "apps/common.h"
#include "apps/eval_results.h"
#include "apps/options/reader_options.h"
#include "apps/options/recipe_options.h"
#include "apps/verbs.h"
#include "data/tokenizer/tokenizer_kind.h"
#include "train/evaluation/choice_scoring.h"
#include "train/evaluation/evaluation_data.h"
#include "train/model/model.h"

namespace quench {
namespace {

constexpr std::string_view kPerplexity = "ppl";  // a value of --metric

struct EvalArguments {
  std::vector<std::string> models;
  std::string baseline;
  std::string ptq;
  std::string reference;
  std::vector<std::string> adapters;
  std::vector<std::string> data;
  std::string metric{kPerplexity};
  std::vector<std::pair<std::string, std::string>> tasks;  // task name, file
  std::optional<std::int64_t> limit;
  std::string tokenizer;
  std::string device = "auto";
  std::string dtype = "auto";
  std::string kv_cache{kAutoKvCache};
  std::int64_t window = 0;
  std::int64_t stride = 0;
  bool no_special_tokens = false;
  ReaderArguments reader;
  RecipeArguments recipe;
  bool json = false;
  int threads = 0;
  std::string memory_limit;
};

// Items of one --task.
struct TaskItems {
  std::string_view name;
  std::vector<ChoiceItem> items;
};

// Model to evaluate.
struct Subject {
  EvalRole role = EvalRole::model;
  std::string model;
  std::vector<std::string> adapters;  // each evaluated separately on the model; empty: model only
  bool with_recipe = true;
};

PerplexityOptions perplexity_options(const EvalArguments& a, const nn::ModelConfig& model, const Tokenizer* tokenizer) {
  PerplexityOptions options;
  options.window = a.window > 0 ? a.window : model.max_position_embeddings;
  QUENCH_CHECK_AS(ErrorCode::bad_config, options.window <= model.context_length(),
                  "--seq-len {} exceeds the model's context of {} tokens", options.window, model.context_length());
  options.stride = a.stride;
  QUENCH_CHECK_AS(ErrorCode::bad_config, a.stride <= options.window,
                  "--stride {} is longer than the window of {} tokens: tokens between two windows would be left out",
                  a.stride, options.window);
  if (a.stride == 0) options.prefix = prefix_token(tokenizer, model);
  return options;
}

Json convention_json(const PerplexityOptions& options, bool special_tokens) {
  Json json = Json::object();
  json.set("convention", options.stride > 0 ? "strided" : "rolling");
  json.set("seq_len", options.window);
  json.set("stride", options.stride > 0 ? Json(options.stride) : Json());
  json.set("prefix_token", options.prefix ? Json(*options.prefix) : Json());
  json.set("special_tokens", special_tokens);
  return json;
}

std::string describe(const PerplexityOptions& options, const Tokenizer* tokenizer) {
  if (options.stride > 0)
    return fmt::format(
        "strided windows as in Transformers' guide to perplexity: {} tokens, a new one every {}; a "
        "document's first token is not scored",
        options.window, options.stride);
  std::string prefix = "none known: a document's first token is not scored";
  if (options.prefix) {
    prefix = fmt::format("{}", *options.prefix);
    if (tokenizer != nullptr) prefix += fmt::format(" ({})", tokenizer->token_text(*options.prefix));
  }
  return fmt::format("rolling windows as lm-evaluation-harness makes them: {} tokens, one of context; prefix token {}",
                     options.window, prefix);
}

std::vector<TaskItems> read_tasks(const EvalArguments& a) {
  std::vector<TaskItems> tasks;
  for (const auto& [name, file] : a.tasks) {
    const ChoiceTask& task = choice_tasks().require(name, "--task");
    for (const TaskItems& other : tasks)
      QUENCH_CHECK_AS(ErrorCode::bad_config, other.name != task.name, "--task {} is given twice", name);
    tasks.push_back({task.name, read_choice_items(task, file, a.limit)});
  }
  return tasks;
}

std::vector<Subject> subjects_of(const EvalArguments& a) {
  const bool fake = a.recipe.given();
  QUENCH_CHECK_AS(ErrorCode::bad_config, a.ptq.empty() || !a.baseline.empty(),
                  "--ptq needs --baseline: recovery is measured between the two");
  QUENCH_CHECK_AS(ErrorCode::bad_config, a.baseline.empty() || !a.ptq.empty() || fake,
                  "--baseline needs --ptq (the same model, quantized) or --recipe (to evaluate the baseline under)");
  QUENCH_CHECK_AS(ErrorCode::bad_config, a.adapters.empty() || a.models.size() == 1,
                  "--adapter goes with one --model, not with {}", a.models.size());
  std::vector<Subject> subjects;
  if (!a.baseline.empty()) {
    subjects.push_back({EvalRole::baseline, a.baseline, {}, false});
    subjects.push_back({EvalRole::ptq, a.ptq.empty() ? a.baseline : a.ptq, {}, a.ptq.empty()});
  }
  for (const std::string& model : a.models) subjects.push_back({EvalRole::model, model, a.adapters, true});
  return subjects;
}

void check_reference(const EvalArguments& a, const Subject& subject, const Model& model, const Model& reference,
                     const PerplexityOptions& options) {
  QUENCH_CHECK_AS(ErrorCode::bad_config, reference.config().vocab_size == model.config().vocab_size,
                  "--reference {} has a vocabulary of {} tokens, {} one of {}: their distributions cannot be compared",
                  a.reference, reference.config().vocab_size, subject.model, model.config().vocab_size);
  QUENCH_CHECK_AS(ErrorCode::bad_config, options.window <= reference.config().context_length(),
                  "windows of {} tokens exceed the context of --reference {}, {} tokens: choose --seq-len",
                  options.window, a.reference, reference.config().context_length());
}

void add_head(std::vector<std::string>& heads, std::string head) {
  if (std::ranges::find(heads, head) == heads.end()) heads.push_back(std::move(head));
}

// Evaluates a subject. Appends its heading for the results to `heads`. `reference`: or null.
void evaluate(const EvalArguments& a, const Subject& subject, const std::vector<TaskItems>& tasks,
              const Model* reference, std::vector<EvalResult>& results, std::vector<std::string>& heads) {
  EvaluationData data{.files = a.data,
                      .format = a.reader.format,
                      .reader = reader_options(a.reader, true),
                      .special_tokens = !a.no_special_tokens};
  Model loaded = Model::open(subject.model, {.device = a.device,
                                             .dtype = a.dtype,
                                             .adapter = subject.adapters.empty() ? "" : subject.adapters.front(),
                                             .mtp = MtpLayers::left_out,
                                             .kv_cache = a.kv_cache});
  const std::unique_ptr<Tokenizer> tokenizer =
      tasks.empty() ? loaded.find_tokenizer(a.tokenizer) : loaded.require_tokenizer(a.tokenizer);
  if (tokenizer != nullptr) loaded.check_tokenizer(*tokenizer);
  data.no_tokenizer = loaded.no_tokenizer();
  const PerplexityOptions options = perplexity_options(a, loaded.config(), tokenizer.get());
  if (reference != nullptr) check_reference(a, subject, loaded, *reference, options);
  const auto measure = [&](const std::string& adapter) {
    EvalResult result{.role = subject.role, .model = subject.model, .adapter = adapter};
    if (subject.with_recipe && a.recipe.given()) {
      add_head(heads, recipes::conversion_report(a.recipe.apply(loaded)));
      result.recipe = a.recipe.name;
    }
    if (!a.data.empty()) {
      PerplexityMeter meter(loaded.model(), options);
      std::optional<DivergenceMeter> divergence;
      if (reference != nullptr) {
        divergence.emplace(reference->model());
        meter.on_pass([&](const ScoredPass& pass) { divergence->add(pass); });
      }
      read_evaluation_data(data, tokenizer.get(), loaded.config(),
                           [&](const ScoredDocument& document) { meter.add(document); });
      result.perplexity = meter.finish();
      if (divergence) {
        result.divergence = divergence->finish();
        result.reference = a.reference;
      }
      result.convention = convention_json(options, data.special_tokens);
    }
    for (const TaskItems& task : tasks) {
      const ScoredText encoder(*tokenizer, loaded.config(), data.special_tokens);
      const auto likelihoods = choice_log_likelihoods(loaded.model(), encoder, options.window, task.items);
      result.tasks.emplace_back(task.name, choice_report(task.items, likelihoods));
    }
    results.push_back(std::move(result));
  };
  if (subject.adapters.empty()) measure({});
  // Adapters are applied in turn to the same weights.
  for (const std::string& adapter : subject.adapters) {
    loaded.use_adapter(adapter);
    measure(adapter);
  }
  if (!a.data.empty()) add_head(heads, describe(options, tokenizer.get()) + "\n");
}

void run(const EvalArguments& a) {
  QUENCH_CHECK_AS(ErrorCode::bad_config, a.metric == kPerplexity, "--metric '{}' is unknown; known: {}", a.metric,
                  kPerplexity);
  QUENCH_CHECK_AS(ErrorCode::bad_config, !a.data.empty() || !a.tasks.empty(),
                  "nothing to evaluate: name texts with --data or a task with --task NAME FILE");
  QUENCH_CHECK_AS(ErrorCode::bad_config, a.reference.empty() || !a.data.empty(),
                  "--reference needs --data: distributions are compared on the tokens of texts");
  QUENCH_CHECK_AS(ErrorCode::bad_config, !a.limit || !a.tasks.empty(), "--limit is for the items of --task");
  a.recipe.check();
  check_kv_cache_name(a.kv_cache);
  set_threads(a.threads);
  limit_gpu_memory(a.device, a.memory_limit);
  const std::vector<Subject> subjects = subjects_of(a);
  const std::vector<TaskItems> tasks = read_tasks(a);
  std::vector<EvalResult> results;
  std::vector<std::string> heads;
  std::optional<Model> reference;
  if (!a.reference.empty())
    reference = Model::open(a.reference, {.device = a.device, .dtype = a.dtype, .mtp = MtpLayers::left_out});
  for (const Subject& subject : subjects)
    evaluate(a, subject, tasks, reference ? &*reference : nullptr, results, heads);
  // After all measurements: no output if a model fails.
  if (a.json) return print_json(eval_json(results));
  for (const std::string& head : heads) std::printf("%s", head.c_str());
  if (results.size() == 1)
    print_result(results.front());
  else
    print_comparison(results);
}

}  // namespace

void add_eval_verb(const Command& app) {
  auto a = std::make_shared<EvalArguments>();
  const Command verb = app.add_command(
      "eval", "Perplexity per token, word and byte; accuracy on multiple-choice tasks; of one or several models");
  verb.footer(
      "Example: quench eval --model models/llama --data wikitext.txt\n"
      "         quench eval --model models/llama --task hellaswag hellaswag_val.jsonl\n"
      "         quench eval --model models/llama-int4 --reference models/llama --data wikitext.txt\n"
      "         quench eval --baseline runs/tuned --ptq models/tuned-int4 --model models/qat-int4 --data wikitext.txt");
  verb.add_option("--model", a->models, "Model folders, checkpoints or run folders; several are compared")
      .takes_hub_name()
      .required();
  verb.add_option(
          "--baseline", a->baseline,
          "The model in full precision; with --ptq, recovery of each --model is (model - ptq) / (baseline - ptq)")
      .takes_hub_name();
  verb.add_option("--ptq", a->ptq,
                  "The baseline after post-training quantization; default: the baseline under --recipe")
      .takes_hub_name();
  verb.add_option("--reference", a->reference,
                  "A model, usually the one that was quantized: KL divergence from its next tokens, and the share of "
                  "tokens with the same likeliest next one, on --data")
      .takes_hub_name();
  verb.add_option("--adapter", a->adapters, "PEFT adapter folders, evaluated one after the other over the model")
      .takes_hub_name();
  verb.add_option("--data", a->data,
                  "Files of text, records (JSON lines, Parquet, CSV, ...) or tokens, or folders of them")
      .takes_hub_name();
  verb.add_option("--metric", a->metric, std::string(kPerplexity)).show_default();
  std::string task_help = "Name and file of a task, several times: accuracy as lm-evaluation-harness has it (0-shot). ";
  for (const ChoiceTask& task : choice_tasks())
    task_help += fmt::format("{}: {} ({}). ", task.name, task.summary, task.fields);
  verb.add_option("--task", a->tasks, task_help).type_name("NAME FILE");
  verb.add_option("--limit", a->limit, "Only the first items of each task").positive();
  verb.add_option("--tokenizer", a->tokenizer,
                  tokenizer_option_help("Tokenizer file or folder") + "; default: the model's")
      .takes_hub_name();
  verb.add_option("--seq-len", a->window, "Tokens of a window; 0: the model's context").non_negative().show_default();
  verb.add_option("--stride", a->stride,
                  "Tokens from one window to the next, as in Transformers' guide to perplexity; 0: rolling windows as "
                  "lm-evaluation-harness makes them")
      .non_negative()
      .show_default();
  verb.add_flag(
      "--no-special-tokens", a->no_special_tokens,
      "Score texts without the tokenizer's added special tokens (lm-evaluation-harness: add_bos_token=False)");
  a->recipe.add_to(verb);
  verb.add_option("--device", a->device, "auto, cpu, cuda or cuda:N").show_default();
  verb.add_option("--memory-limit", a->memory_limit, kMemoryLimitHelp);
  verb.add_option("--dtype", a->dtype, "auto (as stored), f32 or bf16").show_default();
  verb.add_option("--kv-cache", a->kv_cache,
                  "Keys and values pass through a KV cache of these elements: " + kv_cache_names())
      .show_default();
  verb.add_option("--threads", a->threads, "CPU threads; 0: all").show_default();
  verb.add_flag("--json", a->json, "Print the result as JSON");
  add_reader_options(verb, a->reader, true);
  verb.on_run([a] { run(*a); });
}

}  // namespace quench
