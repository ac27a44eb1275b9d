#pragma once
// Scales of a quantized KV cache, which folders for vLLM have next to attention's weights.

#include <algorithm>
#include <array>
#include <string_view>

namespace quench {

// By the names of vLLM, llm-compressor and ModelOpt: "model.layers.0.self_attn.k_scale", "...k_proj.output_scale".
[[nodiscard]] inline bool is_cache_scale(std::string_view name) {
  constexpr std::array<std::string_view, 12> kEndings = {
      ".k_scale",      ".v_scale",      ".q_scale",       ".kv_scale",      ".prob_scale",   ".k_zero_point",
      ".v_zero_point", ".q_zero_point", ".k_cache_scale", ".v_cache_scale", ".output_scale", "_output_scale"};
  return name.find("attn") != std::string_view::npos &&
         std::ranges::any_of(kEndings, [&](std::string_view ending) { return name.ends_with(ending); });
}

}  // namespace quench
