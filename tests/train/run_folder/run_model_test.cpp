// The model part of a run folder and what checkpoints know of it.

#include "train/record/run_model.h"

#include <gmock/gmock.h>

#include "core/system/temporary.h"
#include "data/tokenizer/byte_tokenizer.h"
#include "tests/testing.h"
#include "train/check/load.h"
#include "train/model_source/run_layout.h"
#include "train/session/data_setup.h"
#include "train/session/model_setup.h"

namespace quench {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using testing::TempDir;
using testing::write_file;

class RunModelTest : public ::testing::Test {
 protected:
  [[nodiscard]] RunConfig config(const std::string& model = R"({"preset": "tiny"})") const {
    return parse_run_config(R"({"model": )" + model +
                                R"(, "data": {"seq_len": 64}, "training": {"steps": 1}, "run": {"folder": ")" +
                                (temp_ / "run").string() + R"("}})",
                            "run.json", {}, {.data = false, .files = false});
  }
  [[nodiscard]] static RunModel run_model(const RunConfig& config) {
    return make_run_model(config, resolve_model_config(config.model), make_byte_tokenizer());
  }
  [[nodiscard]] fs::path checkpoint(const std::string& run = "run") const {
    const fs::path folder = temp_ / run / "checkpoints" / "step-1";
    fs::create_directories(folder);
    return folder;
  }

  TempDir temp_;
};

// Bytes whose tokenizer's own template ends turns with 260 <|im_end|>, and texts with 257.
class EndOfTurnOfRuns : public RunModelTest {
 protected:
  void SetUp() override {
    const std::vector<NewToken> tokens{{"<|im_start|>"}, {"<|im_end|>"}};
    make_byte_tokenizer()->with_tokens(tokens)->save(temp_ / "tokenizer");
    write_file(temp_ / "tokenizer/chat_template.jinja",
               "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
               "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}");
  }
  [[nodiscard]] RunModel trained_on(const std::string& record, const std::vector<std::string>& more = {}) const {
    std::string text;
    for (int i = 0; i < 8; ++i) text += record + "\n";
    write_file(temp_ / "data.jsonl", text);
    const RunConfig run = parse_run_config(
        R"({"model": {"preset": "tiny", "vocab_size": 261}, "data": {"seq_len": 32, "train": [")" +
            (temp_ / "data.jsonl").string() + R"("], "tokenizer": ")" + (temp_ / "tokenizer").string() +
            R"("}, "training": {"steps": 1}, "run": {"folder": ")" + (temp_ / "run").string() + R"("}})",
        "run.json", more, {.data = false, .files = false});
    const nn::ModelConfig model = resolve_model_config(run.model);
    const DataSetup data = open_data(run, model);
    RunModel described = make_run_model(run, model, data.tokenizer, data.train.get());
    write_run_model(run, described);
    return described;
  }

  const std::string chat_ =
      R"({"messages": [{"role": "user", "content": "where"}, {"role": "assistant", "content": "the harbour"}]})";
};

TEST_F(EndOfTurnOfRuns, ChatsByTheTokenizersTemplateEndGeneratedText) {
  const RunModel model = trained_on(chat_);
  EXPECT_EQ(model.config.eos_token_ids, (std::vector<std::int64_t>{257})) << "documents end as before";
  EXPECT_EQ(model.generation_ids.eos, (std::vector<std::int64_t>{257, 260}));
  EXPECT_THAT(model.report, HasSubstr("also ends with 260 \"<|im_end|>\" (the chat template)"));
  EXPECT_EQ(Json::parse_file(temp_ / "run/model/generation_config.json").at("eos_token_id").dump(), "[257,260]");
}

TEST_F(EndOfTurnOfRuns, TemplateChosenByTheTokenizersTokensCountsToo) {
  fs::remove(temp_ / "tokenizer/chat_template.jinja");
  EXPECT_EQ(trained_on(chat_).generation_ids.eos, (std::vector<std::int64_t>{257, 260}));
}

TEST_F(EndOfTurnOfRuns, TextsAndOtherMaskedRecordsEndAsBefore) {
  for (const std::string record :
       {R"({"text": "where the harbour is, the old town is near"})",
        R"({"prompt": "where<|im_end|> ", "completion": "the harbour is, the old town is near"})"}) {
    SCOPED_TRACE(record);
    EXPECT_EQ(trained_on(record).generation_ids.eos, (std::vector<std::int64_t>{257}));
  }
}

TEST_F(EndOfTurnOfRuns, IdsOfTheConfigAreKept) {
  EXPECT_EQ(trained_on(chat_, {"--model.eos_token_id=257"}).generation_ids.eos, (std::vector<std::int64_t>{257}));
}

TEST_F(EndOfTurnOfRuns, TemplateThatFailsIsNoFaultOfOtherData) {
  write_file(temp_ / "tokenizer/chat_template.jinja", "{{ raise_exception('tools alone') }}");
  EXPECT_EQ(
      trained_on(R"({"prompt": "where", "completion": " the harbour is, the old town is near"})").generation_ids.eos,
      (std::vector<std::int64_t>{257}));
}

TEST_F(RunModelTest, ModelPartIsFoundAroundTheCheckpointThenWhereTheRunWas) {
  const RunConfig run = config();
  const RunModel model = run_model(run);
  write_run_model(run, model);
  CheckpointState state;
  store_run_model(state, run, model);

  StoredModel stored = stored_model(state, checkpoint());
  EXPECT_EQ(stored.config.eos_token_ids, (std::vector<std::int64_t>{257}));
  EXPECT_EQ(stored.config.pad_token_id, 258);
  EXPECT_EQ(fs::canonical(stored.files), fs::canonical(temp_ / "run/model"));
  EXPECT_EQ(stored.missing, "");
  EXPECT_NE(stored.fingerprint, "");

  const fs::path alone = temp_ / "alone" / "step-1";
  fs::create_directories(alone);
  EXPECT_EQ(fs::canonical(stored_model(state, alone).files), fs::canonical(temp_ / "run/model"));
  fs::rename(temp_ / "run", temp_ / "moved");
  stored = stored_model(state, alone);
  EXPECT_EQ(stored.files, "");
  EXPECT_EQ(stored.config.hidden_size, 64) << "the checkpoint holds the config";
  EXPECT_THAT(stored.missing, HasSubstr("was copied out of its run folder (" + (temp_ / "run").string()));
  EXPECT_EQ(fs::canonical(stored_model(state, checkpoint("moved")).files), fs::canonical(temp_ / "moved/model"));
}

TEST_F(RunModelTest, CheckpointThatNoRunSavedIsRefused) {
  CheckpointState state;
  state.config = to_json(config());
  try {
    (void)stored_model(state, checkpoint());
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::corrupt);
    EXPECT_THAT(error.what(), HasSubstr("step-1 holds no model config"));
  }
}

TEST_F(RunModelTest, LeftoversOfAKilledStartAreRemoved) {
  const RunConfig run = config();
  const fs::path left = temporary_name(temp_ / "run" / "model");
  fs::create_directories(left);
  fs::create_directories(temp_ / "run" / "model.tmp-mine");
  write_file(left / "tokenizer.json", "{");
  write_run_model(run, run_model(run));
  EXPECT_FALSE(fs::exists(left));
  EXPECT_TRUE(fs::exists(temp_ / "run" / "model.tmp-mine")) << "not one of the program's names";
  EXPECT_TRUE(fs::exists(temp_ / "run" / "model" / "config.json"));
}

TEST_F(RunModelTest, CheckpointFolderOutsideOfTheRunIsFoundFromWhereTheRunWasStarted) {
  const fs::path run = temp_ / "run";
  fs::create_directories(run);
  write_file(run / "config.json", R"({"model": {}, "training": {}, "checkpoint": {"folder": "scratch"}})");
  write_file(run / "sources.json", R"({"working_directory": ")" + temp_.path().string() + R"("})");
  EXPECT_TRUE(is_run_folder(run));
  EXPECT_EQ(checkpoint_folder_of(run), run / "checkpoints") << "there is none";
  fs::create_directories(temp_ / "scratch");
  EXPECT_EQ(checkpoint_folder_of(run), temp_ / "scratch");
  fs::create_directories(run / "checkpoints");
  EXPECT_EQ(checkpoint_folder_of(run), run / "checkpoints");
  EXPECT_FALSE(is_run_folder(temp_.path()));
}

}  // namespace
}  // namespace quench
