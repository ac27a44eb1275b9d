#pragma once
// How quantization configs name layers: a layer's full name, "re:" and a regular expression that matches from the
// beginning of the name, or a class of modules ("Linear", "Embedding").

#include <memory>
#include <string>
#include <string_view>

namespace quench {

class LayerPattern {
 public:
  // Throws unsupported for an expression that does not compile.
  explicit LayerPattern(std::string_view text);

  [[nodiscard]] bool matches(std::string_view layer) const;
  [[nodiscard]] const std::string& text() const noexcept { return text_; }
  // Where several match, the first in this order counts, and of expressions the first by their text
  // (compressed-tensors, match_targets).
  [[nodiscard]] bool goes_before(const LayerPattern& other) const;

 private:
  enum class Kind { name, expression, linear, embedding };

  std::string text_;
  Kind kind_;
  std::shared_ptr<void> expression_;
};

}  // namespace quench
