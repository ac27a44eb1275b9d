// quench eval: perplexity of a model on texts.

#include <cstdio>

#include "apps/common.h"
#include "apps/reader_options.h"
#include "apps/verbs.h"
#include "data/token_stream.h"
#include "train/evaluation/perplexity.h"

namespace quench {
namespace {

struct EvalArguments {
  std::string model;
  std::vector<std::string> data;
  std::string metric = "ppl";
  std::string tokenizer;
  std::string device = "auto";
  std::string dtype = "auto";
  std::int64_t window = 0;
  ReaderArguments reader;
  bool json = false;
  int threads = 0;
};

std::vector<std::string> read_documents(const EvalArguments& a) {
  const ReaderOptions options = reader_options(a.reader);
  std::vector<std::string> documents;
  for (const auto& path : expand_file_patterns(a.data)) {
    const auto reader = open_document_reader(path, options);
    Document document;
    while (reader->next(document)) {
      std::string text;
      for (const DocumentPiece& piece : document.pieces) {
        QUENCH_CHECK_AS(ErrorCode::bad_config, piece.ids.empty(),
                        "{}: perplexity needs text, this record holds token ids", document.origin);
        text += piece.text;
      }
      if (document.begins || documents.empty()) {
        documents.push_back(std::move(text));
      } else {
        documents.back() += text;
      }
    }
  }
  QUENCH_CHECK_AS(ErrorCode::bad_config, !documents.empty(), "--data holds no document");
  return documents;
}

void run(const EvalArguments& a) {
  QUENCH_CHECK_AS(ErrorCode::bad_config, a.metric == "ppl", "--metric '{}' is unknown; known: ppl", a.metric);
  QUENCH_CHECK_AS(ErrorCode::bad_config, a.window >= 0, "--seq-len must be positive");
  set_threads(a.threads);
  const LoadedModel loaded = load_model(a.model, a.device, a.dtype);
  const auto tokenizer = require_model_tokenizer(loaded, a.tokenizer);
  const std::vector<std::string> documents = read_documents(a);
  const std::int64_t window =
      a.window > 0 ? a.window : std::min<std::int64_t>(loaded.config.max_position_embeddings, 2048);
  const PerplexityReport r = perplexity(*loaded.model, *tokenizer, documents, window);
  if (a.json) {
    Json json = Json::object();
    json.set("documents", r.documents);
    json.set("tokens", r.tokens);
    json.set("words", r.words);
    json.set("bytes", r.bytes);
    json.set("seq_len", window);
    json.set("loss", r.loss());
    json.set("token_perplexity", r.token_perplexity());
    json.set("word_perplexity", r.word_perplexity());
    json.set("byte_perplexity", r.byte_perplexity());
    json.set("bits_per_byte", r.bits_per_byte());
    return print_json(json);
  }
  std::printf("%lld documents, %lld tokens, %lld words, %lld bytes; windows of %lld tokens\n",
              static_cast<long long>(r.documents), static_cast<long long>(r.tokens), static_cast<long long>(r.words),
              static_cast<long long>(r.bytes), static_cast<long long>(window));
  std::printf("loss              %.4f nats per token\n", r.loss());
  std::printf("token perplexity  %.4f\nword perplexity   %.4f\nbyte perplexity   %.4f\nbits per byte     %.4f\n",
              r.token_perplexity(), r.word_perplexity(), r.byte_perplexity(), r.bits_per_byte());
}

}  // namespace

void add_eval_verb(CLI::App& app) {
  auto a = std::make_shared<EvalArguments>();
  CLI::App* verb = app.add_subcommand("eval", "Perplexity per token, word and byte");
  verb->footer("Example: quench eval --model models/llama --data wikitext.txt");
  verb->add_option("--model", a->model, "Model folder, checkpoint or run folder")->required();
  verb->add_option("--data", a->data, "Text or JSON-lines files")->required();
  verb->add_option("--metric", a->metric, "ppl")->capture_default_str();
  verb->add_option("--tokenizer", a->tokenizer, "Tokenizer file or folder, or \"bytes\"; default: the model's");
  verb->add_option("--seq-len", a->window, "Tokens of a window; 0: the model's context, at most 2048")
      ->capture_default_str();
  verb->add_option("--device", a->device, "auto, cpu, cuda or cuda:N")->capture_default_str();
  verb->add_option("--dtype", a->dtype, "auto (as stored), f32 or bf16")->capture_default_str();
  verb->add_option("--threads", a->threads, "CPU threads; 0: all")->capture_default_str();
  verb->add_flag("--json", a->json, "Print the result as JSON");
  add_reader_options(*verb, a->reader);
  verb->callback([a] { run(*a); });
}

}  // namespace quench
