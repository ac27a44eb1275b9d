#include "train/config/config_diff.h"

#include <gmock/gmock.h>

#include <filesystem>

#include "config_testing.h"
#include "tests/testing.h"
#include "train/config/presets.h"

namespace quench {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::minimal;
using ::testing::Not;

std::string changes(const std::vector<std::string>& before, const std::vector<std::string>& after) {
  return to_string(config_diff(minimal(before), minimal(after)));
}

// The message that refuses to resume, or "" where resuming is allowed.
std::string refusal(const std::vector<std::string>& before, const std::vector<std::string>& after) {
  const RunConfig now = minimal(after);
  try {
    require_resumable(config_diff(minimal(before), now), now);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::bad_config);
    return error.what();
  }
  return "";
}

TEST(ConfigDiff, EqualConfigsHaveNoDifference) {
  EXPECT_EQ(changes({"--export.format=hf"}, {"--export.format=hf"}), "");
}

// Flags that a family has on by default: absent is not false.
TEST(ConfigDiff, AnAbsentFlagIsTheFamilysDefault) {
  const auto refused = [](const std::string& members, const std::string& more) {
    const auto config = [](const std::string& model) {
      return parse_run_config(R"({"model": {)" + model + R"(}, "data": {"train": "a.bin", "seq_len": 16},
          "training": {"steps": 9, "micro_batch_size": 1}})",
                              "c", {}, {.data = false, .files = false});
    };
    const RunConfig without = config(members), with = config(members + more);
    for (const auto& [before, after] : {std::pair(&without, &with), {&with, &without}}) {
      std::string text;
      try {
        require_resumable(config_diff(*before, *after), *after);
      } catch (const Error& error) {
        text = error.what();
      }
      if (text.empty()) return false;
    }
    return true;
  };
  const std::string sizes = R"("vocab_size": 64, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2,
      "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8)";
  EXPECT_TRUE(refused(R"("model_type": "gemma2", )" + sizes, R"(, "tie_word_embeddings": false)"));
  EXPECT_TRUE(refused(R"("model_type": "smollm3", )" + sizes, R"(, "tie_word_embeddings": false)"));
  EXPECT_TRUE(refused(R"("model_type": "glm4", )" + sizes, R"(, "attention_bias": false)"));
  EXPECT_FALSE(refused(R"("model_type": "llama", )" + sizes, R"(, "tie_word_embeddings": false)"));
  EXPECT_FALSE(refused(R"("model_type": "llama", )" + sizes, R"(, "attention_bias": false, "mlp_bias": null)"));
}

// Checkpoints of 0.3.0 store lm_head where a config names no exclusions.
TEST(ConfigDiff, ExclusionsThatAreTheRecipesOwnAreNoDifference) {
  EXPECT_EQ(changes({"--recipe.filter.exclude=lm_head"}, {}), "");
  EXPECT_EQ(changes({}, {"--recipe.name=auto", "--recipe.filter.exclude=lm_head"}),
            "recipe.name: \"bf16\" -> \"auto\"");
  EXPECT_EQ(changes({}, {"--recipe.name=qat_gguf"}), "recipe.name: \"bf16\" -> \"qat_gguf\"");
  EXPECT_EQ(changes({"--recipe.name=qat_gguf", "--recipe.filter.exclude="}, {"--recipe.name=qat_gguf"}), "");
  EXPECT_EQ(changes({"--recipe.name=qat_gguf", "--recipe.filter.exclude=lm_head"}, {"--recipe.name=qat_gguf"}),
            "recipe.filter.exclude: [\"lm_head\"] -> (unset)");
  EXPECT_THAT(refusal({"--recipe.filter.exclude=lm_head,*.o_proj"}, {}), HasSubstr("recipe.filter.exclude"));
}

TEST(ConfigDiff, ListsOldAndNewInTableOrder) {
  EXPECT_EQ(changes({}, {"--training.steps=200", "--optimizer.lr=1e-3", "--metrics.log_every=1"}),
            "training.steps: 100 -> 200\noptimizer.lr: 3e-04 -> 0.001\nmetrics.log_every: 10 -> 1");
  EXPECT_THAT(changes({}, {"--export.format=hf"}), HasSubstr("export.format: (unset) -> \"hf\""));
}

TEST(ConfigDiff, FreeKeysMayChangeOnResume) {
  for (const char* argument :
       {"--optimizer.lr=1", "--training.steps=7", "--lr_schedule.warmup_steps=3", "--checkpoint.interval=9",
        "--metrics.log_every=3", "--training.threads=2", "--training.micro_batch_size=2", "--run.name=other",
        "--training.activation_checkpoint=full", "--optimizer.weight_decay=0"}) {
    EXPECT_EQ(refusal({}, {argument}), "") << argument;
  }
}

TEST(ConfigDiff, WhatChangesTheRunNeedsLeave) {
  for (const char* key : {"data.train", "data.seq_len", "training.seed", "training.global_batch_size", "training.dtype",
                          "recipe.name", "data.tokenizer", "optimizer.state", "training.master_dtype"}) {
    const std::string value = std::string(key) == "data.train"              ? "b.bin"
                              : std::string(key) == "recipe.name"           ? "float8_rowwise"
                              : std::string(key) == "data.tokenizer"        ? "other.json"
                              : std::string(key) == "training.dtype"        ? "f32"
                              : std::string(key) == "training.master_dtype" ? "none"
                              : std::string(key) == "optimizer.state"       ? "bf16"
                                                                            : "32";
    const std::string argument = fmt::format("--{}={}", key, value);
    const std::string message = refusal({}, {argument});
    EXPECT_THAT(message, AllOf(HasSubstr(std::string("\n  ") + key + ": "), HasSubstr(" -> "),
                               HasSubstr(fmt::format("--checkpoint.allow_changes={}", key))));
    EXPECT_EQ(refusal({}, {argument, fmt::format("--checkpoint.allow_changes={}", key)}), "") << key;
  }
}

// The context length is free unless RoPE scaling follows from it.
TEST(ConfigDiff, ALengthThatScalesRopeNeedsLeave) {
  const auto refused = [](const std::string& scaling, const std::vector<std::string>& more = {}) {
    const std::vector<std::string> before{"--model.max_position_embeddings=512", "--model.rope_scaling=" + scaling};
    std::vector<std::string> after{"--model.max_position_embeddings=4096", "--model.rope_scaling=" + scaling};
    after.insert(after.end(), more.begin(), more.end());
    return refusal(before, after);
  };
  constexpr const char* kAllowed = "--checkpoint.allow_changes=model.max_position_embeddings";
  for (const char* scaling :
       {R"({"rope_type": "dynamic", "factor": 2})", R"({"rope_type": "yarn", "original_max_position_embeddings": 32})",
        R"({"rope_type": "yarn"})"}) {
    EXPECT_THAT(refused(scaling), AllOf(HasSubstr("model.max_position_embeddings: 512 -> 4096"), HasSubstr(kAllowed)))
        << scaling;
    EXPECT_EQ(refused(scaling, {kAllowed}), "") << scaling;
  }
  for (const char* scaling :
       {"null", R"({"rope_type": "linear", "factor": 2})", R"({"rope_type": "yarn", "factor": 2})",
        R"({"rope_type": "yarn", "factor": 2, "original_max_position_embeddings": 32})"})
    EXPECT_EQ(refused(scaling), "") << scaling;
}

TEST(ConfigDiff, TheFlagNamesAllThatIsNeeded) {
  const std::string message =
      refusal({}, {"--training.seed=1", "--data.shuffle=false", "--checkpoint.allow_changes=training.seed"});
  EXPECT_THAT(message, Not(HasSubstr("training.seed: 42")));
  EXPECT_THAT(message, HasSubstr("--checkpoint.allow_changes=training.seed,data.shuffle"));
}

TEST(ConfigDiff, ShapeChangesAreAlwaysRefused) {
  const std::string message = refusal({}, {"--model.num_hidden_layers=3", "--training.seed=1"});
  EXPECT_THAT(message, AllOf(HasSubstr("model.num_hidden_layers: 2 -> 3 (the stored state would not fit)"),
                             HasSubstr("training.seed: 42 -> 1"), HasSubstr("--checkpoint.resume=never")));
  EXPECT_THAT(refusal({}, {"--model.vocab_size=512"}), HasSubstr("model.vocab_size: 272 -> 512"));
  EXPECT_THAT(refusal({}, {"--model.preset=llama-10m"}), HasSubstr("model.hidden_size: 64 -> 384"));
}

TEST(ConfigDiff, TheSameArchitectureFromAnotherPlaceIsTheSame) {
  const testing::TempDir folder;
  testing::write_file(folder / "config.json", std::string(find_embedded_config("models", "tiny")->text));
  const std::string path = "--model.path=" + folder.path().string();
  const auto list = config_diff(minimal(), minimal({"~model.preset", path, "--model.init=random"}));
  for (const ConfigChange& change : list) EXPECT_EQ(change.policy, ResumePolicy::free) << change.key;
  EXPECT_EQ(list.size(), 2u) << to_string(list);  // preset and path
  EXPECT_EQ(refusal({}, {"~model.preset", path, "--model.init=random"}), "");
}

TEST(ConfigDiff, UnreadableModelFoldersAreComparedByPathOnly) {
  const std::string text =
      changes({"~model.preset", "--model.path=nowhere/a"}, {"~model.preset", "--model.path=nowhere/b"});
  EXPECT_EQ(text, "model.path: \"nowhere/a\" -> \"nowhere/b\"");
}

}  // namespace
}  // namespace quench
