
#include <algorithm>
#include <map>
#include <ranges>

#include "core/system/check.h"
#include "data/chat/assistant_turns.h"
#include "data/jinja/jinja_text.h"
#include "data/text/chat_renderer.h"

namespace quench {
namespace {

using jinja::Range;

std::size_t shared_bytes(std::string_view a, std::string_view b) {
  return static_cast<std::size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

std::size_t leading_space(std::string_view text) {
  return text.size() - jinja::strip(text, {}, jinja::StripSide::left).size();
}

bool answers(const Json& message) {
  return message.at("role").as_string() == "assistant";
}

bool is_trained(const Conversation& conversation, std::size_t i) {
  return i >= conversation.prompt_messages && answers(conversation.messages[i]) && may_train(conversation.messages[i]);
}

void remove(std::vector<Range>& ranges, Range out) {
  std::vector<Range> left;
  for (const Range& range : ranges) {
    left.push_back({range.begin, std::min(range.end, out.begin)});
    left.push_back({std::max(range.begin, out.end), range.end});
  }
  std::erase_if(left, [](const Range& range) { return range.begin >= range.end; });
  ranges = std::move(left);
}

}  // namespace

// Bytes, without partial special tokens.
std::size_t ChatRenderer::shared_prefix(std::string_view a, std::string_view b) const {
  std::size_t shared = shared_bytes(a, b);
  for (const std::string_view text : {a, b})
    if (const auto token = special_.around(text, shared); token.end > token.begin) shared = token.begin;
  return shared;
}

std::string ChatRenderer::generation_prompt(const Call& call, std::string_view text) const {
  const auto beginning = [&](std::size_t messages, bool prompt) -> std::optional<std::string> {
    Call part = call;
    part.messages = messages;
    part.generation_prompt = prompt;
    try {
      return rendered(part).text;
    } catch (const Error&) {
      return std::nullopt;
    }
  };
  const auto& messages = call.conversation.messages;
  const auto first = static_cast<std::size_t>(std::ranges::find_if(messages, answers) - messages.begin());
  if (first > 0 && first < messages.size()) {
    const auto plain = beginning(first, false), prompted = beginning(first, true);
    if (plain && prompted) return prompted->substr(shared_prefix(*plain, *prompted));
  }
  const auto prompted = beginning(messages.size(), true);
  return prompted ? prompted->substr(shared_prefix(text, *prompted)) : std::string();
}

// The conversation up to `message`, with a plain text in its place; nullopt if rejected or not rendered.
std::optional<ChatRenderer::PlainAnswer> ChatRenderer::plain_answer(const Call& call, std::size_t message) const {
  constexpr std::string_view kAnswer = "quench-answer";
  const Conversation& given = call.conversation;
  Conversation example{.messages = {},
                       .tools = given.tools,
                       .documents = given.documents,
                       .template_kwargs = given.template_kwargs,
                       .columns = given.columns};
  for (std::size_t i = 0; i < std::min(message, given.messages.size()); ++i)
    example.messages.push_back(given.messages[i]);
  example.messages.push_back(Json::Object{{"role", "assistant"}, {"content", kAnswer}});
  jinja::Rendered answered;
  try {
    answered = rendered({.conversation = example, .source = call.source, .messages = example.messages.size()});
  } catch (const Error&) {
    return std::nullopt;
  }
  const std::size_t at = answered.text.rfind(kAnswer);
  if (at == std::string::npos) return std::nullopt;
  PlainAnswer answer{.text = std::move(answered.text), .at = at, .loop = {}};
  for (const auto& [owner, range] : answered.messages)
    if (owner == static_cast<int>(message) && range.begin <= at && at < range.end) answer.loop = range.begin;
  return answer;
}

// For templates without a generation prompt. Empty: white space only; nullopt: unknown.
std::optional<std::string> ChatRenderer::answer_header(const Call& call) const {
  const Json::Array& messages = call.conversation.messages;
  const auto first = static_cast<std::size_t>(std::ranges::find_if(messages, answers) - messages.begin());
  const auto answer = plain_answer(call, first);
  if (!answer) return std::nullopt;
  const auto& [text_of_answer, at, loop] = *answer;
  // White space only: part of the answer.
  const auto header = [&](std::size_t begin) {
    const std::string text = text_of_answer.substr(begin, at - begin);
    return jinja::strip(text, {}, jinja::StripSide::both).empty() ? std::string() : text;
  };
  if (loop) return header(*loop);
  if (first == 0) return header(0);
  const std::string_view before = jinja::strip(content_text(messages[first - 1]), {}, jinja::StripSide::both);
  const std::size_t asked = before.empty() ? std::string::npos : text_of_answer.rfind(before, at);
  if (asked == std::string::npos || asked + before.size() > at) return std::nullopt;
  return header(asked + before.size());
}

std::string ChatRenderer::end_of_turn() const {
  constexpr std::string_view kAnswer = "quench-answer";
  Json::Array example{Json::Object{{"role", "user"}, {"content", "question"}},
                      Json::Object{{"role", "assistant"}, {"content", kAnswer}}};
  // The next turn may output the token.
  for (const bool asks_again : {false, true}) {
    if (asks_again) example.push_back(Json::Object{{"role", "user"}, {"content", "question"}});
    const std::string text = text_of(example, false);
    const std::size_t answer = text.rfind(kAnswer);
    if (answer == std::string::npos) continue;
    const std::string_view rest = std::string_view(text).substr(answer + kAnswer.size());
    if (const auto tokens = special_.find(rest); !tokens.empty())
      return std::string(rest.substr(tokens.front().begin, tokens.front().end - tokens.front().begin));
  }
  return {};
}

// By a rendering with a non-empty content; nullopt if the two differ in more than that and adjacent white space.
std::optional<std::size_t> ChatRenderer::empty_content(const Call& call, std::size_t message,
                                                       std::string_view text) const {
  constexpr std::string_view kProbe = "quench-probe";
  const auto blank = [](std::string_view part) { return jinja::strip(part, {}, jinja::StripSide::both).empty(); };
  Conversation probed = call.conversation;
  const Json& content = probed.messages[message].at("content");
  if (!content.is_null() && (!content.is_string() || !blank(content.as_string()))) return std::nullopt;
  probed.messages[message].set("content", std::string(kProbe));
  std::string written;
  try {
    written = rendered({.conversation = probed,
                        .source = call.source,
                        .messages = call.messages,
                        .generation_prompt = call.generation_prompt})
                  .text;
  } catch (const Error&) {
    return std::nullopt;
  }
  const std::size_t at = written.find(kProbe);
  if (at == std::string::npos || written.find(kProbe, at + 1) != std::string::npos) return std::nullopt;
  const std::string_view before = std::string_view(written).substr(0, at),
                         after = std::string_view(written).substr(at + kProbe.size());
  const std::size_t shared = shared_bytes(before, text);
  const std::string_view rest = text.substr(shared);
  const std::string_view end = after.substr(leading_space(after));
  if (!blank(before.substr(shared)) || !rest.ends_with(end) || !blank(rest.substr(0, rest.size() - end.size())))
    return std::nullopt;
  return shared;
}

// With those of empty contents.
MarkedPlaces ChatRenderer::with_empty_contents(const Call& call, MarkedPlaces places, std::string_view text) const {
  for (std::size_t i = 0; i < call.messages; ++i) {
    const auto owner = static_cast<int>(i);
    if (!is_trained(call.conversation, i) ||
        std::ranges::any_of(places.places, [&](const MarkedPlaces::Place& place) { return place.owner == owner; }))
      continue;
    const auto at = empty_content(call, i, text);
    if (!at) continue;
    const auto next = std::ranges::find_if(places.places, [&](const MarkedPlaces::Place& place) {
      return place.at > *at || (place.at == *at && place.owner > owner);
    });
    places.places.insert(next, {.at = *at, .owner = owner, .part = 0});
  }
  return places;
}

std::vector<Range> ChatRenderer::targets(const Call& call, const jinja::Rendered& rendered, const MarkedPlaces& written,
                                         TrainOn train_on, RecordNotes* notes) const {
  const Conversation& conversation = call.conversation;
  const MarkedPlaces places = with_empty_contents(call, written, rendered.text);
  const std::string added = generation_prompt(call, rendered.text);
  const std::optional<std::string> header = added.empty() ? answer_header(call) : std::optional(added);
  const AssistantTurns turns({.text = rendered.text,
                              .places = places,
                              .loops = rendered.messages,
                              .special = special_,
                              .beginning = [&](std::size_t messages, bool prompt) -> std::optional<std::string> {
                                Call part = call;
                                part.messages = messages;
                                part.generation_prompt = prompt;
                                try {
                                  return this->rendered(part).text;
                                } catch (const Error&) {
                                  return std::nullopt;
                                }
                              },
                              .generation_prompt = header.value_or(std::string()),
                              .has_generation_prompt = !added.empty(),
                              .starts_at_once = header && header->empty(),
                              .header = [&](std::size_t message) -> std::optional<std::string> {
                                const auto answer = plain_answer(call, message);
                                if (!answer || !answer->loop) return std::nullopt;
                                return answer->text.substr(*answer->loop, answer->at - *answer->loop);
                              }});
  std::vector<Range> ranges;
  bool ended = true;
  for (std::size_t i = 0; i < conversation.messages.size(); ++i) {
    if (!is_trained(conversation, i)) continue;
    const AssistantTurns::Turn turn = turns.turn(static_cast<int>(i));
    if (train_on == TrainOn::last) ranges.clear();
    const bool required =
        train_on != TrainOn::last || std::ranges::none_of(std::views::iota(i + 1, conversation.messages.size()),
                                                          [&](std::size_t k) { return is_trained(conversation, k); });
    QUENCH_CHECK(!turn.ranges.empty() || !required,
                 "message {}: {} does not render this assistant turn, which is a target; set \"train\": false in the "
                 "message, or use another template (data.chat_template, --chat-template)",
                 i, call.source.code.name());
    ranges.insert(ranges.end(), turn.ranges.begin(), turn.ranges.end());
    ended = turn.ended;
  }
  if (!ended && notes != nullptr) ++notes->unended;
  return ranges;
}

std::vector<Range> ChatRenderer::marked_targets(const Call& call, const jinja::Rendered& rendered,
                                                const MarkedPlaces& places, TrainOn train_on,
                                                RecordNotes* notes) const {
  const Conversation& conversation = call.conversation;
  const auto owners_of = [&](const Range& range) {
    std::vector<std::size_t> owners;
    const auto add = [&](int owner) {
      const auto message = static_cast<std::size_t>(owner);
      if (owner != kNoMessage && answers(conversation.messages[message]) &&
          std::ranges::find(owners, message) == owners.end())
        owners.push_back(message);
    };
    for (const auto& [at, owner, part] : places.places)
      if (range.begin <= at && at <= range.end) add(owner);
    if (owners.empty())
      for (const auto& [owner, loop] : rendered.messages)
        if (loop.begin <= range.begin && range.end <= loop.end) add(owner);
    return owners;
  };
  std::map<std::size_t, std::vector<Range>> by_message;  // target messages only
  std::optional<std::size_t> latest;                     // owner of the previous block
  for (const Range& generation : rendered.generations) {
    if (generation.begin >= generation.end) continue;
    std::vector<std::size_t> owners = owners_of(generation);
    if (owners.empty() && latest) owners.push_back(*latest);  // output after the loop
    if (!owners.empty()) latest = owners.back();
    std::vector<Range> ranges{generation};
    for (const std::size_t owner : owners) {
      if (is_trained(conversation, owner)) continue;
      if (owners.size() == 1) ranges.clear();
      for (const auto& [message, loop] : rendered.messages)
        if (message == static_cast<int>(owner)) remove(ranges, loop);
    }
    for (const std::size_t owner : owners)
      if (is_trained(conversation, owner)) {
        by_message[owner].insert(by_message[owner].end(), ranges.begin(), ranges.end());
        ranges.clear();
        (void)by_message[owner];
      }
  }
  std::vector<Range> ranges;
  for (std::size_t i = conversation.messages.size(); i-- > 0;) {
    if (!is_trained(conversation, i)) continue;
    const auto found = by_message.find(i);
    const bool written = std::ranges::any_of(
        places.places, [&](const MarkedPlaces::Place& place) { return place.owner == static_cast<int>(i); });
    // Calls omitted: only the turn's end token is left.
    const bool ends_alone =
        found != by_message.end() && !found->second.empty() && std::ranges::all_of(found->second, [&](const Range& r) {
          return special_.alone(std::string_view(rendered.text).substr(r.begin, r.end - r.begin));
        });
    QUENCH_CHECK(
        found != by_message.end() && (written || ends_alone || !places.exact),
        "message {}: {} does not render this assistant turn in a {{% generation %}} block, and it is a target; set "
        "\"train\": false in the message, or use another template (data.chat_template, --chat-template)",
        i, call.source.code.name());
    ranges.insert(ranges.begin(), found->second.begin(), found->second.end());
    if (train_on == TrainOn::last) break;
  }
  const std::string_view text = rendered.text;
  if (!ranges.empty() && notes != nullptr) {
    const Range last = ranges.back();
    const std::size_t next = text.size() - jinja::strip(text.substr(last.end), {}, jinja::StripSide::left).size();
    const bool ended = special_.ends(text.substr(last.begin, last.end - last.begin));
    if (!ended && !special_.at(text, next).empty()) ++notes->unended_generation;
    if (!ended && special_.at(text, next).empty()) ++notes->unended;
  }
  return ranges;
}

std::vector<Range> ChatRenderer::all_targets(const Call& call, const jinja::Rendered& rendered,
                                             const MarkedPlaces& places) const {
  std::vector<Range> ranges{{0, rendered.text.size()}};
  for (std::size_t i = 0; i < call.conversation.messages.size(); ++i) {
    if (may_train(call.conversation.messages[i])) continue;
    const auto owner = static_cast<int>(i);
    bool found = false;
    for (const auto& [message, range] : rendered.messages)
      if (message == owner) {
        remove(ranges, range);
        found = true;
      }
    std::optional<Range> marked;
    for (const auto& [at, message, part] : places.places)
      if (message == owner) marked = {marked ? marked->begin : at, at};
    if (!found && marked) remove(ranges, *marked);
    QUENCH_CHECK(found || marked, "message {}: its position in the text of {} is unknown, and it must be masked", i,
                 call.source.code.name());
  }
  return ranges;
}

}  // namespace quench
