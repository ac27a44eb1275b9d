// The config verb as a user runs it: exit statuses, what goes to which stream, files.

#include <gmock/gmock.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <map>
#include <string>

#include "core/json/json.h"
#include "tests/apps/program.h"

namespace quench {
namespace {

using ::testing::HasSubstr;
using testing::Outcome;

class ConfigVerb : public ::testing::Test {
 protected:
  // Runs `quench config <arguments>` through the shell, in the scratch folder.
  Outcome run(const std::string& arguments) {
    const std::string errors = folder_ / "stderr.txt";
    const std::string command = fmt::format("cd '{}' && '{}' config {} 2>'{}'", folder_.path().string(),
                                            testing::program_path(), arguments, errors);
    Outcome outcome;
    std::FILE* pipe = popen(command.c_str(), "r");
    EXPECT_NE(pipe, nullptr);
    std::array<char, 4096> buffer{};
    while (const std::size_t count = std::fread(buffer.data(), 1, buffer.size(), pipe))
      outcome.output.append(buffer.data(), count);
    const int status = pclose(pipe);
    outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    outcome.errors = testing::read_file(errors);
    return outcome;
  }

  testing::TempDir folder_;
};

TEST_F(ConfigVerb, LsListsModelsAndRuns) {
  const Outcome text = run("ls");
  EXPECT_EQ(text.status, 0);
  EXPECT_THAT(text.output, HasSubstr("llama-3.2-1b"));
  EXPECT_THAT(text.output, HasSubstr("1.24B parameters"));
  EXPECT_THAT(text.output, HasSubstr("shakespeare_char"));
  const Json list = Json::parse(run("ls --json").output);
  EXPECT_GT(list.as_array().size(), 30u);
  EXPECT_EQ(list.as_array()[0].at("kind").as_string(), "models");
}

TEST_F(ConfigVerb, CheckAndPrintNeedOneConfig) {
  for (const std::string verb : {"check", "print"}) {
    const Outcome none = run(verb), two = run(verb + " demo tiny");
    EXPECT_EQ(none.status, 2);
    EXPECT_EQ(none.errors, "error: quench config " + verb +
                               " needs one config: a JSON file, or a name that `quench config ls` shows\n");
    EXPECT_THAT(two.errors, HasSubstr("; got demo, tiny"));
  }
}

// Refusals of training before it allocates, where the files are there.
TEST_F(ConfigVerb, CheckRefusesTheTextsThatTrainRefuses) {
  testing::write_file(folder_ / "corpus.txt", std::string(4000, 'x'));
  testing::write_file(folder_ / "run.json", R"({"model": {"preset": "tiny", "vocab_size": 260}})");
  const std::string run_of =
      "run.json --data.train=corpus.txt --data.validation=corpus.txt --data.tokenizer=bytes "
      "--training.steps=1 --data.seq_len=16 --training.micro_batch_size=2 ";
  EXPECT_EQ(run("check " + run_of).status, 0);
  const std::vector<std::array<std::string, 2>> refused = {
      {"--model.max_position_embeddings=16 '--evaluation.prompts=[\"a text of more than sixteen bytes\"]'",
       "evaluation.prompts[0] has"},
      {"--data.chat_date=2024-07-26", "a chat date (2024-07-26) belongs to a Jinja template"},
      {"'--data.chat_template_kwargs={\"x\": 1}'", "chat template arguments"},
      {"--model.vocab_size=100", "data.tokenizer has"}};
  for (const auto& [options, message] : refused) {
    const Outcome checked = run("check " + run_of + options);
    EXPECT_EQ(checked.status, 2) << options << checked.output;
    EXPECT_THAT(checked.errors, HasSubstr(message));
    EXPECT_EQ(run("check --no-files " + run_of + options).status, 0) << options;
    const std::string train = fmt::format("cd '{}' && '{}' train {} 2>'{}' >/dev/null", folder_.path().string(),
                                          testing::program_path(), run_of + options, (folder_ / "train.txt").string());
    EXPECT_NE(std::system(train.c_str()), 0) << options;
    EXPECT_THAT(testing::read_file(folder_ / "train.txt"), HasSubstr(message));
  }
}

TEST_F(ConfigVerb, LsChoosesAKindAndAFamily) {
  const auto names = [&](const std::string& arguments) {
    const Outcome outcome = run("ls --json " + arguments);
    EXPECT_EQ(outcome.status, 0) << arguments << ": " << outcome.errors;
    std::vector<std::string> all;
    const Json list = Json::parse(outcome.output);
    for (const Json& one : list.as_array())
      all.push_back(one.at("kind").as_string() + "/" + one.at("name").as_string());
    return all;
  };
  const std::vector<std::string> gemma = names("models --family gemma3");
  EXPECT_EQ(gemma, (std::vector<std::string>{"models/gemma-3-12b", "models/gemma-3-1b", "models/gemma-3-27b",
                                             "models/gemma-3-4b"}));
  EXPECT_EQ(names("models --family Gemma-3"), gemma);
  EXPECT_EQ(names("models --family gemma3_text"), gemma);
  EXPECT_EQ(names("models --family gpt-oss"), names("models --family gpt_oss"));
  EXPECT_EQ(names("models --family qwen2.5-0.5b"), std::vector<std::string>{"models/qwen2.5-0.5b"});
  EXPECT_EQ(names("runs --family gpt-oss"), std::vector<std::string>{"runs/lora_gpt-oss-20b"});
  EXPECT_GT(names("--family gemma3").size(), gemma.size());
  EXPECT_EQ(names("models").size() + names("runs").size(), names("").size());

  const Outcome kind = run("ls gemma3");
  EXPECT_EQ(kind.status, 2);
  EXPECT_THAT(kind.errors, HasSubstr("KIND 'gemma3' is unknown; use models or runs, or --family gemma3"));
  const Outcome family = run("ls models --family gemini");
  EXPECT_EQ(family.status, 2);
  EXPECT_THAT(family.errors, HasSubstr("no embedded model is of family 'gemini'; model types: deepseek_v3, gemma2"));
  EXPECT_EQ(run("ls --family -").status, 2);
}

TEST_F(ConfigVerb, LsSaysMethodGpuAndExportOfARun) {
  const std::string text = run("ls runs").output;
  for (const char* line :
       {"qlora_llama-3.1-8b_16gb     Llama-3.1-8B: QLoRA (nf4), 1 epoch, GPU of 16 GB, exports peft",
        "qat_lora_qwen3-8b           Qwen3-8B: LoRA + QAT int8dyn_int4, 1 epoch, GPU of 40 GB, exports "
        "compressed-tensors",
        "qad_nvfp4_llama-3.2-1b      Llama-3.2-1B: QAD nvfp4, 1 epoch", "Llama-3.1-8B-Instruct: DPO + LoRA, 1 epoch",
        "finetune_llama-3.1-8b       Llama-3.1-8B: full fine-tuning, 1 epoch, GPU of 180 GB\n",
        "demo                        tiny-demo: pre-training float8_rowwise, 400 steps, GPU of 16 GB, exports hf"})
    EXPECT_THAT(text, HasSubstr(line));
  const Json list = Json::parse(run("ls runs --family llama-3.1 --json").output);
  EXPECT_GE(list.as_array().size(), 5u);
  for (const Json& one : list.as_array()) {
    EXPECT_THAT(one.at("model").as_string(), HasSubstr("Llama-3.1-8B"));
    EXPECT_THAT(one.at("gpu_memory").as_string(), HasSubstr(" GB"));
  }
}

TEST_F(ConfigVerb, CpWritesWhatCheckReads) {
  EXPECT_EQ(run("cp shakespeare_char mine.json").status, 0);
  EXPECT_EQ(testing::read_file(folder_ / "mine.json"),
            testing::read_file(testing::source_dir() / "configs/runs/shakespeare_char.json"));
  const Outcome checked = run("check mine.json --no-files");
  EXPECT_EQ(checked.status, 0) << checked.errors;
  EXPECT_EQ(checked.output, "mine.json: valid\n");

  const Outcome missing = run("check mine.json");
  EXPECT_EQ(missing.status, 2);
  EXPECT_THAT(missing.errors,
              HasSubstr("data.train: no file matches \"shakespeare/train.txt\" in the working directory " +
                        std::filesystem::canonical(folder_.path()).string() + "\n"));
  EXPECT_THAT(run("check shakespeare_char").errors, HasSubstr("; name yours with --data.train=PATH\n"));
  EXPECT_THAT(run("check llama-3.2-1b").errors, HasSubstr("it is an embedded model: name it in a run by "
                                                          "--model.preset=llama-3.2-1b"));
  std::filesystem::create_directories(folder_ / "runs/x");
  EXPECT_THAT(run("check runs/x").errors,
              HasSubstr("runs/x: a folder; a config is a file, and a model folder is named by --model.path\n"));
  testing::write_file(folder_ / "runs/x/environment.json", "{}");
  EXPECT_THAT(run("check runs/x").errors, HasSubstr("(did you mean \"runs/x/config.json\"?)"));
  EXPECT_THAT(run("check shakespeare_char --data.train=nosuch.txt").errors,
              HasSubstr("no file matches \"nosuch.txt\" in the working directory "));
}

TEST_F(ConfigVerb, CpKeepsAndCreatesAsAsked) {
  testing::write_file(folder_ / "mine.json", "mine");
  EXPECT_EQ(run("cp demo mine.json -n").status, 0);
  EXPECT_EQ(testing::read_file(folder_ / "mine.json"), "mine");
  EXPECT_EQ(run("cp demo a/b/mine.json").status, 2);
  EXPECT_EQ(run("cp demo a/b/mine.json --make-parents").status, 0);
  EXPECT_TRUE(std::filesystem::exists(folder_ / "a/b/mine.json"));
  EXPECT_EQ(run("cp models/tiny a").status, 0);
  EXPECT_TRUE(std::filesystem::exists(folder_ / "a/tiny.json"));
  const Outcome unknown = run("cp shakespear_char x.json");
  EXPECT_EQ(unknown.status, 2);
  EXPECT_THAT(unknown.errors, HasSubstr("did you mean \"shakespeare_char\"?"));
}

TEST_F(ConfigVerb, CheckReportsAllErrors) {
  testing::write_file(folder_ / "bad.json",
                      "{\"model\": {\"preset\": \"tiny\"},\n \"training\": {\"setps\": 1, \"dtype\": \"fp16\"}}");
  const Outcome text = run("check bad.json --no-files --optimizer.lr=fast");
  EXPECT_EQ(text.status, 2);
  EXPECT_EQ(text.output, "");
  EXPECT_THAT(text.errors, HasSubstr("bad.json:2:24: training.setps: unknown key (did you mean \"training.steps\"?)"));
  EXPECT_THAT(text.errors, HasSubstr("bad.json:2:36: training.dtype: expected one of bf16, f32"));
  EXPECT_THAT(text.errors, HasSubstr("--optimizer.lr=fast: optimizer.lr: expected number"));
  EXPECT_THAT(text.errors, HasSubstr("data.train: no training data"));

  const Outcome json = run("check --json bad.json --no-files");
  EXPECT_EQ(json.status, 2);
  const Json result = Json::parse(json.output);
  EXPECT_FALSE(result.at("valid").as_bool());
  EXPECT_EQ(result.at("issues").as_array()[0].at("suggestion").as_string(), "training.steps");
}

TEST_F(ConfigVerb, PrintGivesAConfigThatPrintsTheSame) {
  const Outcome first = run("print demo --training.steps 70 --no-checkpoint.async ~training.global_batch_size");
  ASSERT_EQ(first.status, 0) << first.errors;
  const Json config = Json::parse(first.output);
  EXPECT_EQ(config.at("training").at("steps").as_int(), 70);
  EXPECT_FALSE(config.at("checkpoint").at("async").as_bool());
  EXPECT_TRUE(config.at("training").at("global_batch_size").is_null());
  testing::write_file(folder_ / "resolved.json", first.output);
  EXPECT_EQ(run("print resolved.json").output, first.output);
}

TEST_F(ConfigVerb, DiffNamesTheKeys) {
  run("print demo > a.json");
  run("print demo --run.name=demo --training.seed=1 > b.json");
  EXPECT_EQ(run("diff a.json b.json").output, "training.seed: 42 -> 1\n");
  EXPECT_EQ(run("diff a.json a.json").output, "");
  const Json changes = Json::parse(run("diff a.json b.json --json").output);
  EXPECT_EQ(changes.as_array()[0].at("on_resume").as_string(), "guarded");
}

TEST_F(ConfigVerb, SchemaIsJson) {
  const Json schema = Json::parse(run("schema").output);
  EXPECT_NE(schema.at("properties").find("lr_schedule"), nullptr);
}

TEST_F(ConfigVerb, BadUsageIsStatusTwo) {
  EXPECT_EQ(run("").status, 2);
  EXPECT_EQ(run("frobnicate").status, 2);
  EXPECT_EQ(run("check").status, 2);
  EXPECT_EQ(run("check a.json b.json").status, 2);
  EXPECT_EQ(run("print nothing-of-that-name").status, 2);
  const Outcome help = run("check --help");
  EXPECT_EQ(help.status, 0);
  EXPECT_THAT(help.output, HasSubstr("Example: quench config check"));
}

// The tables in the documents are those of the program.
TEST_F(ConfigVerb, GeneratedPartsOfDocumentsAreUpToDate) {
  std::map<std::string, int> parts;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(testing::source_dir() / "docs")) {
    if (entry.path().extension() != ".md") continue;
    const std::string page = testing::read_file(entry.path());
    int here = 0;
    for (std::size_t at = page.find("<!-- begin generated: "); at != std::string::npos;
         at = page.find("<!-- begin generated: ", at + 1))
      ++here;
    if (here == 0) continue;
    const std::string name = entry.path().filename().string();
    parts[name] = here;
    testing::write_file(folder_ / name, page);
    const Outcome outcome = run("docs " + name);
    EXPECT_EQ(outcome.status, 0) << outcome.errors;
    EXPECT_TRUE(testing::read_file(folder_ / name) == page) << "run: quench config docs " << entry.path();
  }
  EXPECT_EQ(parts, (std::map<std::string, int>{
                       {"cli.md", 1}, {"config.md", 1}, {"data.md", 2}, {"evaluation.md", 1}, {"formats.md", 1}}));
  testing::write_file(folder_ / "page.md",
                      "<!-- begin generated: evaluation tasks -->\nold\n<!-- end generated -->\nrest\n");
  EXPECT_EQ(run("docs page.md").status, 0);
  EXPECT_THAT(
      testing::read_file(folder_ / "page.md"),
      ::testing::AllOf(::testing::HasSubstr("| `piqa` |"), ::testing::EndsWith("<!-- end generated -->\nrest\n"),
                       ::testing::Not(::testing::HasSubstr("old"))));
  // Options of the program itself, then the verbs.
  testing::write_file(folder_ / "page.md", "<!-- begin generated: verbs -->\n<!-- end generated -->\n");
  EXPECT_EQ(run("docs page.md").status, 0);
  EXPECT_THAT(testing::read_file(folder_ / "page.md"),
              ::testing::ContainsRegex("### quench\n.*`--plugin FILE`.*### quench train\n"));
  testing::write_file(folder_ / "page.md", "no part\n");
  EXPECT_EQ(run("docs page.md").status, 3);
}

}  // namespace
}  // namespace quench
