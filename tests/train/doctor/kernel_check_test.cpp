#include "train/doctor/kernel_check.h"

#include <gmock/gmock.h>

#include "core/self_test/cases.h"
#include "core/self_test/verdict_cache.h"
#include "tests/testing.h"

namespace quench::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

int runs = 0;

SelfTestReport all_passed(Device) {
  ++runs;
  SelfTestReport report;
  for (const self_test::Case& row : self_test::cases())
    report.families.push_back({std::string(row.name), FamilyStatus::passed, ""});
  return report;
}

SelfTestReport report_with(std::string_view failed) {
  SelfTestReport report = all_passed({});
  for (FamilyResult& family : report.families)
    if (family.name == failed) family = {family.name, FamilyStatus::failed, "relative error 0.5"};
  return report;
}

TEST(KernelCheck, RunsOncePerKey) {
  const TempDir folder;
  runs = 0;
  EXPECT_FALSE(kernel_verdict({}, folder.path(), all_passed).cached);
  const KernelVerdict again = kernel_verdict({}, folder.path(), all_passed);
  EXPECT_TRUE(again.cached);
  EXPECT_EQ(again.report.families, all_passed({}).families);
  EXPECT_EQ(runs, 2);  // the second: above
}

TEST(KernelCheck, RunsAtEachStartWithoutACacheFolder) {
  const TempDir folder;
  write_file(folder / "file", "x");
  runs = 0;
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(kernel_verdict({}, folder / "file" / "quench", all_passed).cached);
  EXPECT_EQ(runs, 3);
}

TEST(KernelCheck, KeepsNoVerdictOfBrokenFamilies) {
  const TempDir folder;
  const KernelFamilyScope broken({.on = {}, .off = {}, .broken = KernelFamily::cudnn_attention});
  EXPECT_FALSE(kernel_verdict({}, folder.path(), all_passed).cached);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(KernelCheck, KeyHoldsDeviceProgramAndLibraries) {
  const std::vector<LibraryVersion> libraries{{"cuBLASLt", "13.1.0", {}, {}}};
  const Json key = verdict_key({}, libraries);
  for (const char* name : {"version", "commit", "program", "device", "capability", "code", "QUENCH_CUDA_CAPABILITY"})
    EXPECT_NE(key.find(name), nullptr) << name;
  EXPECT_EQ(key.at("libraries").at("cuBLASLt").as_string(), "13.1.0");
  EXPECT_NE(key, verdict_key({}, {{"cuBLASLt", "13.2.0", {}, {}}}));
  EXPECT_EQ(key, verdict_key({}, libraries));
}

TEST(KernelCheck, NamesAFailedFamilyAndItsFallback) {
  EXPECT_THAT(replacement_lines(report_with("sm90_grouped_gemm"), "GPU X"),
              ElementsAre("kernel family sm90_grouped_gemm gives wrong results on GPU X (relative error 0.5); its "
                          "fallback is used: mma.sync tiles"));
  EXPECT_TRUE(replacement_lines(all_passed({}), "GPU X").empty());
}

TEST(KernelCheck, SwitchesFailedFamiliesOff) {
  apply_verdict(all_passed({}), "GPU X");
  EXPECT_TRUE(disabled_kernel_families().empty());
  apply_verdict(report_with("cluster_cross_entropy"), "GPU X");
  EXPECT_EQ(disabled_kernel_families(), KernelFamilySet(KernelFamily::cluster_cross_entropy));
  EXPECT_FALSE(kernel_family_enabled(KernelFamily::cluster_cross_entropy));
  const KernelFamilyScope scope({.on = KernelFamily::cluster_cross_entropy, .off = {}, .broken = {}});
  EXPECT_TRUE(kernel_family_enabled(KernelFamily::cluster_cross_entropy));
}

TEST(KernelCheck, RefusesADeviceWhoseKernelsHaveNoFallback) {
  try {
    apply_verdict(report_with("rms_norm"), "GPU X");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::failed);
    EXPECT_THAT(error.what(), HasSubstr("GPU X: rms_norm (relative error 0.5)"));
  }
}

TEST(KernelCheck, DoesNothingOnTheCpu) {
  check_kernels({});
}

}  // namespace
}  // namespace quench::testing
