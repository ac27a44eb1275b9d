#pragma once
// Normalizer of a tokenizer.json. Supported: NFC, Prepend, Replace of a fixed string, Sequence; total growth of a text
// at most kMaxGrowth.

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

  Normalizer() = default;
  // Throws unsupported with the component and its line.
  explicit Normalizer(const Json& description);

  // Normalized form of well-formed UTF-8: `text` itself if unchanged, else a view into `storage`. `at_start` false:
  // continuation of a text, nothing is prepended.
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

// `text` with each occurrence of non-empty `from` replaced, left to right.
[[nodiscard]] std::string replaced(std::string_view text, std::string_view from, std::string_view to);

}  // namespace quench
