// quench serve: an OpenAI-compatible HTTP server.

#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <thread>

#include "apps/options/generate_options.h"
#include "apps/options/reader_options.h"
#include "apps/serve/api/api_error.h"
#include "apps/serve/api/api_key.h"
#include "apps/serve/api/service.h"
#include "apps/verbs.h"
#include "core/device/determinism.h"
#include "core/memory/memory_limit.h"
#include "core/system/file.h"
#include "core/system/log.h"
#include "core/system/printable.h"
#include "core/system/signals.h"
#include "core/system/utf8.h"
#include "data/hub/cache.h"
#include "distributed/environment.h"
#include "train/generation/warm_up.h"
#include "train/model_folder/named_adapters.h"

namespace quench {
namespace {

struct ServeOptions {
  GenerateOptions loading;                   // model, adapter, device and the like
  std::vector<std::string> adapters;         // --adapter
  std::vector<NamedAdapter> named_adapters;  // --adapter NAME=FOLDER
  std::string host = "127.0.0.1";
  int port = 8080;
  std::string api_key;
  std::string api_key_file;
  std::string alias;
  EngineOptions engine;
  std::int64_t max_waiting = 128;
  std::string max_body = "8MiB";
  double timeout = 30, grace = 30;  // seconds
  bool verbose = false;
};

constexpr std::int64_t kMostThreads = 1024, kSpareThreads = 16;

// ORG/NAME of a folder in the cache of the Hugging Face Hub, else the last part of the path.
std::string served_name(const ServeOptions& o) {
  if (!o.alias.empty()) return o.alias;
  constexpr std::string_view kCached = "models--";
  const std::filesystem::path path = std::filesystem::weakly_canonical(o.loading.model);
  for (const std::filesystem::path& part : path) {
    std::string name = part.string();
    if (!name.starts_with(kCached)) continue;
    name.erase(0, kCached.size());
    if (const std::size_t slash = name.find("--"); slash != std::string::npos) name.replace(slash, 2, "/");
    return name;
  }
  return path.has_filename() ? path.filename().string() : path.parent_path().filename().string();
}

// NAME=DIR: chosen by name in requests; DIR: for all of them.
void choose_adapters(ServeOptions& o) {
  for (const std::string& given : o.adapters) {
    const std::size_t name = given.find('=');
    if (name != std::string::npos && !std::filesystem::exists(given)) {
      o.named_adapters.push_back({given.substr(0, name), hub::require_local_path(given.substr(name + 1))});
      continue;
    }
    QUENCH_CHECK_AS(ErrorCode::bad_config, o.adapters.size() == 1,
                    "--adapter {} is for all requests, and no other goes with it: give each a name that requests "
                    "choose it by, as --adapter NAME={}",
                    given, given);
    o.loading.adapter = given;
  }
  std::set<std::string> names{served_name(o)};
  for (const NamedAdapter& adapter : o.named_adapters) {
    QUENCH_CHECK_AS(ErrorCode::bad_config,
                    !adapter.name.empty() && find_invalid_utf8(adapter.name) == std::string::npos,
                    "--adapter {}={}: the name is {}", printable(adapter.name), adapter.folder.string(),
                    adapter.name.empty() ? "empty" : "not UTF-8");
    QUENCH_CHECK_AS(ErrorCode::bad_config, names.insert(adapter.name).second,
                    "--adapter {}={}: the name is that of the model or of another adapter; names are distinct",
                    adapter.name, adapter.folder.string());
  }
  check_named_adapters(o.named_adapters);
  o.engine.adapters = std::ssize(o.named_adapters);
}

void check_options(ServeOptions& o) {
  QUENCH_CHECK_AS(ErrorCode::bad_config, o.api_key.empty() || o.api_key_file.empty(),
                  "--api-key (or QUENCH_API_KEY) and --api-key-file: give one of them");
  if (!o.api_key_file.empty()) o.api_key = serve::read_api_key(o.api_key_file);
  serve::check_api_key(o.api_key);
  QUENCH_CHECK_AS(ErrorCode::bad_config, !o.api_key.empty() || serve::is_loopback(o.host),
                  "--host {} is open to other machines: set a token with --api-key-file FILE or QUENCH_API_KEY, which "
                  "clients send as their API key, or keep --host 127.0.0.1",
                  o.host);
}

// OpenAI's defaults under the model's published ones.
SamplingOptions default_sampling(const Model& loaded) {
  SamplingOptions usual;
  usual.temperature = 1;
  SamplingOptions sampling = usual;
  std::vector<std::string> shown;
  try {
    for (const auto& [key, value] : published_sampling(loaded)) {
      if (key == "temperature") sampling.temperature = value.as_double();
      if (key == "top_k") sampling.top_k = static_cast<std::int64_t>(value.as_double());
      if (key == "top_p") sampling.top_p = value.as_double();
      if (key == "min_p") sampling.min_p = value.as_double();
      if (key == "repetition_penalty") sampling.repetition_penalty = value.as_double();
      shown.push_back(fmt::format("{} {}", key, value.dump()));
    }
    check_sampling_options(sampling);
  } catch (const Error& error) {
    QUENCH_LOG_WARN("generation_config.json: {}: its sampling settings are not used", error.what());
    return usual;
  }
  if (!shown.empty())
    QUENCH_LOG_INFO("requests that do not say otherwise are sampled with {} (generation_config.json)",
                    fmt::join(shown, ", "));
  return sampling;
}

std::string url_of(const ServeOptions& o, int port) {
  const bool v6 = o.host.find(':') != std::string::npos;
  return fmt::format("http://{}{}{}:{}", v6 ? "[" : "", o.host, v6 ? "]" : "", port);
}

// Before the model is read: a port in use is known at once.
int bind(serve::HttpServer& server, const ServeOptions& o) {
  const int port = server.bind(o.host, o.port);
  const int error = errno;
  QUENCH_CHECK_AS(ErrorCode::io, port > 0, "cannot listen on {}: {}; --port 0 takes a free port", url_of(o, o.port),
                  error != 0 ? errno_text(error) : "unknown host");
  return port;
}

void print_ready(const ServeOptions& o, int port, const serve::ServedModels& models, bool chats) {
  const std::string url = url_of(o, port);
  const std::string key = o.api_key.empty() ? "" : " -H \"Authorization: Bearer $QUENCH_API_KEY\"";
  const std::string adapters =
      models.adapters.empty() ? std::string() : fmt::format(" with adapters {}", fmt::join(models.adapters, ", "));
  std::printf("serving %s%s at %s (chat page), API at %s/v1\n", models.base.c_str(), adapters.c_str(), url.c_str(),
              url.c_str());
  std::printf("  curl %s/v1/%s -H 'Content-Type: application/json'%s -d '%s'\n", url.c_str(),
              chats ? "chat/completions" : "completions", key.c_str(),
              chats ? R"({"messages": [{"role": "user", "content": "Hello"}]})" : R"({"prompt": "Once upon a time"})");
  std::fflush(stdout);
}

// Listens until a signal, then lets requests in flight end; ends the model's thread in any case.
class Listening {
 public:
  Listening(serve::HttpServer& server, serve::Service& service, serve::Backend& backend, double grace)
      : server_(server), service_(service), backend_(backend), grace_(grace) {
    listener_ = std::thread([this] {
      failed_ = !server_.listen_after_bind() && !server_.stopping();
      ended_ = true;
    });
    watcher_ = std::thread([this] { watch(); });
  }
  ~Listening() {
    leave_ = true;
    watcher_.join();
    listener_.join();
  }
  Listening(const Listening&) = delete;
  Listening& operator=(const Listening&) = delete;

  [[nodiscard]] std::stop_token end_of_model() const { return model_.get_token(); }
  [[nodiscard]] bool failed() const noexcept { return failed_; }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kSlice{20};

  void watch() {
    int signal = 0;
    while (!ended_ && !leave_ && (signal = signals_.stop_signal()) == 0) std::this_thread::sleep_for(kSlice);
    service_.refuse_new();
    if (signal != 0)
      QUENCH_LOG_INFO("{}: no new requests; {} answers may take {} s more", signal_text(signal),
                      backend_.open_choices.load(), grace_);
    const auto end = Clock::now() + std::chrono::duration<double>(grace_);
    while (!ended_) {
      server_.stop_accepting();  // again, if it did not listen yet
      if (leave_ || Clock::now() >= end) {
        backend_.aborted = true;
        server_.abort();
      }
      std::this_thread::sleep_for(kSlice);
    }
    model_.request_stop();
  }

  serve::HttpServer& server_;
  serve::Service& service_;
  serve::Backend& backend_;
  double grace_;
  SignalHandlers signals_;
  std::atomic<bool> ended_ = false, failed_ = false, leave_ = false;
  std::stop_source model_;
  std::thread listener_, watcher_;
};

void run(ServeOptions& o) {
  ::mallopt(M_ARENA_MAX, 8);  // each thread would keep free memory of its own
  check_options(o);
  choose_adapters(o);
  const auto max_body = static_cast<std::size_t>(require_memory_size(o.max_body, "--max-body"));
  set_threads(o.loading.threads);
  set_batch_invariant(o.loading.deterministic);
  limit_gpu_memory(o.loading.device, o.loading.memory_limit);
  check_kv_cache_name(o.loading.kv_cache);
  const std::int64_t most_choices = o.engine.max_sequences + o.max_waiting;
  serve::HttpServer server(
      {.threads = static_cast<std::size_t>(std::min(most_choices + kSpareThreads, kMostThreads)),
       .timeout = std::chrono::milliseconds(static_cast<std::int64_t>(o.timeout * 1000))},
      serve::ApiError(503, "too_many_connections", "all connections of the server are in use: try again later").body());
  // The other processes of a launch hold slices of the model.
  const distributed::Environment place = distributed::read_environment();
  QUENCH_CHECK_AS(ErrorCode::bad_config, o.named_adapters.empty() || !place.is_distributed(),
                  "--adapter {}={}: several processes hold slices of a model without adapters; merge it (quench "
                  "merge-lora), or take one process",
                  o.named_adapters.front().name, o.named_adapters.front().folder.string());
  const int port = place.rank == 0 ? bind(server, o) : 0;

  std::unique_ptr<Tokenizer> tokenizer;
  std::optional<ChatPrompt> chat;
  const Model loaded = open_generating_model(o.loading, [&](const Model& model) {
    tokenizer = model.require_tokenizer(o.loading.tokenizer);
    chat.emplace(*tokenizer, o.loading.chat_template, o.loading.chat_date,
                 chat_template_kwargs(o.loading.chat_template_kwargs));
    return std::function<void()>();
  });
  if (!o.named_adapters.empty()) attach_named_adapters(loaded.model(), o.named_adapters);
  Engine engine(loaded.model(), o.engine);
  serve::ModelThread model_thread(engine);
  serve::Metrics metrics;
  const std::vector<std::int64_t> ends = stop_tokens(loaded, *tokenizer, &*chat);
  serve::AnswerFormats formats(*tokenizer, loaded.config().vocab_size, ends);
  serve::Backend backend{.model = loaded.model(),
                         .tokenizer = *tokenizer,
                         .chat = *chat,
                         .engine = engine,
                         .model_thread = model_thread,
                         .metrics = metrics,
                         .formats = formats,
                         .stop_tokens = ends,
                         .most_choices = most_choices,
                         .marks_calls = serve::writes_tool_calls(*tokenizer, o.loading.chat_template)};
  serve::ServedModels models{.base = served_name(o), .adapters = {}};
  for (const NamedAdapter& adapter : o.named_adapters) models.adapters.push_back(adapter.name);
  serve::Service service({.models = models,
                          .host = o.host,
                          .api_key = o.api_key,
                          .max_body = max_body,
                          .verbose = o.verbose,
                          .sampling = default_sampling(loaded)},
                         backend, server);
  Listening listening(server, service, backend, o.grace);
  print_ready(o, port, models, chat->has_template());
  model_thread.run(listening.end_of_model());
  QUENCH_CHECK_AS(ErrorCode::io, !listening.failed(), "{}: the socket fails to accept connections", url_of(o, port));
}

}  // namespace

void add_serve_verb(const Command& app) {
  auto o = std::make_shared<ServeOptions>();
  const Command verb = app.add_command("serve", "Answer requests of OpenAI's API over HTTP; chat page included");
  verb.footer("Example: quench serve --model runs/demo/export --port 8080\nGuide: docs/guide/serve.md");
  verb.add_option("--model", o->loading.model, "Model folder, GGUF file, checkpoint or run folder")
      .takes_hub_name()
      .required();
  verb.add_option("--adapter", o->adapters,
                  "PEFT adapter folder, for all requests; NAME=FOLDER, any number of times: for requests whose model "
                  "is NAME")
      .takes_hub_name();
  verb.add_option("--host", o->host, "Address to listen on; other than loopback with an API key only").show_default();
  verb.add_option("--port", o->port, "0: a free one, which is printed").between(0, 65535).show_default();
  verb.add_option("--api-key", o->api_key, "Token that clients send; other users of the machine see arguments")
      .environment("QUENCH_API_KEY");
  verb.add_option("--api-key-file", o->api_key_file, "File with the token");
  verb.add_option("--alias", o->alias, "Name of the model for clients; default: its folder's or file's");
  add_chat_template_options(verb, o->loading);
  verb.add_option("--max-sequences", o->engine.max_sequences, "Answers generated together").positive().show_default();
  verb.add_option("--max-waiting", o->max_waiting, "Answers queued beyond those; more are refused with status 429")
      .non_negative()
      .show_default();
  verb.add_option("--cache-tokens", o->engine.cache_tokens,
                  "Size of the KV cache in tokens; 0: full contexts of all sequences, at most what memory allows")
      .non_negative()
      .show_default();
  verb.add_flag("--deterministic", o->loading.deterministic,
                "Logits of a token do not depend on other sequences, bit for bit; slower, quantized weights most");
  verb.add_option("--prefill-tokens", o->engine.prefill_tokens, "Tokens of prompts in one pass")
      .positive()
      .show_default();
  verb.add_option("--max-body", o->max_body, "Largest request").show_default();
  verb.add_option("--timeout", o->timeout, "Seconds for a client to send a request or to take what was sent")
      .between(0.1, 86400.0)
      .show_default();
  verb.add_option("--grace", o->grace, "Seconds that answers in flight may take after SIGTERM or Ctrl-C")
      .between(0.0, 86400.0)
      .show_default();
  verb.add_flag("--verbose", o->verbose, "Log every request");
  add_loading_options(verb, o->loading);
  verb.on_run([o] { run(*o); });
}

}  // namespace quench
