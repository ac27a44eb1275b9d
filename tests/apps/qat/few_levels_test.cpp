// Quantization-aware training for weights of two, three and four levels, through the program.

#include <gmock/gmock.h>

#include "tests/apps/qat/exported_as_trained.h"
#include "tests/apps/run_project.h"

namespace quench {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::Outcome;
using testing::read_file;
using Options = std::vector<std::string>;

constexpr const char* kGrids[] = {"binary", "ternary", "seq"};

class FewLevels : public testing::RunProject {
 protected:
  [[nodiscard]] static Options train(const std::string& grid, const Options& more) {
    Options all{"train",
                "run.json",
                "--lr_schedule.name=constant",
                "--checkpoint.keep_latest=0",
                "--recipe.name=qat_intx_weight_only",
                "--recipe.weight_grid=" + grid,
                "--training.steps=10",
                "--evaluation.interval=10"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  void expect_exported_as_trained(const std::string& run) const { testing::expect_exported_as_trained(work() / run); }
  [[nodiscard]] std::string loss(Options model) const {
    model.insert(model.begin(), "eval");
    for (const char* more : {"--data", "held_out.txt", "--json"}) model.emplace_back(more);
    const Outcome outcome = run(model);
    EXPECT_EQ(outcome.status, 0) << outcome.errors;
    return outcome.output.substr(outcome.output.find("\"loss\""), 30);
  }
};

TEST_F(FewLevels, FoldersAreExportedAsTrainedWithLearnedScalesAndWithout) {
  for (const std::string grid : kGrids) {
    SCOPED_TRACE(grid);
    expect_ok(
        train(grid, {"--recipe.learned_scales=true", "--export.format=compressed-tensors", "--run.folder=" + grid}));
    expect_exported_as_trained(grid);
    const std::string config = read_file(work() / grid / "export/config.json");
    EXPECT_THAT(config, HasSubstr(grid == "seq" ? R"("num_bits": 3)" : R"("num_bits": 2)"));
    expect_ok(train(grid, {"--export.format=compressed-tensors", "--run.folder=" + grid + "-own"}));
    expect_exported_as_trained(grid + "-own");
    EXPECT_EQ(loss({"--model", grid + "-own/export"}),
              loss({"--model", grid + "-own", "--recipe", "qat_intx_weight_only", "--weight-grid", grid}));
    EXPECT_NE(loss({"--model", grid + "-own/export"}), loss({"--model", grid + "-own"}));
  }
}

// Groups of 256 and 32, under f16 scales.
TEST_F(FewLevels, GgufFilesAreExportedAsTrained) {
  write_config(R"({"model_type": "llama", "vocab_size": 280, "hidden_size": 256, "intermediate_size": 256,
      "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "tie_word_embeddings": true,
      "max_position_embeddings": 64})");
  for (const std::string grid : kGrids)
    for (const std::string group : {"256", "32"}) {
      const std::string folder = grid + group;
      expect_ok(train(grid, {"--recipe.learned_scales=true", "--recipe.scale_dtype=f16", "--recipe.group_size=" + group,
                             "--export.format=gguf", "--run.folder=" + folder}));
      expect_exported_as_trained(folder);
    }
  const Outcome other = run(train("seq", {"--recipe.group_size=64", "--export.format=gguf",
                                          "--export.scheme=seq_weight_only_g64", "--run.folder=other"}));
  EXPECT_EQ(other.status, 2);
  EXPECT_THAT(other.errors, HasSubstr("format gguf cannot store scheme seq_weight_only_g64"));
  EXPECT_FALSE(std::filesystem::exists(work() / "other"));
  const Outcome rounded = run(train("seq", {"--export.format=gguf", "--run.folder=rounded"}));
  EXPECT_EQ(rounded.status, 0);
  EXPECT_THAT(rounded.output + rounded.errors, HasSubstr("recipe.scale_dtype \"f16\" trains what is stored"));
  const Outcome whole = run(train("seq", {"--recipe.group_size=64", "--export.format=gguf", "--run.folder=whole"}));
  EXPECT_EQ(whole.status, 0);
  EXPECT_THAT(whole.output + whole.errors,
              HasSubstr("the run trains seq_weight_only_g64, which format gguf cannot store"));
}

TEST_F(FewLevels, RunsInTwoPartsExportTheSameBytes) {
  const auto with = [&](const std::string& grid, const Options& more) {
    Options all{"--recipe.learned_scales=true", "--recipe.scale_dtype=bf16", "--optimizer.lr=1e-3",
                "--export.format=compressed-tensors"};
    all.insert(all.end(), more.begin(), more.end());
    return train(grid, all);
  };
  for (const std::string grid : kGrids) {
    expect_ok(with(grid, {"--run.folder=" + grid}));
    expect_ok(with(grid, {"--run.folder=two-" + grid, "--training.steps=4"}));
    expect_ok(with(grid, {"--run.folder=two-" + grid}));
    EXPECT_EQ(read_file(work() / ("two-" + grid) / "export/model.safetensors"),
              read_file(work() / grid / "export/model.safetensors"));
    expect_ok({"quantize", "--model", grid, "--scheme", grid + "_weight_only_g32", "--output", "by-verb-" + grid});
    EXPECT_EQ(read_file(work() / ("by-verb-" + grid) / "model.safetensors"),
              read_file(work() / grid / "export/model.safetensors"));
  }
}

TEST_F(FewLevels, AdaptersAreTrainedAndExportedInTheLevels) {
  make_base();
  expect_ok(train("ternary", {"--lora.rank=4", "--export.format=compressed-tensors", "--run.folder=lora"}));
  expect_exported_as_trained("lora");
}

TEST_F(FewLevels, OptionsThatDoNotFitAreRefused) {
  const auto errors = [&](const std::string& grid, const Options& more) {
    const Outcome refused = run(train(grid, more));
    EXPECT_EQ(refused.status, 2);
    return refused.errors;
  };
  EXPECT_THAT(errors("quaternary", {}),
              AllOf(HasSubstr("recipe.weight_grid"), HasSubstr("int"), HasSubstr("binary"), HasSubstr("seq")));
  EXPECT_THAT(errors("seq", {"--recipe.weight_bits=2"}),
              HasSubstr("recipe.weight_bits: has no effect under recipe.weight_grid seq"));
  EXPECT_THAT(errors("ternary", {"--recipe.asymmetric_weights=true"}),
              HasSubstr("recipe.asymmetric_weights: true is incompatible with recipe.weight_grid ternary"));
  EXPECT_THAT(errors("binary", {"--recipe.name=qat_int4_weight_only"}), HasSubstr("does not use it"));
  EXPECT_THAT(errors("binary", {"--recipe.scale_dtype=f8"}), HasSubstr("recipe.scale_dtype"));
  EXPECT_THAT(errors("binary", {"--recipe.group_size=48"}), HasSubstr("recipe.group_size 48 does not divide"));
  EXPECT_THAT(errors("binary", {"--recipe.learned_scales=true", "--lora.rank=4"}),
              HasSubstr("is incompatible with lora"));
  EXPECT_FALSE(std::filesystem::exists(work() / "run"));
  const auto evaluated = [&](const Options& more) {
    Options all{"eval", "--model", "run", "--data", "held_out.txt", "--recipe"};
    all.insert(all.end(), more.begin(), more.end());
    const Outcome refused = run(all);
    EXPECT_EQ(refused.status, 2);
    return refused.errors;
  };
  expect_ok(train("int", {"--recipe.name=bf16", "--training.steps=2"}));
  EXPECT_THAT(evaluated({"qat_intx_weight_only", "--weight-grid", "two"}),
              HasSubstr("--weight-grid 'two' is unknown; known: int, binary, ternary, seq"));
  EXPECT_THAT(evaluated({"qat_intx_weight_only", "--weight-grid", "seq", "--weight-bits", "3"}),
              HasSubstr("--weight-bits has no effect under --weight-grid seq"));
  EXPECT_THAT(evaluated({"qat_int8", "--weight-grid", "seq"}), HasSubstr("--weight-grid has no effect"));
}

}  // namespace
}  // namespace quench
