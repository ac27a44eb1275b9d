// samples.jsonl: what a run's model makes of evaluation.prompts while it trains.

#include <gmock/gmock.h>

#include <limits>

#include "tests/train/run/sample_run.h"
#include "tests/train/run/trainer_fixture.h"
#include "train/run/sample_texts.h"
#include "train/session/model_setup.h"

namespace quench {
namespace {

using ::testing::HasSubstr;
using Options = std::vector<std::string>;

class SampleRun : public ::testing::Test, protected testing::SampleRun {};

TEST_F(SampleRun, EveryEvaluationRecordsEveryPrompt) {
  run(config("run"));
  const std::vector<Json> records = samples("run");
  ASSERT_EQ(records.size(), 6u);
  for (std::size_t i = 0; i < records.size(); ++i) {
    EXPECT_EQ(records[i].at("step").as_int(), static_cast<std::int64_t>(4 * (i / 2 + 1)));
    EXPECT_EQ(records[i].at("prompt").as_string(), i % 2 == 0 ? "the cat " : "the d\u00f6g");
    EXPECT_EQ(records[i].at("tokens").as_array().size(), 6u);
    EXPECT_FALSE(records[i].at("text").as_string().empty());
  }
}

// As `quench generate --chat` renders a message.
TEST_F(SampleRun, PromptsOfAChatModelAreRendered) {
  const Options chat{"--evaluation.chat_prompts=true", "--training.steps=4", "--model.max_position_embeddings=128"};
  const auto with = [&](const std::string& more) {
    Options all = chat;
    all.push_back(more);
    return all;
  };
  testing::write_file(folder() / "chat.jinja",
                      "{% for m in messages %}[{{ m.role }}]{{ m.content }};{% endfor %}"
                      "{% if add_generation_prompt %}[assistant]{% endif %}");
  run(config("chat", with("--data.chat_template=" + (folder() / "chat.jinja").string())));
  ASSERT_EQ(samples("chat").size(), 2u);
  EXPECT_EQ(samples("chat").front().at("prompt").as_string(), "the cat ");
  const auto refused = [&](const Options& options, const char* why) {
    try {
      run(config("refused", options));
      ADD_FAILURE() << why;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr(why));
    }
  };
  refused(chat, "evaluation.chat_prompts: the tokenizer has no chat template");
  Options short_context = with("--data.chat_template=" + (folder() / "chat.jinja").string());
  short_context.push_back("--model.max_position_embeddings=26");
  refused(short_context, "evaluation.prompts[0] has 26 tokens");
}

TEST_F(SampleRun, TrainingGoesOnAsIfNothingHadBeenDrawn) {
  run(config("with"));
  run(config("without", {"--evaluation.prompts=[]", "--evaluation.interval=0"}));
  EXPECT_EQ(losses("with"), losses("without"));
}

TEST_F(SampleRun, AResumedRunHasTheSamplesOfAnUninterruptedOne) {
  const std::vector<std::string> drawn{"--evaluation.sample_temperature=1"};
  run(config("whole", drawn));
  run(config("run", drawn));
  std::filesystem::remove_all(folder() / "run/checkpoints/step-8");
  std::filesystem::remove_all(folder() / "run/checkpoints/step-12");
  run(config("run", drawn));
  EXPECT_EQ(texts("run"), texts("whole"));
  EXPECT_EQ(texts("run").size(), 6u);
}

TEST_F(SampleRun, DrawsFollowTheSeed) {
  run(config("a", {"--evaluation.sample_temperature=1"}));
  run(config("b", {"--evaluation.sample_temperature=1", "--training.seed=7", "--training.steps=4"}));
  EXPECT_NE(texts("a").front(), texts("b").front());
}

TEST_F(SampleRun, TheContextEndsALongContinuation) {
  run(config("run", {"--evaluation.sample_tokens=100", "--training.steps=4"}));
  for (const Json& record : samples("run"))
    EXPECT_EQ(record.at("tokens").as_array().size(), 31 - record.at("prompt").as_string().size())
        << "one place is the beginning-of-sequence token's";
}

TEST_F(SampleRun, PromptsThatCannotBeContinuedAreRefusedAtTheStart) {
  const auto refused = [&](const std::vector<std::string>& overrides, const std::string& what) {
    try {
      run(config("run", overrides));
      ADD_FAILURE() << "trained: " << what;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::bad_config);
      EXPECT_THAT(error.what(), HasSubstr(what));
      EXPECT_FALSE(std::filesystem::exists(folder() / "run/metrics"));
    }
  };
  refused({R"(--evaluation.prompts=["a", ""])"},
          "evaluation.prompts: element 2 of the list: expected non-empty string");
  refused({R"(--evaluation.prompts=["0123456789012345678901234567890123456789"])"},
          "evaluation.prompts[0] has 41 tokens, which leaves no space in the model's context of 32");
  refused({"--evaluation.prompts=[[1,2]]"}, "evaluation.prompts");
}

// A run that has diverged continues as its guard says; its texts are no reason to end it.
TEST_F(SampleRun, AModelThatIsNotFiniteIsNoError) {
  const RunConfig run_config = config("run");
  const RunModel model{.config = resolve_model_config(run_config.model), .tokenizer = load_tokenizer("bytes")};
  nn::CausalLm broken(model.config, nn::ParameterOptions{});
  broken.initialize(1);
  for (nn::Parameter* parameter : broken.parameters())
    parameter->variable.value().data<float>()[0] = std::numeric_limits<float>::quiet_NaN();
  MetricsLog log;
  EXPECT_NO_THROW(SampleTexts(run_config, model).draw(broken, 1, log, [] { return false; }));
}

// The ranks of a sharded model must run the same collectives: a failure of one ends the run.
TEST_F(SampleRun, AFailureOfGatheredWeightsIsAnError) {
  const RunConfig run_config = config("run");
  const RunModel run_model{.config = resolve_model_config(run_config.model), .tokenizer = load_tokenizer("bytes")};
  nn::CausalLm model(run_model.config, nn::ParameterOptions{});
  model.initialize(1);
  const SampleTexts samples(run_config, run_model);
  ErrorCode code = ErrorCode::out_of_memory;
  const nn::UnitHooks hooks{.before_forward = [&](std::int64_t) { QUENCH_FAIL(code, "a failing gather"); }};
  model.add_unit_hooks(&hooks);
  MetricsLog log;
  EXPECT_THROW(samples.draw(model, 1, log, [] { return false; }), Error);
  code = ErrorCode::nonfinite;  // alike on all ranks
  EXPECT_NO_THROW(samples.draw(model, 1, log, [] { return false; }));
  model.remove_unit_hooks(&hooks);
}

TEST(SampleTexts, TextsNeedATokenizer) {
  testing::TinyRun tiny;
  try {
    (void)tiny.run(tiny.config("run", {R"(--evaluation.prompts=["a"])"}));
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("evaluation.prompts: texts need a tokenizer"));
  }
}

}  // namespace
}  // namespace quench
