#pragma once
// Whether ops must give the same bits on every run, where that costs speed or memory. Own kernels always do;
// the setting is for libraries that offer both (cuDNN's attention backward).

namespace quench {

// Process-wide. Set before training starts: plans built earlier keep their choice under their own key.
void set_deterministic(bool on) noexcept;
[[nodiscard]] bool deterministic() noexcept;

}  // namespace quench
