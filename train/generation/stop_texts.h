#pragma once
// Texts that end a generated one.

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace quench {

// Cuts a text that arrives in pieces before the first stop text in it.
class StopTexts {
 public:
  // None of them is empty.
  explicit StopTexts(std::vector<std::string> stops) : stops_(std::move(stops)) {}

  // The text up to here that follows what earlier calls returned; without an end that may begin a stop text.
  [[nodiscard]] std::string push(std::string_view piece);
  // The rest, at the end of the text.
  [[nodiscard]] std::string finish();
  // A stop text was met: what follows is not part of the text.
  [[nodiscard]] bool found() const noexcept { return found_; }

 private:
  std::vector<std::string> stops_;
  std::string pending_;
  bool found_ = false;
};

}  // namespace quench
