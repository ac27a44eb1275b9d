#pragma once
// One API request in flight: its prompts, the engine's requests for its choices, and their pieces as they come.

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "apps/serve/api/answer_formats.h"
#include "apps/serve/api/choice.h"
#include "apps/serve/api/metrics.h"
#include "apps/serve/api/model_thread.h"
#include "apps/serve/api/response.h"
#include "apps/serve/api/token_stream.h"
#include "data/text/chat_prompt.h"

namespace quench::serve {

// Model, tokenizer, engine and counters that requests are answered with.
struct Backend {
  const nn::CausalLm& model;
  const Tokenizer& tokenizer;
  const ChatPrompt& chat;
  Engine& engine;
  ModelThread& model_thread;
  Metrics& metrics;
  AnswerFormats& formats;
  std::vector<std::int64_t> stop_tokens;
  std::int64_t most_choices = 0;  // running and waiting
  bool marks_calls = false;       // writes_tool_calls()
  std::atomic<std::int64_t> open_choices = 0;
  std::atomic<bool> aborted = false;  // requests in flight end
};

// Thrown where the client has closed its connection.
struct ClientGone {};

class Answering {
 public:
  // Encodes the prompts and compiles the format. `adapter`: as EngineRequest's. Throws ApiError 400 for what can never
  // be answered.
  Answering(Backend& backend, ApiRequest request, std::int64_t adapter);
  // Cancels what has not ended.
  ~Answering();
  Answering(const Answering&) = delete;
  Answering& operator=(const Answering&) = delete;

  // Queues all choices. Throws ApiError 429 where too many are running and waiting.
  void submit();
  // The next piece and the number of its choice; nullopt when all choices have ended. Throws ClientGone, and ApiError
  // for a failed pass or the end of the server.
  [[nodiscard]] std::optional<std::pair<std::size_t, Piece>> next();

  [[nodiscard]] const ApiRequest& request() const noexcept { return request_; }
  [[nodiscard]] std::int64_t adapter() const noexcept { return adapter_; }
  [[nodiscard]] const std::vector<Choice>& choices() const noexcept { return choices_; }
  // After the end.
  [[nodiscard]] Usage usage() const;

 private:
  using Clock = TokenStream::Clock;

  struct Submitted {
    std::uint64_t number = 0;  // in the engine
    bool running = false;
    Clock::time_point last{};  // token
    bool any = false;          // tokens
    std::int64_t reused = 0;
  };

  void encode();
  void encode_chat();
  void check_length(std::size_t prompt_tokens);
  void add_echoes(std::size_t prompt);
  void submit_choice(std::size_t choice, std::uint64_t seed);
  void take_token(std::size_t choice, TokenStream::Event& event, Piece& piece);
  void take_end(std::size_t choice, EngineResult result, Piece& piece);
  void check_client();

  Backend& backend_;
  ApiRequest request_;
  std::int64_t adapter_;
  std::vector<std::int64_t> stop_tokens_;
  std::shared_ptr<const Grammar> grammar_;  // null: any text
  std::vector<std::vector<std::int32_t>> prompts_;
  std::vector<Choice> choices_;  // by prompt, request_.choices each
  std::vector<std::pair<std::size_t, Piece>> ready_;
  std::vector<Submitted> submitted_;
  std::shared_ptr<TokenStream> tokens_ = std::make_shared<TokenStream>();
  std::int64_t reserved_ = 0;
  std::size_t running_ = 0;
  Clock::time_point begin_ = Clock::now(), checked_ = begin_;
};

}  // namespace quench::serve
