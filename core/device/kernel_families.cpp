#include "core/device/kernel_families.h"

#include <array>
#include <atomic>
#include <cstdlib>

#include "core/system/check.h"

namespace quench {
namespace {

constexpr std::array kFamilies = {
    KernelFamilyInfo{KernelFamily::sm90_grouped_gemm, "sm90_grouped_gemm", "grouped bf16 GEMMs of experts by wgmma",
                     "mma.sync tiles"},
    KernelFamilyInfo{KernelFamily::sm90_grouped_float8, "sm90_grouped_float8",
                     "grouped float8 GEMMs with rowwise scales by wgmma", "float8 GEMMs by mma.sync"},
    KernelFamilyInfo{KernelFamily::sm90_block_float8, "sm90_block_float8",
                     "float8 GEMMs with blockwise scales by wgmma", "float8 GEMMs by mma.sync"},
    KernelFamilyInfo{KernelFamily::sm90_low_rank_gemm, "sm90_low_rank_gemm", "GEMMs with a fused LoRA update by wgmma",
                     "separate GEMMs"},
    KernelFamilyInfo{KernelFamily::sm90_symmetric_gemm, "sm90_symmetric_gemm", "symmetric GEMMs of Muon by wgmma",
                     "full GEMMs"},
    KernelFamilyInfo{KernelFamily::sm90_int8_gemm, "sm90_int8_gemm", "int8 GEMMs with rowwise scales by wgmma",
                     "int8 GEMMs by mma.sync"},
    KernelFamilyInfo{KernelFamily::cublaslt_float8, "cublaslt_float8",
                     "float8 GEMMs with tensorwise and rowwise scales by cuBLASLt", "float8 GEMMs by mma.sync"},
    KernelFamilyInfo{KernelFamily::cudnn_attention, "cudnn_attention", "bf16 attention and its gradient by cuDNN",
                     "tiled attention"},
    KernelFamilyInfo{KernelFamily::cluster_cross_entropy, "cluster_cross_entropy",
                     "cross-entropy with thread-block clusters", "cross-entropy in two passes"},
};

constexpr bool in_order() {
  for (std::size_t i = 0; i < kFamilies.size(); ++i)
    if (static_cast<std::size_t>(kFamilies[i].family) != i) return false;
  return true;
}
static_assert(in_order());

struct Process {
  std::atomic<std::uint32_t> disabled;
  KernelFamilySet broken;
};

KernelFamilySet from_environment(const char* variable) {
  const char* text = std::getenv(variable);
  return text == nullptr ? KernelFamilySet() : parse_kernel_families(variable, text);
}

Process& process() {
  static Process state{from_environment("QUENCH_DISABLE_KERNELS").bits(),
                       from_environment("QUENCH_BREAK_KERNEL_FAMILY")};
  return state;
}

thread_local KernelFamilyScope::Switches scope;
thread_local std::array<std::uint64_t, kFamilies.size()> launches{};

}  // namespace

std::span<const KernelFamilyInfo> kernel_families() noexcept {
  return kFamilies;
}

const KernelFamilyInfo& info(KernelFamily family) noexcept {
  return kFamilies[static_cast<std::size_t>(family)];
}

KernelFamilySet parse_kernel_families(std::string_view variable, std::string_view text) {
  KernelFamilySet set;
  while (!text.empty()) {
    const std::size_t end = text.find(',');
    const std::string_view name = text.substr(0, end);
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
    if (name.empty()) continue;
    const KernelFamilyInfo* found = nullptr;
    std::string names;
    for (const KernelFamilyInfo& family : kFamilies) {
      if (family.name == name) found = &family;
      names += (names.empty() ? "" : ", ") + std::string(family.name);
    }
    QUENCH_CHECK_AS(ErrorCode::bad_config, found != nullptr,
                    "{}: kernel family '{}' is unknown; those with a fallback are {}", variable, name, names);
    set = set | found->family;
  }
  return set;
}

bool kernel_family_enabled(KernelFamily family) {
  if (scope.on.contains(family)) return true;
  return !scope.off.contains(family) && !disabled_kernel_families().contains(family);
}

KernelFamilySet disabled_kernel_families() {
  return KernelFamilySet(process().disabled.load(std::memory_order_relaxed));
}

void disable_kernel_families(KernelFamilySet families) {
  process().disabled.fetch_or(families.bits(), std::memory_order_relaxed);
}

KernelFamilySet broken_kernel_families() {
  return scope.broken | process().broken;
}

void count_kernel_family(KernelFamily family) noexcept {
  ++launches[static_cast<std::size_t>(family)];
}

std::uint64_t kernel_family_launches(KernelFamily family) noexcept {
  return launches[static_cast<std::size_t>(family)];
}

KernelFamilyScope::KernelFamilyScope(const Switches& switches) noexcept : previous_(scope) {
  const auto without = [](KernelFamilySet a, KernelFamilySet b) { return KernelFamilySet(a.bits() & ~b.bits()); };
  scope.on = without(scope.on, switches.off) | switches.on;
  scope.off = without(scope.off, switches.on) | switches.off;
  scope.broken = scope.broken | switches.broken;
}

KernelFamilyScope::~KernelFamilyScope() {
  scope = previous_;
}

}  // namespace quench
