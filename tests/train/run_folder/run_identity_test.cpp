// Runs whose data, tokenizer or model config hold something else when they are resumed.

#include "train/record/run_identity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <functional>

#include "data/formats/shard_writer.h"
#include "tests/data/tokenizer/tokenizer_fixtures.h"
#include "tests/testing.h"
#include "tests/train/metrics/captured_log.h"
#include "train/check/load.h"
#include "train/checkpoint/checkpoint_reader.h"
#include "train/run/trainer.h"

namespace quench {
namespace {

namespace fs = std::filesystem;
using testing::CapturedLog;
using ::testing::HasSubstr;
using testing::read_file;
using testing::TempDir;
using testing::write_file;

constexpr const char* kModel = R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 320,
  "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2,
  "num_key_value_heads": 1, "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "tie_word_embeddings": true})";

std::string some_text(int seed) {
  std::string text;
  for (int i = 0; i < 60; ++i) text += fmt::format("line {} of text {}\n", (i * 37 + seed * 11) % 101, seed);
  return text;
}

void write_shard(const fs::path& path, int seed) {
  ShardWriter writer(path, {.vocab_size = 320});
  for (int i = 0; i < 400; ++i) writer.append(std::vector<std::int32_t>{(i * 7 + seed) % 300});
  writer.finish();
}

class ContentRun {
 public:
  ContentRun() {
    write_file(path("a.txt"), some_text(1));
    write_file(path("b.txt"), some_text(2));
    write_file(path("held_out.txt"), some_text(3));
    write_shard(path("train.bin"), 0);
    fs::create_directory(path("model"));
    write_file(path("model/config.json"), kModel);
    load_tokenizer("bytes")->save(path("tokenizer"));
  }

  [[nodiscard]] fs::path path(const std::string& name) const { return dir_ / name; }

  [[nodiscard]] RunConfig config(const std::vector<std::string>& more = {}) const {
    const std::string text = R"({
      "model": {"path": "DIR/model", "init": "random"},
      "data": {"train": ["DIR/*[ab].txt"], "validation": ["DIR/held_out.txt"], "tokenizer": "DIR/tokenizer",
               "seq_len": 16},
      "training": {"steps": 2, "micro_batch_size": 2, "dtype": "f32"},
      "lr_schedule": {"decay_steps": 100},
      "metrics": {"tensorboard": false, "log_level": "warn", "progress": "off"},
      "evaluation": {"interval": 0},
      "run": {"folder": "DIR/run"}})";
    std::string filled;
    for (std::size_t at = 0; at < text.size();) {
      const bool here = text.compare(at, 3, "DIR") == 0;
      filled += here ? dir_.path().string() : text.substr(at, 1);
      at += here ? 3 : 1;
    }
    return parse_run_config(filled, path("run.json").string(), more);
  }

  // The error of a run to `steps`, empty if it has none.
  [[nodiscard]] std::string run(int steps, std::vector<std::string> more = {}) const {
    more.push_back(fmt::format("--training.steps={}", steps));
    ::testing::internal::CaptureStdout();
    std::string message;
    try {
      EXPECT_EQ(Trainer(config(more), Device{}).run().step, steps);
    } catch (const Error& error) {
      message = error.what();
      EXPECT_EQ(error.code(), ErrorCode::bad_config) << message;
    }
    (void)::testing::internal::GetCapturedStdout();
    return message;
  }

 private:
  TempDir dir_;
};

struct Change {
  const char* name;
  const char* key;   // that allows it
  const char* said;  // by the refusal
  std::function<void(const ContentRun&)> make;
  std::vector<std::string> overrides = {};  // options of both runs
};

void edit(const fs::path& file, const std::function<void(std::string&)>& change) {
  std::string text = read_file(file);
  change(text);
  write_file(file, text);
}

const std::vector<std::string> kShard = {"--data.train=SHARD", "~data.tokenizer", "--data.validation=[]"};

const std::vector<Change> kChanges = {
    {"TextReversed", "data.train", "a.txt of ",
     [](const ContentRun& run) {
       edit(run.path("a.txt"), [](std::string& text) { text = std::string(text.rbegin(), text.rend()); });
     }},
    {"TextEdited", "data.train", "a.txt of ",
     [](const ContentRun& run) { edit(run.path("a.txt"), [](std::string& text) { text[500] = '#'; }); }},
    {"TextEditedWithItsTimeKept", "data.train", "a.txt of ",
     [](const ContentRun& run) {
       const auto time = fs::last_write_time(run.path("a.txt"));
       edit(run.path("a.txt"), [](std::string& text) { text[500] = '#'; });
       fs::last_write_time(run.path("a.txt"), time);
     }},
    {"TextHalved", "data.train", "b.txt of ",
     [](const ContentRun& run) { fs::resize_file(run.path("b.txt"), fs::file_size(run.path("b.txt")) / 2); }},
    {"TextAppended", "data.train", "b.txt of ",
     [](const ContentRun& run) { edit(run.path("b.txt"), [](std::string& text) { text += some_text(9); }); }},
    {"PatternMatchesMore", "data.train", "(absent) -> ",
     [](const ContentRun& run) { write_file(run.path("aa.txt"), some_text(5)); }},
    {"PatternMatchesLess", "data.train", "-> (absent)", [](const ContentRun& run) { fs::remove(run.path("b.txt")); }},
    {"FilesTradedNames", "data.train", "a.txt of ",
     [](const ContentRun& run) {
       fs::rename(run.path("a.txt"), run.path("c"));
       fs::rename(run.path("b.txt"), run.path("a.txt"));
       fs::rename(run.path("c"), run.path("b.txt"));
     }},
    {"CopyAdded", "data.train", "the same in another order or number",
     [](const ContentRun& run) { fs::copy(run.path("a.txt"), run.path("aa.txt")); }},
    {"AnotherShardOfThatName", "data.train", "train.bin of ",
     [](const ContentRun& run) { write_shard(run.path("train.bin"), 1); }, kShard},
    {"ValidationEdited", "data.validation", "held_out.txt of ",
     [](const ContentRun& run) { edit(run.path("held_out.txt"), [](std::string& text) { text[3] = '#'; }); }},
    {"AnotherTokenizer", "data.tokenizer", "one of fingerprint ",
     [](const ContentRun& run) {
       testing::with_special_tokens(*load_tokenizer("bytes"), {"<|new|>"})->save(run.path("tokenizer"));
     }},
    {"ModelConfigEdited", "model.rms_norm_eps", "model.rms_norm_eps: 1e-05 -> 0.01",
     [](const ContentRun& run) {
       edit(run.path("model/config.json"), [](std::string& text) { text.replace(text.find("1e-5"), 4, "0.01"); });
     }},
};

std::vector<std::string> overrides_of(const Change& change, const ContentRun& run) {
  std::vector<std::string> overrides = change.overrides;
  for (std::string& argument : overrides)
    if (const auto at = argument.find("SHARD"); at != std::string::npos)
      argument.replace(at, 5, "[\"" + run.path("train.bin").string() + "\"]");
  return overrides;
}

class ContentChange : public ::testing::TestWithParam<Change> {};

TEST_P(ContentChange, IsRefusedByNameUnlessAllowed) {
  const ContentRun run;
  const Change& change = GetParam();
  std::vector<std::string> overrides = overrides_of(change, run);
  ASSERT_EQ(run.run(2, overrides), "");
  change.make(run);
  const std::string refusal = run.run(4, overrides);
  EXPECT_THAT(refusal, HasSubstr(change.said));
  EXPECT_THAT(refusal, HasSubstr(std::string("--checkpoint.allow_changes=") + change.key));
  overrides.push_back(std::string("--checkpoint.allow_changes=") + change.key);
  EXPECT_EQ(run.run(4, overrides), "");
  EXPECT_EQ(run.run(6, overrides), "") << "what was allowed once is what the run has now";
}

INSTANTIATE_TEST_SUITE_P(Ways, ContentChange, ::testing::ValuesIn(kChanges),
                         [](const auto& way) { return std::string(way.param.name); });

class SameContent : public ::testing::TestWithParam<Change> {};

const std::vector<Change> kSame = {
    {"Nothing", "", "", [](const ContentRun&) {}},
    {"Touched", "", "",
     [](const ContentRun& run) { fs::last_write_time(run.path("a.txt"), fs::file_time_type::clock::now()); }},
    {"Copied", "", "",
     [](const ContentRun& run) {
       fs::copy(run.path("a.txt"), run.path("c"));
       fs::rename(run.path("c"), run.path("a.txt"));
     }},
    {"Renamed", "", "", [](const ContentRun& run) { fs::rename(run.path("a.txt"), run.path("0a.txt")); }},
    {"ModelSaysTheSameInOtherWords", "", "",
     [](const ContentRun& run) { write_file(run.path("model/config.json"), Json::parse(kModel).dump(4)); }},
};

TEST_P(SameContent, IsNoChange) {
  const ContentRun run;
  ASSERT_EQ(run.run(2), "");
  GetParam().make(run);
  EXPECT_EQ(run.run(4), "");
}

INSTANTIATE_TEST_SUITE_P(Ways, SameContent, ::testing::ValuesIn(kSame),
                         [](const auto& way) { return std::string(way.param.name); });

TEST(RunIdentity, WhatWasMovedIsFoundToBeTheSame) {
  const ContentRun run;
  ASSERT_EQ(run.run(2), "");
  fs::create_directory(run.path("moved"));
  for (const char* name : {"a.txt", "b.txt", "tokenizer", "model"})
    fs::rename(run.path(name), run.path("moved") / name);
  const std::string moved = run.path("moved").string();
  EXPECT_EQ(run.run(4, {"--data.train=[\"" + moved + "/*.txt\"]", "--data.tokenizer=" + moved + "/tokenizer",
                        "--model.path=" + moved + "/model"}),
            "");
}

TEST(RunIdentity, OtherValidationDataByAnotherNameAreFree) {
  const ContentRun run;
  ASSERT_EQ(run.run(2), "");
  EXPECT_EQ(run.run(4, {"--data.validation=[\"" + run.path("b.txt").string() + "\"]"}), "");
}

}  // namespace
}  // namespace quench
