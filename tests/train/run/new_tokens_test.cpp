// model.add_tokens: runs over a folder whose vocabulary grows, or has spare rows; resumption, exports, mistakes.

#include <gmock/gmock.h>

#include "tests/train/config/config_testing.h"
#include "tests/train/run/same_tensors.h"
#include "tests/train/run/trainer_fixture.h"
#include "train/model_folder/model_folder.h"
#include "train/model_folder/peft_folder.h"
#include "train/objectives/distillation/run/distill_setup.h"
#include "train/session/adapter_setup.h"
#include "train/session/model_setup.h"

namespace quench {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using Options = std::vector<std::string>;

// Over models/base: 259 bytes and special tokens, whose tokenizer it holds.
class NewTokensOfRuns : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string text;
    for (int i = 0; i < 60; ++i) text += fmt::format("<think>{}</think> is {}\n\n", i * 7 % 10, i * 7 % 10);
    testing::write_file(folder_ / "text.txt", text);
    make_base("base", {});
  }
  void make_base(const std::string& name, const Options& more) const {
    Options options{"--export.format=hf", "--export.folder=" + at(name), "--training.steps=2"};
    options.insert(options.end(), more.begin(), more.end());
    run(parsed(R"("model_type": "llama", "vocab_size": 259, "hidden_size": 64, "intermediate_size": 64,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64,
        "tie_word_embeddings": false)",
               R"("tokenizer": "bytes", )", name + "-run", options));
  }
  [[nodiscard]] RunConfig parsed(const std::string& model, const std::string& tokenizer, const std::string& name,
                                 const Options& more) const {
    const std::string text = R"({"model": {)" + model + R"(}, "data": {)" + tokenizer + R"("train": [")" +
                             at("text.txt") + R"("], "seq_len": 24, "special_text": "tokens"},
      "training": {"steps": 6, "micro_batch_size": 2, "dtype": "f32"}, "optimizer": {"lr": 1e-2},
      "checkpoint": {"interval": 3, "keep_latest": 0},
      "metrics": {"log_every": 1, "tensorboard": false, "log_level": "warn", "progress": "off"}})";
    Options options{"--run.folder=" + at(name)};
    options.insert(options.end(), more.begin(), more.end());
    return parse_run_config(text, at(name + ".json"), options);
  }
  // With <think> and </think>.
  [[nodiscard]] RunConfig config(const std::string& name, const Options& more, const std::string& base = "base") const {
    Options options{"--export.folder=" + at(name + "-export")};
    options.insert(options.end(), more.begin(), more.end());
    return parsed(R"("path": ")" + at(base) + R"(", "add_tokens": ["<think>", {"text": "</think>", "special": false}])",
                  "", name, options);
  }
  static TrainResult run(const RunConfig& run_config) {
    ::testing::internal::CaptureStdout();
    try {
      TrainResult result = Trainer(run_config, Device{}).run();
      (void)::testing::internal::GetCapturedStdout();
      return result;
    } catch (...) {
      (void)::testing::internal::GetCapturedStdout();
      throw;
    }
  }
  [[nodiscard]] std::string fault(const Options& more, const std::string& base = "base") const {
    try {
      run(config("fault", more, base));
    } catch (const Error& error) {
      return error.what();
    }
    return {};
  }
  [[nodiscard]] std::string at(const std::string& name) const { return (folder_ / name).string(); }
  [[nodiscard]] fs::path checkpoint(const std::string& name, int step) const {
    return folder_ / name / "checkpoints" / fmt::format("step-{}", step);
  }
  [[nodiscard]] static std::vector<float> logits(nn::CausalLm& model) {
    const autograd::NoGrad no_grad;
    const std::vector<std::int32_t> ids{256, 259, 'a', 260, ' ', 'i', 259, 257};
    const auto count = static_cast<std::int64_t>(ids.size());
    const Tensor all = model.logits(model.hidden(Tensor::from_values<std::int32_t>({count}, ids),
                                                 model.make_context({{0, count, 0, count}}, count)));
    return {all.data<float>(), all.data<float>() + all.numel()};
  }
  static std::unique_ptr<nn::CausalLm> load(const fs::path& folder) {
    auto model = std::make_unique<nn::CausalLm>(read_model_config(folder), nn::ParameterOptions{});
    load_weights(*model, folder);
    return model;
  }
  static void expect_near(const std::vector<float>& got, const std::vector<float>& wanted, float bound) {
    ASSERT_EQ(got.size(), wanted.size());
    for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], wanted[i], bound) << i;
  }

  testing::TempDir folder_;
};

TEST_F(NewTokensOfRuns, VocabularyGrows) {
  const RunConfig tokens = config("full", {"--export.format=hf"});
  EXPECT_EQ(resolve_model_config(tokens.model).vocab_size, 261);
  run(tokens);
  const Json exported = Json::parse_file(folder_ / "full-export" / "config.json");
  EXPECT_EQ(exported.at("vocab_size").as_int(), 261);
  EXPECT_EQ(exported.at("eos_token_id").as_int(), 257) << "ids keep their meaning";
  const auto tokenizer = load_tokenizer(folder_ / "full-export");
  EXPECT_EQ(tokenizer->find_token("<think>"), 259);
  EXPECT_EQ(tokenizer->find_token("</think>"), 260);
  EXPECT_TRUE(tokenizer->is_special(259));
  EXPECT_FALSE(tokenizer->is_special(260));
  CheckpointReader reader(checkpoint("full", 6));
  EXPECT_EQ(reader.at("model.embed_tokens.weight").shape, (Shape{261, 64}));
  EXPECT_EQ(reader.at("lm_head.weight").shape, (Shape{261, 64}));
  // The folder of a run is a config that runs again.
  const RunConfig again = load_run_config(at("full/config.json"), Options{"--training.steps=7"});
  run(again);
  CheckpointReader later(checkpoint("full", 7));
  EXPECT_EQ(later.at("lm_head.weight").shape, (Shape{261, 64}));
  // Its export learns further tokens, and refuses those that it has.
  EXPECT_THAT(fault({}, "full-export"), HasSubstr("\"<think>\" is special token 259 of the tokenizer already"));
  EXPECT_EQ(resolve_model_config(config("more", {"--model.add_tokens=<more>"}, "full-export").model).vocab_size, 262);
}

TEST_F(NewTokensOfRuns, SpareRowsAreUsedAndPaddingIsKept) {
  make_base("spare", {"--model.vocab_size=264"});
  EXPECT_EQ(resolve_model_config(config("a", {}, "spare").model).vocab_size, 264);
  const Options padded{"--model.pad_vocab_to_multiple_of=64"};
  EXPECT_EQ(resolve_model_config(config("b", padded, "spare").model).vocab_size, 264);
  EXPECT_EQ(resolve_model_config(config("c", padded).model).vocab_size, 320);
  const RunConfig spare = config("spare-lora", {"--lora.rank=2", "--export.format=peft"}, "spare");
  run(spare);
  EXPECT_EQ(adapter_vocabulary(at("spare-lora-export")), std::nullopt) << "the base has these rows";
}

TEST_F(NewTokensOfRuns, RowsBeginAsTheMean) {
  const auto base = load(at("base"));
  for (const char* form : {"dense", "nf4"}) {
    const RunConfig tokens = config("begin", {"--lora.rank=2", std::string("--lora.base=") + form});
    ModelSetup setup = build_model(ResolvedConfig(tokens), Device{});
    const std::string hash = fill_adapted(setup, tokens);
    EXPECT_EQ(hash, base_hash_as(*base, DType::f32)) << "of the rows that are stored";
    for (const nn::Parameter* parameter : vocabulary_parameters(*setup.model)) {
      const float* values = parameter->variable.value().data<float>();
      for (std::int64_t c = 0; c < 64; ++c) {
        double sum = 0;
        for (std::int64_t row = 0; row < 259; ++row) sum += static_cast<double>(values[row * 64 + c]);
        EXPECT_FLOAT_EQ(values[259 * 64 + c], static_cast<float>(sum / 259));
        EXPECT_EQ(values[259 * 64 + c], values[260 * 64 + c]);
      }
    }
  }
}

TEST_F(NewTokensOfRuns, ResumeExactly) {
  int count = 0;
  for (const Options& more : std::vector<Options>{
           {},
           {"--model.new_token_init=normal", "--recipe.name=qat_int8dyn_int4"},
           {"--lora.rank=2"},
           {"--lora.rank=2", "--lora.trainable_token_indices=new"},
           {"--lora.rank=2", "--lora.trainable_token_indices=new", "--lora.base=nf4", "--training.dtype=bf16"},
           {"--lora.rank=2", "--lora.modules_to_save=embed_tokens,lm_head"}}) {
    SCOPED_TRACE(::testing::PrintToString(more));
    const std::string whole = fmt::format("whole{}", count), parts = fmt::format("parts{}", count);
    ++count;
    run(config(whole, more));
    RunConfig first = config(parts, more);
    first.training.steps = 3;
    first.lr_schedule.decay_steps = 6;
    RunConfig all = config(whole + "x", more);
    all.lr_schedule.decay_steps = 6;
    run(all);
    run(first);
    first.training.steps = 6;
    run(first);
    testing::expect_same_tensors(checkpoint(parts, 6), checkpoint(whole + "x", 6));
  }
}

// Over the base, whose rows the folder brings, and merged.
TEST_F(NewTokensOfRuns, AdaptersAreExported) {
  const std::vector<Options> ways{{},
                                  {"--lora.trainable_token_indices=new"},
                                  {R"(--lora.trainable_token_indices={"lm_head": "new", "embed_tokens": [5, 259]})"},
                                  {"--lora.modules_to_save=embed_tokens,lm_head"},
                                  {"--lora.modules_to_save=lm_head", "--training.dtype=bf16"}};
  for (std::size_t i = 0; i < ways.size(); ++i) {
    SCOPED_TRACE(::testing::PrintToString(ways[i]));
    Options options{"--lora.rank=2"};
    options.insert(options.end(), ways[i].begin(), ways[i].end());
    const std::string name = fmt::format("way{}", i);
    Options peft = options, dense = options;
    peft.insert(peft.end(), {"--export.format=peft", "--export.dtype=f32"});
    dense.insert(dense.end(), {"--export.format=hf", "--export.dtype=f32"});
    run(config(name + "-peft", peft));
    run(config(name + "-hf", dense));
    const fs::path adapter = at(name + "-peft-export");
    const bool copies = ways[i].size() == 1 && ways[i][0].starts_with("--lora.modules_to_save");
    EXPECT_EQ(adapter_vocabulary(adapter), 261) << copies;
    EXPECT_EQ(load_tokenizer(adapter)->find_token("<think>"), 259);
    nn::ModelConfig grown = read_model_config(at("base"));
    grown.vocab_size = 261;
    nn::CausalLm model(grown, {});
    load_weights(model, at("base"), false, {}, NewRows{.normal = true, .seed = 9});
    const auto adapters = load_adapter(model, adapter, {});
    adapters->attach();
    const auto merged = load(at(name + "-hf-export"));
    expect_near(logits(model), logits(*merged), ways[i].size() == 2 ? 0.05f : 1e-5f);
  }
}

TEST_F(NewTokensOfRuns, OnlyTheirRowsAreTrained) {
  run(config("rows", {"--lora.rank=2", "--lora.trainable_token_indices=new", "--export.format=hf"}));
  const auto base = load(at("base")), trained = load(at("rows-export"));
  for (std::size_t i = 0; i < 2; ++i) {
    const nn::Parameter *before = vocabulary_parameters(*base)[i], *after = vocabulary_parameters(*trained)[i];
    const float *a = before->variable.value().data<float>(), *b = after->variable.value().data<float>();
    EXPECT_TRUE(std::equal(a, a + 259 * 64, b)) << before->name;
    EXPECT_FALSE(std::equal(b + 259 * 64, b + 260 * 64, b + 260 * 64)) << "both began as the mean";
  }
  const RunConfig written = load_run_config(at("rows/config.json"));
  EXPECT_EQ(written.lora->trainable_token_indices.head.ids, (std::vector<std::int64_t>{259, 260}));
}

TEST_F(NewTokensOfRuns, TeachersAndReferencesNeedTheirRows) {
  EXPECT_EQ(fault({"--lora.rank=2", "--distill.teacher=base", "--distill.ratio=0.5", "--training.steps=1"}), "");
  EXPECT_THAT(
      fault({"--distill.teacher=" + at("base")}),
      AllOf(HasSubstr("distill.teacher"),
            HasSubstr("name a teacher with the student's tokenizer, which has the 2 tokens of model.add_tokens too, "
                      "or the teacher \"initial\"")));
}

TEST_F(NewTokensOfRuns, AnotherChatTemplateOfTheTeacherIsNamed) {
  fs::copy(at("base"), at("teacher"), fs::copy_options::recursive);
  const std::string turns = "{% for m in messages %}[{{ m['role'] }}] {{ m['content'] }}\n{% endfor %}";
  testing::write_file(folder_ / "teacher" / "chat_template.jinja", turns + "[assistant] ");
  testing::write_file(folder_ / "run.jinja", turns + "[answer] ");
  testing::write_file(folder_ / "same.jinja", "{# the same text #}" + turns + "[assistant] ");
  const auto tokenizer = load_tokenizer(at("base")), own = load_tokenizer(at("teacher"));
  const auto warning = [&](const std::string& name, const Tokenizer& teacher) {
    return teacher_template_warning(
        config("template", {"--distill.teacher=" + at("teacher"), "--data.chat_template=" + name}), *tokenizer,
        teacher);
  };
  EXPECT_THAT(warning(at("run.jinja"), *own),
              AllOf(HasSubstr("distill.teacher"), HasSubstr(at("teacher")), HasSubstr("chat_template.jinja"),
                    HasSubstr("[answer] "), HasSubstr("[assistant] "), HasSubstr("data.chat_template")));
  EXPECT_EQ(warning(at("same.jinja"), *own), "");
  EXPECT_EQ(warning("auto", *own), "");                 // the run has none
  EXPECT_EQ(warning(at("run.jinja"), *tokenizer), "");  // the teacher has none
}

TEST_F(NewTokensOfRuns, MistakesAreNamed) {
  EXPECT_THAT(fault({"--model.add_tokens=<|pad|>"}),
              HasSubstr("model.add_tokens: \"<|pad|>\" is special token 258 of the tokenizer already"));
  EXPECT_THAT(fault({R"(--model.add_tokens=["<a>", "<a>"])"}), HasSubstr("model.add_tokens: \"<a>\" is listed twice"));
  EXPECT_THAT(fault({R"(--model.add_tokens=["<a>", ""])"}),
              HasSubstr("model.add_tokens: element 2 of the list: expected non-empty string"));
  EXPECT_THAT(fault({R"(--model.add_tokens=[{"name": "<a>"}])"}),
              HasSubstr("unknown key \"name\" of a token; known keys are text, special"));
  EXPECT_THAT(fault({"--model.add_tokens=[]", "--lora.trainable_token_indices=new"}),
              HasSubstr("\"new\" means the tokens of model.add_tokens, which is empty"));
  EXPECT_THAT(fault({"--model.add_tokens=[]", "--model.pad_vocab_to_multiple_of=8"}),
              HasSubstr("model.pad_vocab_to_multiple_of: 8, but the vocabulary grows by model.add_tokens alone"));
  EXPECT_THAT(fault({"--model.add_tokens=[]", "--model.new_token_init=normal"}),
              HasSubstr("model.new_token_init: normal, but model.add_tokens is empty"));
  EXPECT_THAT(fault({"--lora.trainable_token_indices={\"wte\": [1]}"}),
              HasSubstr("unknown key \"wte\"; known keys are embed_tokens, lm_head"));
  EXPECT_THAT(fault({"--lora.modules_to_save=lm_head", "--lora.trainable_token_indices=new"}),
              HasSubstr("lora.modules_to_save trains the whole head; drop one of the two"));
  run(config("other", {"--training.steps=1"}));
  try {
    run(config("other", {"--model.add_tokens=[\"<think>\", \"<other>\"]"}));
    FAIL() << "resumed with other tokens";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("model.add_tokens: [\"<think>\",{\"text\":\"</think>\",\"special\":false}] -> "
                                        "[\"<think>\",\"<other>\"]"));
  }
}

}  // namespace
}  // namespace quench
