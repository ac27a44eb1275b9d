#pragma once
// Sentinel marks in message texts, to find rendered bytes' messages: delimiter, number, delimiter; delimiter: a Vai
// syllable absent from the conversation (printable, caseless, not escaped by JSON and repr()). Valid only if the marked
// rendering without marks equals the plain one.

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/json/json.h"
#include "data/chat/special_tokens.h"
#include "data/jinja/jinja_value.h"

namespace quench {

// In order of trial; marks must not change the template's comparisons, searches and strips.
enum class MarkStyle : std::uint8_t {
  around,  // at both ends of texts, special tokens and the template's search strings
  inside,  // without the ends of the text: startsWith and endsWith see it unchanged
  within,  // after the first character of special tokens
};
inline constexpr std::array kMarkStyles = {MarkStyle::around, MarkStyle::inside, MarkStyle::within};

// For texts of no message.
inline constexpr int kNoMessage = -1;

struct MarkedPlaces {
  struct Place {
    std::size_t at = 0;  // byte without marks
    int owner = kNoMessage;
    int part = -1;  // number from begin_part()
  };
  bool exact = false;         // by marks
  std::vector<Place> places;  // in order
  // Plain special token texts of messages.
  std::vector<SpecialTokens::Occurrence> plain_tokens;
};

class TextMarks {
 public:
  // `literals`: the template's search strings. Keeps references. Throws invalid_argument if `texts` contain all
  // syllables U+A500 to U+A53F.
  TextMarks(std::string_view texts, std::span<const std::string> literals, MarkStyle style);

  // `plain` tokens in it differ from the template's own.
  [[nodiscard]] std::string mark(std::string_view text, int owner, const SpecialTokens& plain);
  // All strings, except under keys of roles, types and ids; there, and with `tokens_only`, only strings with plain
  // tokens.
  [[nodiscard]] jinja::Value mark(const Json& value, int owner, const SpecialTokens& plain, bool tokens_only);

  // Part of the following texts, within the owner.
  void begin_part(int part) noexcept { part_ = part; }

  [[nodiscard]] MarkedPlaces take_out(std::string& text) const;

 private:
  struct Mark {
    int owner = kNoMessage;
    int part = -1;
    std::size_t token_size = 0;    // size of a plain token; 0: none
    std::size_t token_offset = 0;  // bytes before the mark
    int partner = -1;              // mark at the token's other end
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
