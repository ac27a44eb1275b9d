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

// Nothing has to be downloaded: a preset takes the place of a ready run's folder, with its tokenizer.
TEST(EstimateVerb, APresetReplacesTheFolderOfAReadyRun) {
  const TempDir folder;
  const Outcome outcome = run_program(
      folder.path(), {"estimate", "qlora_llama-3.1-8b_16gb", "--model.preset=llama-3.2-1b", "--gpu=H100", "--json"});
  ASSERT_EQ(outcome.status, 0) << outcome.errors;
  const Json json = Json::parse(outcome.output);
  EXPECT_NEAR(static_cast<double>(json.at("parameters").as_int()), 1.24e9, 2e7);
  EXPECT_TRUE(json.at("fits").as_bool());
  const Outcome own = run_program(
      folder.path(), {"estimate", "qlora_llama-3.1-8b_16gb", "--model.preset=llama-3.2-1b", "--model.path=nowhere"});
  EXPECT_EQ(own.status, 2);
  EXPECT_THAT(own.errors, HasSubstr("give one of the two"));
}

TEST(EstimateVerb, AModelIsARunWithTheDefaultConfig) {
  const TempDir folder;
  const Outcome text = run_program(folder.path(), {"estimate", "Llama-3.2-1B", "--gpu", "rtx 4090"});
  ASSERT_EQ(text.status, 0) << text.errors;
  EXPECT_THAT(text.output, HasSubstr("llama-3.2-1b with the default config: all weights trained, data.seq_len 2048"));
  EXPECT_THAT(text.output, HasSubstr("ready runs       finetune_llama-3.2-1b, finetune_llama-3.2-1b_16gb"));
  EXPECT_THAT(text.output, HasSubstr("GPU              RTX 4090 24GB; at its peak (data sheet) a step takes"));
  const std::vector<std::string> lora{"estimate", "llama-3.2-1b", "--lora.rank=8", "--gpu=4090", "--json"};
  const Json with_adapters = Json::parse(run_program(folder.path(), lora).output);
  const Json all = Json::parse(run_program(folder.path(), {"estimate", "llama-3.2-1b", "--gpu=4090", "--json"}).output);
  EXPECT_LT(with_adapters.at("total_bytes").as_int(), all.at("total_bytes").as_int());
  const Outcome train = run_program(folder.path(), {"train", "llama-3.2-1b"});
  EXPECT_EQ(train.status, 2);
  EXPECT_THAT(train.errors, HasSubstr("or take a ready run: finetune_llama-3.2-1b"));
}

TEST(EstimateVerb, ComparesWithANamedGpu) {
  const TempDir folder;
  const auto estimate = [&](std::vector<std::string> more) {
    std::vector<std::string> all{"estimate", "llama_110m"};
    all.insert(all.end(), more.begin(), more.end());
    return run_program(folder.path(), all);
  };
  const Json json = Json::parse(estimate({"--gpu", "nvidia h200", "--json"}).output);
  EXPECT_EQ(json.at("gpu").as_string(), "H200 141GB");
  EXPECT_EQ(json.at("available_bytes").as_int(), (std::int64_t{143771} << 20) - (std::int64_t{1} << 30));
  EXPECT_FALSE(json.at("step_time").is_null());
  EXPECT_GT(json.at("step_time").at("seconds").as_double(), json.at("least_step_seconds").as_double());
  EXPECT_TRUE(json.at("host_available_bytes").is_null());
  const Json other = Json::parse(estimate({"--gpu=L40S", "--memory-limit=16GB", "--json"}).output);
  EXPECT_TRUE(other.at("step_time").is_null()) << "the rates of another GPU are no prediction";
  EXPECT_EQ(other.at("available_bytes").as_int(), std::int64_t{16'000'000'000} - (std::int64_t{1} << 30));
  const Outcome unknown = estimate({"--gpu=voodoo"});
  EXPECT_EQ(unknown.status, 2);
  EXPECT_THAT(unknown.errors, HasSubstr("--gpu 'voodoo' is unknown; known are RTX 4090 24GB, RTX 3090 24GB"));
  EXPECT_THAT(estimate({"--gpu=A100"}).errors, HasSubstr("'A100' is sold with 40 and with 80 GB"));
  EXPECT_THAT(estimate({"--gpu=H100", "--device=cpu"}).errors, HasSubstr("--device cpu contradicts it"));
  EXPECT_THAT(run_program(folder.path(), {"train", "llama_110m", "--gpu=H100"}).errors,
              HasSubstr("are for `quench estimate`"));
}

}  // namespace
}  // namespace quench
