// quench generate: continues a prompt.

#include <cstdio>

#include "apps/common.h"
#include "apps/verbs.h"
#include "core/file.h"
#include "data/tokenizer/stream_decoder.h"
#include "train/generation/generator.h"

namespace quench {
namespace {

struct GenerateOptions {
  std::string model;
  std::string tokenizer;
  std::string prompt;
  std::string prompt_file;
  std::string device = "auto";
  std::string dtype = "auto";
  GenerationOptions generation;
  bool ignore_eos = false;
  bool json = false;
  int threads = 0;
};

void run(GenerateOptions& o) {
  set_threads(o.threads);
  check_sampling_options(o.generation.sampling);
  const std::string prompt = o.prompt_file.empty() ? o.prompt : read_file(o.prompt_file, std::uint64_t{64} << 20);
  const LoadedModel loaded = load_model(o.model, o.device, o.dtype);
  const auto tokenizer = require_model_tokenizer(loaded, o.tokenizer);
  if (!o.ignore_eos) o.generation.stop_tokens = model_token_ids(loaded, tokenizer.get()).generation.eos;
  const std::vector<std::int32_t> ids = tokenizer->encode(prompt, {});
  StreamDecoder decoder(*tokenizer);
  std::string text;
  if (!o.json) std::printf("%s", prompt.c_str());
  const GenerationResult result = generate(*loaded.model, ids, o.generation, [&](std::int32_t token) {
    const std::string piece = decoder.push(token);
    text += piece;
    if (o.json) return true;
    std::fwrite(piece.data(), 1, piece.size(), stdout);
    return std::fflush(stdout) == 0;  // a closed pipe ends the generation
  });
  text += decoder.finish();
  const auto decoded = static_cast<double>(result.tokens.size());
  const double rate = result.decode_seconds > 0 ? decoded / result.decode_seconds : 0;
  if (!o.json) {
    std::printf("\n");
    std::fprintf(stderr, "%zu prompt tokens in %.2f s, %zu new tokens at %.1f tok/s\n", ids.size(),
                 result.prompt_seconds, result.tokens.size(), rate);
    return;
  }
  Json json = Json::object();
  json.set("prompt", prompt);
  json.set("text", text);
  Json tokens = Json::array();
  for (const std::int32_t token : result.tokens) tokens.push_back(token);
  json.set("tokens", std::move(tokens));
  json.set("prompt_tokens", static_cast<std::int64_t>(ids.size()));
  json.set("stopped", result.stopped);
  json.set("prompt_seconds", result.prompt_seconds);
  json.set("tokens_per_second", rate);
  print_json(json);
}

}  // namespace

void add_generate_verb(CLI::App& app) {
  auto o = std::make_shared<GenerateOptions>();
  CLI::App* verb = app.add_subcommand("generate", "Continue a prompt");
  verb->footer("Example: quench generate --model runs/demo/export --prompt \"Once upon a time\" --temperature 0.8");
  verb->add_option("--model", o->model, "Hugging Face model folder")->required();
  auto* text = verb->add_option("--prompt", o->prompt, "Text to continue");
  verb->add_option("--prompt-file", o->prompt_file, "File with the text to continue")->excludes(text);
  verb->add_option("--tokenizer", o->tokenizer, "Tokenizer file or folder, or \"bytes\"; default: the model folder's");
  verb->add_option("--max-new-tokens", o->generation.max_new_tokens, "Tokens to generate at most")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  SamplingOptions& s = o->generation.sampling;
  verb->add_option("--temperature", s.temperature, "0: greedy")->capture_default_str();
  verb->add_option("--top-k", s.top_k, "Keep the k likeliest tokens; 0: all")->capture_default_str();
  verb->add_option("--top-p", s.top_p, "Keep the likeliest tokens up to this probability")->capture_default_str();
  verb->add_option("--min-p", s.min_p, "Drop tokens below this share of the likeliest one's probability")
      ->capture_default_str();
  verb->add_option("--repetition-penalty", s.repetition_penalty, "Above 1 discourages tokens already seen")
      ->capture_default_str();
  verb->add_option("--seed", s.seed, "Seed of the draws")->capture_default_str();
  verb->add_flag("--ignore-eos", o->ignore_eos, "Go on past end-of-sequence tokens");
  verb->add_option("--device", o->device, "auto, cpu, cuda or cuda:N")->capture_default_str();
  verb->add_option("--dtype", o->dtype, "auto (as stored), f32 or bf16")->capture_default_str();
  verb->add_option("--threads", o->threads, "CPU threads; 0: all")->capture_default_str();
  verb->add_flag("--json", o->json, "Print the result as JSON");
  verb->callback([o] { run(*o); });
}

}  // namespace quench
