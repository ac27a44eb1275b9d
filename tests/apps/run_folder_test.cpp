// Run folders that are moved, looked at, finished, or without a checkpoint, as a user meets them.

#include <gmock/gmock.h>

#include <span>

#include "core/safetensors/safetensors.h"
#include "tests/apps/run_project.h"

namespace quench {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::Outcome;
using testing::read_file;

class RunFolder : public testing::RunProject {
 protected:
  // All that a run is used for, in the other folder.
  void expect_usable(const std::string& model) const {
    const Outcome eval = run_elsewhere({"eval", "--model", model, "--data", "text.txt", "--json"});
    EXPECT_EQ(eval.status, 0) << eval.errors;
    const std::vector<std::int64_t> ids = {3, 1, 4, 1, 5, 9, 2, 6};
    write_safetensors(elsewhere() / "in.safetensors",
                      {{"input_ids", DType::i64, {1, 8}, std::as_bytes(std::span(ids))}});
    const Outcome forward =
        run_elsewhere({"forward", "--model", model, "--input", "in.safetensors", "--output", "out.safetensors"});
    EXPECT_EQ(forward.status, 0) << forward.errors;
  }
};

TEST_F(RunFolder, MovedRunWithoutItsBaseModelIsUsable) {
  make_base();
  expect_ok({"train", "run.json"});
  const std::string before = continuation(run(generate("run")));
  expect_ok({"export", "--checkpoint", "run", "--output", "before"});
  fs::rename(work() / "before", elsewhere() / "before");
  fs::rename(work() / "run", elsewhere() / "moved");
  fs::rename(work() / "held_out.txt", elsewhere() / "text.txt");
  fs::remove_all(work());  // the base model, the tokenizer and the shards

  for (const std::string model : {"moved", "moved/checkpoints/step-30"}) {
    EXPECT_EQ(continuation(run_elsewhere(generate(model))), before) << model;
    expect_usable(model);
    const Outcome exported = run_elsewhere({"export", "--checkpoint", model, "--output", "after"});
    EXPECT_EQ(exported.status, 0) << exported.errors;
    for (const auto& entry : fs::directory_iterator(elsewhere() / "before")) {
      const std::string name = entry.path().filename().string();
      if (name == "README.md") continue;  // names the folder and its source
      EXPECT_EQ(read_file(elsewhere() / "after" / name), read_file(entry.path())) << name;
    }
    for (const char* carried : {"tokenizer.json", "LICENSE", "chat_template.jinja", "generation_config.json"})
      EXPECT_TRUE(fs::exists(elsewhere() / "after" / carried)) << carried;
    fs::remove_all(elsewhere() / "after");
  }
  EXPECT_EQ(run_elsewhere({"report", "moved"}).status, 0);
  EXPECT_EQ(run_elsewhere({"inspect", "moved"}).status, 0);
}

TEST_F(RunFolder, CheckpointAloneNeedsOnlyATokenizer) {
  expect_ok({"train", "run.json"});
  const std::string before = continuation(run(generate("run")));
  fs::copy(work() / "run" / "checkpoints" / "step-30", elsewhere() / "step-30", fs::copy_options::recursive);
  fs::rename(work() / "tokenizer", elsewhere() / "tokenizer");
  fs::rename(work() / "held_out.txt", elsewhere() / "text.txt");
  fs::remove_all(work());

  const Outcome without = run_elsewhere(generate("step-30"));
  EXPECT_EQ(without.status, 1);
  EXPECT_THAT(without.errors, HasSubstr("was copied out of its run folder"));
  EXPECT_THAT(without.errors, HasSubstr("--tokenizer"));
  std::vector<std::string> with = generate("step-30");
  with.insert(with.end(), {"--tokenizer", "tokenizer"});
  EXPECT_EQ(continuation(run_elsewhere(with)), before);
  const Outcome forward =
      run_elsewhere({"export", "--checkpoint", "step-30", "--tokenizer", "tokenizer", "--output", "model"});
  EXPECT_EQ(forward.status, 0) << forward.errors;
  EXPECT_EQ(continuation(run_elsewhere(generate("model"))), before);
}

TEST_F(RunFolder, RunGoesOnFromItsOwnModelPartWithoutTheBase) {
  make_base();
  expect_ok({"train", "run.json"});
  fs::remove_all(work() / "base");
  const Outcome refused = run({"train", "run.json"});
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.errors, HasSubstr("did you mean \"run/model\"?"));
  const Outcome resumed = run({"train", "run.json", "--model.path=run/model", "--training.steps=35"});
  EXPECT_EQ(resumed.status, 0) << resumed.errors;
  EXPECT_THAT(resumed.output, HasSubstr("step 35/35"));
}

TEST_F(RunFolder, TokenizerThatIsNotTheCheckpointsIsRefused) {
  expect_ok({"train", "run.json"});
  const Outcome other =
      run({"tokenize", "train", "--input", "held_out.txt", "--vocab-size", "270", "--output", "other", "--json"});
  EXPECT_EQ(Json::parse(other.output).at("tokens").as_int(), 270) << other.errors;
  for (const char* name : {"tokenizer.json", "tokenizer_config.json"})
    fs::copy_file(work() / "other" / name, work() / "run/model" / name, fs::copy_options::overwrite_existing);
  const Outcome outcome = run(generate("run"));
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.errors, HasSubstr("is not the one of the checkpoint"));
}

TEST_F(RunFolder, SourcesAreRecordedAsAbsolutePaths) {
  make_base();
  expect_ok({"train", "run.json", "--training.steps=1"});
  const Json sources = read_json("run/sources.json");
  const fs::path here = fs::canonical(work());
  EXPECT_EQ(sources.at("working_directory").as_string(), here);
  EXPECT_EQ(sources.at("model").as_string(), here / "base");
  EXPECT_EQ(sources.at("train").as_array()[0].at("files").as_array()[0].as_string(), here / "shards/train-00000.bin");
}

TEST_F(RunFolder, TrainingFromAnotherFolderSaysWhereTheDataWere) {
  expect_ok({"train", "run.json", "--training.steps=1"});
  const std::string run_folder = (work() / "run").string();
  const Outcome outcome = run_elsewhere({"train", run_folder + "/config.json", "--run.folder=" + run_folder});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.errors,
              HasSubstr("did you mean \"" + (fs::canonical(work()) / "shards/train-*.bin").string() + "\"?"));
}

TEST_F(RunFolder, ModelPartOfAnotherTokenizerIsReplacedAndSaid) {
  expect_ok({"train", "run.json", "--training.steps=1"});
  testing::write_file(work() / "run" / "model" / "notes.txt", "mine");
  testing::write_file(work() / "run" / "model" / "tokenizer.model", "of another tokenizer");
  testing::write_file(work() / "run" / "model" / "tokenizer_config.json", "{}");
  const Outcome again = run({"train", "run.json", "--training.steps=2"});
  EXPECT_EQ(again.status, 0) << again.errors;
  EXPECT_THAT(again.errors, HasSubstr("run/model was of another model or tokenizer"));
  EXPECT_EQ(read_file(work() / "run/model/tokenizer_config.json"),
            read_file(work() / "tokenizer/tokenizer_config.json"));
  EXPECT_FALSE(fs::exists(work() / "run/model/tokenizer.model")) << "it would be read in place of the run's";
  EXPECT_EQ(read_file(work() / "run/model/notes.txt"), "mine");
  EXPECT_THAT(run({"train", "run.json", "--training.steps=3"}).errors, Not(HasSubstr("was of another model")));
}

TEST_F(RunFolder, FolderCalledModelThatIsTheUsersIsLeftAlone) {
  make_base();
  fs::rename(work() / "base", work() / "model");
  const std::string before = read_file(work() / "model" / "config.json");
  const std::vector<std::string> here = {"train", "run.json", "--run.folder=.", "--model.path=model"};
  for (const std::vector<std::string>& command : {here, {"config", "check", "run.json", here[2], here[3]}}) {
    const Outcome refused = run(command);
    EXPECT_EQ(refused.status, 2);
    EXPECT_THAT(refused.errors, HasSubstr("model exists and was not written by a run")) << command[0];
  }
  EXPECT_EQ(read_file(work() / "model" / "config.json"), before);
  EXPECT_FALSE(fs::exists(work() / "sources.json"));
}

TEST_F(RunFolder, FinishedRunSaysSo) {
  expect_ok({"train", "run.json"});
  const Outcome again = run({"train", "run.json"});
  EXPECT_EQ(again.status, 0) << again.errors;
  EXPECT_THAT(again.output + again.errors,
              HasSubstr("the run in run is finished, at step 30 of 30; to continue, raise training.steps"));
  EXPECT_THAT(again.errors, Not(HasSubstr("the recipe does not apply")));
  const Outcome more = run({"train", "run.json", "--training.steps=32"});
  EXPECT_THAT(more.output, Not(HasSubstr("is finished")));
  EXPECT_THAT(more.output, HasSubstr("step 32/32"));
}

TEST_F(RunFolder, RunWithoutACheckpointSaysSo) {
  expect_ok({"train", "run.json", "--checkpoint.enable=false", "--export.format=hf"});
  for (const std::vector<std::string>& command : {generate("run"),
                                                  {"eval", "--model", "run", "--data", "held_out.txt"},
                                                  {"export", "--checkpoint", "run", "--output", "out"}}) {
    const Outcome outcome = run(command);
    EXPECT_EQ(outcome.status, 1) << command[0];
    EXPECT_THAT(outcome.errors, HasSubstr("the run in run has no checkpoint")) << command[0];
    EXPECT_THAT(outcome.errors, HasSubstr("run/export")) << command[0];
    EXPECT_THAT(outcome.errors, Not(HasSubstr("architecture"))) << command[0];
  }
}

TEST_F(RunFolder, InspectShowsTheRun) {
  expect_ok({"train", "run.json", "--export.format=hf"});
  const Outcome json = run({"inspect", "run", "--json"});
  ASSERT_EQ(json.status, 0) << json.errors;
  const Json summary = Json::parse(json.output);
  EXPECT_EQ(summary.at("kind").as_string(), "run");
  EXPECT_EQ(summary.at("state").as_string(), "finished");
  EXPECT_EQ(summary.at("step").as_int(), 30);
  EXPECT_EQ(summary.at("total_steps").as_int(), 30);
  EXPECT_EQ(summary.at("validation").at("step").as_int(), 30);
  EXPECT_GT(summary.at("last_loss").as_double(), 0);
  EXPECT_EQ(summary.at("model").as_string(), "LlamaForCausalLM");
  EXPECT_GT(summary.at("parameters").as_int(), 100'000);
  EXPECT_EQ(summary.at("recipe").as_string(), "bf16");
  EXPECT_EQ(summary.at("tokenizer_tokens").as_int(), 280);
  EXPECT_GT(summary.at("bytes").as_int(), summary.at("checkpoint_bytes").as_int());
  EXPECT_EQ(summary.at("exports").as_array().size(), 1u);
  EXPECT_EQ(summary.at("checkpoints").as_array().size(), 3u);
  EXPECT_EQ(summary.at("checkpoints").as_array()[0].at("step").as_int(), 30) << "newest first";

  const Outcome text = run({"inspect", "run"});
  EXPECT_THAT(text.output, HasSubstr("finished"));
  EXPECT_THAT(text.output, HasSubstr("run/checkpoints/step-30"));
}

TEST_F(RunFolder, InspectTellsAnInterruptedRun) {
  const pid_t child = testing::start_program(work(), {"train", "run.json", "--training.steps=100000"});
  while (!fs::exists(work() / "run/checkpoints/step-10") && ::kill(child, 0) == 0) ::usleep(2000);
  EXPECT_EQ(Json::parse(run_elsewhere({"inspect", (work() / "run").string(), "--json"}).output).at("state").as_string(),
            "running");
  ::kill(child, SIGKILL);
  EXPECT_EQ(testing::finish_program(work(), child).status, 128 + SIGKILL);
  const Json summary = Json::parse(run({"inspect", "run", "--json"}).output);
  EXPECT_EQ(summary.at("state").as_string(), "interrupted");
  EXPECT_EQ(summary.at("total_steps").as_int(), 100000);
  EXPECT_GE(summary.at("last_saved_step").as_int(), 10);
}

TEST_F(RunFolder, InspectShowsAModelFolder) {
  make_base();
  const Json model = Json::parse(run({"inspect", "base", "--json"}).output);
  EXPECT_EQ(model.at("kind").as_string(), "model folder");
  EXPECT_EQ(model.at("architecture").as_string(), "LlamaForCausalLM");
  EXPECT_EQ(model.at("dtype").as_string(), "f32");
  EXPECT_EQ(model.at("token_ids").as_string(), "begin 277, end 278 or 12, padding 279");
  EXPECT_THAT(model.at("tokenizer").as_string(), HasSubstr("280 tokens"));
  EXPECT_THAT(model.at("files").dump(), HasSubstr("chat_template.jinja"));
  const Outcome nothing = run({"inspect", "tokenizer"});
  EXPECT_EQ(nothing.status, 2);
  EXPECT_THAT(nothing.errors, HasSubstr("cannot be inspected; expected"));
}

}  // namespace
}  // namespace quench
