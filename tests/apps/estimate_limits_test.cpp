// quench estimate --max-seq-len and --max-model.

#include <gmock/gmock.h>

#include "core/json/json.h"
#include "tests/apps/program.h"

namespace quench {
namespace {

using ::testing::HasSubstr;
using testing::Outcome;
using testing::run_program;
using testing::TempDir;

// Parsed output of `quench estimate ARGUMENTS --json`.
Json estimate(const TempDir& folder, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "estimate");
  arguments.emplace_back("--json");
  const Outcome outcome = run_program(folder.path(), arguments);
  EXPECT_EQ(outcome.status, 0) << outcome.errors;
  return Json::parse(outcome.output);
}

const std::vector<std::string> kQlora{"llama-3.2-1b",    "--lora.rank=8",
                                      "--lora.base=nf4", "--training.activation_checkpoint=full",
                                      "--device=cuda",   "--memory-limit=12GiB"};

std::vector<std::string> with(std::vector<std::string> arguments, const std::vector<std::string>& more) {
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

TEST(EstimateLimits, TheLongestSequenceFitsAndTheNextDoesNot) {
  const TempDir folder;
  for (const auto& keys : {std::vector<std::string>{}, {"--training.micro_batch_size=3"}, {"--data.seq_len=100000"}}) {
    const Json found = estimate(folder, with(kQlora, with(keys, {"--max-seq-len"})));
    const std::int64_t tokens = found.at("max_seq_len").as_int(), unit = found.at("unit").as_int();
    EXPECT_EQ(unit, 1024);
    EXPECT_EQ(tokens % unit, 0);
    EXPECT_GT(tokens, 8192);
    const auto at = [&](std::int64_t length) {
      const std::string text = std::to_string(length);
      return estimate(folder,
                      with(kQlora, with(keys, {"--data.seq_len=" + text, "--model.max_position_embeddings=" + text})));
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
  const Json found = estimate(folder, with(kQlora, {"--max-seq-len"}));
  const auto& holders = found.at("holders").as_array();
  EXPECT_EQ(holders.front().at("name").as_string(), "activations: hidden states");
  // 16 layers save an input of 2,048 bf16 values.
  EXPECT_GT(holders.front().at("bytes_per_token").as_double(), 16 * 2048 * 2);
  for (const Json& holder : holders)
    if (holder.at("name").as_string() == "weights") EXPECT_EQ(holder.at("bytes_per_token").as_double(), 0);
  const Outcome text = run_program(folder.path(), with({"estimate"}, with(kQlora, {"--max-seq-len"})));
  for (const char* part : {"longest sequence", "one step longer", "KiB a further token", "the run with that length"})
    EXPECT_THAT(text.output, HasSubstr(part));
}

TEST(EstimateLimits, ShortSequencesAreFoundInShortSteps) {
  const TempDir folder;
  const std::vector<std::string> full{"llama-3.2-1b", "--device=cuda", "--training.micro_batch_size=64",
                                      "--memory-limit=24GiB", "--max-seq-len"};
  const Json found = estimate(folder, full);
  EXPECT_EQ(found.at("unit").as_int(), 64);
  EXPECT_LT(found.at("max_seq_len").as_int(), 1024);
  std::vector<std::string> small = full;
  small[3] = "--memory-limit=4GiB";
  const Outcome none = run_program(folder.path(), with({"estimate"}, small));
  EXPECT_NE(none.status, 0);
  EXPECT_THAT(none.errors, HasSubstr("DOES NOT FIT"));
}

TEST(EstimateLimits, TheLargestModelFitsAndLargerOnesDoNot) {
  const TempDir folder;
  const std::vector<std::string> lora{"--lora.rank=8", "--lora.base=nf4", "--device=cuda", "--memory-limit=8GiB",
                                      "--data.seq_len=512"};
  const Json found = estimate(folder, with({"llama-3.2-1b", "--max-model"}, lora));
  const std::string largest = found.at("max_model").as_string();
  const auto& models = found.at("models").as_array();
  ASSERT_GT(models.size(), 3u);
  for (std::size_t i = 0; i < models.size(); ++i) {
    const bool last = i + 1 == models.size();
    EXPECT_EQ(models[i].at("fits").as_bool(), last);
    EXPECT_EQ(models[i].at("name").as_string() == largest, last);
    if (i > 0) EXPECT_LE(models[i].at("parameters").as_int(), models[i - 1].at("parameters").as_int());
  }
  const Json own = estimate(folder, with({largest}, lora));
  EXPECT_TRUE(own.at("fits").as_bool());
  EXPECT_EQ(own.at("total_bytes").as_int(), found.at("estimate").at("total_bytes").as_int());
  // A ready run's folder and inline fields make room for the embedded model.
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
