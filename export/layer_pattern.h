#pragma once
// How quantization configs name layers: a class of modules ("Linear"), a layer's full name, or "re:" and a regular
// expression that matches from the beginning of the name.

#include <memory>
#include <string>
#include <string_view>

namespace quench {

class LayerPattern {
 public:
  // Throws unsupported for an expression that does not compile.
  explicit LayerPattern(std::string_view text);

  [[nodiscard]] bool matches(std::string_view layer) const;
  [[nodiscard]] bool is_class() const noexcept { return is_class_; }

 private:
  std::string text_;
  bool is_class_ = false;
  std::shared_ptr<void> expression_;
};

}  // namespace quench
