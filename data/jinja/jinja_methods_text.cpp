// Python's str. Markup gives markup and escapes arguments.

#include <algorithm>

#include "core/system/check.h"
#include "data/jinja/jinja_filters.h"
#include "data/jinja/jinja_text.h"

namespace quench::jinja {
namespace {

Value like(const Value& self, std::string text, Meter& meter) {
  return made(std::move(text), meter, self.is_markup());
}

List texts(const Value& self, std::vector<std::string> parts, Meter& meter) {
  meter.bytes(self.string().size());
  meter.step(parts.size());
  List list;
  for (std::string& part : parts) list.emplace_back(Text{std::move(part), self.is_markup()});
  return list;
}

// String argument, escaped for markup.
std::string argument(const Value& self, const Arguments& a, std::size_t place, std::string_view name) {
  const Value* value = a.find(place, name);
  QUENCH_CHECK(value != nullptr && value->is_string(), "{}: the argument '{}' is {}, expected string", a.called, name,
               value == nullptr ? "missing" : value->type_name());
  return joined_text(*value, self.is_markup());
}

template <StripSide kSide>
Value string_strip(const Value& self, const Arguments& a, Meter& meter) {
  a.check({"chars"});
  const Value* characters = a.find(0, "chars");
  if (characters != nullptr && characters->is_string() && characters->string().empty()) return self;
  return like(self, std::string(strip(self.string(), a.text(0, "chars", ""), kSide)), meter);
}

template <LetterCase kCase>
Value string_case(const Value& self, const Arguments& a, Meter& meter) {
  a.check({});
  return like(self, with_case(self.string(), kCase), meter);
}

template <LetterCase kCase>
Value string_is_case(const Value& self, const Arguments& a, Meter&) {
  a.check({});
  return is_cased(self.string(), kCase);
}

template <CharacterClass kClass>
Value string_is(const Value& self, const Arguments& a, Meter&) {
  a.check({});
  return is_all(self.string(), kClass);
}

// Characters [start, stop), negative indices from the end; npos and 0: empty.
struct Window {
  std::size_t begin = 0, end = 0;
  std::size_t first = 0;  // index of `begin`
  bool valid = true;
};

Window window_of(const std::string& text, const Arguments& a) {
  if (a.find(1, "start") == nullptr && a.find(2, "end") == nullptr) return {0, text.size(), 0};
  const std::vector<std::string_view> characters = characters_of(text);
  const auto size = static_cast<std::int64_t>(characters.size());
  const auto bound = [&](std::int64_t at) { return std::max<std::int64_t>(at < 0 ? at + size : at, 0); };
  const std::int64_t start = bound(a.integer(1, "start", 0)), stop = std::min(bound(a.integer(2, "end", size)), size);
  if (start > stop) return {.valid = false};
  const auto offset = [&](std::int64_t at) {
    std::size_t bytes = 0;
    for (std::int64_t i = 0; i < at; ++i) bytes += characters[static_cast<std::size_t>(i)].size();
    return bytes;
  };
  return {offset(start), offset(stop), static_cast<std::size_t>(start)};
}

// A string or a tuple of strings.
template <bool kStart>
Value string_affix(const Value& self, const Arguments& a, Meter& meter) {
  a.check({kStart ? "prefix" : "suffix", "start", "end"}, 1);
  const Value& given = *a.find(0, kStart ? "prefix" : "suffix");
  const Window window = window_of(self.string(), a);
  const std::string_view text = std::string_view(self.string()).substr(window.begin, window.end - window.begin);
  const auto matches = [&](const Value& affix) {
    QUENCH_CHECK(affix.is_string(), "{}: the argument is {}, expected string", a.called, affix.type_name());
    return window.valid && (kStart ? text.starts_with(affix.string()) : text.ends_with(affix.string()));
  };
  if (!given.is_tuple()) return matches(given);
  meter.step(given.items().size());
  return std::ranges::any_of(given.items(), matches);
}

template <bool kFromEnd>
Value string_split(const Value& self, const Arguments& a, Meter& meter) {
  a.check({"sep", "maxsplit"});
  const Value* separator = a.find(0, "sep");
  QUENCH_CHECK(separator == nullptr || !separator->is_string() || !separator->string().empty(),
               "split: an empty separator");
  const std::string between = a.text(0, "sep", "");
  const std::int64_t limit = a.integer(1, "maxsplit", -1);
  return texts(self, kFromEnd ? split_from_end(self.string(), between, limit) : split(self.string(), between, limit),
               meter);
}

Value string_splitlines(const Value& self, const Arguments& a, Meter& meter) {
  a.check({"keepends"});
  return texts(self, split_lines(self.string(), a.flag(0, "keepends")), meter);
}

template <bool kFromEnd>
Value string_partition(const Value& self, const Arguments& a, Meter& meter) {
  a.check({"sep"}, 1);
  const std::string& text = self.string();
  const std::string separator = a.text(0, "sep", "");
  QUENCH_CHECK(!separator.empty(), "{}: an empty separator", a.called);
  const std::size_t at = kFromEnd ? text.rfind(separator) : text.find(separator);
  std::vector<std::string> parts(3);
  if (at != std::string::npos)
    parts = {text.substr(0, at), separator, text.substr(at + separator.size())};
  else
    parts[kFromEnd ? 2 : 0] = text;
  return {texts(self, std::move(parts), meter), SequenceKind::tuple};
}

Value string_replace(const Value& self, const Arguments& a, Meter& meter) {
  a.check({"old", "new", "count"}, 2);
  const std::string from = argument(self, a, 0, "old"), to = argument(self, a, 1, "new");
  meter.bytes((self.string().size() + 1) * (to.size() / std::max<std::size_t>(from.size(), 1) + 1));
  return Text{replace(self.string(), from, to, a.integer(2, "count", -1)), self.is_markup()};
}

Value string_join(const Value& self, const Arguments& a, Meter& meter) {
  a.check({"iterable"}, 1);
  std::string text;
  bool first = true;
  for (const Value& item : items_of(*a.find(0, "iterable"), meter)) {
    QUENCH_CHECK(item.is_string() || self.is_markup(), "join: an item is {}, expected string", item.type_name());
    const std::string part = joined_text(item, self.is_markup());
    meter.bytes(self.string().size() + part.size());
    if (!first) text += self.string();
    first = false;
    text += part;
  }
  return Text{std::move(text), self.is_markup()};
}

// find, rfind, index, rindex
template <bool kFromEnd, bool kMustExist>
Value string_find(const Value& self, const Arguments& a, Meter&) {
  a.check({"sub", "start", "end"}, 1);
  const Window window = window_of(self.string(), a);
  const std::string_view text = std::string_view(self.string()).substr(window.begin, window.end - window.begin);
  const std::string part = a.text(0, "sub", "");
  const std::size_t at = !window.valid ? std::string::npos : kFromEnd ? text.rfind(part) : text.find(part);
  QUENCH_CHECK(!kMustExist || at != std::string::npos, "{}: '{}' is not in the string", a.called, part);
  if (at == std::string::npos) return std::int64_t{-1};
  return static_cast<std::int64_t>(window.first + character_count(text.substr(0, at)));
}

Value string_count(const Value& self, const Arguments& a, Meter&) {
  a.check({"sub", "start", "end"}, 1);
  const Window window = window_of(self.string(), a);
  if (!window.valid) return std::int64_t{0};
  const std::string_view text = std::string_view(self.string()).substr(window.begin, window.end - window.begin);
  const std::string part = a.text(0, "sub", "");
  if (part.empty()) return static_cast<std::int64_t>(character_count(text) + 1);
  std::int64_t count = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) ++count;
  return count;
}

template <bool kPrefix>
Value string_without(const Value& self, const Arguments& a, Meter& meter) {
  a.check({kPrefix ? "prefix" : "suffix"}, 1);
  const std::string affix = a.text(0, kPrefix ? "prefix" : "suffix", "");
  const std::string& text = self.string();
  if (kPrefix ? !text.starts_with(affix) : !text.ends_with(affix)) return self;
  return like(self, text.substr(kPrefix ? affix.size() : 0, text.size() - affix.size()), meter);
}

enum class Side : std::uint8_t { left, right, center };

template <Side kSide>
Value string_justify(const Value& self, const Arguments& a, Meter& meter) {
  a.check({"width", "fillchar"}, 1);
  const std::int64_t width = a.integer(0, "width", 0);
  const std::string fill = a.text(1, "fillchar", " ");
  QUENCH_CHECK(character_count(fill) == 1, "{}: the fill character '{}' is not one character", a.called, fill);
  const auto length = static_cast<std::int64_t>(character_count(self.string()));
  if (width <= length) return self;
  const std::int64_t missing = width - length;
  meter.bytes(static_cast<std::uint64_t>(missing) * fill.size());
  const auto filled = [&](std::int64_t count) {
    std::string out;
    for (std::int64_t i = 0; i < count; ++i) out += fill;
    return out;
  };
  // As Python, one more on the left of odd widths for an odd number of fill characters.
  const std::int64_t left = kSide == Side::left    ? 0
                            : kSide == Side::right ? missing
                                                   : missing / 2 + (missing & width & 1);
  return like(self, filled(left) + self.string() + filled(missing - left), meter);
}

Value string_zfill(const Value& self, const Arguments& a, Meter& meter) {
  a.check({"width"}, 1);
  const std::string& text = self.string();
  const auto length = static_cast<std::int64_t>(character_count(text));
  const std::int64_t width = a.integer(0, "width", 0);
  if (width <= length) return self;
  meter.bytes(static_cast<std::uint64_t>(width - length));
  const std::size_t sign = text.starts_with('+') || text.starts_with('-') ? 1 : 0;
  return like(self,
              text.substr(0, sign) + std::string(static_cast<std::size_t>(width - length), '0') + text.substr(sign),
              meter);
}

Value string_expandtabs(const Value& self, const Arguments& a, Meter& meter) {
  a.check({"tabsize"});
  const std::int64_t size = a.integer(0, "tabsize", 8);
  QUENCH_CHECK(size <= 1000, "expandtabs: {} columns", size);
  std::string out;
  std::int64_t column = 0;
  for (const std::string_view character : characters_of(self.string())) {
    if (character == "\t") {
      const std::int64_t spaces = size > 0 ? size - column % size : 0;
      meter.bytes(static_cast<std::uint64_t>(spaces));
      out.append(static_cast<std::size_t>(spaces), ' ');
      column += spaces;
      continue;
    }
    column = character == "\n" || character == "\r" ? 0 : column + 1;
    out += character;
  }
  return like(self, std::move(out), meter);
}

Value string_format(const Value& self, const Arguments& a, Meter& meter) {
  return like(self, format_text(self, a, meter), meter);
}

constexpr NamedFunction kMethods[] = {
    {"capitalize", string_case<LetterCase::capitalize>},
    {"casefold", string_case<LetterCase::fold>},
    {"center", string_justify<Side::center>},
    {"count", string_count},
    {"endswith", string_affix<false>},
    {"expandtabs", string_expandtabs},
    {"find", string_find<false, false>},
    {"format", string_format},
    {"index", string_find<false, true>},
    {"isalnum", string_is<CharacterClass::alphanumeric>},
    {"isalpha", string_is<CharacterClass::alpha>},
    {"isascii", string_is<CharacterClass::ascii>},
    {"isdecimal", string_is<CharacterClass::decimal>},
    {"isdigit", string_is<CharacterClass::digit>},
    {"islower", string_is_case<LetterCase::lower>},
    {"isnumeric", string_is<CharacterClass::numeric>},
    {"isprintable", string_is<CharacterClass::printable>},
    {"isspace", string_is<CharacterClass::space>},
    {"istitle", string_is_case<LetterCase::title>},
    {"isupper", string_is_case<LetterCase::upper>},
    {"join", string_join},
    {"ljust", string_justify<Side::left>},
    {"lower", string_case<LetterCase::lower>},
    {"lstrip", string_strip<StripSide::left>},
    {"partition", string_partition<false>},
    {"removeprefix", string_without<true>},
    {"removesuffix", string_without<false>},
    {"replace", string_replace},
    {"rfind", string_find<true, false>},
    {"rindex", string_find<true, true>},
    {"rjust", string_justify<Side::right>},
    {"rpartition", string_partition<true>},
    {"rsplit", string_split<true>},
    {"rstrip", string_strip<StripSide::right>},
    {"split", string_split<false>},
    {"splitlines", string_splitlines},
    {"startswith", string_affix<true>},
    {"strip", string_strip<StripSide::both>},
    {"swapcase", string_case<LetterCase::swap>},
    {"title", string_case<LetterCase::title>},
    {"upper", string_case<LetterCase::upper>},
    {"zfill", string_zfill},
};

}  // namespace

std::span<const NamedFunction> string_methods() {
  return kMethods;
}

}  // namespace quench::jinja
