// Quantization-aware training, alone and with adapters, through the program.

#include <gmock/gmock.h>

#include "tests/apps/run_project.h"

namespace quench {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::Outcome;
using testing::read_file;

class Qat : public testing::RunProject {
 protected:
  [[nodiscard]] static std::vector<std::string> train(std::vector<std::string> more = {}) {
    more.insert(more.begin(), {"train", "run.json", "--lr_schedule.name=constant", "--checkpoint.keep_latest=0"});
    return more;
  }
  [[nodiscard]] std::string weights(const std::string& run) const {
    expect_ok({"export", "--checkpoint", run, "--output", run + "-export"});
    return read_file(work() / (run + "-export") / "model.safetensors");
  }
  // The member "loss" of `quench eval --json`, with the options of a model.
  [[nodiscard]] std::string loss(std::vector<std::string> model) const {
    model.insert(model.begin(), "eval");
    for (const char* more : {"--data", "held_out.txt", "--json"}) model.emplace_back(more);
    const Outcome outcome = run(model);
    EXPECT_EQ(outcome.status, 0) << outcome.errors;
    return outcome.output.substr(outcome.output.find("\"loss\""), 30);
  }
};

TEST_F(Qat, ResumesExactlyAcrossTheStepsWhereItStartsAndStops) {
  const std::vector<std::string> recipe = {"--recipe.name=qat_int8dyn_int4", "--recipe.start_step=5",
                                           "--recipe.stop_step=25"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), recipe.begin(), recipe.end());
    return train(std::move(more));
  };
  const Outcome trained = run(with({}));
  ASSERT_EQ(trained.status, 0) << trained.errors;
  EXPECT_THAT(trained.errors + trained.output,
              AllOf(HasSubstr("step 6: the recipe applies"),
                    HasSubstr("step 26: the recipe does not apply from this step on")));
  expect_ok(with({"--run.folder=two", "--training.steps=10"}));
  expect_ok(with({"--run.folder=two"}));
  EXPECT_EQ(weights("run"), weights("two"));
  expect_ok(train({"--run.folder=plain"}));
  EXPECT_NE(weights("run"), weights("plain"));
}

TEST_F(Qat, AdaptersTakePartInWhatIsQuantized) {
  make_base();
  const std::vector<std::string> common = {"--recipe.name=qat_int4_weight_only", "--recipe.group_size=16",
                                           "--lora.rank=4"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), common.begin(), common.end());
    return train(std::move(more));
  };
  const Outcome merged = run(with({}));
  ASSERT_EQ(merged.status, 0) << merged.errors;
  EXPECT_THAT(merged.output, HasSubstr("qat_int4_weight_only of W + lora"));
  expect_ok(with({"--run.folder=two", "--training.steps=10"}));
  expect_ok(with({"--run.folder=two"}));
  EXPECT_EQ(weights("run"), weights("two"));
  const Outcome beside = run(with({"--run.folder=beside", "--lora.quantize_merged=false", "--lora.dropout=0.1"}));
  ASSERT_EQ(beside.status, 0) << beside.errors;
  EXPECT_THAT(beside.output, HasSubstr("qat_int4_weight_only + lora"));
  const Outcome refused = run(with({"--run.folder=dropout", "--lora.dropout=0.1"}));
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.errors, HasSubstr("or lora.quantize_merged to false"));
}

// gpt-oss in its own format, also for a run in two parts; read again and exported, the file has the same bytes.
TEST_F(Qat, ExpertsInMxfp4AreExportedAsTrained) {
  write_config(R"({"model_type": "gpt_oss", "vocab_size": 280, "hidden_size": 64, "intermediate_size": 32,
      "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
      "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 16, "max_position_embeddings": 64})");
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"--recipe.name=qat_mxfp4_weight_only", "--recipe.filter.include=[\"*experts*\"]",
                               "--training.dtype=bf16", "--training.steps=20", "--export.format=mxfp4"});
    return train(std::move(more));
  };
  expect_ok(with({}));
  expect_ok(with({"--run.folder=two", "--training.steps=10"}));
  expect_ok(with({"--run.folder=two"}));
  const std::string exported = read_file(work() / "run/export/model.safetensors");
  EXPECT_EQ(read_file(work() / "two/export/model.safetensors"), exported);
  expect_ok(
      {"export", "--model", "run/export", "--format", "mxfp4", "--scheme", "mxfp4_weight_only", "--output", "again"});
  EXPECT_EQ(read_file(work() / "again/model.safetensors"), exported);

  const Outcome unnamed = run({"export", "--model", "run/export", "--format", "mxfp4", "--output", "unnamed"});
  EXPECT_NE(unnamed.status, 0);
  EXPECT_THAT(unnamed.errors, HasSubstr("name a scheme, for example mxfp4_weight_only"));
}

// The export equals the simulated quantization, also for a run in two parts.
TEST_F(Qat, EmbeddingsAndLearnedScalesAreExportedAsTrained) {
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(),
                {"--recipe.name=qat_int4_weight_only", "--recipe.embedding_bits=4", "--recipe.learned_scales=true",
                 "--optimizer.lr=1e-3", "--training.steps=20", "--export.format=compressed-tensors"});
    return train(std::move(more));
  };
  expect_ok(with({}));
  expect_ok(with({"--run.folder=two", "--training.steps=10"}));
  expect_ok(with({"--run.folder=two"}));
  const std::string exported = read_file(work() / "run/export/model.safetensors");
  EXPECT_EQ(read_file(work() / "two/export/model.safetensors"), exported);
  expect_ok({"quantize", "--model", "run", "--scheme", "int4_weight_only_g32", "--embeddings", "int4_weight_only_g32",
             "--output", "by-verb"});
  EXPECT_EQ(read_file(work() / "by-verb/model.safetensors"), exported);
  EXPECT_THAT(exported, AllOf(HasSubstr("model.embed_tokens.weight_scale"), ::testing::Not(HasSubstr("qkv_proj"))));
  // Without learned scales the verb simulates the same codes.
  expect_ok(train({"--recipe.name=qat_int4_weight_only", "--recipe.embedding_bits=4", "--training.steps=20",
                   "--export.format=compressed-tensors", "--run.folder=plain"}));
  EXPECT_EQ(loss({"--model", "plain/export"}),
            loss({"--model", "plain", "--recipe", "qat_int4_weight_only", "--embedding-bits", "4"}));
}

// Weights of four bits in float blocks, inputs in high precision: the folder evaluates as the run under its recipe.
// compressed-tensors stores the reciprocal of NVFP4's global scale, which rounds it in f32.
TEST_F(Qat, BlocksOfWeightsAloneAreExportedAsTrained) {
  const auto value = [](const std::string& member) { return std::stod(member.substr(member.find(' '))); };
  for (const auto& [scheme, relative] : {std::pair<std::string, double>{"nvfp4_weight_only", 1e-6},
                                         std::pair<std::string, double>{"mxfp4_weight_only", 0.0}}) {
    SCOPED_TRACE(scheme);
    expect_ok(train({"--recipe.name=qat_" + scheme, "--training.steps=20", "--export.format=compressed-tensors",
                     "--run.folder=" + scheme}));
    const double trained = value(loss({"--model", scheme, "--recipe", "qat_" + scheme}));
    EXPECT_NEAR(value(loss({"--model", scheme + "/export"})), trained, relative * trained);
    EXPECT_GT(std::abs(value(loss({"--model", scheme})) - trained), 1e-5 * trained);
  }
}

// The GGUF file evaluates as the run under its recipe: types, fallbacks and a whole mix with its tied table.
TEST_F(Qat, GgufFilesAreExportedAsTrained) {
  const auto value = [](const std::string& member) { return std::stod(member.substr(member.find(' '))); };
  write_config(R"({"model_type": "llama", "vocab_size": 280, "hidden_size": 256, "intermediate_size": 256,
      "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "tie_word_embeddings": true,
      "max_position_embeddings": 64})");
  for (const char* scheme : {"q4_k_m", "q2_k", "iq4_nl"}) {
    SCOPED_TRACE(scheme);
    const std::string folder = std::string("gguf-") + scheme;
    expect_ok(train({"--recipe.name=qat_gguf", std::string("--recipe.gguf_scheme=") + scheme, "--training.steps=6",
                     "--export.folder=" + folder + "/export", "--run.folder=" + folder}));
    const double trained = value(loss({"--model", folder, "--recipe", "qat_gguf", "--gguf-scheme", scheme}));
    EXPECT_NEAR(value(loss({"--model", folder + "/export"})), trained, 2e-6 * trained);
    EXPECT_GT(std::abs(value(loss({"--model", folder})) - trained), 1e-6 * trained);
  }
  const Outcome refused = run(train({"--recipe.name=qat_gguf", "--recipe.gguf_scheme=int4_weight_only_g32"}));
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.errors, AllOf(HasSubstr("recipe.gguf_scheme"), HasSubstr("no type or mix of GGUF files")));
}

// The file of a mix has the head in it too, as llama.cpp's has.
TEST_F(Qat, AnUntiedHeadIsTrainedForItsTypeInTheFile) {
  const auto value = [](const std::string& member) { return std::stod(member.substr(member.find(' '))); };
  write_config(R"({"model_type": "llama", "vocab_size": 280, "hidden_size": 256, "intermediate_size": 256,
      "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64})");
  const std::vector<std::string> usual{"--recipe.name=qat_gguf", "--training.steps=4"};
  std::vector<std::string> all = usual, without = usual;
  all.insert(all.end(), {"--run.folder=all", "--export.folder=all/export"});
  without.insert(without.end(),
                 {"--recipe.filter.exclude=lm_head", "--run.folder=without", "--export.folder=without/export"});
  expect_ok(train(all));
  expect_ok(train(without));
  const double trained = value(loss({"--model", "all", "--recipe", "qat_gguf"}));
  EXPECT_NEAR(value(loss({"--model", "all/export"})), trained, 2e-6 * trained);
  EXPECT_THAT(run({"inspect", "all/export"}).output, HasSubstr("3 tensors Q6_K"));  // with two of the mix
  EXPECT_THAT(run({"inspect", "without/export"}).output, HasSubstr("2 tensors Q6_K"));
  const double whole_head = value(loss({"--model", "without", "--recipe", "qat_gguf", "--recipe-exclude", "lm_head"}));
  EXPECT_NEAR(value(loss({"--model", "without/export"})), whole_head, 2e-6 * whole_head);
}

// Whatever the rate, scales stay positive: the run ends well, and so does its export.
TEST_F(Qat, LearnedScalesTakeAnyRate) {
  for (const std::string rate : {"3e-4", "1e-3", "1"})
    expect_ok(train({"--recipe.name=qat_int4_weight_only", "--recipe.learned_scales=true", "--recipe.scale_lr=" + rate,
                     "--optimizer.lr=1e-3", "--training.steps=10", "--run.folder=rate" + rate,
                     "--export.format=compressed-tensors"}));
  const auto refused = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"--recipe.name=qat_int4_weight_only", "--recipe.learned_scales=true"});
    return run(train(std::move(more))).errors;
  };
  EXPECT_THAT(refused({"--recipe.learned_scales=false", "--recipe.scale_lr=1e-3"}),
              HasSubstr("has no effect without recipe.learned_scales"));
  EXPECT_THAT(refused({"--recipe.asymmetric_weights=true"}),
              HasSubstr("is incompatible with recipe.asymmetric_weights"));
  EXPECT_THAT(refused({"--lora.rank=4"}), HasSubstr("is incompatible with lora"));
  EXPECT_THAT(refused({"--recipe.start_step=2"}), HasSubstr("scales are trained in every step"));
}

TEST_F(Qat, OptionsOfOtherRecipesAreRefused) {
  const auto errors = [&](std::vector<std::string> more) { return run(train(std::move(more))).errors; };
  EXPECT_THAT(errors({"--recipe.name=qat_int8", "--recipe.group_size=32"}),
              HasSubstr("recipe.name qat_int8 does not use it"));
  EXPECT_THAT(errors({"--recipe.name=qat_int4_weight_only", "--recipe.weight_bits=3"}), HasSubstr("does not use it"));
  EXPECT_THAT(errors({"--recipe.name=qat_intx_weight_only", "--recipe.weight_bits=9"}),
              HasSubstr("recipe.weight_bits"));
  EXPECT_THAT(errors({"--recipe.name=bf16", "--recipe.group_size=32"}), HasSubstr("does not use it"));
}

TEST_F(Qat, LayersThatGroupsDoNotDivideAreRefusedBeforeTheRun) {
  const std::vector<std::string> recipe = {"--recipe.name=qat_int4_weight_only", "--recipe.group_size=48",
                                           "--training.steps=1"};
  const Outcome refused = run(train(recipe));
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.errors,
              AllOf(HasSubstr("--recipe.group_size=48: recipe.group_size: recipe qat_int4_weight_only cannot take"),
                    HasSubstr("model.layers.*.self_attn.qkv_proj in layers 0-1, 64 inputs"),
                    HasSubstr("recipe.group_size 48 does not divide its 64 inputs; 8, 16, 32, 64"),
                    HasSubstr("recipe.filter.exclude")));
  EXPECT_FALSE(std::filesystem::exists(work() / "run"));
  std::vector<std::string> check = {"config", "check", "run.json"};
  check.insert(check.end(), recipe.begin(), recipe.end());
  EXPECT_THAT(run(check).errors, HasSubstr("recipe.group_size 48 does not divide its 64 inputs"));
  // The 192 inputs of down_proj are divided: those layers alone can be trained.
  std::vector<std::string> others = train(recipe);
  others.push_back("--recipe.filter.exclude=lm_head,*.self_attn.*,*.gate_up_proj");
  const Outcome trained = run(others);
  EXPECT_EQ(trained.status, 0) << trained.errors;
  EXPECT_THAT(trained.output, HasSubstr("(skipped: in recipe.filter.exclude)"));
  const Outcome evaluated = run(
      {"eval", "--model", "run", "--data", "held_out.txt", "--recipe", "qat_int4_weight_only", "--group-size", "48"});
  EXPECT_EQ(evaluated.status, 2);
  EXPECT_THAT(evaluated.errors, HasSubstr("recipe.group_size 48 does not divide its 64 inputs"));
}

}  // namespace
}  // namespace quench
