// The verb generate, as a user meets it.

#include <gmock/gmock.h>

#include <limits>

#include "core/json/json.h"
#include "core/system/utf8.h"
#include "tests/apps/nonfinite_model.h"
#include "tests/apps/program.h"

namespace quench {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::Outcome;
using testing::run_program;
using testing::TempDir;

class GenerateVerb : public ::testing::Test {
 protected:
  Outcome generate(std::vector<std::string> more, const std::string& model = {}) {
    std::vector<std::string> arguments{"generate",     "--device", "cpu",
                                       "--ignore-eos", "--model",  model.empty() ? model_.string() : model};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_program(folder_.path(), arguments);
  }

  TempDir folder_;
  // Context of 128 tokens; a text begins with a token of its own.
  std::filesystem::path model_ = testing::source_dir() / "tests/train/rolling_likelihood/bos";
};

TEST_F(GenerateVerb, GoesToTheEndOfTheContextUnlessAskedOtherwise) {
  const Outcome whole = generate({"--prompt", "The ferry", "--json"});
  ASSERT_EQ(whole.status, 0) << whole.errors;
  const Json result = Json::parse(whole.output);
  EXPECT_EQ(result.at("tokens").as_array().size() + static_cast<std::size_t>(result.at("prompt_tokens").as_int()),
            128u);
  EXPECT_EQ(result.at("ended_by").as_string(), "the end of the model's context of 128 tokens");
  EXPECT_THAT(generate({"--prompt", "The ferry"}).errors,
              HasSubstr("ended by the end of the model's context of 128 tokens"));

  const Outcome few = generate({"--prompt", "The ferry", "--max-new-tokens", "3"});
  EXPECT_EQ(few.status, 0);
  EXPECT_THAT(few.errors, HasSubstr("3 new tokens"));
  EXPECT_THAT(few.errors, HasSubstr("ended by --max-new-tokens"));
}

TEST_F(GenerateVerb, SettingsWithoutEffectAreNamed) {
  const Outcome greedy = generate({"--prompt", "The ferry", "--max-new-tokens", "2", "--top-p", "0.9", "--seed", "3"});
  ASSERT_EQ(greedy.status, 0) << greedy.errors;
  EXPECT_THAT(greedy.errors, HasSubstr("--top-p, --seed without effect: --temperature is 0, which is greedy"));
  const Outcome drawn =
      generate({"--prompt", "The ferry", "--max-new-tokens", "2", "--top-p", "0.9", "--temperature", "1"});
  EXPECT_THAT(drawn.errors, ::testing::Not(HasSubstr("without effect")));

  const std::filesystem::path model = folder_ / "published";
  std::filesystem::copy(model_, model);
  testing::write_file(
      model / "generation_config.json",
      R"({"do_sample": true, "temperature": 0.6, "top_p": 0.9, "top_k": 20, "repetition_penalty": 1.05})");
  const Outcome published = generate({"--prompt", "The ferry", "--max-new-tokens", "2"}, model.string());
  ASSERT_EQ(published.status, 0) << published.errors;
  EXPECT_THAT(published.errors, HasSubstr("generation_config.json: temperature 0.6, top_k 20, top_p 0.9, "
                                          "repetition_penalty 1.05: not used"));
  const Outcome named = generate({"--prompt", "The ferry", "--max-new-tokens", "2", "--temperature", "0.6", "--top-k",
                                  "20", "--top-p", "0.9", "--repetition-penalty", "1.05"},
                                 model.string());
  EXPECT_THAT(named.errors, ::testing::Not(HasSubstr("not used")));

  testing::write_file(
      folder_ / "requests.jsonl",
      "{\"prompt\": \"a\", \"temperature\": 1, \"stop\": [\"b\"]}\n{\"prompt\": \"b\", \"max_new_tokens\": 1}\n");
  const Outcome batch = generate({"--prompts", (folder_ / "requests.jsonl").string(), "--max-new-tokens", "2"});
  ASSERT_EQ(batch.status, 0) << batch.errors;
  EXPECT_THAT(batch.errors, HasSubstr("requests.jsonl: stop, temperature: not used"));
}

TEST_F(GenerateVerb, AStopTextEndsTheAnswer) {
  const std::vector<std::string> common{"--prompt", "The ferry", "--max-new-tokens", "40"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), common.begin(), common.end());
    return generate(more);
  };
  const Json whole = Json::parse(with({"--json"}).output);
  const std::string text = whole.at("text").as_string();
  ASSERT_GT(text.size(), 20u);
  const std::string stop = text.substr(text.size() / 2, 3), wanted = text.substr(0, text.find(stop));
  const Json cut = Json::parse(with({"--json", "--stop", stop, "never met"}).output);
  EXPECT_EQ(cut.at("text").as_string(), wanted);
  EXPECT_EQ(cut.at("ended_by").as_string(), "a text of --stop");
  EXPECT_TRUE(cut.at("stopped").as_bool());
  EXPECT_LT(cut.at("tokens").as_array().size(), whole.at("tokens").as_array().size());
  EXPECT_EQ(with({"--stop", stop}).output, "The ferry" + wanted + "\n");
  EXPECT_EQ(Json::parse(with({"--json", "--stop", "[" + stop + "]"}).output).at("text").as_string(), text);
  testing::write_file(folder_ / "one.txt", "The ferry\n");
  const Outcome batch =
      generate({"--prompts", (folder_ / "one.txt").string(), "--max-new-tokens", "40", "--stop", stop});
  const Json line = Json::parse(batch.output);
  EXPECT_EQ(line.at("text").as_string(), wanted);
  EXPECT_EQ(line.at("tokens"), cut.at("tokens"));
  EXPECT_THAT(with({"--stop", ""}).errors, HasSubstr("an empty text would end every answer"));
}

TEST_F(GenerateVerb, MoreThanFitsIsExplainedWhereItWasAskedFor) {
  const Outcome many = generate({"--prompt", "The ferry", "--max-new-tokens", "128"});
  EXPECT_EQ(many.status, 2);
  EXPECT_THAT(many.errors, HasSubstr("--max-new-tokens 128: after the prompt of"));
  EXPECT_THAT(many.errors, HasSubstr("context of 128 has room for"));
  const Outcome full = generate({"--prompt", std::string(2000, 'x')});
  EXPECT_EQ(full.status, 2);
  EXPECT_THAT(full.errors, HasSubstr("leaves no space in the model's context of 128"));
}

// With both streams in one place, what is said about the text stands on a line of its own after it.
TEST_F(GenerateVerb, StatisticsFollowTheTextOnALineOfTheirOwn) {
  const std::string command = testing::program_path() + " generate --device cpu --model " + model_.string() +
                              " --prompt 'The ferry' --max-new-tokens 5 --ignore-eos > " +
                              (folder_ / "both.txt").string() + " 2>&1";
  ASSERT_EQ(std::system(command.c_str()), 0);
  const std::string both = testing::read_file(folder_ / "both.txt");
  const std::size_t statistics = both.find(" prompt tokens in ");
  ASSERT_NE(statistics, std::string::npos) << both;
  const std::size_t line = both.rfind('\n', statistics);
  ASSERT_NE(line, std::string::npos) << both;
  EXPECT_LT(both.find("The ferry"), line);
  EXPECT_EQ(both.find_first_not_of("0123456789", line + 1), statistics) << both;
  EXPECT_EQ(both.find('\n', statistics), both.size() - 1) << both;
}

class GenerateFromInput : public GenerateVerb {
 protected:
  // With what is typed on standard input.
  Outcome interactive(const std::string& typed, const std::string& options) {
    testing::write_file(folder_ / "typed.txt", typed);
    const std::string command = fmt::format(
        "cd {} && {} generate --device cpu --ignore-eos --model {} --interactive {} < typed.txt > out.txt 2> err.txt",
        folder_.path().string(), testing::program_path(), model_.string(), options);
    const int status = std::system(command.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128, testing::read_file(folder_ / "out.txt"),
            testing::read_file(folder_ / "err.txt")};
  }
};

// Tokens of a random draw are often parts of characters.
TEST_F(GenerateFromInput, OutputIsValidUtf8InEveryMode) {
  const std::string mark = "\uFFFD";
  bool replaced = false;
  for (const std::string seed : {"1", "2", "3"}) {
    const std::vector<std::string> draw{"--temperature", "8", "--top-k", "0", "--seed", seed};
    std::vector<std::string> text{"--prompt", "The ferry"}, json{"--prompt", "The ferry", "--json"};
    text.insert(text.end(), draw.begin(), draw.end());
    json.insert(json.end(), draw.begin(), draw.end());
    const Outcome shown = generate(text), object = generate(json);
    ASSERT_EQ(shown.status, 0) << shown.errors;
    EXPECT_EQ(find_invalid_utf8(shown.output), std::string::npos);
    EXPECT_EQ(shown.output, "The ferry" + Json::parse(object.output).at("text").as_string() + "\n");
    replaced = replaced || shown.output.find(mark) != std::string::npos;
    testing::write_file(folder_ / "prompts.txt", "The ferry\nA boat\n");
    std::vector<std::string> many{"--prompts", "prompts.txt"};
    many.insert(many.end(), draw.begin(), draw.end());
    EXPECT_EQ(find_invalid_utf8(generate(many).output), std::string::npos);
    const Outcome typed = interactive("The ferry\n", "--temperature 8 --top-k 0 --max-new-tokens 60 --seed " + seed);
    ASSERT_EQ(typed.status, 0) << typed.errors;
    EXPECT_EQ(find_invalid_utf8(typed.output), std::string::npos);
  }
  EXPECT_TRUE(replaced) << "no draw had a part of a character";
}

TEST_F(GenerateFromInput, APromptThatIsNoUtf8IsShownAsValidText) {
  testing::write_file(folder_ / "prompt.txt", "caf\xE9 \xE2\x82");
  const Outcome shown = generate({"--prompt-file", "prompt.txt", "--max-new-tokens", "4"});
  ASSERT_EQ(shown.status, 0) << shown.errors;
  EXPECT_EQ(find_invalid_utf8(shown.output), std::string::npos);
  EXPECT_EQ(shown.output.rfind("caf\uFFFD ", 0), 0u) << shown.output;
}

// Without a chat template a text continues; answers are those of the whole text after one prompt.
TEST_F(GenerateFromInput, ABaseModelContinuesWhatIsTyped) {
  const std::string prompt = "The ferry";
  const Outcome once = generate({"--prompt", prompt, "--max-new-tokens", "8"});
  ASSERT_EQ(once.status, 0) << once.errors;
  const std::string answer = once.output.substr(prompt.size());
  const Outcome talk = interactive("The ferry\n\n/help\n/reset\nThe ferry\n", "--max-new-tokens 8");
  EXPECT_EQ(talk.status, 0) << talk.errors;
  EXPECT_EQ(talk.output, answer + answer);
  EXPECT_THAT(talk.errors, HasSubstr("no chat template"));
  EXPECT_THAT(talk.errors, HasSubstr("/reset"));
}

TEST_F(GenerateFromInput, AMessageAboveTheLimitIsRefused) {
  const std::string mib(std::size_t{1} << 20, 'x');
  for (const std::string& typed : {mib + mib + mib + mib + "x\n", mib + mib + "\\\n" + mib + mib + "\n"}) {
    const Outcome talk = interactive(typed, "--max-new-tokens 8");
    EXPECT_EQ(talk.status, 2);
    EXPECT_THAT(talk.errors, HasSubstr("a message of more than 4 MiB"));
  }
}

TEST_F(GenerateFromInput, ATemplateMakesItAConversation) {
  testing::write_file(folder_ / "t.jinja",
                      "{% for m in messages %}{{ m.role + ': ' + m.content + '\n' }}{% endfor %}"
                      "{% if add_generation_prompt %}{{ 'assistant:' }}{% endif %}");
  const Outcome once = generate(
      {"--prompt", "Hi", "--chat", "--system", "Be terse", "--chat-template", "t.jinja", "--max-new-tokens", "6"});
  ASSERT_EQ(once.status, 0) << once.errors;
  const Outcome talk =
      interactive("Hi\n/exit\nnever read\n", "--max-new-tokens 6 --chat-template t.jinja --system 'Be terse'");
  EXPECT_EQ(talk.status, 0) << talk.errors;
  EXPECT_EQ(talk.output, once.output);
  const Outcome full = interactive(std::string(2000, 'x') + "\n", "--chat-template t.jinja");
  EXPECT_EQ(full.status, 2);
  EXPECT_THAT(full.errors, HasSubstr("does not fit into the model's context of 128 tokens"));
}

TEST_F(GenerateVerb, PromptsOfAFileAreAnsweredInTheirOrder) {
  testing::write_file(folder_ / "prompts.jsonl",
                      "{\"prompt\": \"The ferry\", \"max_new_tokens\": 12}\n\n{\"prompt\": \"A\"}\n"
                      "{\"prompt\": \"Once upon\"}\n");
  const Outcome many = generate({"--prompts", "prompts.jsonl", "--max-new-tokens", "5", "--batch-size", "2"});
  ASSERT_EQ(many.status, 0) << many.errors;
  std::vector<Json> lines;
  for (std::size_t at = 0; at < many.output.size();) {
    const std::size_t end = many.output.find('\n', at);
    lines.push_back(Json::parse(many.output.substr(at, end - at)));
    at = end + 1;
  }
  ASSERT_EQ(lines.size(), 3u);
  const char* prompts[] = {"The ferry", "A", "Once upon"};
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(lines[i].at("index").as_int(), static_cast<std::int64_t>(i));
    EXPECT_EQ(lines[i].at("prompt").as_string(), prompts[i]);
    const Outcome alone = generate({"--prompt", prompts[i], "--max-new-tokens", i == 0 ? "12" : "5", "--json"});
    EXPECT_EQ(lines[i].at("tokens"), Json::parse(alone.output).at("tokens")) << i;
  }
  EXPECT_EQ(lines[0].at("ended_by"), Json("max_new_tokens of the record, 12 new tokens"));
  EXPECT_EQ(lines[1].at("ended_by"), Json("--max-new-tokens"));
  testing::write_file(folder_ / "lines.txt", "The ferry\nA\n");
  const Outcome text = generate({"--prompts", "lines.txt", "--max-new-tokens", "2"});
  EXPECT_EQ(text.status, 0) << text.errors;
  EXPECT_THAT(text.output, HasSubstr("\"prompt\":\"A\""));
}

TEST_F(GenerateVerb, ARecordThatAsksForMoreThanFitsIsNamed) {
  testing::write_file(folder_ / "long.jsonl", "{\"prompt\": \"A\", \"max_new_tokens\": 4000}\n");
  EXPECT_THAT(generate({"--prompts", "long.jsonl"}).errors,
              AllOf(HasSubstr("long.jsonl:1: \"max_new_tokens\" 4000: after the prompt of"),
                    ::testing::Not(HasSubstr("--max-new-tokens"))));
}

TEST_F(GenerateVerb, APromptForAChatModelHintsAtTheOption) {
  std::filesystem::copy(model_, folder_ / "chat");
  testing::write_file(folder_ / "chat/chat_template.jinja",
                      "{% for m in messages %}{{ m.role + ': ' + m.content }}{% endfor %}");
  const auto hints = [&](std::vector<std::string> more, const std::string& model) {
    more.insert(more.end(), {"--max-new-tokens", "2"});
    const Outcome done = generate(more, model);
    EXPECT_EQ(done.status, 0) << done.errors;
    std::size_t count = 0;
    for (std::size_t at = 0; (at = done.errors.find("--chat answers the prompt", at)) != std::string::npos; ++at)
      ++count;
    return count;
  };
  testing::write_file(folder_ / "two.txt", "The ferry\nA\n");
  EXPECT_EQ(hints({"--prompt", "The ferry"}, "chat"), 1u);
  EXPECT_EQ(hints({"--prompts", "two.txt"}, "chat"), 1u);
  EXPECT_EQ(hints({"--prompt", "The ferry", "--chat"}, "chat"), 0u);
  EXPECT_EQ(hints({"--prompt", "The ferry"}, model_.string()), 0u) << "no template";
}

TEST_F(GenerateVerb, AMissingFileOrFolderIsAnsweredWithTheNearestOne) {
  std::filesystem::copy(model_, folder_ / "chat");
  testing::write_file(folder_ / "prompts.jsonl", "{\"prompt\": \"A\"}\n");
  const std::string here = " in the working directory " + std::filesystem::canonical(folder_.path()).string();
  EXPECT_THAT(generate({"--prompt", "A"}, "chatt").errors,
              HasSubstr("model folder chatt does not exist" + here + "; did you mean chat?"));
  EXPECT_THAT(
      generate({"--prompts", "prompt.jsonl"}, "chat").errors,
      HasSubstr("cannot open prompt.jsonl: No such file or directory" + here + "; did you mean prompts.jsonl?"));
  EXPECT_THAT(generate({"--prompt-file", "prompt.jsonl"}, "chat").errors,
              HasSubstr(here + "; did you mean prompts.jsonl?"));
}

TEST_F(GenerateVerb, TheTextOfABatchEndsBeforeTheStopTokenAsThatOfASinglePrompt) {
  const Outcome whole = generate({"--prompt", "The ferry", "--max-new-tokens", "6", "--json"});
  ASSERT_EQ(whole.status, 0) << whole.errors;
  const std::int64_t third = Json::parse(whole.output).at("tokens").as_array()[2].as_int();
  std::filesystem::copy(model_, folder_ / "stopping");
  testing::write_file(folder_ / "stopping/generation_config.json", fmt::format("{{\"eos_token_id\": {}}}", third));
  testing::write_file(folder_ / "prompts.txt", "The ferry\n");
  const Outcome many = run_program(folder_.path(), {"generate", "--device", "cpu", "--model", "stopping", "--prompts",
                                                    "prompts.txt", "--max-new-tokens", "6"});
  const Outcome alone = run_program(folder_.path(), {"generate", "--device", "cpu", "--model", "stopping", "--prompt",
                                                     "The ferry", "--max-new-tokens", "6", "--json"});
  ASSERT_EQ(many.status, 0) << many.errors;
  ASSERT_EQ(alone.status, 0) << alone.errors;
  const Json line = Json::parse(many.output), single = Json::parse(alone.output);
  EXPECT_TRUE(line.at("stopped").as_bool());
  EXPECT_EQ(line.at("tokens"), single.at("tokens"));
  EXPECT_EQ(line.at("text"), single.at("text"));
}

TEST_F(GenerateVerb, BadPromptsAreNamedByTheirLine) {
  const auto refused = [&](const std::string& name, const std::string& content, const char* message,
                           std::vector<std::string> more = {}) {
    testing::write_file(folder_ / name, content);
    more.insert(more.end(), {"--prompts", name});
    const Outcome outcome = generate(more);
    EXPECT_NE(outcome.status, 0);
    EXPECT_EQ(outcome.output, "");
    EXPECT_THAT(outcome.errors, HasSubstr(message));
  };
  refused("a.jsonl", "{\"prompt\": \"A\"}\n{\"text\": \"B\"}\n",
          "a.jsonl:2: expected one of the fields \"prompt\" and \"messages\"");
  refused("b.jsonl", "{\"prompt\": 7}\n", "b.jsonl:1");
  refused("c.jsonl", "{\"prompt\": \"A\", \"max_new_tokens\": 1000}\n", "c.jsonl:1: \"max_new_tokens\" 1000");
  refused("d.jsonl", "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}]}\n", "--chat-template");
  refused("e.txt", "\n", "e.txt holds no prompts");
  EXPECT_EQ(generate({"--prompts", "a.jsonl", "--interactive"}).status, 2);
  EXPECT_THAT(generate({"--prompt", "A", "--system", "B"}).errors, HasSubstr("--system goes with --interactive"));
}

TEST_F(GenerateVerb, AModelThatIsNotFiniteFails) {
  for (const float value : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    testing::make_nonfinite_model(model_, folder_ / "broken", value);
    for (const std::string temperature : {"0", "1"}) {
      const Outcome outcome = generate({"--prompt", "The ferry", "--temperature", temperature}, "broken");
      EXPECT_EQ(outcome.status, 1) << outcome.output;
      EXPECT_THAT(outcome.errors, HasSubstr("not finite"));
    }
  }
}

}  // namespace
}  // namespace quench
