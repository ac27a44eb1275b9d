#include "data/chat/assistant_turns.h"

#include <algorithm>

#include "data/jinja/jinja_text.h"

namespace quench {
namespace {

using jinja::Range;

std::size_t common_prefix(std::string_view a, std::string_view b) {
  return static_cast<std::size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

std::size_t common_suffix(std::string_view a, std::string_view b) {
  return static_cast<std::size_t>(std::mismatch(a.rbegin(), a.rend(), b.rbegin(), b.rend()).first - a.rbegin());
}

std::size_t leading_space(std::string_view text) {
  return text.size() - jinja::strip(text, {}, jinja::StripSide::left).size();
}

}  // namespace

// Marks outside of the loop's ranges count only without any inside: a tool turn may repeat a call's name.
std::optional<AssistantTurns::Own> AssistantTurns::own_marks(int message) const {
  std::vector<Range> loop;
  for (const auto& [owner, range] : chat_.loops)
    if (owner == message) loop.push_back(range);
  const auto loop_of = [&](std::size_t at) {
    const auto found = std::ranges::find_if(loop, [&](const Range& r) { return r.begin <= at && at <= r.end; });
    return found != loop.end() ? std::optional(*found) : std::nullopt;
  };
  const auto& places = chat_.places.places;
  const bool looped = std::ranges::any_of(
      places, [&](const auto& place) { return place.owner == message && loop_of(place.at).has_value(); });
  std::optional<Own> own;
  std::size_t first = 0, last = 0;
  for (std::size_t i = 0; i < places.size(); ++i) {
    if (places[i].owner != message || (looped && !loop_of(places[i].at))) continue;
    if (!own) {
      own = Own{.first = places[i].at};
      first = i;
    }
    own->last = places[i].at;
    last = i;
  }
  if (!own) return own;
  if (first > 0) own->before = places[first - 1].at;
  for (std::size_t i = last + 1; i < places.size() && own->after == std::string::npos; ++i)
    if (places[i].owner != message) own->after = places[i].at;
  if (looped) {
    own->loop_begin = loop_of(own->first);
    own->loop_end = loop_of(own->last);
    own->loop_stop = loop.back().end;
  }
  return own;
}

// End of the last special token, tag or line of the template's text in [begin, end); `begin`: none.
std::size_t AssistantTurns::header_end(std::size_t begin, std::size_t end) const {
  std::size_t header = begin;
  for (std::size_t i = begin; i < end;) {
    const std::size_t length = chat_.special.at(chat_.text, i).size();
    i += std::max<std::size_t>(length, 1);
    if (i <= end && (length > 0 || chat_.text[i - 1] == '\n' || chat_.text[i - 1] == '>')) header = i;
  }
  return header;
}

// [begin, end) without white space after its last special token.
std::size_t AssistantTurns::without_space(std::size_t begin, std::size_t end) const {
  const std::string_view text = chat_.text.substr(begin, end - begin);
  return chat_.special.ends(text) ? begin + jinja::strip(text, {}, jinja::StripSide::right).size() : end;
}

// If the text starts with it.
std::optional<std::size_t> AssistantTurns::prompted(int message) const {
  if (!chat_.has_generation_prompt) return std::nullopt;
  const auto asked = chat_.beginning(static_cast<std::size_t>(message), true);
  return asked && chat_.text.starts_with(*asked) ? std::optional(asked->size()) : std::nullopt;
}

// In the template's text before the turn's first mark.
std::optional<std::size_t> AssistantTurns::found_prompt(const Own& own) const {
  const std::string& prompt = chat_.generation_prompt;
  const std::size_t at = chat_.text.substr(own.before, own.first - own.before).rfind(prompt);
  if (prompt.empty() || at == std::string_view::npos) return std::nullopt;
  return own.before + at + prompt.size();
}

// Without a generation prompt, an answer begins after the header that it shares with a plain text in its place: a token
// after that begins a call.
std::size_t AssistantTurns::unprompted(int message, const Own& own) const {
  const auto blank = [](std::string_view text) { return leading_space(text) == text.size(); };
  const std::size_t begin = own.loop_begin->begin;
  const std::string_view lead = chat_.text.substr(begin, own.first - begin);
  if (blank(lead)) return chat_.starts_at_once ? begin : header_end(begin, own.first);
  const auto header = chat_.header ? chat_.header(static_cast<std::size_t>(message)) : std::nullopt;
  if (!header) return header_end(begin, own.first);
  return blank(*header) ? begin : header_end(begin, begin + common_prefix(lead, *header));
}

// End of the generation prompt; if that continues differently (an opened reasoning block), the header ends with its
// last line or special token.
std::size_t AssistantTurns::begin_of(int message, const Own& own) const {
  const std::string& prompt = chat_.generation_prompt;
  if (own.loop_begin && own.before <= own.loop_begin->begin) {
    const std::size_t begin = own.loop_begin->begin;
    const std::size_t header = common_prefix(chat_.text.substr(begin), prompt);
    if (!prompt.empty() && header == prompt.size()) return begin + header;
    if (const auto found = found_prompt(own); found && *found >= begin) return *found;
    if (const auto asked = prompted(message); asked && *asked >= begin && *asked <= own.first) return *asked;
    return chat_.has_generation_prompt ? header_end(begin, std::min(begin + header, own.first))
                                       : unprompted(message, own);
  }
  if (const auto asked = prompted(message); asked && *asked >= own.before && *asked <= own.first) return *asked;
  if (const auto found = found_prompt(own)) return *found;
  const std::size_t header = header_end(own.before, own.first);
  return header > own.before ? header : own.first;
}

std::size_t AssistantTurns::end_of(int message, const Own& own, std::size_t begin) const {
  // All loop output, unless it contains texts of other messages.
  const bool looped = own.loop_end.has_value();
  const std::size_t stop = looped ? std::max(own.loop_stop, own.last) : chat_.text.size();
  if (looped && own.after >= stop) return without_space(begin, stop);
  const auto alone = chat_.beginning(static_cast<std::size_t>(message) + 1, false);
  if (alone && chat_.text.starts_with(*alone) && alone->size() >= own.last && alone->size() <= own.after)
    return without_space(begin, alone->size());
  if (looped) return without_space(begin, stop);
  const std::size_t limit = std::min(own.after, chat_.text.size());
  for (std::size_t i = own.last; i < limit; ++i)
    if (const std::size_t length = chat_.special.at(chat_.text, i).size(); length > 0)
      return std::min(i + length, chat_.text.size());
  return own.after == std::string::npos ? chat_.text.size() : own.last;
}

// Depends on following messages: found by rendering without them.
std::optional<Range> AssistantTurns::inserted(int message, Range turn) const {
  const auto alone = chat_.beginning(static_cast<std::size_t>(message) + 1, false);
  if (!alone || common_prefix(chat_.text, *alone) < turn.begin) return std::nullopt;
  const std::string_view all = chat_.text.substr(turn.begin, turn.end - turn.begin);
  std::string_view own = std::string_view(*alone).substr(turn.begin);
  if (chat_.special.ends(own)) own = jinja::strip(own, {}, jinja::StripSide::right);
  std::size_t begin = common_prefix(all, own);
  for (const std::string_view text : {all, own})
    if (const auto token = chat_.special.around(text, begin); token.end > token.begin) begin = token.begin;
  std::size_t kept = common_suffix(all.substr(begin), own.substr(begin));
  for (const std::string_view text : {all, own})
    if (const auto token = chat_.special.around(text, text.size() - kept); token.end > token.begin)
      kept = text.size() - token.end;
  return Range{turn.begin + begin, turn.end - kept};
}

std::vector<Range> AssistantTurns::without_others(int message, Range turn) const {
  std::vector<Range> others;
  for (const auto& [at, owner, part] : chat_.places.places) {
    if (owner == message || at < turn.begin || at > turn.end) continue;
    const bool joins = !others.empty() && std::ranges::none_of(chat_.places.places, [&](const auto& place) {
      return place.owner == message && place.at >= others.back().end && place.at < at;
    });
    if (joins)
      others.back().end = at;
    else
      others.push_back({at, at});
  }
  // At the turn's edge: a neighbour's.
  std::erase_if(others, [&](const Range& r) { return r.end <= turn.begin || r.begin >= turn.end; });
  if (others.empty()) return {turn};
  std::vector<Range> cuts;
  auto between = inserted(message, turn);
  // Text after texts of others belongs to the message.
  for (const auto& [at, owner, part] : chat_.places.places)
    if (between && owner == message && at >= others.back().end) between->end = std::min(between->end, at);
  if (between && between->begin <= others.front().begin && between->end >= others.back().end) {
    cuts.push_back(*between);
  } else {
    for (const Range& other : others) {
      Range around{turn.begin, turn.end};
      for (const auto& [at, owner, part] : chat_.places.places) {
        if (owner != message) continue;
        if (at <= other.begin) around.begin = std::max(around.begin, at);
        if (at >= other.end) around.end = std::min(around.end, at);
      }
      if (around.end == turn.end)  // except the turn's end token
        for (const auto& token : chat_.special.find(chat_.text.substr(other.end, turn.end - other.end)))
          around.end = other.end + token.begin;
      cuts.push_back(around);
    }
  }
  std::vector<Range> ranges;
  std::size_t begin = turn.begin;
  for (Range cut : cuts) {
    // At the start of a tool result: end of the assistant's output.
    cut.begin += chat_.special.at(chat_.text, cut.begin).size();
    if (begin < cut.begin) ranges.push_back({begin, cut.begin});
    begin = std::max(begin, cut.end);
  }
  if (begin < turn.end) ranges.push_back({begin, turn.end});
  return ranges;
}

// Without one, the turn ends with the special token that starts the next turn, else with the text after the answer.
void AssistantTurns::add_end(Turn& turn, std::size_t last_mark) const {
  Range& last = turn.ranges.back();
  if (chat_.special.ends(chat_.text.substr(last.begin, last.end - last.begin))) return;
  const std::size_t next = last.end + leading_space(chat_.text.substr(last.end));
  if (const std::size_t length = chat_.special.at(chat_.text, next).size(); length > 0) {
    last.end = next + length;
  } else if (next >= chat_.text.size()) {
    turn.ended = false;
  } else if (last.begin < last.end && last.end == last_mark) {
    last.end += 1;
  }
}

AssistantTurns::Turn AssistantTurns::turn(int message) const {
  const auto own = own_marks(message);
  if (!own) return {};
  const std::size_t begin = begin_of(message, *own), end = std::max(end_of(message, *own, begin), own->last);
  if (begin > end) return {};
  Turn turn{.ranges = without_others(message, {begin, end})};
  if (turn.ranges.empty()) return turn;
  add_end(turn, own->last);
  if (turn.ranges.back().begin >= turn.ranges.back().end) turn.ranges.pop_back();
  return turn;
}

}  // namespace quench
