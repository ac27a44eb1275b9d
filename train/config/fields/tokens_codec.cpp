#include "train/config/fields/tokens_codec.h"

#include "train/config/value_codec_map.h"

namespace quench {
namespace {

using Ids = std::vector<std::int64_t>;

constexpr std::string_view kTableKey = "embed_tokens", kHeadKey = "lm_head";

ReadError read_new_token(const Json& value, NewToken& token) {
  if (value.is_string()) return Codec<std::string>::read(value, {}, token.text);
  if (!value.is_object()) return wrong_value("string or {\"text\", \"special\"}", value);
  for (const auto& [key, member] : value.as_object()) {
    ReadError error;
    if (key == "text")
      error = Codec<std::string>::read(member, {}, token.text);
    else if (key == "special")
      error = Codec<bool>::read(member, {}, token.special);
    else
      error = ValueError{fmt::format("unknown key \"{}\" of a token; known keys are text, special", key), "", 0, 0};
    if (error) return error;
  }
  return std::nullopt;
}

bool is_new(const Json& value) {
  if (value.is_array() && value.as_array().size() == 1) return is_new(value.as_array().front());
  return value == Json(kNewTokens);
}

ReadError read_indices(const Json& value, const ValueRule& rule, TokenIndices& target) {
  target = {};
  target.added = is_new(value);
  return target.added ? std::nullopt : Codec<Ids>::read(value, rule, target.ids);
}

Json write_indices(const TokenIndices& value) {
  return value.added ? Json(kNewTokens) : Codec<Ids>::write(value.ids, {});
}

}  // namespace

std::string Codec<std::vector<NewToken>>::type(const ValueRule&) {
  return "list of strings or {\"text\", \"special\"}";
}

Json Codec<std::vector<NewToken>>::schema(const ValueRule&) {
  const Json text = Codec<std::string>::schema({});
  Json object(Json::Object{{"type", "object"},
                           {"properties", Json::Object{{"text", text}, {"special", Codec<bool>::schema({})}}},
                           {"required", Json::Array{Json("text")}},
                           {"additionalProperties", false}});
  return Json(
      Json::Object{{"type", "array"}, {"items", Json(Json::Object{{"anyOf", Json::Array{text, std::move(object)}}})}});
}

ReadError Codec<std::vector<NewToken>>::read(const Json& value, const ValueRule& rule, std::vector<NewToken>& target) {
  if (!value.is_array()) return wrong_value(type(rule), value);
  std::vector<NewToken> tokens;
  for (const Json& element : value.as_array()) {
    if (ReadError error = read_new_token(element, tokens.emplace_back())) {
      error->reason = fmt::format("element {} of the list: {}", tokens.size(), error->reason);
      error->line = element.line();
      error->column = element.column();
      return error;
    }
  }
  target = std::move(tokens);
  return std::nullopt;
}

Json Codec<std::vector<NewToken>>::write(const std::vector<NewToken>& value, const ValueRule&) {
  Json list = Json::array();
  for (const NewToken& token : value)
    list.push_back(token.special ? Json(token.text) : Json(Json::Object{{"text", token.text}, {"special", false}}));
  return list;
}

std::string Codec<TrainedTokens>::type(const ValueRule& rule) {
  return fmt::format("{}, \"{}\", or an object of them with the keys {} and {}", Codec<Ids>::type(rule), kNewTokens,
                     kTableKey, kHeadKey);
}

Json Codec<TrainedTokens>::schema(const ValueRule& rule) {
  const Json word(Json::Object{{"const", Json(kNewTokens)}});
  const Json one(Json::Object{{"anyOf", Json::Array{Codec<Ids>::schema(rule), word}}});
  Json modules(Json::Object{{"type", "object"},
                            {"properties", Json::Object{{std::string(kTableKey), one}, {std::string(kHeadKey), one}}},
                            {"additionalProperties", false}});
  return Json(Json::Object{{"anyOf", Json::Array{Codec<Ids>::schema(rule), word, std::move(modules)}}});
}

ReadError Codec<TrainedTokens>::read(const Json& value, const ValueRule& rule, TrainedTokens& target) {
  TrainedTokens tokens;
  if (value.is_object()) {
    if (value.as_object().empty()) return wrong_value(type(rule), value);
    for (const auto& [key, member] : value.as_object()) {
      if (key != kTableKey && key != kHeadKey)
        return ValueError{fmt::format("unknown key \"{}\"; known keys are {}, {}", key, kTableKey, kHeadKey), "",
                          member.line(), member.column()};
      if (ReadError error = read_indices(member, rule, key == kTableKey ? tokens.embedding : tokens.head)) {
        error->reason = fmt::format("{}: {}", key, error->reason);
        return error;
      }
    }
  } else if (is_new(value)) {
    tokens.embedding.added = tokens.head.added = true;
  } else if (ReadError error = read_indices(value, rule, tokens.embedding)) {
    error->reason = wrong_value(type(rule), value).reason;
    return error;
  }
  target = std::move(tokens);
  return std::nullopt;
}

Json Codec<TrainedTokens>::write(const TrainedTokens& value, const ValueRule&) {
  if (value.head == TokenIndices()) return write_indices(value.embedding);
  if (value.embedding.added && value.head.added) return kNewTokens;
  return Json(Json::Object{{std::string(kTableKey), write_indices(value.embedding)},
                           {std::string(kHeadKey), write_indices(value.head)}});
}

}  // namespace quench
