#pragma once
// Kernel families with a fallback, and their switches.
//
// Dispatch asks kernel_family_enabled() before each launch. Families are switched off by the environment's
// QUENCH_DISABLE_KERNELS (names separated by commas), or after a failed self-test (core/self_test).

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace quench {

enum class KernelFamily : std::uint8_t {
  sm90_grouped_gemm,
  sm90_grouped_float8,
  sm90_block_float8,
  sm90_low_rank_gemm,
  sm90_symmetric_gemm,
  sm90_int8_gemm,
  cublaslt_float8,
  cudnn_attention,
  cluster_cross_entropy,
};

struct KernelFamilyInfo {
  KernelFamily family;
  std::string_view name;      // spelling of the enumerator
  std::string_view covers;    // ops and formats
  std::string_view fallback;  // kernels used in its place
};

// In enumerator order.
[[nodiscard]] std::span<const KernelFamilyInfo> kernel_families() noexcept;
[[nodiscard]] const KernelFamilyInfo& info(KernelFamily family) noexcept;

// A set, one bit per family.
class KernelFamilySet {
 public:
  constexpr KernelFamilySet() = default;
  constexpr KernelFamilySet(KernelFamily family) : bits_(1U << static_cast<unsigned>(family)) {}  // NOLINT: implicit
  constexpr explicit KernelFamilySet(std::uint32_t bits) : bits_(bits) {}
  [[nodiscard]] constexpr bool contains(KernelFamily family) const {
    return (bits_ & KernelFamilySet(family).bits_) != 0;
  }
  [[nodiscard]] constexpr bool empty() const { return bits_ == 0; }
  [[nodiscard]] constexpr std::uint32_t bits() const { return bits_; }
  friend constexpr KernelFamilySet operator|(KernelFamilySet a, KernelFamilySet b) {
    return KernelFamilySet(a.bits_ | b.bits_);
  }
  friend constexpr bool operator==(KernelFamilySet, KernelFamilySet) = default;

 private:
  std::uint32_t bits_ = 0;
};

// Names separated by commas. Throws bad_config for an unknown name, with the list of all; `variable`: its source.
[[nodiscard]] KernelFamilySet parse_kernel_families(std::string_view variable, std::string_view text);

// Throw bad_config on the first call for unknown names in QUENCH_DISABLE_KERNELS or QUENCH_BREAK_KERNEL_FAMILY.
[[nodiscard]] bool kernel_family_enabled(KernelFamily family);
// Switched off for the process.
[[nodiscard]] KernelFamilySet disabled_kernel_families();
void disable_kernel_families(KernelFamilySet families);

// Test hook: results of a broken family are overwritten. Set by the environment's QUENCH_BREAK_KERNEL_FAMILY, or a
// scope.
[[nodiscard]] KernelFamilySet broken_kernel_families();

// Launches by family on the calling thread, for the self-test.
void count_kernel_family(KernelFamily family) noexcept;
[[nodiscard]] std::uint64_t kernel_family_launches(KernelFamily family) noexcept;

// Calling thread's switches, in place of the process's; nested scopes add up, the innermost wins.
class KernelFamilyScope {
 public:
  struct Switches {
    KernelFamilySet on, off, broken;
  };
  explicit KernelFamilyScope(const Switches& switches) noexcept;
  ~KernelFamilyScope();
  KernelFamilyScope(const KernelFamilyScope&) = delete;
  KernelFamilyScope& operator=(const KernelFamilyScope&) = delete;

 private:
  Switches previous_;
};

}  // namespace quench
