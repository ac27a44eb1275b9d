// Grammars: allowed tokens, ends of texts, faulty and costly sources.

#include <gmock/gmock.h>

#include <csignal>

#include "engine/grammar/rehearsal.h"
#include "engine/grammar/schema_keywords.h"
#include "tests/engine/grammar_testing.h"

namespace quench::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class GrammarTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (without_library()) GTEST_SKIP() << "built without XGrammar";
    compiler_ = std::make_unique<GrammarCompiler>(vocabulary_);
  }
  [[nodiscard]] std::shared_ptr<const Grammar> schema(std::string text) const {
    return compiler_->compile({.kind = GrammarKind::json_schema, .text = std::move(text)});
  }
  [[nodiscard]] std::string fault(GrammarKind kind, std::string text) const {
    try {
      (void)compiler_->compile({.kind = kind, .text = std::move(text)});
      return "none";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::bad_config) << error.what();
      return error.what();
    }
  }
  // Texts of the tokens that may follow this one, "END" for a stop token.
  [[nodiscard]] std::vector<std::string> next(const Grammar& grammar, std::string_view text,
                                              const std::vector<std::int64_t>& stop_tokens = {0}) const {
    const auto matcher = grammar.begin(stop_tokens);
    std::vector<std::int32_t> words(2);
    for (const char c : text) {
      EXPECT_TRUE(matcher->find_allowed(words));
      for (const std::int32_t token : tokens_of(words, 60))
        if (vocabulary_.texts[static_cast<std::size_t>(token)] == std::string(1, c)) {
          matcher->accept(token);
          break;
        }
    }
    const bool any = matcher->find_allowed(words);
    std::vector<std::string> texts;
    for (const std::int32_t token : tokens_of(words, 64))
      texts.push_back(token == 0 ? "END" : vocabulary_.texts.at(static_cast<std::size_t>(token)));
    EXPECT_EQ(any, !texts.empty());
    return texts;
  }

  GrammarVocabulary vocabulary_ = tiny_vocabulary();
  std::unique_ptr<GrammarCompiler> compiler_;
};

TEST_F(GrammarTest, AStopTokenIsAllowedExactlyWhereTheTextIsComplete) {
  const auto grammar = schema(R"({"enum": ["a", "ab", 10, true]})");
  EXPECT_THAT(next(*grammar, ""), ElementsAre("\"", "1", "t", "true", "10"));
  EXPECT_THAT(next(*grammar, "\"a"), ElementsAre("\"", "b"));
  EXPECT_THAT(next(*grammar, "\"a\""), ElementsAre("END"));
  EXPECT_THAT(next(*grammar, "1"), ElementsAre("0"));
  EXPECT_THAT(next(*grammar, "10"), ElementsAre("END"));
}

TEST_F(GrammarTest, WithoutStopTokensACompleteTextHasNoNextOne) {
  const auto grammar = schema(R"({"enum": ["a", 10]})");
  EXPECT_TRUE(next(*grammar, "10", {}).empty());
  EXPECT_THAT(next(*grammar, "1", {}), ElementsAre("0"));
}

TEST_F(GrammarTest, ControlTokensAndBitsBeyondTheVocabularyAreNeverAllowed) {
  const auto grammar = compiler_->compile({.kind = GrammarKind::json});
  const auto matcher = grammar->begin({});
  std::vector<std::int32_t> words(2, -1);
  for (const std::int32_t token : {6, 6}) {  // an empty text
    ASSERT_TRUE(matcher->find_allowed(words));
    for (const std::int32_t allowed : tokens_of(words, 64)) {
      EXPECT_FALSE(vocabulary_.texts.at(static_cast<std::size_t>(allowed)).empty()) << allowed;
    }
    matcher->accept(token);
  }
}

TEST_F(GrammarTest, ATokenThatDoesNotFollowIsAnError) {
  const auto grammar = schema(R"({"type": "boolean"})");
  const auto matcher = grammar->begin(std::vector<std::int64_t>{0});
  EXPECT_THROW(matcher->accept(2), Error);
}

TEST_F(GrammarTest, PiecesOfACharacterAreAllowedByTheirBytes) {
  const auto grammar = schema(R"({"const": "ä"})");
  EXPECT_THAT(next(*grammar, "\""), ElementsAre("\xc3"));
}

TEST_F(GrammarTest, ExpressionsAreMatchedAsAWhole) {
  const auto grammar = compiler_->compile({.kind = GrammarKind::regex, .text = "[ab]{2}(true|10)?"});
  EXPECT_THAT(next(*grammar, ""), ElementsAre("a", "b"));
  EXPECT_THAT(next(*grammar, "ab"), ElementsAre("END", "1", "t", "true", "10"));
}

TEST_F(GrammarTest, AGrammarIsCompiledOnce) {
  EXPECT_EQ(schema(R"({"type": "null"})"), schema(R"({"type": "null"})"));
  EXPECT_NE(schema(R"({"type": "null"})"), schema(R"({"type": "boolean"})"));
  const std::string refusal = fault(GrammarKind::json_schema, R"({"type": "text"})");
  EXPECT_EQ(fault(GrammarKind::json_schema, R"({"type": "text"})"), refusal);
}

TEST_F(GrammarTest, WhatAnAnswerCannotBeKeptToIsRefusedByNameAndPlace) {
  const auto of_schema = [&](std::string text) { return fault(GrammarKind::json_schema, std::move(text)); };
  EXPECT_THAT(of_schema("{"), HasSubstr("the schema"));
  EXPECT_THAT(of_schema("5"), HasSubstr("expected an object"));
  EXPECT_THAT(of_schema("false"), HasSubstr("no value satisfies"));
  EXPECT_THAT(of_schema(R"({"type": "text"})"), HasSubstr(R"(at #: "type" is "text")"));
  EXPECT_THAT(of_schema(R"({"type": "array", "items": {"type": "integer"}, "uniqueItems": true})"),
              HasSubstr(R"(at #: "uniqueItems" is a keyword that an answer cannot be kept to)"));
  EXPECT_THAT(of_schema(R"({"properties": {"a": {"not": {"type": "string"}}}})"),
              HasSubstr(R"(#/properties/a: "not")"));
  EXPECT_THAT(of_schema(R"({"type": "string", "minimum": 3})"), HasSubstr(R"("minimum" needs a "type")"));
  EXPECT_THAT(of_schema(R"({"enum": [1], "minimum": 3})"), HasSubstr(R"("minimum" stands next to "enum")"));
  EXPECT_THAT(of_schema(R"({"enum": [1], "type": "string"})"), HasSubstr(R"(has the value 1)"));
  EXPECT_THAT(of_schema(R"({"properties": {}, "required": ["b"]})"), HasSubstr(R"("required" names "b")"));
  EXPECT_THAT(of_schema(R"({"allOf": [{"type": "integer"}, {"type": "number"}]})"), HasSubstr("several schemas"));
  EXPECT_THAT(of_schema(R"({"$ref": "http://example.com/a.json"})"), HasSubstr("within the schema"));
  EXPECT_THAT(of_schema(R"({"$ref": "#/$defs/a"})"), HasSubstr("$defs"));
  EXPECT_THAT(of_schema(R"({"type": "integer", "minimum": 5, "maximum": 3})"), HasSubstr("minimum"));
  EXPECT_THAT(of_schema(R"({"type": "integer", "minimum": 1, "maximum": 100000, "multipleOf": 7})"),
              HasSubstr("multipleOf"));
  EXPECT_THAT(of_schema(R"({"type": "number", "multipleOf": 0.5})"), HasSubstr("multipleOf"));
  EXPECT_THAT(of_schema(R"({"type": "string", "pattern": "(?=a)a"})"), HasSubstr("ookahead"));
  EXPECT_THAT(of_schema(R"({"type": "string", "pattern": "[a"})"), HasSubstr("Unclosed"));
  EXPECT_THAT(of_schema(R"({"type": "string", "pattern": "a+", "maxLength": 3})"), HasSubstr("maxLength"));
  // Texts that a JSON string holds escaped, and characters that the library does not keep apart.
  for (const char* pattern : {"^[^é]{3}$", R"(^\"{3}$)", R"(^\\\\{3}$)", R"(^a\\nb$)"})
    EXPECT_THAT(of_schema(fmt::format(R"({{"properties": {{"a": {{"type": "string", "pattern": "{}"}}}}}})", pattern)),
                HasSubstr("cannot be kept to \"pattern\""))
        << pattern;
  for (const char* pattern : {"^.{3,20}$", R"(^[^\"]+$)", "^[A-Z][a-z]*( [a-z]+)?$"})
    EXPECT_EQ(of_schema(fmt::format(R"({{"type": "string", "pattern": "{}"}})", pattern)), "none") << pattern;
  EXPECT_THAT(of_schema(R"({"type": "string", "format": "date", "pattern": "x"})"),
              HasSubstr("\"format\" does not go"));
  for (const char* range :
       {R"("exclusiveMinimum": 0, "maximum": 1e-7)", R"("minimum": 0.1234567, "maximum": 0.1234568)",
        R"("exclusiveMinimum": 1, "exclusiveMaximum": 1.000001)"})
    EXPECT_THAT(of_schema(fmt::format(R"({{"type": "number", {}}})", range)), HasSubstr("at most six decimals"));
  for (const char* range : {R"("minimum": 0, "maximum": 1e-6)", R"("minimum": -5)", R"("exclusiveMaximum": 2.5)"})
    EXPECT_EQ(of_schema(fmt::format(R"({{"type": "number", {}}})", range)), "none") << range;
  EXPECT_THAT(of_schema(R"({"const": 12345678901234567890})"), HasSubstr("an integer of 2^63 or more"));
  EXPECT_THAT(of_schema(R"({"enum": [{"a": [9223372036854775808]}]})"), HasSubstr("an integer of 2^63 or more"));
  EXPECT_EQ(of_schema(R"({"const": 9223372036854775807})"), "none");
  EXPECT_THAT(fault(GrammarKind::regex, "(((a*)b*)+c)*"), HasSubstr("nested more than 2 deep"));
  EXPECT_THAT(fault(GrammarKind::regex, "a$b"), HasSubstr("cannot be kept to it"));
  EXPECT_THAT(of_schema("{\"title\": \"" + std::string(kMostGrammarBytes, 'a') + "\"}"), HasSubstr("at most"));
}

TEST_F(GrammarTest, ACostlyGrammarIsRefusedInBoundedTime) {
  Json properties = Json::object();
  for (int i = 0; i < 1000; ++i) properties.set("p" + std::to_string(i), Json(Json::Object{{"type", "null"}}));
  const Json costly(Json::Object{
      {"type", "object"}, {"properties", std::move(properties)}, {"minProperties", 500}, {"maxProperties", 510}});
  compiler_ = std::make_unique<GrammarCompiler>(vocabulary_, RehearsalLimits{.cpu_seconds = 1, .seconds = 30});
  EXPECT_THAT(fault(GrammarKind::json_schema, costly.dump()), HasSubstr("the schema takes more than 1 s"));
  EXPECT_THAT(next(*schema(R"({"type": "null"})"), ""), ElementsAre("n", "null"));
}

TEST(GrammarVocabularyTest, ATokenizerWithoutTextsIsRefused) {
  if (without_library()) GTEST_SKIP() << "built without XGrammar";
  EXPECT_THROW(GrammarCompiler({.texts = std::vector<std::string>(8), .stop_tokens = {0}}), Error);
}

TEST(GrammarLibraryTest, ABuildWithoutItSaysWhatToInstall) {
  const OpenGrammarLibrary library = std::exchange(open_grammar_library, nullptr);
  try {
    const GrammarCompiler compiler(tiny_vocabulary());
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
    EXPECT_THAT(error.what(), HasSubstr("scripts/setup.sh"));
  }
  open_grammar_library = library;
}

TEST(GrammarRehearsal, EndsWithItsLimitsAndMessages) {
  const RehearsalLimits limits{.cpu_seconds = 1, .seconds = 20, .bytes = std::size_t{256} << 20};
  EXPECT_NO_THROW(rehearse("the work", limits, [] {}));
  const auto message = [&](const std::function<void()>& work) -> std::string {
    try {
      rehearse("the work", limits, work);
      return "none";
    } catch (const Error& error) {
      return error.what();
    }
  };
  EXPECT_EQ(message([] { throw std::runtime_error("a fault"); }), "the work: a fault");
  EXPECT_THAT(message([] {
                volatile int spins = 0;
                while (spins >= 0) spins = 0;
              }),
              HasSubstr("more than 1 s"));
  EXPECT_EQ(message([] { (void)::raise(SIGSEGV); }), "the work ends its compiler (signal 11): make it simpler");
#ifndef __SANITIZE_ADDRESS__  // ends the process where memory does
  EXPECT_THAT(message([] {
                std::vector<std::vector<char>> all;
                while (true) all.emplace_back(std::size_t{1} << 20, 'a');
              }),
              HasSubstr("of memory"));
#endif
}

TEST(SchemaKeywords, UsualSchemasAreTaken) {
  for (
      const char* schema :
      {"true", "{}", R"({"type": ["string", "null"], "maxLength": 3, "format": "uuid", "title": "a"})",
       R"({"$defs": {"n": {"properties": {"next": {"anyOf": [{"$ref": "#/$defs/n"}, {"type": "null"}], "default": null}}}},
            "$ref": "#/$defs/n", "description": "a list"})",
       R"({"properties": {"type": {"const": 1}, "enum": {"type": "integer"}}, "required": ["type"],
            "additionalProperties": {"type": "number", "exclusiveMinimum": 0}})",
       R"({"type": "array", "prefixItems": [{"type": "integer"}], "items": false, "minItems": 1})"})
    EXPECT_NO_THROW(check_schema(Json::parse(schema))) << schema;
  EXPECT_NO_THROW(check_expression(R"(^(\d{1,3}\.){3}[(*+{]+\(\*$)", "it"));
}

}  // namespace
}  // namespace quench::testing
