#include "train/plan/planned_gpu.h"

#include <algorithm>
#include <array>
#include <vector>

#include "core/system/check.h"

namespace quench {
namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;

constexpr std::array kGpus{
    PlannedGpu{"RTX 4090", 24, 24564 * kMiB}, PlannedGpu{"RTX 3090", 24, 24576 * kMiB},
    PlannedGpu{"RTX 5090", 32, 32607 * kMiB}, PlannedGpu{"A100", 40, 40960 * kMiB},
    PlannedGpu{"L40S", 48, 46068 * kMiB},     PlannedGpu{"H100", 80, 81559 * kMiB},
    PlannedGpu{"A100", 80, 81920 * kMiB},     PlannedGpu{"H200", 141, 143771 * kMiB},
    PlannedGpu{"B200", 180, 183359 * kMiB},
};

// Lower case, letters and digits, without the words that are left out as often as not.
std::string gpu_key(std::string_view text) {
  std::string key;
  for (const char c : text) {
    if (c >= 'A' && c <= 'Z') key += static_cast<char>(c - 'A' + 'a');
    if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9')) key += c;
  }
  for (const std::string_view word : {"nvidia", "geforce", "rtx"})
    if (key.starts_with(word)) key.erase(0, word.size());
  if (key.ends_with("gb")) key.resize(key.size() - 2);
  return key;
}

}  // namespace

std::string PlannedGpu::title() const {
  return fmt::format("{} {}GB", name, gigabytes);
}

bool is_hopper(std::string_view driver_name) noexcept {
  return std::ranges::any_of(std::array<std::string_view, 4>{"H100", "H200", "H20", "H800"},
                             [&](std::string_view name) { return driver_name.find(name) != std::string_view::npos; });
}

std::span<const PlannedGpu> planned_gpus() noexcept {
  return kGpus;
}

const PlannedGpu& require_planned_gpu(std::string_view text) {
  const std::string wanted = gpu_key(text);
  std::vector<const PlannedGpu*> found;
  std::vector<std::string> titles;
  for (const PlannedGpu& gpu : kGpus) {
    if (wanted == gpu_key(gpu.name) || wanted == gpu_key(gpu.title())) found.push_back(&gpu);
    titles.push_back(gpu.title());
  }
  QUENCH_CHECK_AS(ErrorCode::bad_config, found.size() <= 1, "--gpu '{}' is sold with {} and with {} GB: add the size",
                  text, found.front()->gigabytes, found.back()->gigabytes);
  QUENCH_CHECK_AS(ErrorCode::bad_config, !found.empty(),
                  "--gpu '{}' is unknown; known are {}. For another one: --device cuda --memory-limit SIZE", text,
                  fmt::join(titles, ", "));
  return *found.front();
}

}  // namespace quench
