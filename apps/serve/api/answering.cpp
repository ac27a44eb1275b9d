#include "apps/serve/api/answering.h"

#include <algorithm>

#include "apps/serve/api/api_error.h"
#include "apps/serve/api/identifiers.h"
#include "apps/serve/api/prompt_scores.h"
#include "apps/serve/http/connection.h"
#include "core/system/utf8.h"
#include "train/generation/generator.h"

namespace quench::serve {
namespace {

double seconds(TokenStream::Clock::duration duration) {
  return std::max(0.0, std::chrono::duration<double>(duration).count());
}

}  // namespace

Answering::Answering(Backend& backend, ApiRequest request, std::int64_t adapter)
    : backend_(backend), request_(std::move(request)), adapter_(adapter) {
  if (!request_.ignore_eos) stop_tokens_ = backend_.stop_tokens;
  encode();
  request_.conversation = {};
  const auto count = static_cast<std::size_t>(request_.choices);
  if (static_cast<std::int64_t>(prompts_.size() * count) > backend_.most_choices)
    throw bad_request("n", "{} prompts times n = {}: the server runs and queues {} answers at most", prompts_.size(),
                      count, backend_.most_choices);
  grammar_ = backend_.formats.compile(request_.format);
  choices_.reserve(prompts_.size() * count);
  for (const std::vector<std::int32_t>& prompt : prompts_)
    for (std::size_t i = 0; i < count; ++i)
      choices_.emplace_back(backend_.tokenizer, request_, stop_tokens_, prompt, backend_.marks_calls);
  submitted_.resize(choices_.size());
}

Answering::~Answering() {
  tokens_->close();
  for (const Submitted& submitted : submitted_)
    if (submitted.running) backend_.engine.cancel(submitted.number);
  backend_.open_choices -= reserved_;
  backend_.metrics.request_seconds.observe(seconds(Clock::now() - begin_));
}

void Answering::encode_chat() {
  if (!backend_.chat.has_template())
    throw bad_request("messages",
                      "the model has no chat template: use /v1/completions, or start the server with --chat-template");
  Conversation& conversation = request_.conversation;
  try {
    prompts_.push_back(backend_.chat.encode(conversation));
    if (!request_.calls_tools) return;
    conversation.tools = Json();
    if (backend_.chat.encode(conversation) != prompts_.front()) return;
  } catch (const Error& error) {
    throw api_error(error, "messages");
  }
  throw bad_request("tools", "the model's chat template does not show tools to the model: leave them out");
}

void Answering::encode() {
  if (request_.chat) {
    encode_chat();
  } else {
    for (CompletionPrompt& prompt : request_.prompts)
      prompts_.push_back(prompt.is_tokens ? std::move(prompt.tokens) : backend_.tokenizer.encode(prompt.text, {}));
  }
  for (const std::vector<std::int32_t>& prompt : prompts_) {
    if (prompt.empty())
      throw bad_request(request_.chat ? "messages" : "prompt",
                        "the prompt is empty and the tokenizer adds no beginning-of-sequence token");
    const std::int64_t vocabulary = backend_.model.config().vocab_size;
    for (const std::int32_t token : prompt)
      if (token < 0 || token >= vocabulary)
        throw bad_request("prompt", "token {} is outside of the vocabulary of {}", token, vocabulary);
    check_length(prompt.size());
  }
}

void Answering::check_length(std::size_t prompt_tokens) {
  const std::int64_t context = backend_.model.config().context_length();
  const std::int64_t room = room_behind(backend_.model.config(), prompt_tokens);
  const std::string_view param = request_.chat ? "messages" : "prompt";
  if (static_cast<std::int64_t>(prompt_tokens) > context || (room == 0 && request_.max_tokens != 0))
    throw ApiError(
        400, "context_length_exceeded",
        fmt::format("the prompt has {} tokens, and the model's context {}: shorten it", prompt_tokens, context), param);
  if (request_.max_tokens.value_or(0) > room)
    throw ApiError(400, "context_length_exceeded",
                   fmt::format("the prompt has {} tokens: in the model's context of {} there is room for {} more, and "
                               "max_tokens is {}",
                               prompt_tokens, context, room, *request_.max_tokens),
                   "max_tokens");
}

void Answering::submit() {
  const auto wanted = static_cast<std::int64_t>(choices_.size());
  if (backend_.open_choices.fetch_add(wanted) + wanted > backend_.most_choices) {
    backend_.open_choices -= wanted;
    throw ApiError(429, "queue_full",
                   fmt::format("{} answers are running and waiting, the most of this server: try again later",
                               backend_.most_choices));
  }
  reserved_ = wanted;
  const std::uint64_t seed = request_.seed.value_or(random_seed());
  const auto count = static_cast<std::size_t>(request_.choices);
  for (std::size_t prompt = 0; prompt < prompts_.size(); ++prompt) {
    if (request_.echo) {
      check_client();
      add_echoes(prompt);
    }
    for (std::size_t i = 0; i < count; ++i) submit_choice(prompt * count + i, seed + i);
  }
}

// Texts are repeated as they were given, token ids as their text.
void Answering::add_echoes(std::size_t prompt) {
  const CompletionPrompt& given = request_.prompts[prompt];
  const std::vector<std::int32_t>& ids = prompts_[prompt];
  const std::string text =
      given.is_tokens ? replace_invalid_utf8(backend_.tokenizer.decode(ids, {.skip_special = request_.skip_special}))
                      : given.text;
  std::vector<ScoredToken> scores;
  if (request_.logprobs)
    backend_.model_thread.call([&] { scores = score_prompt(backend_.model, ids, request_.top_logprobs, adapter_); });
  const auto count = static_cast<std::size_t>(request_.choices);
  for (std::size_t i = prompt * count; i < (prompt + 1) * count; ++i)
    ready_.emplace_back(i, choices_[i].echo(text, scores, !given.is_tokens));
}

void Answering::submit_choice(std::size_t choice, std::uint64_t seed) {
  const std::vector<std::int32_t>& prompt = prompts_[choice / static_cast<std::size_t>(request_.choices)];
  // By default to the end of the context, or of a smaller KV cache.
  const std::int64_t most = request_.max_tokens.value_or(
      std::min(room_behind(backend_.model.config(), prompt.size()),
               std::max<std::int64_t>(backend_.engine.stats().cache_tokens - std::ssize(prompt), 0)));
  if (most == 0) {
    ready_.emplace_back(choice, choices_[choice].end(EndReason::length));
    return;
  }
  EngineRequest work;
  work.prompt = prompt;
  work.max_new_tokens = most;
  work.sampling = request_.sampling;
  work.sampling.seed = seed;
  work.stop_tokens = stop_tokens_;
  work.adapter = adapter_;
  work.grammar = grammar_;
  work.top_logprobs = request_.logprobs ? request_.top_logprobs : 0;
  work.on_token = [tokens = tokens_, choice](const SampledToken& token) {
    return tokens->push({.choice = choice, .token = token});
  };
  work.on_end = [tokens = tokens_, choice](EngineResult result) {
    (void)tokens->push({.choice = choice, .token = {}, .end = std::move(result)});
  };
  Submitted& submitted = submitted_[choice];
  submitted.last = Clock::now();
  try {
    submitted.number = backend_.engine.submit(std::move(work));
  } catch (const Error& error) {
    throw api_error(error);
  }
  submitted.running = true;
  ++running_;
}

std::optional<std::pair<std::size_t, Piece>> Answering::next() {
  constexpr std::chrono::milliseconds kSlice{100};
  if (!ready_.empty()) {
    std::pair<std::size_t, Piece> first = std::move(ready_.front());
    ready_.erase(ready_.begin());
    return first;
  }
  while (running_ > 0) {
    std::optional<TokenStream::Event> event = tokens_->pop(kSlice);
    check_client();
    if (!event) continue;
    Piece piece;
    if (event->end)
      take_end(event->choice, std::move(*event->end), piece);
    else
      take_token(event->choice, *event, piece);
    if (!piece.empty()) return std::pair(event->choice, std::move(piece));
  }
  return std::nullopt;
}

void Answering::take_token(std::size_t choice, TokenStream::Event& event, Piece& piece) {
  Submitted& submitted = submitted_[choice];
  Histogram& times = submitted.any ? backend_.metrics.time_between_tokens : backend_.metrics.time_to_first_token;
  times.observe(seconds(event.at - submitted.last));
  submitted.any = true;
  submitted.last = event.at;
  if (choices_[choice].finished()) return;
  piece = choices_[choice].add(std::move(*event.token));
  if (choices_[choice].finished()) backend_.engine.cancel(submitted.number);
}

void Answering::take_end(std::size_t choice, EngineResult result, Piece& piece) {
  Submitted& submitted = submitted_[choice];
  submitted.running = false;
  submitted.reused = result.reused_tokens;
  --running_;
  if (choices_[choice].finished()) return;
  if (result.reason == EndReason::failed) throw ApiError(500, "engine_failure", result.error);
  if (result.reason == EndReason::stopped)
    throw ApiError(503, "client_too_slow", "the answer was not read as fast as it was made");
  piece = choices_[choice].end(result.reason);
}

void Answering::check_client() {
  constexpr std::chrono::milliseconds kInterval{100};
  if (backend_.aborted) throw ApiError(503, "server_stopped", "the server is shutting down");
  const Clock::time_point now = Clock::now();
  if (now - checked_ < kInterval) return;
  checked_ = now;
  if (const Connection* connection = Connection::current(); connection != nullptr && connection->client_gone())
    throw ClientGone();
}

Usage Answering::usage() const {
  Usage usage;
  const auto count = static_cast<std::size_t>(request_.choices);
  for (std::size_t prompt = 0; prompt < prompts_.size(); ++prompt) {
    usage.prompt_tokens += static_cast<std::int64_t>(prompts_[prompt].size());
    usage.cached_tokens += submitted_[prompt * count].reused;
  }
  for (const Choice& choice : choices_) usage.completion_tokens += choice.generated();
  return usage;
}

}  // namespace quench::serve
