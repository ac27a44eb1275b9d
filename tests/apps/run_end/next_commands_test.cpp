// The commands that a run prints at its end: each runs as printed, from the folder where the run was started.

#include <gmock/gmock.h>

#include <cstdlib>

#include "tests/apps/run_project.h"

namespace quench {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::Outcome;
using testing::read_file;
using testing::run_program;
using testing::write_file;

class NextCommands : public testing::RunProject {
 protected:
  // Lines after "next:".
  static std::vector<std::string> printed(const std::string& output) {
    std::vector<std::string> lines;
    std::istringstream text(output);
    bool next = false;
    for (std::string line; std::getline(text, line);) {
      if (next && !line.starts_with("    ")) break;
      if (next) lines.push_back(line.substr(4));
      next = next || line == "  next:";
    }
    return lines;
  }
  [[nodiscard]] int shell(const std::string& line, const std::string& path = "$PATH") const {
    const std::string script = "cd '" + work().string() + "' && PATH=" + path + " && " + line + " >shell.txt 2>&1";
    return std::system(script.c_str());
  }

  // Starts a run and each command that it proposes. Returns the commands, without the program's path.
  std::string run_all(std::vector<std::string> more) const {
    more.insert(more.begin(),
                {"train", "run.json", "--training.steps=6", "--evaluation.interval=3", "--optimizer.lr=1e-3"});
    const Outcome done = run(more);
    EXPECT_EQ(done.status, 0) << done.errors;
    std::string all;
    for (const std::string& line : printed(done.output)) {
      EXPECT_EQ(shell(line), 0) << line << "\n" << read_file(work() / "shell.txt");
      all += line.substr(line.find("quench ")) + "\n";
    }
    return all;
  }
};

TEST_F(NextCommands, OfFullTraining) {
  EXPECT_THAT(run_all({"--run.folder=relative"}),
              AllOf(HasSubstr("quench generate --model relative "), HasSubstr("quench eval --model relative --data"),
                    HasSubstr("quench export --checkpoint relative --format hf --output relative-export\n"),
                    HasSubstr("--training.steps=12\n"), HasSubstr("quench report relative\n")));
  const fs::path absolute = elsewhere() / "it's mine";
  EXPECT_THAT(run_all({"--run.folder=" + absolute.string()}), HasSubstr("it'\\''s mine-export'\n"));
  EXPECT_TRUE(fs::exists(elsewhere() / "it's mine-export" / "model.safetensors"));
  EXPECT_THAT(run_all({"--run.folder=with export", "--export.format=hf"}),
              AllOf(HasSubstr("--model 'with export/export'"), Not(HasSubstr("quench export"))));
  EXPECT_THAT(run_all({"--run.folder=quantized", "--export.scheme=int4_weight_only_g32"}),
              HasSubstr("quench eval --model quantized/export"));
}

TEST_F(NextCommands, OfAFolderThatIsTheWorkingFolder) {
  fs::create_directory(work() / "here");
  write_file(work() / "here" / "run.json", read_file(work() / "run.json"));
  fs::rename(work() / "shards", work() / "here" / "shards");
  fs::rename(work() / "tokenizer", work() / "here" / "tokenizer");
  const Outcome done = run_program(
      work() / "here", {"train", "run.json", "--training.steps=4", "--run.folder=.", "--evaluation.interval=0"});
  ASSERT_EQ(done.status, 0) << done.errors;
  for (const std::string& line : printed(done.output))
    EXPECT_EQ(shell("cd here && " + line), 0) << line << "\n" << read_file(work() / "here" / "shell.txt");
  EXPECT_TRUE(fs::exists(work() / "here-export" / "model.safetensors"));
}

TEST_F(NextCommands, LeaveAnotherProgramsFolderAlone) {
  fs::create_directory(work() / "taken-export");
  write_file(work() / "taken-export" / "notes.txt", "mine");
  EXPECT_THAT(run_all({"--run.folder=taken"}), HasSubstr("--output taken-export-2\n"));
}

TEST_F(NextCommands, OfAdapters) {
  make_base();
  EXPECT_THAT(run_all({"--run.folder=lora", "--lora.rank=4"}),
              HasSubstr("quench merge-lora --model lora --output lora-merged\n"));
  EXPECT_THAT(run_all({"--run.folder=q lora", "--lora.rank=4", "--lora.base=nf4"}),
              HasSubstr("quench merge-lora --model 'q lora' --output 'q lora-merged'\n"));
  EXPECT_THAT(run_all({"--run.folder=peft", "--lora.rank=4", "--export.format=peft"}),
              HasSubstr("quench merge-lora --model peft --output peft-merged\n"));
  EXPECT_THAT(run_all({"--run.folder=whole", "--lora.rank=4", "--export.scheme=int8_weight_only"}),
              AllOf(HasSubstr("generate --model whole/export"), Not(HasSubstr("merge-lora"))));
}

TEST_F(NextCommands, OfQuantizationAwareTraining) {
  EXPECT_THAT(run_all({"--run.folder=qat", "--recipe.name=qat_int4_weight_only"}),
              AllOf(HasSubstr("quench quantize --checkpoint qat --scheme int4_weight_only_g32 --output "
                              "qat-int4_weight_only_g32\n"),
                    Not(HasSubstr("quench export"))));
  (void)run_all({"--run.folder=qat-out", "--recipe.name=qat_int4_weight_only", "--export.folder=out"});
  make_base();
  EXPECT_THAT(run_all({"--run.folder=qat-lora", "--recipe.name=qat_int4_weight_only", "--lora.rank=4"}),
              AllOf(HasSubstr("quench quantize --checkpoint qat-lora "), HasSubstr("quench merge-lora ")));
}

TEST_F(NextCommands, OfPreferencesAndDistillation) {
  std::string pairs;
  for (int i = 0; i < 40; ++i)
    pairs += R"({"prompt": "the cat sees", "chosen": " the river.", "rejected": " an apple."})"
             "\n";
  write_file(work() / "pairs.jsonl", pairs);
  make_base();
  EXPECT_THAT(run_all({"--run.folder=dpo", "--preference.loss=dpo", "--data.train=pairs.jsonl",
                       "--data.validation=pairs.jsonl"}),
              AllOf(HasSubstr("quench export "), Not(HasSubstr("quench eval"))));
  (void)run_all({"--run.folder=dpo-out", "--preference.loss=dpo", "--data.train=pairs.jsonl",
                 "--data.validation=pairs.jsonl", "--lora.rank=4", "--export.scheme=int4_weight_only_g32"});
  (void)run_all({"--run.folder=distilled", "--distill.teacher=initial", "--distill.ratio=0.5"});
  (void)run_all({"--run.folder=qad", "--distill.teacher=initial", "--recipe.name=qat_int4_weight_only",
                 "--export.folder=qad-out"});
}

TEST_F(NextCommands, ReadRecordsAsTheRunDid) {
  std::string records;
  for (int i = 0; i < 40; ++i)
    records += R"({"body of it": "the cat sees the river and my friend sees a house."})"
               "\n";
  write_file(work() / "records.jsonl", records);
  EXPECT_THAT(run_all({"--run.folder=records", "--data.train=records.jsonl", "--data.validation=records.jsonl",
                       "--data.text_field=body of it", "--data.packing=false"}),
              HasSubstr("--data records.jsonl --field 'body of it'\n"));
}

TEST_F(NextCommands, NameTheProgramByItsPathUnlessThatLeadsToIt) {
  const std::string train = "train run.json --training.steps=2 --evaluation.interval=0 --run.folder=";
  const std::string folder = fs::path(testing::program_path()).parent_path().string();
  ASSERT_EQ(shell("'" + testing::program_path() + "' " + train + "by-path", "/usr/bin:/bin"), 0);
  EXPECT_THAT(read_file(work() / "shell.txt"), HasSubstr("    " + testing::program_path() + " report by-path\n"));
  ASSERT_EQ(shell("quench " + train + "by-name", "'" + folder + "':/usr/bin:/bin"), 0);
  EXPECT_THAT(read_file(work() / "shell.txt"), HasSubstr("    quench report by-name\n"));
}

}  // namespace
}  // namespace quench
