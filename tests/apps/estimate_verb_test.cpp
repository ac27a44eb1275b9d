// The estimate verb as a user meets it.

#include <gmock/gmock.h>

#include <cstdlib>

#include "core/json/json.h"
#include "tests/apps/program.h"

namespace quench {
namespace {

using ::testing::HasSubstr;
using testing::Outcome;
using testing::run_program;
using testing::TempDir;

// Where there is no GPU, a GPU run is planned all the same; what it may take is unknown.
TEST(EstimateVerb, PlansAGpuRunAnywhere) {
  const TempDir folder;
  ::setenv("CUDA_VISIBLE_DEVICES", "", 1);
  std::vector<std::string> arguments{"estimate", "llama_110m", "--training.dtype=bf16",
                                     "--optimizer.offload_ratio=0.5"};
  const auto with = [&](std::initializer_list<std::string> more) {
    std::vector<std::string> all = arguments;
    all.insert(all.end(), more);
    return run_program(folder.path(), all);
  };
  for (const char* recipe : {"bf16", "float8_tensorwise", "float8_rowwise"}) {
    const Outcome text = with({"--device=cuda", "--recipe.name=" + std::string(recipe)});
    ASSERT_EQ(text.status, 0) << text.errors;
    for (const char* part : {"optimizer state offloaded", "unknown", "fits a device with that much memory"})
      EXPECT_THAT(text.output, HasSubstr(part));
  }
  const Json json = Json::parse(with({"--device=cuda", "--json"}).output);
  EXPECT_TRUE(json.at("available_bytes").is_null());
  EXPECT_TRUE(json.at("host_available_bytes").is_null());
  EXPECT_GT(json.at("total_bytes").as_int(), 0);
  EXPECT_TRUE(json.at("fits").as_bool());
  const Json limited = Json::parse(with({"--device=cuda", "--memory-limit=24GiB", "--json"}).output);
  EXPECT_EQ(limited.at("memory_limit_bytes").as_int(), std::int64_t{24} << 30);
  EXPECT_EQ(limited.at("available_bytes").as_int(), std::int64_t{23} << 30);
  for (const char* limit : {"--memory-limit=24", "--memory-limit="})
    EXPECT_EQ(with({"--device=cuda", limit}).status, 2) << limit;
  EXPECT_THAT(with({"--device=cpu", "--memory-limit=24GiB", "--optimizer.offload_ratio=0"}).errors,
              HasSubstr("limits GPU memory"));
  const Outcome here = with({"--device=cpu", "--optimizer.offload_ratio=0"});
  EXPECT_EQ(here.status, 0) << here.errors;
  EXPECT_THAT(here.output, ::testing::Not(HasSubstr("unknown")));
  for (const char* device : {"cuda:0", "cuda:one"}) {
    const Outcome refused = with({"--device=" + std::string(device)});
    EXPECT_EQ(refused.status, 2) << device;
  }
  ::unsetenv("CUDA_VISIBLE_DEVICES");
}

}  // namespace
}  // namespace quench
