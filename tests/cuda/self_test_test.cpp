// The self-test on the GPU: families pass, broken ones are found and replaced, fallbacks give right results.

#include "core/self_test/self_test.h"

#include <algorithm>

#include "core/self_test/cases.h"
#include "tests/cuda/cuda_testing.h"
#include "tests/testing.h"

namespace quench::testing {
namespace {

const FamilyResult& result_of(const SelfTestReport& report, std::string_view name) {
  return *std::ranges::find(report.families, name, &FamilyResult::name);
}

// Largest relative L2 error of the outputs against the CPU's. NaN: a NaN.
double error_on_gpu(const self_test::Case& test) {
  const std::vector<Tensor> expected = test.run({}), outputs = test.run(kGpu);
  double worst = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const std::vector<float> a = floats(on_cpu(outputs[i])), b = floats(expected[i]);
    const double error = relative_l2(std::span(a), std::span(b));
    worst = std::isnan(worst) || error <= worst ? worst : error;
  }
  return worst;
}

TEST(CudaSelfTest, PassesForEveryFamilyWithinFiveSeconds) {
  const SelfTestReport report = run_self_test(kGpu);
  ASSERT_EQ(report.families.size(), self_test::cases().size());
  for (const FamilyResult& family : report.families)
    EXPECT_NE(family.status, FamilyStatus::failed) << family.name << ": " << family.detail;
  EXPECT_GE(count(report, FamilyStatus::passed), report.families.size() - kernel_families().size());
  EXPECT_LT(report.seconds, 5);
}

// Hopper with its own code: each family is used.
TEST(CudaSelfTest, UsesEveryFamilyOfTheDevice) {
  const ComputeCapability capability = backend(DeviceType::cuda).compute_capability(kGpu);
  const SelfTestReport report = run_self_test(kGpu);
  for (const KernelFamilyInfo& family : kernel_families()) {
    const bool library =
        family.family == KernelFamily::cublaslt_float8 || family.family == KernelFamily::cudnn_attention;
#ifndef QUENCH_HAVE_CUDNN
    if (family.family == KernelFamily::cudnn_attention) continue;
#endif
    if (capability.device != 90 || (!library && capability.code != 90)) continue;
    EXPECT_EQ(result_of(report, family.name).status, FamilyStatus::passed)
        << family.name << ": " << to_string(result_of(report, family.name).status);
  }
}

TEST(CudaSelfTest, FindsABrokenFamilyAndItsFallbackGivesRightResults) {
  for (const self_test::Case& test : self_test::cases()) {
    if (!test.family) continue;
    SCOPED_TRACE(test.name);
    const KernelFamilyScope broken({.on = {}, .off = {}, .broken = *test.family});
    const std::uint64_t before = kernel_family_launches(*test.family);
    const double error = error_on_gpu(test);
    if (kernel_family_launches(*test.family) == before) continue;  // not on this device
    EXPECT_FALSE(error <= test.tolerance);
    const SelfTestReport report = run_self_test(kGpu);
    EXPECT_EQ(result_of(report, test.name).status, FamilyStatus::failed);
    EXPECT_EQ(replaceable_failures(report), KernelFamilySet(*test.family));
    EXPECT_EQ(fatal_failures(report), "");
    const KernelFamilyScope off({.on = {}, .off = replaceable_failures(report), .broken = {}});
    EXPECT_LE(error_on_gpu(test), test.tolerance);
  }
}

// The self-test runs families that are switched off, and dispatch does not.
TEST(CudaSelfTest, SwitchedOffFamiliesAreTestedAndNotUsed) {
  const SelfTestReport all = run_self_test(kGpu);
  for (const self_test::Case& test : self_test::cases()) {
    if (!test.family) continue;
    SCOPED_TRACE(test.name);
    const KernelFamilyScope off({.on = {}, .off = *test.family, .broken = {}});
    EXPECT_EQ(result_of(run_self_test(kGpu), test.name).status, result_of(all, test.name).status);
    const std::uint64_t before = kernel_family_launches(*test.family);
    EXPECT_LE(error_on_gpu(test), test.tolerance);
    EXPECT_EQ(kernel_family_launches(*test.family), before);
  }
}

}  // namespace
}  // namespace quench::testing
