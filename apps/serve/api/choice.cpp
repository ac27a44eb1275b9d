#include "apps/serve/api/choice.h"

#include <algorithm>
#include <utility>

namespace quench::serve {

Choice::Choice(const Tokenizer& tokenizer, const ApiRequest& request, std::span<const std::int64_t> stop_tokens,
               std::span<const std::int32_t> prompt, bool marks_calls)
    : request_(request),
      stop_tokens_(stop_tokens),
      answer_(tokenizer, {.skip_special = request.skip_special}, prompt, request.stop) {
  if (request.calls_tools && marks_calls) calls_.emplace();
}

Piece Choice::echo(std::string text, std::vector<ScoredToken> tokens, bool verbatim) {
  const std::size_t shown = verbatim ? tokens.size() : 0;
  return keep(
      {.text = std::move(text), .calls = {}, .tokens = std::move(tokens), .verbatim = shown, .finish_reason = {}});
}

Piece Choice::add(SampledToken token) {
  Piece piece;
  ++generated_;
  const bool ends = std::ranges::find(stop_tokens_, token.token) != stop_tokens_.end();
  if (request_.logprobs)
    piece.tokens.push_back({.token = token.token, .logprob = token.logprob, .top = std::move(token.top)});
  if (ends) return keep(std::move(piece));  // not part of the text
  piece.text = answer_.push(token.token);
  if (calls_) piece.text = calls_->push(piece.text, piece.calls);
  if (request_.one_call && piece.calls.size() > 1) piece.calls.resize(1);
  const bool one_call_made = request_.one_call && !piece.calls.empty();
  if (!answer_.found() && !one_call_made) return keep(std::move(piece));
  if (one_call_made) piece.text.clear();
  Piece last = finish(one_call_made ? "tool_calls" : "stop");
  last.text.insert(0, piece.text);
  last.calls.insert(last.calls.begin(), piece.calls.begin(), piece.calls.end());
  last.tokens = std::move(piece.tokens);
  if (!last.calls.empty()) last.finish_reason = "tool_calls";
  return keep(std::move(last));
}

Piece Choice::end(EndReason reason) {
  if (finished()) return {};
  return keep(finish(reason == EndReason::length ? "length" : "stop"));
}

// The rest of the text.
Piece Choice::finish(std::string_view reason) {
  Piece last;
  if (reason != "tool_calls") {
    last.text = answer_.finish();
    if (calls_) {
      last.text = calls_->push(last.text, last.calls);
      last.text += calls_->finish(last.calls);
    }
  }
  const bool calls = !last.calls.empty() || !whole_.calls.empty();
  last.finish_reason = calls && reason == "stop" ? "tool_calls" : reason;
  return last;
}

Piece Choice::keep(Piece piece) {
  whole_.text += piece.text;
  whole_.calls.insert(whole_.calls.end(), piece.calls.begin(), piece.calls.end());
  whole_.tokens.insert(whole_.tokens.end(), piece.tokens.begin(), piece.tokens.end());
  whole_.finish_reason = piece.finish_reason;
  whole_.verbatim += piece.verbatim;
  return piece;
}

}  // namespace quench::serve
