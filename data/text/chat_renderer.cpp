#include "data/text/chat_renderer.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <utility>

#include "core/system/check.h"
#include "data/jinja/jinja_text.h"

namespace quench {
namespace {

using jinja::Range;

std::tm date_of(std::string_view text) {
  std::tm date{};
  const std::string copy(text);
  const char* end = strptime(copy.c_str(), "%Y-%m-%d", &date);
  QUENCH_CHECK_AS(ErrorCode::bad_config, end != nullptr && *end == '\0',
                  "the chat date '{}' is no date of the form 2024-07-26 (data.chat_date, --chat-date)", text);
  return date;
}

// A character that no text has, not even as a noncharacter: it is put into what looks like a special token and taken
// out of the rendered text.
std::string guard_for(const Conversation& conversation) {
  const std::string all = Json(conversation.messages).dump() + conversation.tools.dump();
  for (char last = '\x90'; last <= '\xAF'; ++last)
    if (std::string guard{'\xEF', '\xB7', last}; all.find(guard) == std::string::npos) return guard;
  QUENCH_FAIL(ErrorCode::invalid_argument, "the conversation holds all noncharacters from U+FDD0 to U+FDEF");
}

// A text and ranges of it without the guard; returns where guards stood.
std::vector<std::size_t> remove_guard(std::string_view guard, std::string& text, std::vector<Range>& ranges) {
  std::vector<std::size_t> places;
  std::string clean;
  std::size_t begin = 0;
  std::vector<std::size_t> raw;
  for (std::size_t at; (at = text.find(guard, begin)) != std::string::npos; begin = at + guard.size()) {
    clean.append(text, begin, at - begin);
    places.push_back(clean.size());
    raw.push_back(at);
  }
  clean.append(text, begin);
  const auto moved = [&](std::size_t at) {
    const auto before = static_cast<std::size_t>(std::ranges::lower_bound(raw, at) - raw.begin());
    return at - before * guard.size();
  };
  for (Range& range : ranges) range = {moved(range.begin), moved(range.end)};
  text = std::move(clean);
  return places;
}

std::size_t common_prefix(std::string_view a, std::string_view b) {
  return static_cast<std::size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

}  // namespace

ChatRenderer::ChatRenderer(std::string_view source, const std::string& name, const Tokenizer& tokenizer,
                           std::string_view date)
    : template_(source, name) {
  if (!date.empty()) template_.set_date(date_of(date));
  const XXH128_hash_t hash = XXH3_128bits(source.data(), source.size());
  identity_ = fmt::format("jinja {:016x}{:016x} {}", hash.high64, hash.low64, date);
  for (std::int64_t id = 0; id < tokenizer.vocab_size(); ++id) {
    const auto token = static_cast<std::int32_t>(id);
    if (!tokenizer.is_special(token)) continue;
    std::string text = tokenizer.token_text(token);
    if (text.empty()) continue;
    if (special_starts_.find(text[0]) == std::string::npos) special_starts_ += text[0];
    special_tokens_.push_back(std::move(text));
  }
  const auto add = [&](const char* variable, std::optional<std::int32_t> id) {
    if (id) named_tokens_.emplace_back(variable, tokenizer.token_text(*id));
  };
  add("bos_token", tokenizer.bos_id());
  add("eos_token", tokenizer.eos_id());
  add("pad_token", tokenizer.pad_id());
}

std::string_view ChatRenderer::special_at(std::string_view text, std::size_t at) const {
  std::string_view found;
  if (special_starts_.find(text[at]) == std::string::npos) return found;
  for (const std::string& token : special_tokens_)
    if (token.size() > found.size() && text.substr(at).starts_with(token)) found = token;
  return found;
}

std::string ChatRenderer::guarded(std::string_view text, std::string_view guard) const {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    out += text[i];
    // Within a character of several bytes nothing can be put, and no special token begins with one in practice.
    if (static_cast<unsigned char>(text[i]) < 0x80 && special_at(text, i).size() > 1) out += guard;
  }
  return out;
}

jinja::Value ChatRenderer::guarded_value(const Json& json, std::string_view guard) const {
  if (json.is_string()) return guarded(json.as_string(), guard);
  if (json.is_array()) {
    jinja::List list;
    for (const Json& item : json.as_array()) list.push_back(guarded_value(item, guard));
    return list;
  }
  if (json.is_object()) {
    jinja::Map map;
    for (const auto& [key, item] : json.as_object())
      map.members.emplace_back(guarded(key, guard), guarded_value(item, guard));
    return map;
  }
  return jinja::Value::from_json(json);
}

jinja::Map ChatRenderer::variables(const Conversation& conversation, bool generation_prompt,
                                   std::string_view guard) const {
  jinja::List messages;
  for (std::size_t i = 0; i < conversation.messages.size(); ++i) {
    jinja::Map message = guarded_value(conversation.messages[i], guard).map();
    message.message = static_cast<int>(i);
    messages.emplace_back(std::move(message));
  }
  jinja::Map variables;
  for (const auto& [name, text] : named_tokens_) variables.members.emplace_back(name, text);
  variables.members.emplace_back("messages", std::move(messages));
  variables.members.emplace_back("tools", guarded_value(conversation.tools, guard));
  variables.members.emplace_back("documents", jinja::Value());
  variables.members.emplace_back("add_generation_prompt", generation_prompt);
  return variables;
}

// What the template writes for a message begins as the generation prompt does, but that may go on differently, with an
// opened thought for example: then the header ends with its last line, at most where the message's content begins.
Range ChatRenderer::without_header(Range turn, std::string_view text, std::string_view prompt,
                                   std::string_view content) const {
  const std::string_view written = text.substr(turn.begin, turn.end - turn.begin);
  std::size_t header = common_prefix(written, prompt);
  if (header < prompt.size()) {
    const std::size_t said = written.find(jinja::strip(content, {}, jinja::StripSide::both));
    if (!content.empty() && said != std::string_view::npos) header = std::min(header, said);
    std::size_t end = 0;
    for (std::size_t i = 0; i < header;) {
      const std::size_t length = special_at(written, i).size();
      i += std::max<std::size_t>(length, 1);
      if (i <= header && (length > 0 || written[i - 1] == '\n')) end = i;
    }
    header = end;
  }
  std::size_t end = written.size();  // without the white space behind the last special token
  for (std::size_t i = header; i < written.size();) {
    const std::size_t length = special_at(written, i).size();
    i += std::max<std::size_t>(length, 1);
    if (length > 0 && jinja::strip(written.substr(i), {}, jinja::StripSide::both).empty()) {
      end = i;
      break;
    }
  }
  return {turn.begin + header, turn.begin + end};
}

std::vector<Range> ChatRenderer::answers(const Conversation& conversation, const jinja::Rendered& rendered,
                                         std::string_view guard) const {
  std::vector<Range> ranges;
  if (template_.marks_generation()) {
    ranges = rendered.generations;
  } else {
    // What a generation prompt adds.
    std::string prompt = template_.render(variables(conversation, true, guard)).text;
    prompt.erase(0, common_prefix(rendered.text, prompt));
    for (const auto& [message, range] : rendered.messages) {
      const Json& said = conversation.messages[static_cast<std::size_t>(message)];
      if (said.at("role").as_string() != "assistant") continue;
      ranges.push_back(without_header(range, rendered.text, prompt, guarded(said.at("content").as_string(), guard)));
    }
  }
  std::erase_if(ranges, [](const Range& range) { return range.begin >= range.end; });
  QUENCH_CHECK_AS(ErrorCode::unsupported, !ranges.empty(),
                  "{}: cannot tell what the assistant is to produce: the template has no {{% generation %}} marks and "
                  "writes messages outside of a loop over them; add the marks, or train on all tokens (data.train_on)",
                  template_.name());
  return ranges;
}

std::vector<Range> ChatRenderer::trained(std::vector<Range> ranges, const Conversation& conversation,
                                         const jinja::Rendered& rendered, bool all) const {
  for (std::size_t i = 0; i < conversation.messages.size(); ++i) {
    const Json& said = conversation.messages[i];
    if (may_train(said) || (!all && said.at("role").as_string() != "assistant")) continue;
    bool found = false;
    for (const auto& [message, out] : rendered.messages) {
      if (message != static_cast<int>(i)) continue;
      found = true;
      std::vector<Range> left;
      for (const Range& range : ranges) {
        left.push_back({range.begin, std::min(range.end, out.begin)});
        left.push_back({std::max(range.begin, out.end), range.end});
      }
      ranges = std::move(left);
      std::erase_if(ranges, [](const Range& range) { return range.begin >= range.end; });
    }
    QUENCH_CHECK_AS(ErrorCode::unsupported, found,
                    "{}: cannot tell what it writes for message {}, which is not to be trained on: the template writes "
                    "messages outside of a loop over them",
                    template_.name(), i);
  }
  return ranges;
}

std::vector<DocumentPiece> ChatRenderer::render(const Conversation& conversation, TrainOn train_on) const {
  const std::string guard = guard_for(conversation);
  jinja::Rendered rendered = template_.render(variables(conversation, false, guard));
  std::vector<Range> ranges =
      train_on == TrainOn::all ? std::vector<Range>{{0, rendered.text.size()}} : answers(conversation, rendered, guard);
  ranges = trained(std::move(ranges), conversation, rendered, train_on == TrainOn::all);
  if (train_on == TrainOn::last && ranges.size() > 1) ranges.erase(ranges.begin(), ranges.end() - 1);
  return pieces(std::move(rendered.text), std::move(ranges), guard);
}

std::vector<DocumentPiece> ChatRenderer::prompt(const Conversation& conversation) const {
  const std::string guard = guard_for(conversation);
  return pieces(template_.render(variables(conversation, true, guard)).text, {}, guard);
}

std::string ChatRenderer::end_of_turn() const {
  constexpr std::string_view kAnswer = "quench-answer";
  Conversation example;
  example.messages.push_back(Json::Object{{"role", "user"}, {"content", "question"}});
  example.messages.push_back(Json::Object{{"role", "assistant"}, {"content", kAnswer}});
  std::string text;
  try {
    text = template_.render(variables(example, false, guard_for(example))).text;
  } catch (const Error&) {
    return {};
  }
  const std::size_t answer = text.rfind(kAnswer);
  if (answer == std::string::npos) return {};
  for (std::size_t i = answer + kAnswer.size(); i < text.size(); ++i)
    if (const std::string_view token = special_at(text, i); !token.empty()) return std::string(token);
  return {};
}

// The text without its guards, and with the targets that its ranges are.
std::vector<DocumentPiece> ChatRenderer::pieces(std::string text, std::vector<Range> ranges,
                                                std::string_view guard) const {
  const std::vector<std::size_t> guards = remove_guard(guard, text, ranges);
  std::vector<DocumentPiece> pieces;
  const auto add = [&](std::size_t begin, std::size_t end, bool markup) {
    if (begin == end) return;
    DocumentPiece piece{.text = text.substr(begin, end - begin), .target = false, .markup = markup};
    for (const Range& range : ranges) {
      const std::size_t from = std::max(range.begin, begin), to = std::min(range.end, end);
      if (from < to) piece.target_bytes.emplace_back(from - begin, to - begin);
    }
    pieces.push_back(std::move(piece));
  };
  // Stretches between special tokens that hold a guard stay text, the others go together.
  std::size_t done = 0, stretch = 0, next = 0;
  for (std::size_t i = 0; next < guards.size();) {
    const std::size_t length = i < text.size() ? special_at(text, i).size() : 0;
    const bool real =
        length > 0 && !std::ranges::any_of(guards, [&](std::size_t g) { return g > i && g < i + length; });
    if (i < text.size() && !real) {
      ++i;
      continue;
    }
    if (guards[next] <= i) {
      add(done, stretch, true);
      add(stretch, i, false);
      done = i;
      while (next < guards.size() && guards[next] <= i) ++next;
    }
    i += length;
    stretch = i;
  }
  add(done, text.size(), true);
  return pieces;
}

}  // namespace quench
