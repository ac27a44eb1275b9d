#include "train/generation/stop_texts.h"

#include <algorithm>
#include <utility>

namespace quench {

std::string StopTexts::push(std::string_view piece) {
  if (found_) return {};
  pending_ += piece;
  std::size_t first = std::string::npos, held = 0;
  for (const std::string& stop : stops_) {
    first = std::min(first, pending_.find(stop));
    for (std::size_t length = std::min(stop.size() - 1, pending_.size()); length > held; --length)
      if (std::string_view(pending_).ends_with(std::string_view(stop).substr(0, length))) held = length;
  }
  if (first != std::string::npos) {
    found_ = true;
    pending_.resize(first);
    return std::exchange(pending_, {});
  }
  std::string shown = pending_.substr(0, pending_.size() - held);
  pending_.erase(0, shown.size());
  return shown;
}

std::string StopTexts::finish() {
  return std::exchange(pending_, {});
}

}  // namespace quench
