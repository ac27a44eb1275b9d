#include "core/self_test/self_test.h"

#include <gtest/gtest.h>

#include <set>

#include "core/self_test/cases.h"

namespace quench::testing {
namespace {

// Every kernel of the CPU gives the stored vectors.
TEST(SelfTest, PassesOnTheCpu) {
  const SelfTestReport report = run_self_test({});
  ASSERT_EQ(report.families.size(), self_test::cases().size());
  for (const FamilyResult& family : report.families) {
    EXPECT_NE(family.status, FamilyStatus::failed) << family.name << ": " << family.detail;
    EXPECT_EQ(family.status == FamilyStatus::not_used, self_test::stored_digests(family.name).empty()) << family.name;
  }
  EXPECT_TRUE(replaceable_failures(report).empty());
  EXPECT_EQ(fatal_failures(report), "");
  EXPECT_LT(report.seconds, 5);
}

TEST(SelfTest, NamesEachFamilyOnce) {
  std::set<std::string_view> names;
  for (const self_test::Case& row : self_test::cases()) {
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    EXPECT_FALSE(row.covers.empty()) << row.name;
  }
  for (const KernelFamilyInfo& family : kernel_families()) {
    EXPECT_TRUE(names.contains(family.name)) << family.name;
    EXPECT_FALSE(family.fallback.empty()) << family.name;
  }
}

TEST(SelfTest, DistinguishesFailuresWithAFallback) {
  SelfTestReport report;
  report.families = {{"sm90_grouped_gemm", FamilyStatus::failed, "relative error 1"},
                     {"cudnn_attention", FamilyStatus::passed, ""},
                     {"rope", FamilyStatus::failed, "relative error 2"}};
  EXPECT_EQ(replaceable_failures(report), KernelFamilySet(KernelFamily::sm90_grouped_gemm));
  EXPECT_EQ(fatal_failures(report), "rope (relative error 2)");
  EXPECT_EQ(count(report, FamilyStatus::failed), 2U);
}

TEST(KernelFamilies, AreReadFromText) {
  EXPECT_TRUE(parse_kernel_families("V", "").empty());
  EXPECT_EQ(parse_kernel_families("V", "cudnn_attention,sm90_block_float8"),
            KernelFamilySet(KernelFamily::cudnn_attention) | KernelFamily::sm90_block_float8);
  try {
    (void)parse_kernel_families("QUENCH_DISABLE_KERNELS", "cudnn_attention,flash");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::bad_config);
    const std::string text = error.what();
    EXPECT_NE(text.find("QUENCH_DISABLE_KERNELS"), std::string::npos);
    EXPECT_NE(text.find("'flash'"), std::string::npos);
    for (const KernelFamilyInfo& family : kernel_families())
      EXPECT_NE(text.find(family.name), std::string::npos) << family.name;
  }
}

TEST(KernelFamilies, AreSwitchedByScopes) {
  constexpr KernelFamily kFamily = KernelFamily::cluster_cross_entropy;
  EXPECT_TRUE(kernel_family_enabled(kFamily));
  {
    const KernelFamilyScope off({.on = {}, .off = kFamily, .broken = {}});
    EXPECT_FALSE(kernel_family_enabled(kFamily));
    EXPECT_TRUE(kernel_family_enabled(KernelFamily::cudnn_attention));
    {
      const KernelFamilyScope on({.on = kFamily, .off = {}, .broken = kFamily});
      EXPECT_TRUE(kernel_family_enabled(kFamily));
      EXPECT_TRUE(broken_kernel_families().contains(kFamily));
    }
    EXPECT_FALSE(kernel_family_enabled(kFamily));
    EXPECT_TRUE(broken_kernel_families().empty());
  }
  EXPECT_TRUE(kernel_family_enabled(kFamily));
}

}  // namespace
}  // namespace quench::testing
