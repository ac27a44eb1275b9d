// Training on chats in JSON lines.

#include <gmock/gmock.h>

#include "core/json/json.h"
#include "tests/apps/program.h"

namespace quench {
namespace {

using ::testing::HasSubstr;
using testing::Outcome;
using testing::run_program;
using testing::TempDir;
using testing::write_file;

class ChatData : public ::testing::Test {
 protected:
  ChatData() {
    std::string chats, words;
    for (int i = 0; i < 60; ++i) {
      const std::string question = "What is " + std::to_string(i) + " and one?", answer = std::to_string(i + 1) + ".";
      chats += R"({"messages":[{"role":"user","content":")" + question + R"("},{"role":"assistant","content":")" +
               answer + "\"}]}\n";
      words += question + " " + answer + "\n";
    }
    write_file(folder_ / "chats.jsonl", chats);
    write_file(folder_ / "words.txt", words);
    write_file(folder_ / "run.json", R"({
      "model": {"model_type": "qwen2", "vocab_size": 300, "hidden_size": 16, "intermediate_size": 24,
                "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2,
                "max_position_embeddings": 64, "tie_word_embeddings": true},
      "data": {"train": ["chats.jsonl"], "tokenizer": "tokenizer", "seq_len": 32},
      "training": {"steps": 2, "micro_batch_size": 2, "dtype": "f32"},
      "run": {"folder": "run"}})");
  }

  // A tokenizer whose vocabulary has these tokens.
  void train_tokenizer(const std::vector<std::string>& special) {
    std::vector<std::string> arguments{"tokenize",     "train", "--input",  "words.txt",
                                       "--vocab-size", "280",   "--output", "tokenizer"};
    for (const std::string& token : special) arguments.insert(arguments.end(), {"--special", token});
    const Outcome outcome = run_program(folder_.path(), arguments);
    ASSERT_EQ(outcome.status, 0) << outcome.errors;
  }

  TempDir folder_;
};

TEST_F(ChatData, TheTemplateOfTheTokenizerIsTaken) {
  train_tokenizer({"<|im_start|>", "<|im_end|>"});
  const Outcome automatic = run_program(folder_.path(), {"train", "run.json"});
  EXPECT_EQ(automatic.status, 0) << automatic.errors;
  EXPECT_THAT(automatic.output, HasSubstr("target mask"));
  EXPECT_EQ(
      run_program(folder_.path(), {"train", "run.json", "--run.folder=named", "--data.chat_template=chatml"}).status,
      0);
  const Outcome other =
      run_program(folder_.path(), {"train", "run.json", "--run.folder=other", "--data.chat_template=llama3"});
  EXPECT_EQ(other.status, 2);
  EXPECT_THAT(other.errors, HasSubstr("<|start_header_id|>"));
  EXPECT_THAT(other.errors, HasSubstr("data.chat_template"));
  const Outcome unknown = run_program(folder_.path(), {"train", "run.json", "--data.chat_template=alpaca"});
  EXPECT_EQ(unknown.status, 2);
  EXPECT_THAT(unknown.errors, HasSubstr("llama2"));
}

// Where documents end with another token.
TEST_F(ChatData, TheEndOfATurnOfTheTokenizersTemplateGoesWithTheModel) {
  train_tokenizer({"<|im_start|>", "<|im_end|>"});
  write_file(folder_ / "tokenizer/chat_template.jinja",
             "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
             "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}");
  const auto ok = [&](const std::vector<std::string>& arguments) {
    const Outcome outcome = run_program(folder_.path(), arguments);
    ASSERT_EQ(outcome.status, 0) << outcome.errors;
  };
  ok({"train", "run.json", "--run.folder=base-run", "--data.train=words.txt", "--export.folder=base"});
  ASSERT_TRUE(Json::parse_file(folder_ / "base/generation_config.json").at("eos_token_id").is_integer());
  std::int64_t end = -1;
  const Json tokenizer = Json::parse_file(folder_ / "tokenizer/tokenizer.json");
  for (const Json& token : tokenizer.at("added_tokens").as_array())
    if (token.at("content").as_string() == "<|im_end|>") end = token.at("id").as_int();
  write_file(folder_ / "run.json", R"({
    "model": {"path": "base"}, "data": {"train": ["chats.jsonl"], "seq_len": 32},
    "training": {"steps": 2, "micro_batch_size": 2, "dtype": "f32"}, "run": {"folder": "run"}})");
  ok({"train", "run.json", "--export.folder=whole"});
  ok({"train", "run.json", "--run.folder=lora-run", "--lora.rank=2", "--export.format=hf", "--export.folder=lora"});
  ok({"train", "run.json", "--run.folder=peft-run", "--lora.rank=2", "--export.format=peft", "--export.folder=peft"});
  ok({"merge-lora", "--model", "base", "--adapter", "peft", "--output", "merged-peft"});
  ok({"export", "--checkpoint", "peft-run", "--format", "peft", "--output", "peft-again"});
  ok({"export", "--checkpoint", "run", "--output", "again"});
  ok({"merge-lora", "--model", "lora-run", "--output", "merged"});
  for (const char* folder :
       {"run/model", "whole", "again", "lora-run/model", "lora", "merged", "peft", "merged-peft", "peft-again"}) {
    const Json ends = Json::parse_file(folder_ / folder / "generation_config.json").at("eos_token_id");
    ASSERT_TRUE(ends.is_array() && ends.as_array().size() == 2) << folder << ": " << ends.dump();
    EXPECT_EQ(ends.as_array()[1].as_int(), end) << folder;
  }
}

// A template that the config names belongs to the model from then on.
TEST_F(ChatData, ANamedTemplateGoesWithTheModel) {
  train_tokenizer({"<|im_start|>", "<|im_end|>"});
  write_file(folder_ / "own.jinja",
             "{% for m in messages %}<{{ m.role }}>{{ m.content }}<|im_end|>{% endfor %}"
             "{% if add_generation_prompt %}<assistant>{% endif %}");
  for (const char* name : {"own.jinja", "chatml"}) {
    SCOPED_TRACE(name);
    const Outcome trained = run_program(
        folder_.path(), {"train", "run.json", fmt::format("--run.folder=run-{}", name),
                         fmt::format("--data.chat_template={}", name), fmt::format("--export.folder=m-{}", name)});
    ASSERT_EQ(trained.status, 0) << trained.errors;
    const std::string text = testing::read_file(folder_ / fmt::format("run-{}/model/chat_template.jinja", name));
    EXPECT_THAT(text, HasSubstr("<|im_end|>"));
    EXPECT_EQ(testing::read_file(folder_ / fmt::format("m-{}/chat_template.jinja", name)), text);
    const Json config = Json::parse_file(folder_ / fmt::format("m-{}/config.json", name)),
               generation = Json::parse_file(folder_ / fmt::format("m-{}/generation_config.json", name));
    EXPECT_TRUE(config.at("eos_token_id").is_integer());
    ASSERT_EQ(generation.at("eos_token_id").as_array().size(), 2U) << generation.dump();
    EXPECT_EQ(generation.at("eos_token_id").as_array()[0].as_int(), config.at("eos_token_id").as_int());
    EXPECT_THAT(trained.output, HasSubstr("\"<|im_end|>\" (data.chat_template)"));
    const auto chat = [&](const std::string& model, const char* chosen) {
      const Outcome outcome = run_program(
          folder_.path(), {"generate", "--model", model, "--chat", "--prompt", "What?", "--chat-template", chosen,
                           "--max-new-tokens", "4", "--temperature", "0", "--device", "cpu", "--json"});
      EXPECT_EQ(outcome.status, 0) << outcome.errors;
      Json json = Json::parse(outcome.output);
      return json.at("prompt_tokens").dump() + json.at("text").dump();
    };
    EXPECT_EQ(chat(fmt::format("m-{}", name), "auto"), chat(fmt::format("m-{}", name), name));
    EXPECT_EQ(chat(fmt::format("run-{}", name), "auto"), chat(fmt::format("run-{}", name), name));
  }
}

TEST_F(ChatData, ArgumentsOfTheTemplateComeFromTheConfig) {
  train_tokenizer({"<|im_start|>", "<|im_end|>"});
  write_file(
      folder_ / "own.jinja",
      "{% if mood is defined %}{{ mood }} {% endif %}{% for m in messages %}{{ m.content }}<|im_end|>{% endfor %}");
  std::string chats;
  for (int i = 0; i < 60; ++i)
    chats += R"({"id": 1, "messages":[{"role":"user","content":"What?"},{"role":"assistant","content":"one"}]})"
             "\n";
  write_file(folder_ / "chats.jsonl", chats);
  const auto train = [&](const std::string& name, const std::string& kwargs) {
    return run_program(folder_.path(), {"train", "run.json", "--run.folder=" + name, "--data.chat_template=own.jinja",
                                        "--data.chat_template_kwargs=" + kwargs});
  };
  const auto tokens = [](const Outcome& outcome) {
    const std::size_t at = outcome.output.find("source 0: ") + 10;
    return std::stoi(outcome.output.substr(at));
  };
  const Outcome plain = train("plain", "{}"), glad = train("glad", R"({"mood": "What is"})");
  ASSERT_EQ(plain.status, 0) << plain.errors;
  ASSERT_EQ(glad.status, 0) << glad.errors;
  EXPECT_GT(tokens(glad), tokens(plain));
  EXPECT_THAT(plain.output + plain.errors, HasSubstr("unused keys of records: \"id\" (60 records)"));
  const Outcome unknown = train("unknown", R"({"temper": 1})");
  EXPECT_EQ(unknown.status, 2);
  EXPECT_THAT(unknown.errors, HasSubstr("reads no variable 'temper'"));
}

TEST_F(ChatData, ATokenizerWithoutATemplateIsSaidWithTheKey) {
  train_tokenizer({});
  const Outcome outcome = run_program(folder_.path(), {"train", "run.json"});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.errors, HasSubstr("data.chat_template"));
}

// Chats of many lengths, some longer than a sequence of 48 tokens.
class PackedChats : public ChatData {
 protected:
  void SetUp() override {
    std::string chats;
    for (int i = 0; i < 60; ++i) {
      std::string answer;
      for (int word = 0; word <= i * 7 % 13; ++word) answer += "What is one and ";
      chats += R"({"messages":[{"role":"user","content":"What?"},{"role":"assistant","content":")" + answer + "\"}]}\n";
    }
    write_file(folder_ / "chats.jsonl", chats);
    train_tokenizer({"<|im_start|>", "<|im_end|>"});
  }
  // A run in `name` whose weights nothing changes unless `more` gives a learning rate.
  Outcome train(const std::string& name, const std::vector<std::string>& more) const {
    std::vector<std::string> arguments{"train",
                                       "run.json",
                                       "--run.folder=" + name,
                                       "--data.seq_len=48",
                                       "--data.validation=chats.jsonl",
                                       "--evaluation.steps=0",
                                       "--evaluation.interval=2",
                                       "--lr_schedule.name=constant",
                                       "--optimizer.lr=1e-30"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_program(folder_.path(), arguments);
  }
  [[nodiscard]] Json validation(const std::string& name) const {
    const std::string lines = testing::read_file(folder_ / name / "metrics" / "evaluations.jsonl");
    return Json::parse(lines.substr(0, lines.find('\n')));
  }
};

TEST_F(PackedChats, MultipackTrainsOnWhatSequencesOfTheirOwnDo) {
  const Outcome packed = train("packed", {"--data.multipack"});
  ASSERT_EQ(packed.status, 0) << packed.errors;
  const Outcome single = train("single", {"--data.packing=false"});
  ASSERT_EQ(single.status, 0) << single.errors;
  EXPECT_EQ(validation("packed").at("tokens"), validation("single").at("tokens"));
  EXPECT_NEAR(validation("packed").at("values").at("loss").as_double(),
              validation("single").at("values").at("loss").as_double(), 1e-6);
  EXPECT_THAT(packed.output, ::testing::ContainsRegex("source 0: [0-9]+ tokens, [0-9]+ rows of 48, .*% padding"));
  const auto rows = [](const std::string& output) {
    const std::size_t at = output.find(" tokens, ", output.find("source 0: ")) + 9;
    return std::stoi(output.substr(at, output.find(' ', at) - at));
  };
  EXPECT_LT(rows(packed.output), rows(single.output));
}

TEST_F(PackedChats, MultipackResumesExactly) {
  const auto weights = [&](const std::string& name) {
    const Outcome exported =
        run_program(folder_.path(), {"export", "--checkpoint", name, "--output", name + "-export"});
    EXPECT_EQ(exported.status, 0) << exported.errors;
    return testing::read_file(folder_ / (name + "-export") / "model.safetensors");
  };
  const std::vector<std::string> whole{"--data.multipack", "--data.on_long=truncate", "--optimizer.lr=1e-2",
                                       "--training.steps=24"};
  std::vector<std::string> part = whole;
  part.back() = "--training.steps=9";
  EXPECT_EQ(train("one", whole).status, 0);
  EXPECT_EQ(train("two", part).status, 0);
  const Outcome resumed = train("two", whole);
  ASSERT_EQ(resumed.status, 0) << resumed.errors;
  EXPECT_EQ(weights("one"), weights("two"));
  std::vector<std::string> changed = whole;
  changed[1] = "--data.on_long=drop";
  const Outcome refused = train("two", changed);
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.errors, HasSubstr("data.on_long"));
}

TEST_F(PackedChats, LongChatsAreCountedByWhatBecomesOfThem) {
  const Outcome cut = train("cut", {"--data.packing=false", "--data.on_long=truncate", "--data.seq_len=32"});
  ASSERT_EQ(cut.status, 0) << cut.errors;
  EXPECT_THAT(cut.output, ::testing::ContainsRegex("[1-9][0-9]* documents cut, [1-9][0-9]* tokens lost"));
  const Outcome dropped = train("dropped", {"--data.multipack", "--data.on_long=drop", "--data.seq_len=32"});
  ASSERT_EQ(dropped.status, 0) << dropped.errors;
  EXPECT_THAT(dropped.output,
              ::testing::ContainsRegex("[1-9][0-9]* documents too long and dropped, [1-9][0-9]* tokens"));
  const Outcome none = train("none", {"--data.multipack", "--data.on_long=drop", "--data.seq_len=8"});
  EXPECT_EQ(none.status, 1);
  EXPECT_THAT(none.errors, HasSubstr("were dropped as longer than seq_len + 1 = 9"));
}

TEST_F(PackedChats, SourcesAreMixedByTheirWeights) {
  write_file(folder_ / "more.jsonl", testing::read_file(folder_ / "chats.jsonl"));
  const Outcome mixed =
      train("mixed", {"--data.multipack", R"(--data.train=[{"path": "chats.jsonl", "weight": 3}, "more.jsonl"])"});
  ASSERT_EQ(mixed.status, 0) << mixed.errors;
  EXPECT_THAT(mixed.output, HasSubstr("75.00% of the samples"));
  EXPECT_THAT(mixed.output, HasSubstr("25.00% of the samples"));
}

TEST_F(PackedChats, FlagsOfMessagesDecideWhatIsTrainedOn) {
  const std::string chat =
      R"({"messages":[{"role":"user","content":"What?"},{"role":"assistant","content":"one","weight":%},)"
      R"({"role":"user","content":"is?"},{"role":"assistant","content":"two"}]})";
  const auto chats = [&](const std::string& weight) {
    std::string lines;
    for (int i = 0; i < 20; ++i) lines += chat + "\n";
    for (std::size_t at; (at = lines.find('%')) != std::string::npos;) lines.replace(at, 1, weight);
    return lines;
  };
  write_file(folder_ / "chats.jsonl", chats("1"));
  ASSERT_EQ(train("both", {"--data.multipack"}).status, 0);
  write_file(folder_ / "chats.jsonl", chats("0"));
  ASSERT_EQ(train("second", {"--data.multipack"}).status, 0);
  ASSERT_EQ(train("last", {"--data.multipack", "--data.train_on=last"}).status, 0);
  ASSERT_EQ(train("all", {"--data.multipack", "--data.train_on=all"}).status, 0);
  EXPECT_LT(validation("second").at("tokens").as_int(), validation("both").at("tokens").as_int());
  EXPECT_LT(validation("both").at("tokens").as_int(), validation("all").at("tokens").as_int());
  EXPECT_EQ(validation("second").at("tokens"), validation("last").at("tokens"));
  write_file(folder_ / "chats.jsonl", chats("1") + chats("0.5"));
  const Outcome refused = train("refused", {"--data.multipack"});
  EXPECT_EQ(refused.status, 3);
  EXPECT_THAT(refused.errors, HasSubstr("chats.jsonl:21: message 1: field \"weight\" is 0.5"));
}

}  // namespace
}  // namespace quench
