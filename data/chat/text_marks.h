#pragma once
// Marks in the texts that a template is given, by which the rendered text tells whose text stands where.
//
// A mark is a delimiter, a number and the delimiter again. The delimiter is a Vai syllable that the conversation does
// not hold: a printable letter without case, which JSON and Python's repr() write as it is. The marked texts are
// rendered once more; where the result without its marks equals the plain rendering, their places are those of the
// plain text.

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/json/json.h"
#include "data/chat/special_tokens.h"
#include "data/jinja/jinja_value.h"

namespace quench {

// Texts may be compared, searched and stripped by the template, which marks must not disturb. In the order in which
// they are tried:
enum class MarkStyle : std::uint8_t {
  around,  // at both ends of a text, at both ends of special tokens and of strings that the template looks for
  inside,  // the same without the ends of the text: startsWith and endsWith see it as it is
  within,  // special tokens are marked after their first character
};
inline constexpr std::array kMarkStyles = {MarkStyle::around, MarkStyle::inside, MarkStyle::within};

// The owner of a text: an index of a message, or this for all other texts.
inline constexpr int kNoMessage = -1;

// Where texts stand in a rendered text.
struct MarkedPlaces {
  struct Place {
    std::size_t at = 0;  // byte of the text without marks
    int owner = kNoMessage;
    int part = -1;  // as begin_part() said
  };
  bool exact = false;         // told by marks
  std::vector<Place> places;  // in order
  // Special tokens that come from a text in which they are plain characters.
  std::vector<SpecialTokens::Occurrence> plain_tokens;
};

class TextMarks {
 public:
  // `literals`: strings that the template may look for. References are kept. Throws invalid_argument when `texts` hold
  // all syllables from U+A500 to U+A53F.
  TextMarks(std::string_view texts, std::span<const std::string> literals, MarkStyle style);

  // The text with marks. Occurrences of `plain` tokens are told from the same tokens of the template.
  [[nodiscard]] std::string mark(std::string_view text, int owner, const SpecialTokens& plain);
  // All strings of a value marked, but those of keys that hold roles, types and ids; with `tokens_only`, and for
  // those, only strings that hold plain tokens.
  [[nodiscard]] jinja::Value mark(const Json& value, int owner, const SpecialTokens& plain, bool tokens_only);

  // Which part of its owner the next texts are.
  void begin_part(int part) noexcept { part_ = part; }

  // Takes the marks out of a rendered text.
  [[nodiscard]] MarkedPlaces take_out(std::string& text) const;

 private:
  struct Mark {
    int owner = kNoMessage;
    int part = -1;
    std::size_t token_size = 0;    // bytes of a plain token; 0: none
    std::size_t token_offset = 0;  // bytes of the token that stand before the mark
    int partner = -1;              // a mark at the token's other end, which must be there too
  };
  struct Insertion {
    std::size_t at = 0;
    Mark mark{};
  };

  [[nodiscard]] std::vector<SpecialTokens::Occurrence> searched_strings(std::string_view text) const;

  std::span<const std::string> literals_;
  MarkStyle style_;
  int part_ = -1;
  std::string delimiter_;
  std::vector<Mark> marks_;
};

}  // namespace quench
