#pragma once
// Pattern of quantization configs: layer name, "re:" and a regular expression anchored at the start, or module class
// ("Linear", "Embedding").

#include <memory>
#include <string>
#include <string_view>

namespace quench {

class LayerPattern {
 public:
  // Throws unsupported for an invalid expression.
  explicit LayerPattern(std::string_view text);

  [[nodiscard]] bool matches(std::string_view layer) const;
  [[nodiscard]] const std::string& text() const noexcept { return text_; }
  // In this order; regular expressions by text (compressed-tensors, match_targets).
  [[nodiscard]] bool goes_before(const LayerPattern& other) const;

 private:
  enum class Kind { name, expression, linear, embedding };

  std::string text_;
  Kind kind_;
  std::shared_ptr<void> expression_;
};

}  // namespace quench
