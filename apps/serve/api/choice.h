#pragma once
// One answer of a request: text, function calls and log-probabilities, from tokens that arrive one by one.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "apps/serve/api/request.h"
#include "apps/serve/api/tool_calls.h"
#include "engine/engine.h"
#include "train/generation/answer_text.h"

namespace quench::serve {

// A token with its probability; without one: the first of an echoed prompt.
struct ScoredToken {
  std::int32_t token = 0;
  std::optional<float> logprob{};
  std::vector<TokenLogprob> top{};
};

// Text and log-probabilities that a token adds to an answer.
struct Piece {
  std::string text;
  std::vector<ToolCall> calls;
  std::vector<ScoredToken> tokens;  // with logprobs
  std::size_t verbatim = 0;         // first tokens whose special ones `text` has, whatever the request leaves out
  std::string finish_reason;        // "stop", "length", "tool_calls"; empty: not the last piece

  [[nodiscard]] bool empty() const { return text.empty() && calls.empty() && tokens.empty() && finish_reason.empty(); }
};

class Choice {
 public:
  // Tokenizer, request and stop tokens must outlive it. `marks_calls`: the model writes calls as ToolCallParser reads
  // them.
  Choice(const Tokenizer& tokenizer, const ApiRequest& request, std::span<const std::int64_t> stop_tokens,
         std::span<const std::int32_t> prompt, bool marks_calls);

  // With echo: before the first token. `verbatim`: Piece::verbatim is all of them.
  [[nodiscard]] Piece echo(std::string text, std::vector<ScoredToken> tokens, bool verbatim);
  // Not after finished().
  [[nodiscard]] Piece add(SampledToken token);
  // The engine's last word; empty if the answer was complete already.
  [[nodiscard]] Piece end(EndReason reason);

  [[nodiscard]] bool finished() const noexcept { return !whole_.finish_reason.empty(); }
  // All pieces as one.
  [[nodiscard]] const Piece& whole() const noexcept { return whole_; }
  [[nodiscard]] std::int64_t generated() const noexcept { return generated_; }

 private:
  Piece finish(std::string_view reason);
  Piece keep(Piece piece);

  const ApiRequest& request_;
  std::span<const std::int64_t> stop_tokens_;
  AnswerText answer_;
  std::optional<ToolCallParser> calls_;
  Piece whole_;
  std::int64_t generated_ = 0;
};

}  // namespace quench::serve
