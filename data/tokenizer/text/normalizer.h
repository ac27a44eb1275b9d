#pragma once
// The normalizer of a tokenizer.json: what happens to text before it is cut into pieces.
//
// Accepted: NFC, Prepend, Replace of a fixed string, and a Sequence of them, as long as they make no text more than
// kMaxGrowth times as long.

#include <string>
#include <string_view>
#include <vector>

#include "core/json/json.h"

namespace quench {

class Normalizer {
 public:
  static constexpr std::size_t kMaxGrowth = 64;
  static constexpr std::size_t kMaxSteps = 32;
  static constexpr std::size_t kMaxContent = 1024;  // bytes of a Prepend or Replace

  // Changes nothing.
  Normalizer() = default;
  // Throws unsupported for a component that is not accepted, naming it and its line.
  explicit Normalizer(const Json& description);

  // The normalized form of well-formed UTF-8: `text` itself where nothing changes, otherwise it lies in `storage`.
  // `at_start` false: text stands before this one that is not seen here, so nothing is prepended.
  [[nodiscard]] std::string_view apply(std::string_view text, bool at_start, std::string& storage) const;

 private:
  struct Step {
    enum class Kind : std::uint8_t { nfc, prepend, replace } kind;
    std::string from, to;  // prepend: `to`
  };

  void add_component(const Json& component);

  std::vector<Step> steps_;
  std::size_t growth_ = 1;
};

// `text` with each occurrence of `from`, which is not empty, replaced, from left to right.
[[nodiscard]] std::string replaced(std::string_view text, std::string_view from, std::string_view to);

}  // namespace quench
