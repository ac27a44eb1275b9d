#pragma once
// The pre_tokenizer of a tokenizer.json that ends in ByteLevel: what cuts text into pieces that BPE never merges
// across.
//
// Accepted: ByteLevel (add_prefix_space, use_regex), preceded within a Sequence by any number of Split (published
// expressions, behavior Isolated; also Removed with invert where nothing lies between matches) and Digits. The byte
// alphabet is no concern here: pieces are bytes.

#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "data/tokenizer/piece_sink.h"
#include "data/tokenizer/split_pattern.h"

namespace quench {

class PreTokenizer {
 public:
  // Throws unsupported for a component that is not accepted, naming it and its line.
  explicit PreTokenizer(const Json& description);

  // Passes on the pieces of well-formed UTF-8 in order; a prefix space appears in them where one is asked for.
  void split(std::string_view text, const PieceSink& sink) const;

 private:
  void add_component(const Json& component, bool is_last);
  void split_from(std::size_t step, std::string_view text, const PieceSink& sink) const;

  std::vector<const SplitPattern*> steps_;  // before ByteLevel
  bool add_prefix_space_ = false;
  const SplitPattern* byte_level_pattern_ = nullptr;  // null: use_regex is false
};

}  // namespace quench
