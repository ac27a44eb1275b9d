// quench generate: continuation of a prompt, several prompts, or a conversation.

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <map>

#include "apps/options/generate_options.h"
#include "apps/options/reader_options.h"
#include "apps/standard_output.h"
#include "apps/verbs.h"
#include "core/system/file.h"
#include "core/system/log.h"
#include "core/system/printable.h"
#include "core/system/utf8.h"
#include "data/tokenizer/tokenizer_kind.h"
#include "distributed/ranks.h"
#include "engine/pass_script.h"
#include "train/generation/answer_text.h"
#include "train/generation/grammar_vocabulary.h"
#include "train/generation/sliced_ranks.h"
#include "train/generation/warm_up.h"

namespace quench {
namespace {

bool is_pipe(int descriptor) {
  struct stat status {};
  return ::fstat(descriptor, &status) == 0 && S_ISFIFO(status.st_mode);
}

void check_options(const GenerateOptions& o) {
  const auto refuse = [](bool given, std::string_view option, std::string_view needs) {
    QUENCH_CHECK_AS(ErrorCode::bad_config, !given, "{} goes with {}", option, needs);
  };
  const bool chats = o.interactive || o.chat || !o.prompts.empty();
  refuse(!o.system.empty() && !chats, "--system", "--interactive, --chat or --prompts");
  refuse(o.chat_template != "auto" && !chats, "--chat-template", "--interactive, --chat or --prompts");
  refuse(!o.chat_date.empty() && !chats, "--chat-date", "--interactive, --chat or --prompts");
  refuse(!o.chat_template_kwargs.empty() && !chats, "--chat-template-kwargs", "--interactive, --chat or --prompts");
  refuse(o.json && o.interactive, "--json", "one prompt or --prompts");
  QUENCH_CHECK_AS(ErrorCode::bad_config, !o.interactive || !distributed::read_environment().is_distributed(),
                  "--interactive is for one process; several hold slices of a model for quench serve");
  QUENCH_CHECK_AS(ErrorCode::bad_config, std::ranges::find(o.stop, std::string()) == o.stop.end(),
                  "--stop \"\": an empty text would end every answer at once");
}

void generate_for_prompt(GenerateOptions& o) {
  const std::string prompt = o.prompt_file.empty() ? o.prompt : read_file(o.prompt_file, std::uint64_t{64} << 20);
  std::unique_ptr<Tokenizer> tokenizer;
  std::optional<ChatPrompt> chat;
  std::vector<std::int32_t> ids;
  // Prompt checks before the weights are read; initialises the GPU concurrently.
  const auto prepare = [&](const Model& model) -> std::function<void()> {
    tokenizer = model.require_tokenizer(o.tokenizer);
    if (o.chat) {
      Conversation conversation = begin_conversation(o);
      add_message(conversation, "user", prompt);
      ids = chat.emplace(*tokenizer, o.chat_template, o.chat_date, chat_template_kwargs(o.chat_template_kwargs))
                .encode(conversation);
    } else {
      ids = tokenizer->encode(prompt, {});
      hint_at_chat(*tokenizer, ids);
    }
    o.generation.max_new_tokens = allowed_tokens(o, model.config(), ids.size());
    if (model.model().options().device.is_cpu()) return {};
    return [&lm = model.model(), tokens = static_cast<std::int64_t>(ids.size())] { warm_up_generation(lm, tokens); };
  };
  const Model loaded = open_generating_model(o, prepare);
  set_stop_tokens(o, loaded, *tokenizer, chat ? &*chat : nullptr);
  AnswerText answer(*tokenizer, {.skip_special = o.chat}, ids, o.stop);
  print_unchanged();
  if (!o.json && !o.chat) {
    // An incomplete UTF-8 character at the end of the prompt is completed by the continuation.
    const std::string shown =
        replace_invalid_utf8(std::string_view(prompt).substr(0, prompt.size() - unfinished_utf8(prompt)));
    std::fwrite(shown.data(), 1, shown.size(), stdout);
  }
  const GenerationResult result = generate(loaded.model(), ids, o.generation, [&](std::int32_t token) {
    const std::string piece = answer.push(token);
    if (o.json) return !answer.found();
    std::fwrite(piece.data(), 1, piece.size(), stdout);
    return std::fflush(stdout) == 0 && !answer.found();  // a closed pipe ends generation
  });
  const std::string rest = answer.finish();
  if (!o.json) std::fwrite(rest.data(), 1, rest.size(), stdout);
  const auto decoded = static_cast<double>(result.tokens.size());
  const double rate = result.decode_seconds > 0 ? decoded / result.decode_seconds : 0;
  if (!o.json) {
    std::printf("\n");
    std::fflush(stdout);  // the text precedes messages about it
    // A downstream program on the same terminal may not end its output with a line break.
    if (is_pipe(STDOUT_FILENO) && ::isatty(STDERR_FILENO) == 1) std::fputc('\n', stderr);
    std::fprintf(
        stderr, "%zu prompt tokens in %.2f s, %zu new tokens at %.1f tok/s; ended by %s\n", ids.size(),
        result.prompt_seconds, result.tokens.size(), rate,
        end_reason(o, result, answer.found(), loaded.config(), ids.size(), o.generation.max_new_tokens).c_str());
    return;
  }
  Json json = Json::object();
  json.set("prompt", prompt);
  json.set("text", answer.text());
  Json tokens = Json::array();
  for (const std::int32_t token : result.tokens) tokens.push_back(token);
  json.set("tokens", std::move(tokens));
  json.set("prompt_tokens", static_cast<std::int64_t>(ids.size()));
  json.set("stopped", result.stopped || answer.found());
  json.set("ended_by", end_reason(o, result, answer.found(), loaded.config(), ids.size(), o.generation.max_new_tokens));
  const nn::KvCacheElements& cache = loaded.model().kv_cache();
  json.set("kv_cache", cache.format != nullptr ? cache.format->name : to_string(loaded.model().options().dtype));
  json.set("kv_cache_bytes_per_token",
           nn::KvCache::bytes_per_token(loaded.config(), loaded.model().options().dtype, cache));
  json.set("prompt_seconds", result.prompt_seconds);
  json.set("tokens_per_second", rate);
  print_json(json);
}

// Warns of options of a draw that greedy generation does not make.
void warn_of_unused(const SamplingOptions& s) {
  if (s.temperature > 0) return;
  std::vector<std::string_view> unused;
  if (s.top_k > 0) unused.emplace_back("--top-k");
  if (s.top_p < 1) unused.emplace_back("--top-p");
  if (s.min_p > 0) unused.emplace_back("--min-p");
  if (s.seed != 0) unused.emplace_back("--seed");
  if (!unused.empty())
    QUENCH_LOG_WARN("{} without effect: --temperature is 0, which is greedy", fmt::join(unused, ", "));
}

void run(GenerateOptions& o) {
  check_options(o);
  set_threads(o.threads);
  limit_gpu_memory(o.device, o.memory_limit);
  check_sampling_options(o.generation.sampling);
  check_kv_cache_name(o.kv_cache);
  warn_of_unused(o.generation.sampling);
  if (distributed::read_environment().rank > 0) (void)open_generating_model(o, {});  // prompts are rank 0's; throws
  if (o.interactive) return generate_interactively(o);
  if (!o.prompts.empty()) return generate_for_prompts(o);
  generate_for_prompt(o);
}

}  // namespace

std::int64_t allowed_tokens(const GenerateOptions& o, const nn::ModelConfig& model, std::size_t prompt_tokens,
                            std::int64_t usual, std::optional<std::int64_t> of_record) {
  const std::int64_t room = room_behind(model, prompt_tokens);
  const std::optional<std::int64_t> wanted = of_record ? of_record : o.max_new_tokens;
  QUENCH_CHECK_AS(ErrorCode::bad_config, room > 0 || wanted == 0,
                  "the prompt of {} tokens leaves no space in the model's context of {}: shorten it", prompt_tokens,
                  model.context_length());
  QUENCH_CHECK_AS(
      ErrorCode::bad_config, wanted.value_or(0) <= room,
      "{} {}: after the prompt of {} tokens, the model's context of {} has room for {}; omit it to generate "
      "to the end of the context",
      of_record ? "\"max_new_tokens\"" : "--max-new-tokens", wanted.value_or(0), prompt_tokens, model.context_length(),
      room);
  return wanted.value_or(std::min(usual, room));
}

std::string end_reason(const GenerateOptions& o, const GenerationResult& result, bool stop_text,
                       const nn::ModelConfig& model, std::size_t prompt_tokens, std::int64_t limit, bool of_record) {
  if (stop_text) return "a text of --stop";
  const auto produced = static_cast<std::int64_t>(result.tokens.size());
  const std::vector<std::int64_t>& ends = o.generation.stop_tokens;
  if (result.stopped)
    return !result.tokens.empty() && std::ranges::find(ends, result.tokens.back()) != ends.end()
               ? "an end-of-sequence token"
               : "the end of its format";
  if (produced < limit) return standard_output_error() == EPIPE ? "the reader of the output" : "a failed write";
  if (produced == room_behind(model, prompt_tokens))
    return fmt::format("the end of the model's context of {} tokens", model.context_length());
  if (of_record) return fmt::format("max_new_tokens of the record, {} new tokens", limit);
  return o.max_new_tokens ? "--max-new-tokens" : fmt::format("the default of {} new tokens", kUsualTokens);
}

void hint_at_chat(const Tokenizer& tokenizer, std::span<const std::int32_t> prompt) {
  const auto marked = [&](std::int32_t id) { return id != tokenizer.bos_id() && tokenizer.is_special(id); };
  if (tokenizer.chat_template() && std::ranges::none_of(prompt, marked))
    QUENCH_LOG_INFO("the tokenizer has a chat template; --chat answers the prompt as a user's message");
}

Json::Object published_sampling(const Model& loaded) {
  const std::filesystem::path file = loaded.files() / "generation_config.json";
  if (loaded.files().empty() || !std::filesystem::is_regular_file(file)) return {};
  const Json published = Json::parse_file(file, {.max_bytes = std::size_t{16} << 20});
  if (!published.is_object()) return {};
  const Json* draws = published.find("do_sample");
  const bool sampled = draws != nullptr && *draws == Json(true);
  Json::Object settings;
  for (const char* key : {"temperature", "top_k", "top_p", "min_p", "repetition_penalty"}) {
    const Json* value = published.find(key);
    if (value != nullptr && value->is_number() && (sampled || key == std::string_view("repetition_penalty")))
      settings.emplace_back(key, *value);
  }
  return settings;
}

namespace {

// Names settings of the folder's generation_config.json that the command leaves at their defaults.
void report_published_sampling(const GenerateOptions& o, const Model& loaded) {
  const SamplingOptions &s = o.generation.sampling, usual;
  const std::map<std::string_view, std::pair<bool, double>> neutral{
      // default kept, value that changes nothing
      {"temperature", {s.temperature == usual.temperature, 0}},
      {"top_k", {s.top_k == usual.top_k, 0}},
      {"top_p", {s.top_p == usual.top_p, 1}},
      {"min_p", {s.min_p == usual.min_p, 0}},
      {"repetition_penalty", {s.repetition_penalty == usual.repetition_penalty, 1}}};
  std::vector<std::string> settings;
  for (const auto& [key, value] : published_sampling(loaded)) {
    const auto& [kept, none] = neutral.at(key);
    if (kept && value.as_double() != none) settings.push_back(fmt::format("{} {}", key, value.dump()));
  }
  if (!settings.empty())
    QUENCH_LOG_INFO("{}: {}: not used; options of the command set them",
                    (loaded.files() / "generation_config.json").string(), fmt::join(settings, ", "));
}

}  // namespace

std::vector<std::int64_t> stop_tokens(const Model& loaded, const Tokenizer& tokenizer, const ChatPrompt* chat) {
  std::vector<std::int64_t> tokens = loaded.token_ids(&tokenizer).generation.eos;
  if (chat == nullptr) return tokens;
  if (const auto end = chat->end_of_turn()) tokens.push_back(*end);
  return tokens;
}

void set_stop_tokens(GenerateOptions& o, const Model& loaded, const Tokenizer& tokenizer, const ChatPrompt* chat) {
  report_published_sampling(o, loaded);
  const std::vector<std::int64_t> ends = stop_tokens(loaded, tokenizer, chat);
  if (!o.ignore_eos) o.generation.stop_tokens = ends;
  const bool by_schema = o.schema_option && o.schema_option->given();
  if (!by_schema && !(o.regex_option && o.regex_option->given())) return;
  const GrammarSource source =
      !by_schema ? GrammarSource{.kind = GrammarKind::regex, .text = o.regex}
                 : GrammarSource{.kind = GrammarKind::json_schema, .text = Json::parse_file(o.json_schema).dump()};
  const std::string option = !by_schema ? "--regex" : fmt::format("--json-schema {}", o.json_schema);
  try {
    o.generation.grammar =
        GrammarCompiler(grammar_vocabulary(tokenizer, loaded.config().vocab_size, ends)).compile(source);
  } catch (const Error& error) {
    QUENCH_FAIL(error.code(), "{}: {}", option, error.what());
  }
}

Model open_generating_model(const GenerateOptions& o, const LoadingWork& prepare) {
  ModelOptions options{.device = o.device,
                       .dtype = o.dtype,
                       .adapter = o.adapter,
                       .mtp = MtpLayers::left_out,
                       .work = prepare,
                       .kv_cache = o.kv_cache};
  const distributed::Environment place = distributed::read_environment();
  if (!place.is_distributed()) {
    Model loaded = Model::open(o.model, options);
    loaded.use_adapter(o.adapter);
    return loaded;
  }
  if (place.rank > 0) quieten_log();
  {
    const SlicedRanks ranks = join_slices(o.device, place, o.threads);
    options.device = ranks.device.to_string();
    options.slices = ranks.slices;
    // Passes of one rank alone, as of a warm-up, would wait for the others.
    options.work = [&](const Model& model) {
      if (prepare && place.rank == 0) (void)prepare(model);
      return std::function<void()>();
    };
    std::optional<Model> loaded;
    distributed::together(*ranks.host, "slices", [&] {
      loaded.emplace(Model::open(o.model, options));
      loaded->use_adapter(o.adapter);
    });
    if (place.rank == 0) return std::move(*loaded);
    // A launcher signals all of its processes: rank 0 ends the passes, after the answers in flight.
    for (const int signal : {SIGTERM, SIGINT}) std::signal(signal, SIG_IGN);
    follow_passes(loaded->model());
  }
  throw ExitRequest{0};
}

Conversation begin_conversation(const GenerateOptions& o) {
  Conversation conversation;
  if (!o.system.empty()) add_message(conversation, "system", o.system);
  return conversation;
}

void add_message(Conversation& conversation, std::string_view role, std::string_view content) {
  conversation.messages.push_back(Json::Object{{"role", role}, {"content", content}});
}

void add_chat_template_options(const Command& verb, GenerateOptions& o) {
  verb.add_option("--chat-template", o.chat_template,
                  fmt::format("{}, or the path of a .jinja file", fmt::join(chat_template_names(), ", ")))
      .show_default();
  verb.add_option("--chat-date", o.chat_date, "Date for chat templates that ask for it, for example 2024-07-26");
  verb.add_option("--chat-template-kwargs", o.chat_template_kwargs,
                  "Arguments of the template, a JSON object such as {\"enable_thinking\": false}");
}

void add_loading_options(const Command& verb, GenerateOptions& o) {
  verb.add_option("--tokenizer", o.tokenizer,
                  tokenizer_option_help("Tokenizer file or folder") + "; default: the model folder's")
      .takes_hub_name();
  verb.add_option("--device", o.device, "auto, cpu, cuda or cuda:N").show_default();
  verb.add_option("--memory-limit", o.memory_limit, kMemoryLimitHelp);
  verb.add_option("--dtype", o.dtype, "auto (as stored), f32 or bf16").show_default();
  verb.add_option("--kv-cache", o.kv_cache, "Elements of the KV cache: " + kv_cache_names()).show_default();
  verb.add_option("--threads", o.threads, "CPU threads; 0: all").show_default();
}

void add_generate_verb(const Command& app) {
  auto o = std::make_shared<GenerateOptions>();
  const Command verb = app.add_command("generate", "Continue a prompt, or answer in a conversation");
  verb.footer("Example: quench generate --model runs/demo/export --prompt \"Once upon a time\" --temperature 0.8");
  verb.add_option("--model", o->model, "Model folder, GGUF file, checkpoint or run folder").takes_hub_name().required();
  verb.add_option("--adapter", o->adapter, "PEFT adapter folder").takes_hub_name();
  const CommandOption text = verb.add_option("--prompt", o->prompt, "Text to continue");
  const CommandOption file =
      verb.add_option("--prompt-file", o->prompt_file, "File with the text to continue").excludes(text);
  const CommandOption many =
      verb.add_option("--prompts", o->prompts,
                      "File of prompts, one a line, or JSON Lines of {\"prompt\": ...} or {\"messages\": "
                      "[...]}; prints a line of JSON for each")
          .excludes(text)
          .excludes(file);
  verb.add_option("--batch-size", o->batch_size, "Batch size of --prompts").between(1, 4096).show_default();
  verb.add_flag("--interactive", o->interactive, "Chat on the terminal (/help lists the commands)")
      .excludes(text)
      .excludes(file)
      .excludes(many);
  verb.add_flag("--chat", o->chat, "The prompt is a user's message: put it into the chat template");
  verb.add_option("--system", o->system, "System message of the conversation");
  add_chat_template_options(verb, *o);
  verb.add_option("--max-new-tokens", o->max_new_tokens,
                  "Tokens to generate at most; default: 128, or to the end of the model's context")
      .non_negative();
  SamplingOptions& s = o->generation.sampling;
  verb.add_option("--temperature", s.temperature,
                  "0: greedy; sampling settings of generation_config.json are named, not used")
      .show_default();
  verb.add_option("--top-k", s.top_k, "Keep the k likeliest tokens; 0: all").show_default();
  verb.add_option("--top-p", s.top_p, "Keep the likeliest tokens up to this probability").show_default();
  verb.add_option("--min-p", s.min_p, "Drop tokens below this share of the likeliest one's probability").show_default();
  verb.add_option("--repetition-penalty", s.repetition_penalty, "Above 1 discourages tokens already seen")
      .show_default();
  verb.add_option("--seed", s.seed, "Seed of the draws").show_default();
  verb.add_option("--stop", o->stop, "Texts that end an answer, and are not part of it");
  o->schema_option = verb.add_option(
      "--json-schema", o->json_schema,
      "File with a JSON schema ({}: any JSON) that answers keep to, unless --max-new-tokens cuts them off");
  o->regex_option = verb.add_option("--regex", o->regex, "Regular expression that answers match as a whole")
                        .excludes(*o->schema_option);
  verb.add_flag("--ignore-eos", o->ignore_eos, "Continue after end-of-sequence tokens");
  add_loading_options(verb, *o);
  verb.add_flag("--json", o->json, "Print the result as JSON");
  verb.on_run([o] { run(*o); });
}

}  // namespace quench
