#include "data/chat/text_marks.h"

#include <algorithm>
#include <charconv>
#include <map>

#include "core/system/check.h"
#include "data/jinja/jinja_text.h"

namespace quench {
namespace {

using Occurrence = SpecialTokens::Occurrence;

constexpr std::size_t kMaxSearched = 256;  // per text

// Compared or looked up by templates.
constexpr std::array<std::string_view, 4> kUnmarkedKeys = {"role", "type", "id", "tool_call_id"};

std::size_t strip_right(std::string_view text) {
  return jinja::strip(text, {}, jinja::StripSide::right).size();
}

std::size_t strip_left(std::string_view text) {
  return text.size() - jinja::strip(text, {}, jinja::StripSide::left).size();
}

bool inside(std::span<const Occurrence> occurrences, std::size_t at) {
  return std::ranges::any_of(occurrences, [&](const Occurrence& o) { return o.begin < at && at < o.end; });
}

std::size_t character_size(char first) {
  const auto byte = static_cast<unsigned char>(first);
  return byte < 0x80 ? 1 : byte >= 0xF0 ? 4 : byte >= 0xE0 ? 3 : 2;
}

}  // namespace

TextMarks::TextMarks(std::string_view texts, std::span<const std::string> literals, MarkStyle style)
    : literals_(literals), style_(style) {
  for (char last = '\x80'; last <= '\xBF' && delimiter_.empty(); ++last)
    if (const std::string symbol{'\xEA', '\x94', last}; texts.find(symbol) == std::string_view::npos)
      delimiter_ = symbol;
  QUENCH_CHECK(!delimiter_.empty(), "the conversation holds all Vai syllables from U+A500 to U+A53F");
}

std::vector<Occurrence> TextMarks::searched_strings(std::string_view text) const {
  std::vector<Occurrence> found;
  for (const std::string& literal : literals_)
    for (std::size_t at = text.find(literal); at != std::string_view::npos && found.size() < kMaxSearched;
         at = text.find(literal, at + literal.size()))
      found.push_back({at, at + literal.size()});
  return found;
}

std::string TextMarks::mark(std::string_view text, int owner, const SpecialTokens& plain) {
  const std::size_t first = strip_left(text), last = strip_right(text);
  if (first >= last) return std::string(text);
  const std::vector<Occurrence> searched = searched_strings(text);
  std::vector<Insertion> insertions;
  const auto add = [&](std::size_t at) {
    if (!inside(searched, at)) insertions.push_back({at, {.owner = owner}});
  };
  const bool ends_stay = style_ == MarkStyle::around;
  bool short_text = false;
  std::size_t begin = first, end = last;
  if (!ends_stay) {
    // Within the first and last character or search string.
    begin += character_size(text[begin]);
    while (end > first && (static_cast<unsigned char>(text[--end]) & 0xC0) == 0x80) {
    }
    for (const Occurrence& o : searched) {
      if (o.begin < begin && begin < o.end) begin = o.end;
      if (o.begin < end && end < o.end) end = o.begin;
    }
    begin += strip_left(text.substr(std::min(begin, text.size())));
    end = strip_right(text.substr(0, end));
    if (begin >= last || end <= first) {
      begin = first;
      end = last;
      short_text = true;
    }
  }
  if (begin < last && (ends_stay || short_text || begin > first)) add(begin);
  if (end > first && (ends_stay || short_text || end < last)) add(end);
  for (const Occurrence& o : searched) {
    const std::size_t before = strip_right(text.substr(0, o.begin)), after = o.end + strip_left(text.substr(o.end));
    // White space between two search strings may be stripped from either side.
    const auto spaced = [&](std::size_t from, std::size_t to) {
      return from < to && std::ranges::any_of(searched, [&](const Occurrence& other) { return other.end == from; }) &&
             std::ranges::any_of(searched, [&](const Occurrence& other) { return other.begin == to; });
    };
    if (before > first && !spaced(before, o.begin)) add(before);
    if (after < last && !spaced(o.end, after)) add(after);
  }
  const auto number = static_cast<int>(marks_.size() + insertions.size());
  int token_marks = 0;
  for (const Occurrence& token : plain.find(text)) {
    const std::size_t size = token.end - token.begin;
    if (style_ == MarkStyle::within) {
      const std::size_t offset = std::min(character_size(text[token.begin]), size);
      insertions.push_back({token.begin + offset, {.owner = owner, .token_size = size, .token_offset = offset}});
      ++token_marks;
      continue;
    }
    const bool front = ends_stay || token.begin > first, back = ends_stay || token.end < last;
    Mark at_front{.owner = owner, .token_size = size},
        at_back{.owner = owner, .token_size = size, .token_offset = size};
    if (front && back) {
      at_front.partner = number + token_marks + 1;
      at_back.partner = number + token_marks;
    }
    if (front) insertions.push_back({token.begin, at_front}), ++token_marks;
    if (back) insertions.push_back({token.end, at_back}), ++token_marks;
  }
  // By number; positions are sorted afterwards.
  std::vector<std::pair<std::size_t, std::size_t>> order;
  for (const Insertion& insertion : insertions) {
    order.emplace_back(insertion.at, marks_.size());
    marks_.push_back(insertion.mark);
    marks_.back().part = part_;
  }
  std::ranges::sort(order);
  std::string marked;
  std::size_t done = 0;
  for (const auto& [at, mark] : order) {
    marked.append(text, done, at - done);
    marked += delimiter_ + std::to_string(mark) + delimiter_;
    done = at;
  }
  marked.append(text, done);
  return marked;
}

jinja::Value TextMarks::mark(const Json& value, int owner, const SpecialTokens& plain, bool tokens_only) {
  if (value.is_string()) {
    const std::string& text = value.as_string();
    return tokens_only && plain.find(text).empty() ? text : mark(text, owner, plain);
  }
  if (value.is_array()) {
    jinja::List list;
    for (const Json& item : value.as_array()) list.push_back(mark(item, owner, plain, tokens_only));
    return list;
  }
  if (value.is_object()) {
    jinja::Map map;
    for (const auto& [key, item] : value.as_object()) {
      const bool named = std::ranges::find(kUnmarkedKeys, std::string_view(key)) != kUnmarkedKeys.end();
      map.members.emplace_back(plain.find(key).empty() ? key : mark(key, owner, plain),
                               mark(item, owner, plain, tokens_only || named));
    }
    return map;
  }
  return jinja::Value::from_json(value);
}

MarkedPlaces TextMarks::take_out(std::string& text) const {
  MarkedPlaces found;
  std::string clean;
  std::map<int, std::vector<std::size_t>> token_marks;  // plain token marks by number
  std::size_t done = 0;
  for (std::size_t at; (at = text.find(delimiter_, done)) != std::string::npos;) {
    clean.append(text, done, at - done);
    const std::size_t begin = at + delimiter_.size(), end = text.find(delimiter_, begin);
    std::size_t number = marks_.size();
    if (end != std::string::npos) std::from_chars(text.data() + begin, text.data() + end, number);
    if (number >= marks_.size()) {  // split by the template
      done = begin;
      continue;
    }
    const Mark& mark = marks_[number];
    found.places.push_back({clean.size(), mark.owner, mark.part});
    if (mark.token_size > 0) token_marks[static_cast<int>(number)].push_back(clean.size());
    done = end + delimiter_.size();
  }
  clean.append(text, done);
  for (const auto& [number, places] : token_marks) {
    const Mark& mark = marks_[static_cast<std::size_t>(number)];
    if (mark.partner >= 0 && mark.token_offset > 0) continue;  // with its partner
    for (const std::size_t at : places) {
      if (at < mark.token_offset || at - mark.token_offset + mark.token_size > clean.size()) continue;
      const Occurrence token{at - mark.token_offset, at - mark.token_offset + mark.token_size};
      if (mark.partner >= 0) {
        const auto partner = token_marks.find(mark.partner);
        if (partner == token_marks.end() || std::ranges::find(partner->second, token.end) == partner->second.end())
          continue;
      }
      found.plain_tokens.push_back(token);
    }
  }
  std::ranges::sort(found.plain_tokens, {}, &Occurrence::begin);
  text = std::move(clean);
  return found;
}

}  // namespace quench
