#pragma once
// Self-test of kernels: small problems of fixed inputs, run on any device.
//
// Inputs are multiples of 1/8 in [-7/8, 7/8] from a hash of the element's index: exact in bf16, and in float8 under the
// scale of their row.

#include <span>
#include <string_view>
#include <vector>

#include "core/device/kernel_families.h"
#include "core/tensor/tensor.h"

namespace quench::self_test {

// Input of the stored vectors (tests/reference/make_self_test.py computes the same).
[[nodiscard]] Tensor values(const Shape& shape, DType dtype, std::uint32_t seed, Device device);

struct Case {
  std::string_view name;               // name of the kernel family
  std::string_view covers;             // ops and formats
  std::optional<KernelFamily> family;  // with a fallback; else its failure is an error
  KernelFamilySet without;             // switched off to reach the kernels
  std::vector<Tensor> (*run)(Device);
  double tolerance;  // relative L2 error of each output
};

// Families with a fallback first, in their order.
[[nodiscard]] std::span<const Case> cases();

// Outputs of a case by `run`, in order: L2 norm, and dot product with values({numel}, f32, kDigestSeed).
struct Digest {
  double norm = 0, dot = 0;
};
inline constexpr std::uint32_t kDigestSeed = 99;
[[nodiscard]] Digest digest(const Tensor& output);  // hash of a CPU tensor
// Stored; empty for an unknown name. Cases with equal runs have equal vectors.
[[nodiscard]] std::span<const Digest> stored_digests(std::string_view name);

}  // namespace quench::self_test
