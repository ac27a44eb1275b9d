// Any value becomes text, as in Jinja2, unless Jinja2 delegates to a str method.

#include <algorithm>
#include <array>

#include "core/system/check.h"
#include "data/jinja/jinja_filters.h"
#include "data/jinja/jinja_text.h"

namespace quench::jinja {
namespace {

const std::string& string_input(const Value& input, const Arguments& a) {
  QUENCH_CHECK(!input.is_undefined(), "'{}' is undefined", input.undefined_name());
  QUENCH_CHECK(input.is_string(), "{} of a value of type {}, expected string", a.called, input.type_name());
  return input.string();
}

// On the input's text.
template <std::size_t kMaxArguments>
Value filter_method(const Value& input, const Arguments& a, Meter& meter) {
  QUENCH_CHECK(a.values.size() + a.keywords.size() <= kMaxArguments, "{}: too many arguments", a.called);
  return call_method(input.is_string() ? input : made(text_of(input), meter), a.called, a, meter);
}

Value filter_trim(const Value& input, const Arguments& a, Meter& meter) {
  a.check({"chars"});
  return call_method(input.is_string() ? input : made(text_of(input), meter), "strip", a, meter);
}

Value filter_replace(const Value& input, const Arguments& a, Meter& meter) {
  a.check({"old", "new", "count"}, 2);
  const std::string text = text_of(input), from = text_of(*a.find(0, "old")), to = text_of(*a.find(1, "new"));
  meter.bytes((text.size() + 1) * (to.size() / std::max<std::size_t>(from.size(), 1) + 1));
  return replace(text, from, to, a.integer(2, "count", -1));
}

// After white space, hyphens and opening brackets.
Value filter_title(const Value& input, const Arguments& a, Meter& meter) {
  a.check({});
  std::string out, word;
  bool before = true;  // in separators, or at the start
  const auto end_word = [&] {
    if (word.empty()) return;
    const std::string_view first = characters_of(word)[0];
    out +=
        with_case(first, LetterCase::upper) + with_case(std::string_view(word).substr(first.size()), LetterCase::lower);
    word.clear();
  };
  const std::string text = text_of(input);
  for (const std::string_view character : characters_of(text)) {
    const bool separator =
        is_all(character, CharacterClass::space) || std::string_view("-({[<").find(character) != std::string_view::npos;
    if (separator != before) end_word();
    before = separator;
    word += character;
  }
  end_word();
  return made(std::move(out), meter);
}

Value filter_string(const Value& input, const Arguments& a, Meter& meter) {
  a.check({});
  return input.is_string() ? input : made(text_of(input), meter);
}

Value filter_safe(const Value& input, const Arguments& a, Meter& meter) {
  a.check({});
  return made(text_of(input), meter, true);
}

template <bool kForced>
Value filter_escape(const Value& input, const Arguments& a, Meter& meter) {
  a.check({});
  return made(input.is_markup() && !kForced ? input.string() : escape_html(text_of(input)), meter, true);
}

Value filter_indent(const Value& input, const Arguments& a, Meter& meter) {
  a.check({"width", "first", "blank"});
  const Value* width = a.find(0, "width");
  std::string prefix;
  if (width != nullptr && width->is_string()) {
    prefix = width->string();
  } else {
    const std::int64_t spaces = a.integer(0, "width", 4);
    QUENCH_CHECK(spaces <= 1000, "indent by {} spaces", spaces);
    prefix.assign(static_cast<std::size_t>(std::max<std::int64_t>(spaces, 0)), ' ');
  }
  const std::vector<std::string> lines = split_lines(string_input(input, a) + "\n", false);
  std::string out = a.flag(1, "first") ? prefix : "";
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out += '\n';
    meter.bytes(lines[i].size() + prefix.size());
    if (i > 0 && (!lines[i].empty() || a.flag(2, "blank"))) out += prefix;
    out += lines[i];
  }
  return Text{std::move(out), input.is_markup()};
}

Value filter_center(const Value& input, const Arguments& a, Meter& meter) {
  a.check({"width"});
  const Arguments width{.called = "center", .values = {a.integer(0, "width", 80)}};
  return call_method(input.is_string() ? input : made(text_of(input), meter), "center", width, meter);
}

Value filter_format(const Value& input, const Arguments& a, Meter& meter) {
  QUENCH_CHECK(a.values.empty() || a.keywords.empty(), "format: arguments with and without names");
  Value values(a.values, SequenceKind::tuple);
  if (!a.keywords.empty()) {
    Map map;
    for (const auto& [keyword, value] : a.keywords) map.set(keyword, value);
    values = Value(std::move(map));
  }
  const Value format = input.is_string() ? input : made(text_of(input), meter);
  return made(printf_text(format, values, meter), meter, format.is_markup());
}

Value filter_truncate(const Value& input, const Arguments& a, Meter& meter) {
  a.check({"length", "killwords", "end", "leeway"});
  const std::int64_t length = a.integer(0, "length", 255), leeway = a.integer(3, "leeway", 5);
  const std::string end = a.text(2, "end", "...");
  const auto end_length = static_cast<std::int64_t>(character_count(end));
  QUENCH_CHECK(length >= end_length && leeway >= 0, "truncate: a length of {} and a leeway of {}", length, leeway);
  const Value size = apply_filter("length", input, {.called = "truncate"}, meter);
  if (size.integer() <= length + leeway) return input;
  const std::vector<std::string_view> characters = characters_of(string_input(input, a));
  std::string kept;
  for (std::int64_t i = 0; i < length - end_length; ++i) kept += characters[static_cast<std::size_t>(i)];
  if (!a.flag(1, "killwords")) kept.resize(std::min(kept.rfind(' '), kept.size()));
  return made(kept + end, meter);
}

// Runs of word characters.
Value filter_wordcount(const Value& input, const Arguments& a, Meter&) {
  a.check({});
  std::int64_t count = 0;
  bool inside = false;
  const std::string text = text_of(input);
  for (const std::string_view character : characters_of(text)) {
    const bool word = character == "_" || is_all(character, CharacterClass::alphanumeric);
    if (word && !inside) ++count;
    inside = word;
  }
  return count;
}

// Escapes of a path, or of a query: no slashes, and + for a space.
void append_url(std::string& out, const std::string& text, bool path) {
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) != 0 || std::string_view("_.-~").find(c) != std::string_view::npos || (path && c == '/'))
      out += c;
    else if (!path && c == ' ')
      out += '+';
    else
      out += fmt::format("%{:02X}", byte);
  }
}

Value filter_urlencode(const Value& input, const Arguments& a, Meter& meter) {
  a.check({});
  std::string out;
  const auto pairs = input.is_map() ? call_method(input, "items", {}, meter) : input;
  if (!pairs.is_sequence()) {
    append_url(out, text_of(input), true);
    return made(std::move(out), meter);
  }
  for (const Value& pair : items_of(pairs, meter)) {
    QUENCH_CHECK(pair.is_indexed() && pair.items().size() == 2, "urlencode takes pairs of a name and a value");
    if (!out.empty()) out += '&';
    append_url(out, text_of(pair.items()[0]), false);
    out += '=';
    append_url(out, text_of(pair.items()[1]), false);
  }
  return made(std::move(out), meter);
}

Value filter_tojson(const Value& input, const Arguments& a, Meter& meter) {
  a.check({"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style{.sort_keys = a.flag(3, "sort_keys"), .ascii = a.flag(0, "ensure_ascii")};
  if (const Value* indent = a.find(1, "indent"); indent != nullptr && !indent->is_none()) {
    style.lines = true;
    style.item_separator = ",";
    if (indent->is_string()) {
      style.indent = indent->string();
    } else {
      const std::int64_t width = a.integer(1, "indent", 0);
      QUENCH_CHECK(width <= 64, "tojson: an indent of {}", width);
      style.indent.assign(static_cast<std::size_t>(std::max<std::int64_t>(width, 0)), ' ');
    }
  }
  if (const Value* separators = a.find(2, "separators"); separators != nullptr && !separators->is_none()) {
    QUENCH_CHECK(separators->is_indexed() && separators->items().size() == 2 && separators->items()[0].is_string() &&
                     separators->items()[1].is_string(),
                 "tojson: the argument 'separators' takes two strings");
    style.item_separator = separators->items()[0].string();
    style.key_separator = separators->items()[1].string();
  }
  return made(json_text(input, style), meter);
}

constexpr NamedFunction kTextFilters[] = {
    {"capitalize", filter_method<0>},
    {"center", filter_center},
    {"e", filter_escape<false>},
    {"escape", filter_escape<false>},
    {"forceescape", filter_escape<true>},
    {"format", filter_format},
    {"indent", filter_indent},
    {"lower", filter_method<0>},
    {"replace", filter_replace},
    {"safe", filter_safe},
    {"string", filter_string},
    {"title", filter_title},
    {"tojson", filter_tojson},
    {"trim", filter_trim},
    {"truncate", filter_truncate},
    {"upper", filter_method<0>},
    {"urlencode", filter_urlencode},
    {"wordcount", filter_wordcount},
};

}  // namespace

std::span<const NamedFunction> text_filters() {
  return kTextFilters;
}

}  // namespace quench::jinja
