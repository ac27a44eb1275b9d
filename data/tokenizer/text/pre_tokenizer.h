#pragma once
// The pre_tokenizer of a tokenizer.json: what cuts text into pieces that no token crosses.
//
// Accepted: any number of Split (published expressions, behavior Isolated; also Removed with invert where nothing lies
// between matches) and Digits; behind them ByteLevel (add_prefix_space, use_regex) where tokens are bytes, Metaspace or
// nothing where they are text. The byte alphabet is no concern here: pieces are bytes.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/json/json.h"
#include "data/tokenizer/text/json_fields.h"
#include "data/tokenizer/text/piece_sink.h"
#include "data/tokenizer/text/split_pattern.h"

namespace quench {

class PreTokenizer {
 public:
  // Where a stretch of text begins.
  enum class Place : std::uint8_t {
    text,     // where the whole text does
    segment,  // behind a special token
    inside,   // behind other text
  };

  // Throws unsupported for a component that is not accepted, naming it and its line. null: text is not cut.
  PreTokenizer(const Json& description, bool byte_level);

  // Passes on the pieces of well-formed UTF-8 in order; a prefix space appears in them where one is asked for.
  void split(std::string_view text, Place place, const PieceSink& sink) const;

 private:
  void add_component(const Json& component);
  void split_from(std::size_t step, std::string_view text, Place place, const PieceSink& sink) const;
  void split_metaspace(std::string_view text, Place place, const PieceSink& sink) const;

  std::vector<const SplitPattern*> steps_;  // before what is last
  bool has_byte_level_ = false;
  std::optional<MetaspaceFields> metaspace_;
  bool add_prefix_space_ = false;
  const SplitPattern* byte_level_pattern_ = nullptr;  // null: use_regex is false
};

}  // namespace quench
