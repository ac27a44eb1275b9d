// quench eval: perplexity of a model on texts and token files.

#include <cstdio>

#include "apps/common.h"
#include "apps/reader_options.h"
#include "apps/verbs.h"
#include "train/evaluation/evaluation_data.h"

namespace quench {
namespace {

struct EvalArguments {
  std::string model;
  std::vector<std::string> adapters;
  std::vector<std::string> data;
  std::string metric = "ppl";
  std::string tokenizer;
  std::string device = "auto";
  std::string dtype = "auto";
  std::int64_t window = 0;
  std::int64_t stride = 0;
  bool no_special_tokens = false;
  ReaderArguments reader;
  bool json = false;
  int threads = 0;
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

Json to_json(const PerplexityReport& r, const PerplexityOptions& options, bool special_tokens) {
  Json json = Json::object();
  json.set("convention", options.stride > 0 ? "strided" : "rolling");
  json.set("seq_len", options.window);
  json.set("stride", options.stride > 0 ? Json(options.stride) : Json());
  json.set("prefix_token", options.prefix ? Json(*options.prefix) : Json());
  json.set("special_tokens", special_tokens);
  json.set("documents", r.documents);
  json.set("tokens", r.tokens);
  json.set("words", r.words > 0 ? Json(r.words) : Json());
  json.set("bytes", r.bytes > 0 ? Json(r.bytes) : Json());
  json.set("loss", r.loss());
  json.set("token_perplexity", r.token_perplexity());
  json.set("word_perplexity", r.word_perplexity());
  json.set("byte_perplexity", r.byte_perplexity());
  json.set("bits_per_byte", r.bits_per_byte());
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

std::string count(std::int64_t value, const char* what) {
  return value > 0 ? fmt::format(", {} {}", value, what) : "";
}

void print(const PerplexityReport& r) {
  std::printf("%s\n", fmt::format("{} documents, {} tokens{}{}", r.documents, r.tokens, count(r.words, "words"),
                                  count(r.bytes, "bytes"))
                          .c_str());
  std::printf("loss              %.4f nats per token\ntoken perplexity  %.4f\n", r.loss(), r.token_perplexity());
  if (r.bytes == 0)
    std::printf("word and byte perplexity: n/a, the text of some documents is not known\n");
  else
    std::printf("word perplexity   %.4f\nbyte perplexity   %.4f\nbits per byte     %.4f\n", r.word_perplexity(),
                r.byte_perplexity(), r.bits_per_byte());
}

void run(const EvalArguments& a) {
  QUENCH_CHECK_AS(ErrorCode::bad_config, a.metric == "ppl", "--metric '{}' is unknown; known: ppl", a.metric);
  EvaluationData data{.files = a.data,
                      .format = a.reader.format,
                      .reader = reader_options(a.reader, true),
                      .special_tokens = !a.no_special_tokens};
  set_threads(a.threads);
  LoadedModel loaded = load_model(a.model, a.device, a.dtype);
  const auto tokenizer = find_model_tokenizer(loaded, a.tokenizer);
  if (tokenizer != nullptr) check_model_tokenizer(loaded, *tokenizer);
  if (!loaded.missing.empty()) data.no_tokenizer = loaded.missing;
  const PerplexityOptions options = perplexity_options(a, loaded.config, tokenizer.get());
  const auto measure = [&] {
    PerplexityMeter meter(*loaded.model, options);
    read_evaluation_data(data, tokenizer.get(), loaded.config,
                         [&](const ScoredDocument& document) { meter.add(document); });
    return meter.finish();
  };
  // Behind the first measurement: a model that fails prints nothing.
  const auto print_convention = [&] {
    if (!a.json) std::printf("%s\n", describe(options, tokenizer.get()).c_str());
  };
  if (a.adapters.empty()) {
    const PerplexityReport report = measure();
    print_convention();
    return a.json ? print_json(to_json(report, options, data.special_tokens)) : print(report);
  }
  // One after the other over the same weights.
  Json all = Json::array();
  for (const std::string& adapter : a.adapters) {
    use_adapter(loaded, adapter);
    const PerplexityReport report = measure();
    if (adapter == a.adapters.front()) print_convention();
    Json json = to_json(report, options, data.special_tokens);
    json.set("adapter", adapter);
    all.push_back(std::move(json));
    if (a.json) continue;
    std::printf("adapter %s\n", adapter.c_str());
    print(report);
  }
  if (a.json) print_json(a.adapters.size() == 1 ? all.as_array().front() : all);
}

}  // namespace

void add_eval_verb(CLI::App& app) {
  auto a = std::make_shared<EvalArguments>();
  CLI::App* verb = app.add_subcommand("eval", "Perplexity per token, word and byte");
  verb->footer("Example: quench eval --model models/llama --data wikitext.txt");
  verb->add_option("--model", a->model, "Model folder, checkpoint or run folder")->required();
  verb->add_option("--adapter", a->adapters, "PEFT adapter folders, evaluated one after the other over the model");
  verb->add_option("--data", a->data, "Text, JSON-lines or token files")->required();
  verb->add_option("--metric", a->metric, "ppl")->capture_default_str();
  verb->add_option("--tokenizer", a->tokenizer, "Tokenizer file or folder, or \"bytes\"; default: the model's");
  verb->add_option("--seq-len", a->window, "Tokens of a window; 0: the model's context")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  verb->add_option("--stride", a->stride,
                   "Tokens from one window to the next, as in Transformers' guide to perplexity; 0: rolling windows as "
                   "lm-evaluation-harness makes them")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  verb->add_flag(
      "--no-special-tokens", a->no_special_tokens,
      "Score texts without what the tokenizer puts around them (lm-evaluation-harness: add_bos_token=False)");
  verb->add_option("--device", a->device, "auto, cpu, cuda or cuda:N")->capture_default_str();
  verb->add_option("--dtype", a->dtype, "auto (as stored), f32 or bf16")->capture_default_str();
  verb->add_option("--threads", a->threads, "CPU threads; 0: all")->capture_default_str();
  verb->add_flag("--json", a->json, "Print the result as JSON");
  add_reader_options(*verb, a->reader, true);
  verb->callback([a] { run(*a); });
}

}  // namespace quench
