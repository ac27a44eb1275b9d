#pragma once
// Adapters in words, for summaries of runs and models.

#include <fmt/format.h>

#include <string>
#include <string_view>

namespace quench {

// "nf4 base + lora r16", or "lora r16" for a dense base. `base`: value of lora.base.
[[nodiscard]] inline std::string adapter_words(std::string_view base, std::string_view rank, bool dora) {
  std::string text;
  if (base == "stored")
    text = "base as stored + ";
  else if (!base.empty() && base != "dense")
    text = fmt::format("{} base + ", base);
  return text + fmt::format("{} r{}", dora ? "dora" : "lora", rank);
}

}  // namespace quench
