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

// Parsed output of `quench estimate ARGUMENTS --json`.
Json limits_of(const TempDir& folder, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "estimate");
  arguments.emplace_back("--json");
  const Outcome outcome = run_program(folder.path(), arguments);
  EXPECT_EQ(outcome.status, 0) << outcome.errors;
  return Json::parse(outcome.output);
}

const std::vector<std::string> kQlora{"llama-3.2-1b",    "--lora.rank=8",
                                      "--lora.base=nf4", "--training.activation_checkpoint=full",
                                      "--device=cuda",   "--memory-limit=12GiB"};

std::vector<std::string> joined(std::vector<std::string> arguments, const std::vector<std::string>& more) {
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

TEST(EstimateLimits, TheLongestSequenceFitsAndTheNextDoesNot) {
  const TempDir folder;
  for (const auto& keys : {std::vector<std::string>{}, {"--training.micro_batch_size=3"}, {"--data.seq_len=100000"}}) {
    const Json found = limits_of(folder, joined(kQlora, joined(keys, {"--max-seq-len"})));
    const std::int64_t tokens = found.at("max_seq_len").as_int(), unit = found.at("unit").as_int();
    EXPECT_EQ(unit, 1024);
    EXPECT_EQ(tokens % unit, 0);
    EXPECT_GT(tokens, 8192);
    const auto at = [&](std::int64_t length) {
      const std::string text = std::to_string(length);
      return limits_of(
          folder, joined(kQlora, joined(keys, {"--data.seq_len=" + text, "--model.max_position_embeddings=" + text})));
    };
    const Json fits = at(tokens), beyond = at(tokens + unit);
    EXPECT_TRUE(fits.at("fits").as_bool());
    EXPECT_FALSE(beyond.at("fits").as_bool());
    EXPECT_EQ(found.at("estimate").at("total_bytes").as_int(), fits.at("total_bytes").as_int());
    EXPECT_EQ(found.at("next_total_bytes").as_int(), beyond.at("total_bytes").as_int());
  }
}

// Activations grow with the sequence, weights do not, and the growth predicts another length.
TEST(EstimateLimits, SaysWhatGrows) {
  const TempDir folder;
  const Json found = limits_of(folder, joined(kQlora, {"--max-seq-len"}));
  const auto& holders = found.at("holders").as_array();
  EXPECT_EQ(holders.front().at("name").as_string(), "activations: hidden states");
  // 16 layers save an input of 2,048 bf16 values.
  EXPECT_GT(holders.front().at("bytes_per_token").as_double(), 16 * 2048 * 2);
  for (const Json& holder : holders) {
    if (holder.at("name").as_string() == "weights") {
      EXPECT_EQ(holder.at("bytes_per_token").as_double(), 0);
    }
  }
  const Outcome text = run_program(folder.path(), joined({"estimate"}, joined(kQlora, {"--max-seq-len"})));
  for (const char* part : {"longest sequence", "one step longer", "KiB a further token", "the run with that length"})
    EXPECT_THAT(text.output, HasSubstr(part));
}

TEST(EstimateLimits, ShortSequencesAreFoundInShortSteps) {
  const TempDir folder;
  const std::vector<std::string> full{"llama-3.2-1b", "--device=cuda", "--training.micro_batch_size=64",
                                      "--memory-limit=24GiB", "--max-seq-len"};
  const Json found = limits_of(folder, full);
  EXPECT_EQ(found.at("unit").as_int(), 64);
  EXPECT_LT(found.at("max_seq_len").as_int(), 1024);
  std::vector<std::string> small = full;
  small[3] = "--memory-limit=4GiB";
  const Outcome none = run_program(folder.path(), joined({"estimate"}, small));
  EXPECT_NE(none.status, 0);
  EXPECT_THAT(none.errors, HasSubstr("DOES NOT FIT"));
}

TEST(EstimateLimits, TheLargestModelFitsAndLargerOnesDoNot) {
  const TempDir folder;
  const std::vector<std::string> lora{"--lora.rank=8", "--lora.base=nf4", "--device=cuda", "--memory-limit=8GiB",
                                      "--data.seq_len=512"};
  const Json found = limits_of(folder, joined({"llama-3.2-1b", "--max-model"}, lora));
  const std::string largest = found.at("max_model").as_string();
  const auto& models = found.at("models").as_array();
  ASSERT_GT(models.size(), 3u);
  for (std::size_t i = 0; i < models.size(); ++i) {
    const bool last = i + 1 == models.size();
    EXPECT_EQ(models[i].at("fits").as_bool(), last);
    EXPECT_EQ(models[i].at("name").as_string() == largest, last);
    if (i > 0) {
      EXPECT_LE(models[i].at("parameters").as_int(), models[i - 1].at("parameters").as_int());
    }
  }
  const Json own = limits_of(folder, joined({largest}, lora));
  EXPECT_TRUE(own.at("fits").as_bool());
  EXPECT_EQ(own.at("total_bytes").as_int(), found.at("estimate").at("total_bytes").as_int());
  // A ready run's folder and inline fields give way to the embedded model.
  const Outcome text =
      run_program(folder.path(), {"estimate", "qlora_llama-3.1-8b_24gb", "--max-model", "--device=cuda"});
  EXPECT_EQ(text.status, 0) << text.errors;
  EXPECT_THAT(text.output, HasSubstr("largest model"));
}

TEST(EstimateLimits, NeedAMemoryAndOneQuestion) {
  const TempDir folder;
  for (const char* search : {"--max-seq-len", "--max-model"}) {
    const Outcome unknown = run_program(folder.path(), {"estimate", "llama-3.2-1b", "--device=cuda", search});
    EXPECT_EQ(unknown.status, 2);
    EXPECT_THAT(unknown.errors, HasSubstr("name a GPU (--gpu H100) or a size (--memory-limit 80GB)"));
    EXPECT_THAT(run_program(folder.path(), {"train", "llama_110m", search}).errors,
                HasSubstr("are for `quench estimate`"));
  }
  const Outcome both =
      run_program(folder.path(), {"estimate", "llama-3.2-1b", "--gpu=H100", "--max-seq-len", "--max-model"});
  EXPECT_EQ(both.status, 2);
  EXPECT_THAT(both.errors, HasSubstr("give one of them"));
}

}  // namespace
}  // namespace quench
