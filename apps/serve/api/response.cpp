#include "apps/serve/api/response.h"

#include <algorithm>
#include <ctime>
#include <utility>

#include "apps/serve/api/identifiers.h"
#include "core/system/utf8.h"

namespace quench::serve {
namespace {

Json usage_json(const Usage& usage) {
  return Json::Object{{"prompt_tokens", usage.prompt_tokens},
                      {"completion_tokens", usage.completion_tokens},
                      {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
                      {"prompt_tokens_details", Json::Object{{"cached_tokens", usage.cached_tokens}}}};
}

Json text_or_null(const std::string& text) {
  return text.empty() ? Json() : Json(text);
}

std::int64_t character_count(std::string_view text) {
  return std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; });
}

Json call_json(const ToolCall& call) {
  return Json::Object{{"id", call.id},
                      {"type", "function"},
                      {"function", Json::Object{{"name", call.name}, {"arguments", call.arguments}}}};
}

}  // namespace

ResponseForm::ResponseForm(const ApiRequest& request, const Tokenizer& tokenizer, std::string model)
    : request_(request),
      tokenizer_(tokenizer),
      model_(std::move(model)),
      id_(new_identifier(request.chat ? "chatcmpl-" : "cmpl-", 32)),
      created_(static_cast<std::int64_t>(std::time(nullptr))) {}

Json ResponseForm::head(std::string_view object) const {
  return Json::Object{{"id", id_}, {"object", object}, {"created", created_}, {"model", model_}};
}

std::string ResponseForm::text_of(std::int32_t token) const {
  try {
    return tokenizer_.token_text(token);
  } catch (const Error&) {  // padded embedding table
    return {};
  }
}

Json ResponseForm::chat_logprobs(const Piece& piece) const {
  const auto entry = [&](std::int32_t token, float logprob) {
    const std::string bytes = text_of(token);
    Json::Array values;
    for (const char byte : bytes) values.emplace_back(static_cast<int>(static_cast<unsigned char>(byte)));
    return Json::Object{
        {"token", replace_invalid_utf8(bytes)}, {"logprob", static_cast<double>(logprob)}, {"bytes", values}};
  };
  Json content = Json::array();
  for (const ScoredToken& token : piece.tokens) {
    Json scored = entry(token.token, token.logprob.value_or(0));
    Json top = Json::array();
    for (const TokenLogprob& other : token.top) top.push_back(entry(other.token, other.logprob));
    scored.set("top_logprobs", std::move(top));
    content.push_back(std::move(scored));
  }
  return Json::Object{{"content", std::move(content)}, {"refusal", Json()}};
}

Json ResponseForm::completion_logprobs(const Piece& piece, std::int64_t& characters) const {
  Json tokens = Json::array(), logprobs = Json::array(), tops = Json::array(), offsets = Json::array();
  for (const ScoredToken& token : piece.tokens) {
    const std::string bytes = text_of(token.token), text = replace_invalid_utf8(bytes);
    tokens.push_back(text);
    logprobs.push_back(token.logprob ? Json(static_cast<double>(*token.logprob)) : Json());
    offsets.push_back(characters);
    // A character's first byte counts, and a token that the text leaves out not at all.
    const bool is_shown = tokens.as_array().size() <= piece.verbatim || !request_.skip_special;
    if (is_shown || !tokenizer_.is_special(token.token)) characters += character_count(bytes);
    if (!token.logprob) {
      tops.push_back(Json());
      continue;
    }
    // Tokens with equal texts: the likeliest one. The sampled token is always present.
    Json top = Json::object();
    for (const TokenLogprob& other : token.top) {
      const std::string name = replace_invalid_utf8(text_of(other.token));
      if (top.find(name) == nullptr) top.set(name, static_cast<double>(other.logprob));
    }
    if (top.find(text) == nullptr) top.set(text, static_cast<double>(*token.logprob));
    tops.push_back(std::move(top));
  }
  return Json::Object{{"tokens", std::move(tokens)},
                      {"token_logprobs", std::move(logprobs)},
                      {"top_logprobs", std::move(tops)},
                      {"text_offset", std::move(offsets)}};
}

Json ResponseForm::logprobs(const Piece& piece, std::int64_t& characters) const {
  if (!request_.logprobs) return {};
  return request_.chat ? chat_logprobs(piece) : completion_logprobs(piece, characters);
}

Json ResponseForm::whole_choice(std::size_t index, const Choice& choice) const {
  const Piece& piece = choice.whole();
  std::int64_t characters = 0;
  Json result = Json::Object{{"index", index}};
  if (request_.chat) {
    Json message = Json::Object{{"role", "assistant"},
                                {"content", piece.calls.empty() ? Json(piece.text) : text_or_null(piece.text)},
                                {"refusal", Json()}};
    if (!piece.calls.empty()) {
      Json calls = Json::array();
      for (const ToolCall& call : piece.calls) calls.push_back(call_json(call));
      message.set("tool_calls", std::move(calls));
    }
    result.set("message", std::move(message));
  } else {
    result.set("text", piece.text);
  }
  result.set("logprobs", logprobs(piece, characters));
  result.set("finish_reason", text_or_null(piece.finish_reason));
  return result;
}

Json ResponseForm::whole(const std::vector<Choice>& choices, const Usage& usage) const {
  Json result = head(request_.chat ? "chat.completion" : "text_completion");
  Json list = Json::array();
  for (std::size_t i = 0; i < choices.size(); ++i) list.push_back(whole_choice(i, choices[i]));
  result.set("choices", std::move(list));
  result.set("usage", usage_json(usage));
  return result;
}

Json ResponseForm::chunk_of(Json choice) const {
  Json result = head(request_.chat ? "chat.completion.chunk" : "text_completion");
  Json list = Json::array();
  if (!choice.is_null()) list.push_back(std::move(choice));
  result.set("choices", std::move(list));
  if (request_.include_usage) result.set("usage", Json());
  return result;
}

Json ResponseForm::opening(std::size_t choice) const {
  return chunk_of(Json::Object{{"index", choice},
                               {"delta", Json::Object{{"role", "assistant"}, {"content", ""}}},
                               {"logprobs", Json()},
                               {"finish_reason", Json()}});
}

Json ResponseForm::chunk(std::size_t choice, const Piece& piece) {
  if (places_.size() <= choice) places_.resize(choice + 1);
  Place& place = places_[choice];
  Json result = Json::Object{{"index", choice}};
  if (request_.chat) {
    Json delta = Json::object();
    if (!piece.text.empty() || (piece.calls.empty() && piece.finish_reason.empty())) delta.set("content", piece.text);
    if (!piece.calls.empty()) {
      Json calls = Json::array();
      for (const ToolCall& call : piece.calls) {
        Json entry = call_json(call);
        entry.set("index", place.calls++);
        calls.push_back(std::move(entry));
      }
      delta.set("tool_calls", std::move(calls));
    }
    result.set("delta", std::move(delta));
  } else {
    result.set("text", piece.text);
  }
  result.set("logprobs", piece.tokens.empty() ? Json() : logprobs(piece, place.characters));
  result.set("finish_reason", text_or_null(piece.finish_reason));
  return chunk_of(std::move(result));
}

Json ResponseForm::usage_chunk(const Usage& usage) const {
  Json result = chunk_of({});
  result.set("usage", usage_json(usage));
  return result;
}

}  // namespace quench::serve
