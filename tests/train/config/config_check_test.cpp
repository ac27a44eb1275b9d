// Contradictions between keys and with the world outside.

#include "train/check/check.h"

#include <gmock/gmock.h>

#include <ctime>
#include <filesystem>

#include "config_testing.h"
#include "nn/spec/model_family.h"
#include "nn/spec/model_fields.h"
#include "recipes/recipe.h"
#include "tests/testing.h"
#include "train/config/fields/field.h"
#include "train/plan/run_check.h"

namespace quench {
namespace {

using ::testing::AllOf;
using testing::complaint;
using ::testing::HasSubstr;
using testing::minimal;

TEST(ConfigCheck, BatchMustDivide) {
  EXPECT_THAT(complaint({"--training.global_batch_size=65", "--training.micro_batch_size=4"}),
              HasSubstr("training.global_batch_size: 65 is not divisible by micro_batch_size 4; nearest: 64 or 68"));
  EXPECT_THAT(complaint({"--training.global_batch_size=2", "--training.micro_batch_size=4"}),
              HasSubstr("2 is not divisible by micro_batch_size 4; nearest: 4"));
  EXPECT_EQ(complaint({"--training.global_batch_size=64", "--training.micro_batch_size=4"}), "");
}

TEST(ConfigCheck, LongDocumentsNeedSequencesOfDocuments) {
  EXPECT_THAT(complaint({"--data.on_long=drop"}),
              HasSubstr("data.on_long: drop, but sequences are cut from the stream of documents"));
  EXPECT_EQ(complaint({"--data.on_long=drop", "--data.multipack"}), "");
  EXPECT_EQ(complaint({"--data.on_long=truncate", "--data.packing=false"}), "");
  EXPECT_THAT(complaint({"--data.multipack", "--data.packing=false"}),
              HasSubstr("data.multipack: true, but data.packing is false"));
  EXPECT_THAT(complaint({"--data.on_long=cut"}), HasSubstr("expected one of split, truncate, drop"));
}

TEST(ConfigCheck, AccumulationSteps) {
  EXPECT_EQ(accumulation_steps(minimal({"--training.micro_batch_size=4"}), 8), 1);
  const RunConfig config = minimal({"--training.global_batch_size=64", "--training.micro_batch_size=4"});
  EXPECT_EQ(accumulation_steps(config, 1), 16);
  EXPECT_EQ(accumulation_steps(config, 8), 2);
  EXPECT_THROW((void)accumulation_steps(config, 3), ConfigError);
  EXPECT_THROW((void)accumulation_steps(config, 0), Error);
}

TEST(ConfigCheck, ARecipeAppliesInSomeStep) {
  EXPECT_THAT(complaint({"--recipe.start_step=5", "--recipe.stop_step=5"}),
              HasSubstr("recipe.start_step: 5 is not less than recipe.stop_step 5"));
  EXPECT_THAT(complaint({"--recipe.start_step=100"}),
              HasSubstr("recipe.start_step: 100 is not less than training.steps 100"));
  EXPECT_EQ(complaint({"--recipe.start_step=99", "--recipe.stop_step=500"}), "");
}

TEST(ConfigCheck, ScheduleFitsTheRun) {
  EXPECT_THAT(complaint({"--lr_schedule.warmup_steps=200"}),
              HasSubstr("200 steps of warmup exceed training.steps 100: lower it too"));
  EXPECT_EQ(complaint({"--lr_schedule.warmup_steps=100"}), "");
  EXPECT_EQ(complaint({"--lr_schedule.name=wsd", "--lr_schedule.warmup_steps=90"}), "") << "20% are decay by default";
  EXPECT_THAT(complaint({"--lr_schedule.name=wsd", "--lr_schedule.warmup_steps=60", "--lr_schedule.decay_steps=50"}),
              HasSubstr("lr_schedule.decay_steps: 50 steps of decay after 60 of warmup exceed training.steps 100"));
  EXPECT_THAT(complaint({"--lr_schedule.name=wsd", "--lr_schedule.warmup_steps=60", "--lr_schedule.decay_ratio=0.5"}),
              HasSubstr("0.5 of 100 steps = 50 steps of decay after 60 of warmup exceed training.steps 100"));
  EXPECT_EQ(complaint({"--lr_schedule.decay_steps=500"}), "");
  EXPECT_THAT(complaint({"--lr_schedule.decay_steps=5", "--lr_schedule.decay_ratio=0.5"}),
              HasSubstr("0.5 contradicts decay_steps 5"));
  EXPECT_THAT(complaint({"--lr_schedule.name=constant", "--lr_schedule.decay_steps=5"}), HasSubstr("has no decay"));
}

TEST(ConfigCheck, OptionsThatTheRecipeDoesNotUseAreRefused) {
  for (const std::string option : {"--recipe.pad=true", "--recipe.emulate=true", "--recipe.keep_weights=false",
                                   "--recipe.high_precision_gemms=[\"wgrad\"]"}) {
    EXPECT_THAT(complaint({option}), HasSubstr("but recipe.name bf16 does not use it"));
    EXPECT_EQ(complaint({option, "--recipe.name=float8_rowwise"}), "");
    EXPECT_EQ(complaint({option, "--recipe.name=auto"}), "");
  }
  EXPECT_EQ(complaint({"--recipe.filter.skip_last_layers=1", "--recipe.high_precision_tail=0.5"}), "");
}

TEST(ConfigCheck, OptionsThatTheOptimizerDoesNotUseAreRefused) {
  EXPECT_THAT(complaint({"--optimizer.momentum=0.9"}),
              HasSubstr("optimizer.momentum: 0.9, but optimizer.name adamw does not use it"));
  EXPECT_THAT(complaint({"--optimizer.name=sgd", "--optimizer.betas=[0.9,0.99]"}),
              HasSubstr("optimizer.betas: [0.9,0.99], but optimizer.name sgd does not use it"));
  for (const std::string name : {"sgd", "muon"})
    EXPECT_EQ(complaint({"--optimizer.name=" + name, "--optimizer.momentum=0.8", "--optimizer.nesterov=true"}), "");
  EXPECT_EQ(complaint({"--optimizer.name=adamw_8bit", "--optimizer.betas=[0.9,0.99]"}), "");
  EXPECT_THAT(complaint({"--optimizer.name=adamw8bit"}), HasSubstr("adamw_8bit"));
}

TEST(ConfigCheck, BatchInvarianceRefusesScalesOfAllRows) {
  const std::string on = "--training.batch_invariant=true", tensorwise = "--recipe.name=float8_tensorwise";
  EXPECT_THAT(complaint({on, tensorwise}), HasSubstr("training.batch_invariant: true, but the scales of recipe.name "
                                                     "float8_tensorwise are those of all rows together"));
  EXPECT_EQ(complaint({on, tensorwise, "--recipe.high_precision_gemms=[\"forward\"]"}), "");
  for (const std::string name : {"bf16", "float8_rowwise", "float8_blockwise", "auto"})
    EXPECT_EQ(complaint({on, "--recipe.name=" + name}), "") << name;
}

TEST(ConfigCheck, GradientRoundingNeedsQuantizedGradients) {
  const std::string stochastic = "--recipe.gradient_rounding=stochastic";
  EXPECT_THAT(complaint({stochastic}),
              HasSubstr("recipe.gradient_rounding: \"stochastic\", but recipe.name bf16 does not use it"));
  EXPECT_EQ(complaint({"--recipe.gradient_rounding=nearest"}), "");
  for (const std::string name : {"float8_tensorwise", "float8_rowwise", "float8_rowwise_with_gw_hp", "auto"})
    EXPECT_EQ(complaint({stochastic, "--recipe.name=" + name}), "") << name;
  const std::string none =
      "recipe.gradient_rounding: stochastic, but recipe.high_precision_gemms leaves no GEMM with quantized gradients";
  EXPECT_THAT(
      complaint({stochastic, "--recipe.name=float8_rowwise", "--recipe.high_precision_gemms=[\"dgrad\",\"wgrad\"]"}),
      HasSubstr(none));
  EXPECT_THAT(
      complaint({stochastic, "--recipe.name=float8_rowwise_with_gw_hp", "--recipe.high_precision_gemms=[\"dgrad\"]"}),
      HasSubstr(none));
  EXPECT_EQ(complaint({stochastic, "--recipe.name=float8_rowwise", "--recipe.high_precision_gemms=[\"dgrad\"]"}), "");
  EXPECT_THAT(complaint({"--recipe.gradient_rounding=up"}), HasSubstr("recipe.gradient_rounding"));
}

TEST(ConfigCheck, StopOfReleaseTwoIsTheSameAsError) {
  EXPECT_EQ(complaint({"--data.on_bad_record=stop"}), "");
}

TEST(ConfigCheck, RemovedKeyNamesTheKeyToChange) {
  const std::string found = complaint({"--optimizer.return_during_update=0.2", "--optimizer.offload_ratio=0.4"});
  EXPECT_THAT(found, HasSubstr("unknown key; lower it; state no longer returns during the update"));
  EXPECT_THAT(found, HasSubstr("optimizer.offload_ratio"));
}

TEST(ConfigCheck, ScheduleOptions) {
  const RunConfig config =
      minimal({"--lr_schedule.name=wsd", "--lr_schedule.warmup_steps=10", "--lr_schedule.min_lr_ratio=0.05",
               "--optimizer.lr=0.01", "--lr_schedule.decay_shape=sqrt"});
  const LrScheduleOptions options = lr_schedule_options(config, 1000);
  EXPECT_EQ(options.name, "wsd");
  EXPECT_EQ(options.peak_lr, 0.01);
  EXPECT_EQ(options.warmup_steps, 10);
  EXPECT_EQ(options.decay_steps, 200);
  EXPECT_EQ(options.min_lr_ratio, 0.05);
  EXPECT_EQ(options.decay_shape, LrDecayShape::sqrt);
  EXPECT_EQ(LrSchedule(options).lr(999), LrSchedule(options).lr(999));
  EXPECT_EQ(lr_schedule_options(minimal(), 1000).decay_steps, std::nullopt);
}

TEST(ConfigCheck, TheRunNeedsALength) {
  EXPECT_THAT(complaint({"~training.steps"}), HasSubstr("give training.steps or training.epochs"));
  EXPECT_EQ(complaint({"~training.steps", "--training.epochs=2"}), "");
  EXPECT_EQ(complaint({"--training.epochs=2"}), "");
}

TEST(ConfigCheck, RollbackNeedsCheckpoints) {
  EXPECT_THAT(complaint({"--training.on_nonfinite=rollback", "--no-checkpoint.enable"}),
              HasSubstr("checkpoint.enable is false"));
  EXPECT_THAT(complaint({"--training.on_nonfinite=rollback", "--checkpoint.interval=0"}),
              HasSubstr("checkpoint.interval is 0"));
}

TEST(ConfigCheck, ModelHasOneOrigin) {
  EXPECT_THAT(complaint({"~model"}), HasSubstr("model: no model: give model.preset"));
  EXPECT_THAT(complaint({"--model.path=x"}), HasSubstr("contradicts model.preset \"tiny\""));
  EXPECT_THAT(complaint({"--model.init=load"}), HasSubstr("load needs model.path"));
  EXPECT_THAT(complaint({"--model.preset=tyni"}), HasSubstr("no embedded model is called \"tyni\""));
}

TEST(ConfigCheck, InlineArchitecture) {
  const std::string data = R"("data": {"train": "a.bin", "seq_len": 64}, "training": {"steps": 1})";
  const RunConfig config = testing::parse(R"({"model": {"model_type": "llama", "vocab_size": 256, "hidden_size": 64,
      "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "pad_token_id": null}, )" +
                                          data + "}");
  EXPECT_EQ(config.model.fields.at("hidden_size").as_int(), 64);
  EXPECT_EQ(config.model.fields.find("pad_token_id"), nullptr);

  std::string text;
  for (const auto& issue : testing::issues(R"({"model": {"model_type": "llama", "vocab_size": 256}, )" + data + "}"))
    text += issue.to_string() + "\n";
  EXPECT_THAT(text, AllOf(HasSubstr("model.hidden_size: missing"), HasSubstr("model.num_hidden_layers: missing"),
                          HasSubstr("model.num_attention_heads: missing")));
}

TEST(ConfigCheck, ExtentsOfTheArchitectureFit) {
  EXPECT_THAT(complaint({"--model.num_attention_heads=5"}),
              AllOf(HasSubstr("64 is not divisible by num_attention_heads 5"),
                    HasSubstr("2 does not divide num_attention_heads 5")));
  EXPECT_THAT(complaint({"--model.num_key_value_heads=3"}), HasSubstr("3 does not divide num_attention_heads 4"));
  EXPECT_THAT(complaint({"--model.head_dim=15"}), HasSubstr("heads are 15 wide"));
  EXPECT_THAT(complaint({"--data.seq_len=512"}), HasSubstr("512 exceeds the model's max_position_embeddings 256"));
  EXPECT_EQ(complaint({"--data.seq_len=512", "--model.max_position_embeddings=512"}), "");
  EXPECT_THAT(complaint({"--model.preset=llama-3.2-1b", "--data.format=nanogpt"}),
              HasSubstr("nanogpt files hold ids below 65536, but the model's vocab_size is 128256"));
  EXPECT_THAT(complaint({"--model.attention_dropout=0.1"}),
              HasSubstr("0.1 is not supported: attention has no dropout"));
  EXPECT_THAT(complaint({"--model.rope_scaling={\"rope_type\": \"spiral\"}"}), HasSubstr("'spiral' is not supported"));
}

TEST(ConfigCheck, LoadedWeightsKeepTheirShapes) {
  const std::vector<std::string> base = {"~model.preset", "--model.path=somewhere"};
  auto with = [&](const std::string& more) {
    auto all = base;
    all.push_back(more);
    return complaint(all);
  };
  EXPECT_THAT(with("--model.hidden_size=128"), HasSubstr("128 cannot be changed over the weights in somewhere"));
  EXPECT_EQ(with("--model.rope_theta=1000000.0"), "");
}

// What nothing executes is not accepted, with words that say so; values that ask for nothing are.
TEST(ConfigCheck, UnsupportedValuesAreRefused) {
  EXPECT_THAT(complaint({"--parallel.expert=2"}), HasSubstr("has no experts"));
  EXPECT_THAT(complaint({"--parallel.reduce_dtype=bf16", "--training.dtype=f32"}),
              HasSubstr("bf16, but with training.dtype f32 gradients are f32"));
  EXPECT_THAT(complaint({"--parallel.shard=0"}), HasSubstr("0 processes cannot hold a model; -1 means all"));
  EXPECT_THAT(complaint({"--export.format=ggufs"}), HasSubstr("did you mean \"gguf\"?"));
  EXPECT_EQ(complaint({"--parallel.shard=1", "--parallel.replicate=1"}), "");

  const auto in_file = [](const std::string& section) {
    std::string text = testing::kMinimal;
    text.insert(1, section + ", ");
    std::string all;
    for (const ConfigIssue& issue : testing::issues(text)) all += issue.to_string() + "\n";
    return all;
  };
  EXPECT_THAT(in_file(R"("parallel": {"shrad": 4})"), HasSubstr("parallel.shrad: unknown key"));
  // As stored by earlier versions.
  EXPECT_EQ(in_file(R"("lora": null, "export": {"format": "hf", "scheme": null},
      "parallel": {"shard": -1, "replicate": 1, "expert": 1, "reshard_after_forward": true, "float8_all_gather": true})"),
            "");
}

TEST(ConfigCheck, AdaptersAreAnOptionalSection) {
  EXPECT_EQ(complaint({"--lora.rank=4"}), "");
  EXPECT_EQ(complaint({R"(--lora.rank_pattern={"down_proj": 8})"}), "");
  EXPECT_THAT(complaint({R"(--lora.rank_pattern={"down_proj": 0})"}), HasSubstr("\"down_proj\": expected integer"));
  EXPECT_THAT(complaint({"--lora.rank_pattern=8"}), HasSubstr("expected object of patterns"));
  EXPECT_THAT(complaint({"--lora.targets=[]"}), HasSubstr("lora.targets: is empty"));
  EXPECT_THAT(complaint({"--lora.rank=4", "--recipe.name=auto"}), HasSubstr("does not support lora; name a recipe"));
  EXPECT_THAT(complaint({"--export.format=peft"}), HasSubstr("the run has no adapters"));
}

TEST(ConfigCheck, EveryRecipeOfTheTableIsAName) {
  for (const recipes::Recipe& recipe : recipes::recipe_table())
    EXPECT_EQ(complaint({fmt::format("--recipe.name={}", recipe.name)}), "");
  EXPECT_EQ(find_field("recipe.name")->schema.at("enum").as_array().size(), recipes::recipe_table().size() + 1);
}

// Inline fields over a preset either change what is computed or are refused.
TEST(ConfigCheck, ModelFieldsThatNothingExecutesAreRefused) {
  EXPECT_THAT(complaint({"--model.model_type=qwen3"}),
              HasSubstr("model_type 'qwen3' contradicts architectures [\"LlamaForCausalLM\"]"));
  EXPECT_THAT(complaint({"--model.sliding_window=16"}), HasSubstr("sliding window in this family"));
  EXPECT_THAT(complaint({"--model.num_experts=8"}),
              HasSubstr("num_experts: 8 is not supported: mixture-of-experts layers in this family"));
  EXPECT_THAT(complaint({"--model.final_logit_softcapping=30"}), HasSubstr("soft caps"));
  EXPECT_THAT(complaint({"--model.partial_rotary_factor=0.5"}), HasSubstr("a rotation of a part of each head"));
  EXPECT_THAT(complaint({"--model.quantization_config={}"}), HasSubstr("use the original weights"));
  EXPECT_EQ(complaint({"--model.use_cache=false", "--model.use_sliding_window=false"}), "");
}

// The table of a config.json's members and the table of keys agree.
TEST(ConfigCheck, EveryModelKeyIsExecutedOrHarmless) {
  for (const Field& field : field_table()) {
    if (!field.architecture) continue;
    const nn::ModelField* known = nn::find_model_field(field.key());
    ASSERT_NE(known, nullptr) << field.path;
    const bool in_some_family = std::ranges::any_of(
        nn::model_families(), [&](const nn::ModelFamily& family) { return family.has_member(field.key()); });
    EXPECT_TRUE(known->use != nn::FieldUse::missing || in_some_family) << field.path;
  }
  for (const nn::ModelField& known : nn::model_fields()) {
    if (known.use == nn::FieldUse::executed) {
      EXPECT_NE(find_field(fmt::format("model.{}", known.name)), nullptr) << known.name;
    }
  }
}

TEST(ConfigCheck, RecomputedAndOffloadedLayersNeedTheirLevel) {
  EXPECT_THAT(complaint({"--training.recompute_mlp_layers=1"}),
              HasSubstr("set activation_checkpoint to \"selective\""));
  EXPECT_EQ(minimal({"--training.offload_layers=1", "--training.activation_checkpoint=full"}).training.offload_layers,
            1);
}

TEST(ConfigCheck, OffloadIsRefusedOnTheCpu) {
  const RunConfig config = minimal({"--training.offload_layers=1", "--optimizer.offload_ratio=0.5"});
  const std::vector<ConfigIssue> on_cpu = check_on_device(config, Device{});
  ASSERT_EQ(on_cpu.size(), 2u);
  EXPECT_EQ(on_cpu[0].key, "training.offload_layers");
  EXPECT_EQ(on_cpu[1].key, "optimizer.offload_ratio");
  EXPECT_TRUE(check_on_device(config, {DeviceType::cuda, 0}).empty());
  EXPECT_THROW(require_on_device(config, Device{}), ConfigError);
}

// Refused by arithmetic, not after a plan of them.
TEST(ConfigCheck, AbsurdBatchesAreRefusedAtOnce) {
  const std::clock_t begin = std::clock();
  EXPECT_THAT(complaint({"--training.micro_batch_size=16777216"}), HasSubstr("[1, 1048576], got 16777216"));
  EXPECT_THAT(complaint({"--training.micro_batch_size=1048576", "--data.seq_len=16777216",
                         "--model.max_position_embeddings=16777216"}),
              HasSubstr("are 17592186044416 tokens in one pass; fewer than 2^31 are possible"));
  for (const std::vector<std::string>& sizes : std::vector<std::vector<std::string>>{
           {"--training.micro_batch_size=1048576"},
           {"--data.seq_len=16777216", "--model.max_position_embeddings=16777216", "--training.micro_batch_size=64"},
           {"--model.num_hidden_layers=10000", "--model.hidden_size=65536"},
           {"--model.vocab_size=2147483647", "--model.hidden_size=65536"}}) {
    try {
      require_startable(minimal(sizes), Device{});
      ADD_FAILURE() << "accepted " << sizes[0];
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::out_of_memory) << error.what();
      EXPECT_THAT(error.what(), HasSubstr("this run needs "));
    }
  }
  EXPECT_LT(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC, 2.0);
}

TEST(ConfigCheck, FiltersThatFitNoLayerAreRefusedWithoutADevice) {
  EXPECT_NO_THROW(require_startable(minimal({"--recipe.name=float8_rowwise"}), std::nullopt));
  EXPECT_THROW(
      require_startable(minimal({"--recipe.name=float8_rowwise", "--recipe.filter.exclude=*.w_proj"}), std::nullopt),
      Error);
}

TEST(ConfigCheck, TextNeedsATokenizer) {
  EXPECT_THAT(complaint({"--data.train=a.txt"}), HasSubstr("data.tokenizer: missing"));
  EXPECT_THAT(complaint({"--data.format=jsonl"}), HasSubstr("data.tokenizer: missing"));
  EXPECT_EQ(complaint({"--data.train=a.txt", "--data.tokenizer=bytes"}), "");
}

TEST(ConfigCheck, NamesAndLists) {
  EXPECT_THAT(complaint({"--run.name=a/b"}), HasSubstr("\"a/b\" cannot name a folder"));
  EXPECT_THAT(complaint({"--checkpoint.allow_changes=data.trian"}),
              HasSubstr("\"data.trian\" is not a config key (did you mean \"data.train\"?)"));
  EXPECT_THAT(complaint({"--checkpoint.allow_changes=model.hidden_size"}),
              HasSubstr("model.hidden_size can never change"));
}

TEST(ConfigCheck, EmptyData) {
  EXPECT_THAT(complaint({"~data.train"}), HasSubstr("data.train: no training data"));
  EXPECT_THAT(complaint({"--data.train=[]"}), HasSubstr("data.train: no training data"));
  EXPECT_EQ(complaint({"~data.train"}, {.data = false, .files = false}), "");
}

TEST(ConfigCheck, FilesMustExist) {
  const testing::TempDir folder;
  testing::write_file(folder / "a-1.bin", "x");
  testing::write_file(folder / "a-2.bin", "x");
  const std::string here = folder.path().string();
  const CheckOptions files;
  EXPECT_EQ(complaint({"--data.train=" + here + "/a-*.bin"}, files), "");
  EXPECT_THAT(complaint({"--data.train=" + here + "/b-*.bin"}, files),
              HasSubstr("data.train: no file matches \"" + here + "/b-*.bin\""));
  EXPECT_THAT(complaint({"--data.train=" + here + "/a-1.bin", "--data.validation=" + here + "/none"}, files),
              HasSubstr("data.validation: no file matches"));
  const std::string train = "--data.train=" + here + "/a-1.bin";
  EXPECT_THAT(complaint({train, "--data.tokenizer=byts"}, files),
              HasSubstr("byts: no such file or folder (did you mean \"bytes\"?)"));
  EXPECT_THAT(complaint({train, "~model.preset", "--model.path=" + here + "/none"}, files),
              HasSubstr("model.path: model folder " + here + "/none does not exist"));
  EXPECT_THAT(complaint({train, "~model.preset", "--model.path=" + here}, files), HasSubstr("has no config.json"));
}

TEST(ConfigCheck, ModelFolderIsRead) {
  const testing::TempDir folder;
  const std::string here = folder.path().string();
  const std::vector<std::string> overrides = {"--data.train=" + here, "~model.preset", "--model.path=" + here};
  testing::write_file(folder / "config.json", "{\"model_type\": \"llama\",");
  EXPECT_THAT(complaint(overrides, {}), HasSubstr("config.json:1:"));
  testing::write_file(folder / "config.json", "{\"model_type\": \"gpt2\"}");
  EXPECT_THAT(complaint(overrides, {}), HasSubstr("architecture 'gpt2' is not supported"));
  std::filesystem::copy_file(testing::golden_dir() / "models/llama/config.json", folder / "config.json",
                             std::filesystem::copy_options::overwrite_existing);
  EXPECT_EQ(complaint(overrides, {}), "");
}

TEST(ConfigCheck, ResumeNeedsItsFolder) {
  const testing::TempDir folder;
  const std::string here = folder.path().string();
  const std::string train = "--data.train=" + here, tokenizer = "--data.tokenizer=bytes";
  EXPECT_EQ(complaint({train, tokenizer, "--checkpoint.resume=" + here}, {}), "");
  EXPECT_THAT(complaint({train, tokenizer, "--checkpoint.resume=" + here + "/none"}, {}),
              HasSubstr("none: no such folder"));
  EXPECT_THAT(complaint({train, tokenizer, "--checkpoint.resume=atuo"}, {}), HasSubstr("(did you mean \"auto\"?)"));
  EXPECT_THAT(complaint({train, tokenizer, "--checkpoint.resume=must", "--checkpoint.folder=" + here + "/none"}, {}),
              HasSubstr("must, but checkpoint.folder " + here + "/none does not exist"));
  EXPECT_THAT(complaint({train, tokenizer, "--checkpoint.resume=20", "--checkpoint.folder=" + here + "/none"}, {}),
              HasSubstr("step 20, but checkpoint.folder"));
  EXPECT_EQ(complaint({train, tokenizer, "--checkpoint.resume=auto", "--checkpoint.folder=" + here + "/none"}, {}), "");
}

}  // namespace
}  // namespace quench
