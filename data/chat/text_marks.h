#pragma once
// Sentinel marks in message texts, to map rendered bytes to their source message. Mark: delimiter, number, delimiter.
// Delimiter: a Vai syllable absent from the conversation (printable, caseless, not escaped by JSON and Python's
// repr()). Positions are valid only if the marked rendering without marks equals the plain one.

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/json/json.h"
#include "data/chat/special_tokens.h"
#include "data/jinja/jinja_value.h"

namespace quench {

// Mark placement, in order of trial; marks must not change comparisons, searches and strips of the template.
enum class MarkStyle : std::uint8_t {
  around,  // at both ends of texts, of special tokens and of the template's search strings
  inside,  // the same without the ends of the text: startsWith and endsWith see it unchanged
  within,  // special tokens are marked after their first character
};
inline constexpr std::array kMarkStyles = {MarkStyle::around, MarkStyle::inside, MarkStyle::within};

// Owner of a text: message index, or this for all other texts.
inline constexpr int kNoMessage = -1;

struct MarkedPlaces {
  struct Place {
    std::size_t at = 0;  // byte of the text without marks
    int owner = kNoMessage;
    int part = -1;  // value of begin_part()
  };
  bool exact = false;         // derived from marks
  std::vector<Place> places;  // in order
  // Special token texts that originate in message text and stay plain.
  std::vector<SpecialTokens::Occurrence> plain_tokens;
};

class TextMarks {
 public:
  // `literals`: search strings of the template. Keeps references. Throws invalid_argument if `texts` contain all
  // syllables U+A500 to U+A53F.
  TextMarks(std::string_view texts, std::span<const std::string> literals, MarkStyle style);

  // Text with marks. `plain` tokens in it are distinguished from the template's own.
  [[nodiscard]] std::string mark(std::string_view text, int owner, const SpecialTokens& plain);
  // Value with all strings marked, except under keys of roles, types and ids; there, and everywhere with `tokens_only`,
  // only strings with plain tokens.
  [[nodiscard]] jinja::Value mark(const Json& value, int owner, const SpecialTokens& plain, bool tokens_only);

  // Part index, within the owner, of the following texts.
  void begin_part(int part) noexcept { part_ = part; }

  [[nodiscard]] MarkedPlaces take_out(std::string& text) const;

 private:
  struct Mark {
    int owner = kNoMessage;
    int part = -1;
    std::size_t token_size = 0;    // bytes of a plain token; 0: none
    std::size_t token_offset = 0;  // bytes of the token before the mark
    int partner = -1;              // required mark at the token's other end
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
