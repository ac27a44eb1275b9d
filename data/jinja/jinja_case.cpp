// Letter case and character classes of Python's str.

#include <utf8proc.h>

#include <algorithm>

#include "data/jinja/jinja_text.h"
#include "data/tokenizer/text/code_points.h"
#include "data/tokenizer/text/unicode.h"

namespace quench::jinja {
namespace {

struct SpecialCase {
  char32_t code;
  std::string_view upper, title;
};

// Multi-character upper or title case (SpecialCasing.txt).
constexpr SpecialCase kSpecialCases[] = {
    {0x00DF, "SS", "Ss"}, {0x0149, "ʼN", "ʼN"}, {0x01F0, "J̌", "J̌"},   {0x0390, "Ϊ́", "Ϊ́"},     {0x03B0, "Ϋ́", "Ϋ́"},
    {0x0587, "ԵՒ", "Եւ"}, {0x1E96, "H̱", "H̱"},   {0x1E97, "T̈", "T̈"},   {0x1E98, "W̊", "W̊"},     {0x1E99, "Y̊", "Y̊"},
    {0x1E9A, "Aʾ", "Aʾ"}, {0x1F50, "Υ̓", "Υ̓"},   {0x1F52, "Υ̓̀", "Υ̓̀"},   {0x1F54, "Υ̓́", "Υ̓́"},     {0x1F56, "Υ̓͂", "Υ̓͂"},
    {0x1F80, "ἈΙ", "ᾈ"},  {0x1F81, "ἉΙ", "ᾉ"},  {0x1F82, "ἊΙ", "ᾊ"},  {0x1F83, "ἋΙ", "ᾋ"},    {0x1F84, "ἌΙ", "ᾌ"},
    {0x1F85, "ἍΙ", "ᾍ"},  {0x1F86, "ἎΙ", "ᾎ"},  {0x1F87, "ἏΙ", "ᾏ"},  {0x1F88, "ἈΙ", "ᾈ"},    {0x1F89, "ἉΙ", "ᾉ"},
    {0x1F8A, "ἊΙ", "ᾊ"},  {0x1F8B, "ἋΙ", "ᾋ"},  {0x1F8C, "ἌΙ", "ᾌ"},  {0x1F8D, "ἍΙ", "ᾍ"},    {0x1F8E, "ἎΙ", "ᾎ"},
    {0x1F8F, "ἏΙ", "ᾏ"},  {0x1F90, "ἨΙ", "ᾘ"},  {0x1F91, "ἩΙ", "ᾙ"},  {0x1F92, "ἪΙ", "ᾚ"},    {0x1F93, "ἫΙ", "ᾛ"},
    {0x1F94, "ἬΙ", "ᾜ"},  {0x1F95, "ἭΙ", "ᾝ"},  {0x1F96, "ἮΙ", "ᾞ"},  {0x1F97, "ἯΙ", "ᾟ"},    {0x1F98, "ἨΙ", "ᾘ"},
    {0x1F99, "ἩΙ", "ᾙ"},  {0x1F9A, "ἪΙ", "ᾚ"},  {0x1F9B, "ἫΙ", "ᾛ"},  {0x1F9C, "ἬΙ", "ᾜ"},    {0x1F9D, "ἭΙ", "ᾝ"},
    {0x1F9E, "ἮΙ", "ᾞ"},  {0x1F9F, "ἯΙ", "ᾟ"},  {0x1FA0, "ὨΙ", "ᾨ"},  {0x1FA1, "ὩΙ", "ᾩ"},    {0x1FA2, "ὪΙ", "ᾪ"},
    {0x1FA3, "ὫΙ", "ᾫ"},  {0x1FA4, "ὬΙ", "ᾬ"},  {0x1FA5, "ὭΙ", "ᾭ"},  {0x1FA6, "ὮΙ", "ᾮ"},    {0x1FA7, "ὯΙ", "ᾯ"},
    {0x1FA8, "ὨΙ", "ᾨ"},  {0x1FA9, "ὩΙ", "ᾩ"},  {0x1FAA, "ὪΙ", "ᾪ"},  {0x1FAB, "ὫΙ", "ᾫ"},    {0x1FAC, "ὬΙ", "ᾬ"},
    {0x1FAD, "ὭΙ", "ᾭ"},  {0x1FAE, "ὮΙ", "ᾮ"},  {0x1FAF, "ὯΙ", "ᾯ"},  {0x1FB2, "ᾺΙ", "Ὰͅ"},    {0x1FB3, "ΑΙ", "ᾼ"},
    {0x1FB4, "ΆΙ", "Άͅ"},  {0x1FB6, "Α͂", "Α͂"},   {0x1FB7, "Α͂Ι", "ᾼ͂"},  {0x1FBC, "ΑΙ", "ᾼ"},    {0x1FC2, "ῊΙ", "Ὴͅ"},
    {0x1FC3, "ΗΙ", "ῌ"},  {0x1FC4, "ΉΙ", "Ήͅ"},  {0x1FC6, "Η͂", "Η͂"},   {0x1FC7, "Η͂Ι", "ῌ͂"},    {0x1FCC, "ΗΙ", "ῌ"},
    {0x1FD2, "Ϊ̀", "Ϊ̀"},   {0x1FD3, "Ϊ́", "Ϊ́"},   {0x1FD6, "Ι͂", "Ι͂"},   {0x1FD7, "Ϊ͂", "Ϊ͂"},     {0x1FE2, "Ϋ̀", "Ϋ̀"},
    {0x1FE3, "Ϋ́", "Ϋ́"},   {0x1FE4, "Ρ̓", "Ρ̓"},   {0x1FE6, "Υ͂", "Υ͂"},   {0x1FE7, "Ϋ͂", "Ϋ͂"},     {0x1FF2, "ῺΙ", "Ὼͅ"},
    {0x1FF3, "ΩΙ", "ῼ"},  {0x1FF4, "ΏΙ", "Ώͅ"},  {0x1FF6, "Ω͂", "Ω͂"},   {0x1FF7, "Ω͂Ι", "ῼ͂"},    {0x1FFC, "ΩΙ", "ῼ"},
    {0xFB00, "FF", "Ff"}, {0xFB01, "FI", "Fi"}, {0xFB02, "FL", "Fl"}, {0xFB03, "FFI", "Ffi"}, {0xFB04, "FFL", "Ffl"},
    {0xFB05, "ST", "St"}, {0xFB06, "ST", "St"}, {0xFB13, "ՄՆ", "Մն"}, {0xFB14, "ՄԵ", "Մե"},   {0xFB15, "ՄԻ", "Մի"},
    {0xFB16, "ՎՆ", "Վն"}, {0xFB17, "ՄԽ", "Մխ"},
};

constexpr char32_t kSigma = 0x03A3, kFinalSigma = 0x03C2, kDottedI = 0x0130;

bool is_lower_letter(char32_t code) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(code)) == UTF8PROC_CATEGORY_LL;
}

bool is_cased_letter(char32_t code) {
  const auto c = static_cast<utf8proc_int32_t>(code);
  const utf8proc_category_t category = utf8proc_category(c);
  return (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LT) ||
         utf8proc_tolower(c) != utf8proc_toupper(c);
}

// Skipped by Unicode's final sigma condition.
bool is_case_ignorable(char32_t code) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(code))) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK: return true;
    default: return code == '\'' || code == '.' || code == ':' || code == 0xB7 || code == 0x2018 || code == 0x2019;
  }
}

void append_upper(std::string& out, char32_t code, bool title) {
  const auto* special = std::ranges::lower_bound(kSpecialCases, code, {}, &SpecialCase::code);
  if (special != std::end(kSpecialCases) && special->code == code) {
    out += title ? special->title : special->upper;
    return;
  }
  const auto c = static_cast<utf8proc_int32_t>(code);
  append_code_point(out, static_cast<char32_t>(title ? utf8proc_totitle(c) : utf8proc_toupper(c)));
}

// kNone for bytes that are not well-formed.
class CodePoints {
 public:
  static constexpr char32_t kNone = 0xFFFFFFFF;

  explicit CodePoints(std::string_view text) {
    for (const std::string_view character : characters_of(text)) {
      bytes_.push_back(character);
      codes_.push_back(utf8_sequence_length(character, 0) > 0 ? decode_code_point(character, 0) : kNone);
    }
  }
  [[nodiscard]] std::size_t size() const { return codes_.size(); }
  [[nodiscard]] char32_t operator[](std::size_t i) const { return codes_[i]; }
  [[nodiscard]] std::string_view bytes(std::size_t i) const { return bytes_[i]; }

  void append_lower(std::string& out, std::size_t i) const {
    const char32_t code = codes_[i];
    if (code == kSigma) return append_code_point(out, final_sigma(i) ? kFinalSigma : code + 0x20);
    if (code == kDottedI) {
      out += "i\xcc\x87";
      return;
    }
    append_code_point(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code))));
  }

 private:
  [[nodiscard]] bool final_sigma(std::size_t i) const {
    std::size_t before = i;
    while (before > 0 && is_case_ignorable(codes_[before - 1])) --before;
    if (before == 0 || !is_cased_letter(codes_[before - 1])) return false;
    std::size_t after = i + 1;
    while (after < size() && is_case_ignorable(codes_[after])) ++after;
    return after == size() || !is_cased_letter(codes_[after]);
  }

  std::vector<char32_t> codes_;
  std::vector<std::string_view> bytes_;
};

void append_folded(std::string& out, char32_t code) {
  utf8proc_int32_t folded[8];
  const utf8proc_ssize_t count =
      utf8proc_decompose_char(static_cast<utf8proc_int32_t>(code), folded, 8, UTF8PROC_CASEFOLD, nullptr);
  for (utf8proc_ssize_t i = 0; i < std::min<utf8proc_ssize_t>(count, 8); ++i)
    append_code_point(out, static_cast<char32_t>(folded[i]));
}

bool is_of(char32_t code, CharacterClass character_class) {
  const auto c = static_cast<utf8proc_int32_t>(code);
  const utf8proc_category_t category = utf8proc_category(c);
  const bool alpha = category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
  const bool decimal = category == UTF8PROC_CATEGORY_ND;
  // Superscripts, subscripts, circled and other non-decimal digits.
  const bool digit =
      decimal || (category == UTF8PROC_CATEGORY_NO &&
                  (code == 0xB2 || code == 0xB3 || code == 0xB9 || (code >= 0x2070 && code <= 0x2089) ||
                   (code >= 0x2460 && code <= 0x2468) || (code >= 0x2474 && code <= 0x247C) ||
                   (code >= 0x2488 && code <= 0x2490) || code == 0x24EA || (code >= 0x24F5 && code <= 0x24FD) ||
                   code == 0x24FF || (code >= 0x2776 && code <= 0x277E) || (code >= 0x2780 && code <= 0x2788) ||
                   (code >= 0x278A && code <= 0x2792)));
  const bool numeric =
      decimal || category == UTF8PROC_CATEGORY_NO || category == UTF8PROC_CATEGORY_NL ||
      std::u32string_view(U"\u3007\u4e00\u4e8c\u4e09\u56db\u4e94\u516d\u4e03\u516b\u4e5d\u5341\u767e\u5343\u4e07\u5146")
              .find(code) != std::u32string_view::npos;
  switch (character_class) {
    case CharacterClass::alpha: return alpha;
    case CharacterClass::decimal: return decimal;
    case CharacterClass::digit: return digit;
    case CharacterClass::numeric: return numeric;
    case CharacterClass::alphanumeric: return alpha || numeric;
    case CharacterClass::space: return is_python_space(code);
    case CharacterClass::printable:
      return code == ' ' || (category != UTF8PROC_CATEGORY_CN && category < UTF8PROC_CATEGORY_ZS);
    case CharacterClass::ascii: return code < 0x80;
  }
  return false;
}

}  // namespace

std::string with_case(std::string_view text, LetterCase letter_case) {
  const CodePoints codes(text);
  std::string out;
  bool first = true;  // start of the text or a word
  for (std::size_t i = 0; i < codes.size(); ++i) {
    const char32_t code = codes[i];
    if (code == CodePoints::kNone) {
      out += codes.bytes(i);
      continue;
    }
    switch (letter_case) {
      case LetterCase::lower: codes.append_lower(out, i); break;
      case LetterCase::upper: append_upper(out, code, false); break;
      case LetterCase::fold: append_folded(out, code); break;
      case LetterCase::swap:
        if (is_lower_letter(code))
          append_upper(out, code, false);
        else
          codes.append_lower(out, i);
        break;
      case LetterCase::title:
      case LetterCase::capitalize:
        if (first)
          append_upper(out, code, true);
        else
          codes.append_lower(out, i);
        break;
    }
    first = letter_case == LetterCase::title && !is_cased_letter(code);
  }
  return out;
}

bool is_all(std::string_view text, CharacterClass character_class) {
  if (text.empty()) return character_class == CharacterClass::printable || character_class == CharacterClass::ascii;
  const CodePoints codes(text);
  for (std::size_t i = 0; i < codes.size(); ++i)
    if (codes[i] == CodePoints::kNone || !is_of(codes[i], character_class)) return false;
  return true;
}

bool is_cased(std::string_view text, LetterCase letter_case) {
  const CodePoints codes(text);
  bool found = false, in_word = false;
  for (std::size_t i = 0; i < codes.size(); ++i) {
    if (codes[i] == CodePoints::kNone || !is_cased_letter(codes[i])) {
      in_word = false;
      continue;
    }
    const bool lower = is_lower_letter(codes[i]);
    const bool wanted_lower = letter_case == LetterCase::lower || (letter_case == LetterCase::title && in_word);
    if (lower != wanted_lower) return false;
    found = in_word = true;
  }
  return found;
}

}  // namespace quench::jinja
