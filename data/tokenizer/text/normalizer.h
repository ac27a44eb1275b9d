#pragma once
// Normalizer of a tokenizer.json: NFC, Prepend, Replace of a fixed string, Sequence; growth of at most kMaxGrowth.

#include <string>
#include <string_view>
#include <vector>

#include "core/json/json.h"

namespace quench {

class Normalizer {
 public:
  static constexpr std::size_t kMaxGrowth = 64;
  static constexpr std::size_t kMaxSteps = 32;
  static constexpr std::size_t kMaxContent = 1024;  // Prepend, Replace

  Normalizer() = default;
  // Throws unsupported with component and line.
  explicit Normalizer(const Json& description);

  // True if no result holds `text`, of ASCII characters: it is replaced.
  [[nodiscard]] bool removes(std::string_view text) const;
  // Well-formed UTF-8: `text` if unchanged, else a view into `storage`. `at_start` false: nothing is prepended.
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

// Non-empty `from`, left to right.
[[nodiscard]] std::string replaced(std::string_view text, std::string_view from, std::string_view to);

}  // namespace quench
