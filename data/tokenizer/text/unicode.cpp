#include "data/tokenizer/text/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "core/system/check.h"
#include "data/tokenizer/text/code_points.h"
#include "data/tokenizer/text/unicode_additions.h"

namespace quench {
namespace {

std::uint8_t combining_class(std::int32_t code_point) {
  return static_cast<std::uint8_t>(utf8proc_get_property(code_point)->combining_class);
}

// In NFC in any context of such blocks: no combining marks, conjoining jamo or decompositions.
bool is_inert(char32_t c) {
  return c < 0x300 || (c >= 0x400 && c < 0x483) || (c >= 0x2010 && c < 0x2028) || (c >= 0x3000 && c < 0x302A) ||
         (c >= 0x3041 && c < 0x3097) || (c >= 0x30A0 && c < 0x3100) || (c >= 0x4E00 && c < 0xA000) ||
         (c >= 0xAC00 && c < 0xD7A4) || (c >= 0xFF01 && c < 0xFF61) || (c >= 0x1F300 && c < 0x1FB00);
}

bool is_all_inert(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    if (static_cast<std::uint8_t>(text[at]) < 0xCC) {  // below U+0300
      at += static_cast<std::uint8_t>(text[at]) < 0x80 ? 1 : 2;
      continue;
    }
    if (!is_inert(decode_code_point(text, at))) return false;
    at += code_point_length(text, at);
  }
  return true;
}

// Stable, per run of non-zero combining class (UAX #15, D109).
void order_canonically(std::vector<std::int32_t>& characters) {
  auto run = characters.begin();
  while (run != characters.end()) {
    if (combining_class(*run) == 0) {
      ++run;
      continue;
    }
    auto end = std::find_if(run, characters.end(), [](std::int32_t c) { return combining_class(c) == 0; });
    std::stable_sort(run, end, [](std::int32_t a, std::int32_t b) { return combining_class(a) < combining_class(b); });
    run = end;
  }
}

bool contains(std::span<const CodePointRange> ranges, char32_t c) {
  return std::ranges::any_of(ranges, [c](const CodePointRange& range) { return c >= range.first && c <= range.last; });
}

}  // namespace

bool is_white_space(char32_t c) noexcept {
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_word_character(char32_t c) noexcept {
  using namespace unicode_additions;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC: return true;
    case UTF8PROC_CATEGORY_CN:  // unassigned in utf8proc
      return contains(kUppercaseLetters, c) || contains(kLowercaseLetters, c) || contains(kModifierLetters, c) ||
             contains(kOtherLetters, c) || contains(kMarks, c) || contains(kNumbers, c);
    default:
      // Join controls; circled and squared letters: Alphabetic.
      return c == 0x200C || c == 0x200D || (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) ||
             (c >= 0x1F150 && c <= 0x1F169) || (c >= 0x1F170 && c <= 0x1F189);
  }
}

std::string_view normalize_nfc(std::string_view text, std::string& storage) {
  if (is_all_inert(text)) return text;
  std::vector<std::int32_t> characters;
  characters.reserve(text.size());
  for (std::size_t at = 0; at < text.size(); at += code_point_length(text, at)) {
    const auto code_point = static_cast<utf8proc_int32_t>(decode_code_point(text, at));
    std::array<utf8proc_int32_t, 32> decomposed;  // canonical: at most four
    const auto count =
        utf8proc_decompose_char(code_point, decomposed.data(), std::ssize(decomposed),
                                static_cast<utf8proc_option_t>(UTF8PROC_DECOMPOSE | UTF8PROC_STABLE), nullptr);
    QUENCH_CHECK_AS(ErrorCode::failed, count > 0 && count <= std::ssize(decomposed),
                    "cannot decompose U+{:04X}: utf8proc says {}", code_point, count);
    characters.insert(characters.end(), decomposed.begin(), decomposed.begin() + count);
  }
  order_canonically(characters);
  const auto count = utf8proc_normalize_utf32(characters.data(), std::ssize(characters),
                                              static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
  QUENCH_CHECK_AS(ErrorCode::failed, count >= 0, "cannot compose text: utf8proc says {}", count);
  storage.clear();
  for (utf8proc_ssize_t i = 0; i < count; ++i) {
    append_code_point(storage, static_cast<char32_t>(characters[static_cast<std::size_t>(i)]));
  }
  return storage;
}

}  // namespace quench
