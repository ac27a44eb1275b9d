#pragma once
// Pre-tokenizer of a tokenizer.json: pieces that no token crosses. Supported: any number of Split (published
// expressions, Isolated; Removed with invert if gapless; a fixed string that the normalizer removes) and Digits; then
// ByteLevel (add_prefix_space, use_regex) for byte-level tokens, Metaspace or none for text tokens. Pieces are bytes,
// without the byte alphabet.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/json/json.h"
#include "data/tokenizer/text/json_fields.h"
#include "data/tokenizer/text/normalizer.h"
#include "data/tokenizer/text/piece_sink.h"
#include "data/tokenizer/text/split_pattern.h"

namespace quench {

class PreTokenizer {
 public:
  enum class Place : std::uint8_t {
    text,
    segment,  // after a special token
    inside,   // after other text
  };

  // Throws unsupported with component and line. null: no splitting.
  PreTokenizer(const Json& description, bool byte_level, const Normalizer& normalizer);

  // Well-formed UTF-8, in order, with a prefix space if configured.
  void split(std::string_view text, Place place, const PieceSink& sink) const;

 private:
  void add_component(const Json& component, const Normalizer& normalizer);
  void split_from(std::size_t step, std::string_view text, Place place, const PieceSink& sink) const;
  void split_metaspace(std::string_view text, Place place, const PieceSink& sink) const;

  std::vector<const SplitPattern*> steps_;  // before the last component
  bool has_byte_level_ = false;
  std::optional<MetaspaceFields> metaspace_;
  bool add_prefix_space_ = false;
  const SplitPattern* byte_level_pattern_ = nullptr;  // null: use_regex is false
};

}  // namespace quench
