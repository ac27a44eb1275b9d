// Verbs that replace an earlier output, with a fault at each of their calls on it: the old or the new one is there,
// whole, and nothing else is touched.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <set>

#include "core/safetensors/safetensors.h"
#include "core/system/temporary.h"
#include "tests/fault/process.h"
#include "tests/testing.h"

namespace quench {
namespace {

namespace fs = std::filesystem;
using testing::Finished;
using testing::MemoryDir;
using testing::Process;
using testing::read_file;
using testing::write_file;

using Files = std::map<std::string, std::string>;

struct Writer {
  std::string name;
  std::vector<std::string> old, fresh;  // arguments; IN: the folder of inputs, OUT: that of outputs
  bool at_once = true;                  // false: files among others, one by one
};

std::vector<std::string> quantize(std::string scheme, std::string output, std::vector<std::string> more = {}) {
  std::vector<std::string> arguments{"quantize", "--model",  "IN/model",       "--scheme",
                                     scheme,     "--output", std::move(output)};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

std::vector<std::string> tokenize(std::string input) {
  return {"tokenize",    "--tokenizer",  "bytes", "--input", "IN/" + input, "--output",           "OUT/shards",
          "--overwrite", "--validation", "0.2",   "--split", "blank_line",  "--max-shard-tokens", "400"};
}

std::vector<std::string> train_tokenizer(std::string size) {
  return {"tokenize",      "train",    "--input",   "IN/a.txt",   "--vocab-size",
          std::move(size), "--output", "OUT/mixed", "--overwrite"};
}

std::vector<Writer> few_writers() {
  const std::vector<std::string> gguf{"--format", "gguf"}, shards{"--max-shard-gb", "0.0001"},
      over{"--overwrite", "--max-shard-gb", "0.0001"};
  return {{"GgufFile", quantize("q8_0", "OUT/m.gguf", gguf), quantize("q4_0", "OUT/m.gguf", gguf)},
          {"ModelFolder", quantize("int8_weight_only", "OUT/m", shards), quantize("int4_weight_only_g32", "OUT/m")},
          {"ModelAmongOtherFiles", quantize("int8_weight_only", "OUT/mixed", over),
           quantize("int4_weight_only_g32", "OUT/mixed", {"--overwrite"}), false},
          {"Config", {"config", "cp", "demo", "OUT/c.json"}, {"config", "cp", "tiny", "OUT/c.json"}}};
}

std::vector<Writer> all_writers() {
  std::vector<Writer> writers = few_writers();
  const std::vector<Writer> more = {
      {"Shards", tokenize("a.txt"), tokenize("b.txt")},
      {"TokenizerAmongOtherFiles", train_tokenizer("265"), train_tokenizer("270"), false},
      {"Report", {"report", "IN/run", "--output", "OUT/r.html"}, {"report", "IN/other", "--output", "OUT/r.html"}},
      {"Forward",
       {"forward", "--model", "IN/model", "--input", "IN/a.safetensors", "--output", "OUT/f.safetensors"},
       {"forward", "--model", "IN/model", "--input", "IN/b.safetensors", "--output", "OUT/f.safetensors"}},
      {"Export",
       {"export", "--checkpoint", "IN/run", "--output", "OUT/e"},
       {"export", "--checkpoint", "IN/other", "--output", "OUT/e"}},
      {"Adapters",
       {"export", "--checkpoint", "IN/lora", "--format", "peft", "--output", "OUT/p"},
       {"export", "--checkpoint", "IN/other_lora", "--format", "peft", "--output", "OUT/p"}}};
  writers.insert(writers.end(), more.begin(), more.end());
  return writers;
}

// Without temporaries, and the journal with which a stopped tokenization continues.
Files files_of(const fs::path& folder) {
  Files files;
  for (auto it = fs::recursive_directory_iterator(folder); it != fs::recursive_directory_iterator(); ++it) {
    const std::string name = it->path().filename().string();
    if (is_temporary_name(name) || name.ends_with(".journal")) {
      it.disable_recursion_pending();
      continue;
    }
    if (it->is_regular_file()) files[it->path().lexically_relative(folder).string()] = read_file(it->path());
  }
  return files;
}

// Without the folders in which an exchange keeps old files.
Files placed(const Files& files) {
  Files rest;
  for (const auto& [name, bytes] : files)
    if (name.find("replaced-") == std::string::npos) rest[name] = bytes;
  return rest;
}

std::set<std::string> names_of(const Files& files) {
  std::set<std::string> names;
  for (const auto& [name, bytes] : files) names.insert(name);
  return names;
}

class WriterFaultBase : public ::testing::TestWithParam<Writer> {
 protected:
  static void SetUpTestSuite() {
    inputs_ = std::make_unique<MemoryDir>();
    fs::copy(testing::golden_dir() / "models/llama", *inputs_ / "model", fs::copy_options::recursive);
    std::string text;
    for (int i = 0; i < 60; ++i) text += fmt::format("the cat sees {} small houses and the river.\n\n", i);
    write_file(*inputs_ / "a.txt", text);
    write_file(*inputs_ / "b.txt", text + "another end\n");
    for (const auto& [name, last] : {std::pair("a", 4), {"b", 5}}) {
      const std::vector<std::int64_t> ids{1, 2, 3, last};
      write_safetensors(*inputs_ / (std::string(name) + ".safetensors"),
                        {{"input_ids", DType::i64, {1, 4}, std::as_bytes(std::span(ids))}});
    }
    write_file(*inputs_ / "run.json", R"({"model": {"preset": "tiny", "vocab_size": 260}})");
    for (const char* run : {"run", "other", "lora", "other_lora"}) {
      std::vector<std::string> command{"train",
                                       (*inputs_ / "run.json").string(),
                                       "--data.train=" + (*inputs_ / "a.txt").string(),
                                       "--data.tokenizer=bytes",
                                       "--data.cache=" + (*inputs_ / "cache").string(),
                                       "--data.seq_len=16",
                                       "--training.steps=1",
                                       "--training.micro_batch_size=2",
                                       "--training.dtype=f32",
                                       "--training.seed=" + std::to_string(run[0]),
                                       "--run.folder=" + (*inputs_ / run).string()};
      if (std::string_view(run).ends_with("lora")) command.emplace_back("--lora.rank=2");
      const Finished trained = start(command, *inputs_ / "unused").wait();
      ASSERT_EQ(trained.status, 0) << trained.output;
    }
  }
  static void TearDownTestSuite() { inputs_.reset(); }

  static Process start(std::vector<std::string> arguments, const fs::path& output, const std::string& fault = {}) {
    for (std::string& argument : arguments) {
      if (argument.starts_with("IN/")) argument.replace(0, 2, inputs_->path().string());
      if (argument.starts_with("OUT/")) argument.replace(0, 3, output.string());
    }
    arguments.insert(arguments.begin(), testing::program_path());
    return Process(arguments, fault);
  }

  // The earlier output, and files of the user's.
  void make_old(const fs::path& output) const {
    fs::create_directories(output / "mixed");
    write_file(output / "notes.txt", "mine");
    write_file(output / "mixed/notes.txt", "mine");
    const Finished run = start(GetParam().old, output).wait();
    ASSERT_EQ(run.status, 0) << run.output;
  }

  // A fault at each call, of those that `ops` names, on the output.
  void sweep(const std::string& action, const std::string& ops) {
    const MemoryDir folder;
    make_old(folder / "old");
    fs::copy(folder / "old", folder / "new", fs::copy_options::recursive);
    const std::string counted = (folder / "count").string();
    ::setenv("QUENCH_FAULT_COUNT", counted.c_str(), 1);
    const Finished whole =
        start(GetParam().fresh, folder / "new", fmt::format("do=none;path={}{}", (folder / "new").string(), ops))
            .wait();
    ::unsetenv("QUENCH_FAULT_COUNT");
    ASSERT_EQ(whole.status, 0) << whole.output;
    const Files before = files_of(folder / "old"), after = files_of(folder / "new");
    ASSERT_NE(before, after);
    const int calls = std::stoi(read_file(counted));
    ASSERT_GT(calls, 0);
    for (int at = 1; at <= calls && !HasFailure(); ++at) {
      SCOPED_TRACE(fmt::format("{} at call {} of {}", action, at, calls));
      fs::remove_all(folder / "new");
      fs::copy(folder / "old", folder / "new", fs::copy_options::recursive);
      const Finished run = start(GetParam().fresh, folder / "new",
                                 fmt::format("do={};at={};path={}{}", action, at, (folder / "new").string(), ops))
                               .wait();
      const Files now = files_of(folder / "new");
      SCOPED_TRACE(run.output);
      // 2: the earlier output could not be read, and so is refused as another program's.
      EXPECT_TRUE(run.signal == SIGKILL || (run.status >= 0 && run.status <= 2)) << run.status;
      EXPECT_TRUE(run.status != 0 || names_of(placed(now)) == names_of(after));
      if (GetParam().at_once || run.signal == 0) {
        EXPECT_TRUE(placed(now) == before || placed(now) == after) << ::testing::PrintToString(names_of(now));
      } else {
        expect_all_of(before, now, after);
      }
    }
  }

  // Killed between renames: each old file is somewhere, or all new ones are in place.
  static void expect_all_of(const Files& before, const Files& now, const Files& after) {
    if (placed(now) == after) return;
    for (const auto& [name, bytes] : before)
      EXPECT_TRUE(std::ranges::any_of(now, [&](const auto& file) { return file.second == bytes; })) << name;
  }

 private:
  static inline std::unique_ptr<MemoryDir> inputs_;
};

class WriterFault : public WriterFaultBase {};

TEST_P(WriterFault, AFailingRenameOrSyncLeavesTheOldOrTheNew) {
  sweep("EIO", ";ops=rename,exchange,fsync,unlink,mkdir");
}

TEST_P(WriterFault, AKillAtARenameLeavesTheOldOrTheNew) {
  sweep("kill", ";ops=rename,exchange,unlink");
}

class WriterFaultSlow : public WriterFaultBase {};

TEST_P(WriterFaultSlow, AFailingCallLeavesTheOldOrTheNew) {
  for (const char* error : {"EIO", "ENOSPC"}) sweep(error, "");
}

TEST_P(WriterFaultSlow, AKillLeavesTheOldOrTheNew) {
  for (const char* action : {"kill", "tear"}) sweep(action, "");
}

const auto name_of = [](const auto& info) { return info.param.name; };
INSTANTIATE_TEST_SUITE_P(Of, WriterFault, ::testing::ValuesIn(few_writers()), name_of);
INSTANTIATE_TEST_SUITE_P(Of, WriterFaultSlow, ::testing::ValuesIn(all_writers()), name_of);

}  // namespace
}  // namespace quench
