// `quench doctor` on a machine without a GPU.

#include <gmock/gmock.h>

#include "core/json/json.h"
#include "tests/apps/program.h"

namespace quench {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using testing::Outcome;
using testing::run_program;
using testing::TempDir;

// Hides GPUs, and sets the user's variables.
class DoctorVerb : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const auto& [name, value] : {std::pair{"CUDA_VISIBLE_DEVICES", ""},
                                      {"HOME", home_.c_str()},
                                      {"USER", "ada-lovelace"},
                                      {"XDG_CACHE_HOME", ""}}) {
      const char* before = std::getenv(name);
      before_.emplace_back(name, before == nullptr ? std::nullopt : std::optional<std::string>(before));
      ::setenv(name, value, 1);
    }
  }
  void TearDown() override {
    for (const auto& [name, value] : before_)
      value ? ::setenv(name.c_str(), value->c_str(), 1) : ::unsetenv(name.c_str());
  }
  Outcome run(const std::vector<std::string>& arguments) { return run_program(folder_.path(), arguments); }

  TempDir folder_;
  std::string home_ = (folder_ / "ada-lovelace").string();
  std::vector<std::pair<std::string, std::optional<std::string>>> before_;
};

TEST_F(DoctorVerb, ChecksTheCpuWithoutAGpu) {
  const Outcome outcome = run({"doctor"});
  EXPECT_EQ(outcome.status, 0) << outcome.errors;
  EXPECT_THAT(outcome.output, HasSubstr("no GPU: CPU kernels checked against the stored vectors"));
  EXPECT_THAT(outcome.output, HasSubstr(" 0 failed"));
  EXPECT_THAT(outcome.output, HasSubstr("\n  emulated   float8_tensorwise"));
}

TEST_F(DoctorVerb, WritesJsonWithoutNamesAndPaths) {
  const Outcome outcome = run({"doctor", "--json"});
  ASSERT_EQ(outcome.status, 0) << outcome.errors;
  const Json json = Json::parse(outcome.output);
  EXPECT_TRUE(json.at("healthy").as_bool());
  EXPECT_TRUE(json.at("no_gpu").is_string());
  EXPECT_EQ(json.at("devices").as_array().size(), 1U);
  EXPECT_EQ(json.at("devices").as_array()[0].at("recipes").at("bf16").as_string(), "native");
  EXPECT_THAT(outcome.output, Not(HasSubstr("ada-lovelace")));
  EXPECT_THAT(outcome.output, Not(HasSubstr("/tmp")));
  EXPECT_THAT(outcome.output, Not(HasSubstr("/home")));
  EXPECT_THAT(outcome.output, Not(HasSubstr("/usr")));
}

TEST_F(DoctorVerb, NamesKernelFamiliesThatAreSwitchedOff) {
  ::setenv("QUENCH_DISABLE_KERNELS", "cudnn_attention,sm90_block_float8", 1);
  const Outcome outcome = run({"doctor"});
  ::setenv("QUENCH_DISABLE_KERNELS", "cudnn_attention,flash", 1);
  const Outcome wrong = run({"doctor"});
  ::unsetenv("QUENCH_DISABLE_KERNELS");
  EXPECT_EQ(outcome.status, 0) << outcome.errors;
  EXPECT_THAT(outcome.output, HasSubstr("switched off: cudnn_attention; its fallback is used: tiled attention"));
  EXPECT_THAT(outcome.output, HasSubstr("switched off: sm90_block_float8"));
  EXPECT_EQ(wrong.status, 2);
  EXPECT_THAT(wrong.errors, HasSubstr("QUENCH_DISABLE_KERNELS: kernel family 'flash' is unknown; those with a fallback "
                                      "are sm90_grouped_gemm, "));
}

}  // namespace
}  // namespace quench
