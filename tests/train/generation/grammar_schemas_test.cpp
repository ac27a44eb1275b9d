// Random schemas: every text that their grammar completes is JSON that a validator of its own accepts.

#include <gtest/gtest.h>

#include <algorithm>

#include "core/json/json.h"
#include "core/system/utf8.h"
#include "data/tokenizer/tokenizer.h"
#include "tests/core/ops/op_testing.h"
#include "tests/testing.h"
#include "train/generation/grammar_vocabulary.h"
#include "train/objectives/grpo/rewards/json_schema.h"

namespace quench::testing {
namespace {

// Within the keywords that the validator knows.
class RandomSchema {
 public:
  explicit RandomSchema(Generator& random) : random_(random) {}

  Json make(int depth) {
    const std::int64_t kind = random_.below(depth > 0 ? 9 : 6);
    Json schema = Json::object();
    switch (kind) {
      case 0: schema.set("type", random_.coin() ? "boolean" : "null"); break;
      case 1: {
        schema.set("type", "integer");
        const std::int64_t least = random_.between(-500, 500);
        if (random_.coin()) schema.set("minimum", least);
        if (random_.coin()) schema.set("maximum", least + random_.below(1000));
        break;
      }
      case 2: {
        schema.set("type", "number");
        const double least = static_cast<double>(random_.between(-500, 500)) / 8;
        if (random_.coin()) schema.set("minimum", least);
        if (random_.coin()) schema.set("maximum", least + static_cast<double>(random_.between(1, 80)) / 4);
        break;
      }
      case 3: {
        schema.set("type", "string");
        const std::int64_t least = random_.below(5);
        if (random_.coin()) schema.set("minLength", least);
        if (random_.coin()) schema.set("maxLength", least + random_.below(9));
        break;
      }
      case 4:
        schema.set("type", "string");
        schema.set("pattern", kPatterns[static_cast<std::size_t>(random_.below(std::ssize(kPatterns)))]);
        break;
      case 5:
        schema.set("enum", Json(Json::Array{Json("a\"\\\n\xc3\xa4"), Json(3), Json(nullptr), Json(-0.5),
                                            Json(Json::Array{Json(1), Json("b")})}));
        break;
      case 6: {
        schema.set("type", "array");
        schema.set("items", make(depth - 1));
        const std::int64_t least = random_.below(3);
        schema.set("minItems", least);
        schema.set("maxItems", least + random_.below(3));
        break;
      }
      default: {
        schema.set("type", "object");
        Json properties = Json::object();
        Json::Array required;
        const std::int64_t count = random_.below(4);
        for (std::int64_t i = 0; i < count; ++i) {
          const std::string name = kNames[static_cast<std::size_t>(i)];
          properties.set(name, make(depth - 1));
          if (random_.coin()) required.emplace_back(name);
        }
        schema.set("properties", std::move(properties));
        schema.set("required", Json(std::move(required)));
        if (random_.below(3) == 0) schema.set("additionalProperties", random_.coin());
        break;
      }
    }
    return schema;
  }

 private:
  static constexpr std::array kPatterns = {"^[a-c]{1,3}$", "^(x|yz)*$", "^\\d{2}-\\d{2}$", "^[0-9A-F_]{0,4}$",
                                           "^a[0-9\"\\\\]b$"};
  static constexpr std::array kNames = {"name", "a b\"\xc3\xa4", "type", "x"};
  Generator& random_;
};

struct Drawn {
  std::string text;
  bool complete = false;
};

// Ends are likelier than other tokens.
Drawn draw(const Grammar& grammar, const GrammarVocabulary& vocabulary, Generator& random) {
  const auto matcher = grammar.begin(vocabulary.stop_tokens);
  std::vector<std::int32_t> words(static_cast<std::size_t>((grammar.vocabulary_size() + 31) / 32));
  Drawn drawn;
  for (int i = 0; i < 400; ++i) {
    if (!matcher->find_allowed(words)) {
      ADD_FAILURE() << "nothing follows " << drawn.text;
      return drawn;
    }
    std::vector<std::int32_t> allowed, ends;
    for (std::int64_t token = 0; token < grammar.vocabulary_size(); ++token) {
      if ((static_cast<std::uint32_t>(words[static_cast<std::size_t>(token / 32)]) >> token % 32 & 1u) == 0) continue;
      allowed.push_back(static_cast<std::int32_t>(token));
      const std::string& text = vocabulary.texts[static_cast<std::size_t>(token)];
      if (text.empty() || text == "]" || text == "}" || text == "\"") ends.push_back(static_cast<std::int32_t>(token));
    }
    EXPECT_EQ(matcher->is_complete(), std::ranges::find(allowed, vocabulary.stop_tokens[0]) != allowed.end());
    const std::vector<std::int32_t>& from = !ends.empty() && random.below(3) > 0 ? ends : allowed;
    const std::int32_t token = from[static_cast<std::size_t>(random.below(std::ssize(from)))];
    if (token == vocabulary.stop_tokens[0]) {
      drawn.complete = true;
      return drawn;
    }
    matcher->accept(token);
    drawn.text += vocabulary.texts[static_cast<std::size_t>(token)];
  }
  return drawn;
}

void expect_schemas_kept(const GrammarVocabulary& vocabulary, int schemas, std::uint32_t seed) {
  if (open_grammar_library == nullptr) GTEST_SKIP() << "built without XGrammar";
  const GrammarCompiler compiler(vocabulary);
  Generator random(seed);
  int complete = 0, all = 0;
  for (int i = 0; i < schemas; ++i) {
    const Json schema = RandomSchema(random).make(2);
    const JsonSchema validator(schema);
    const auto grammar = compiler.compile({.kind = GrammarKind::json_schema, .text = schema.dump()});
    for (int j = 0; j < 12; ++j, ++all) {
      const Drawn drawn = draw(*grammar, vocabulary, random);
      if (!drawn.complete) continue;
      ++complete;
      // The library takes surrogates for characters; where texts become UTF-8 they are U+FFFD.
      if (find_invalid_utf8(drawn.text) != std::string::npos) {
        EXPECT_NO_THROW((void)Json::parse(replace_invalid_utf8(drawn.text))) << drawn.text;
        continue;
      }
      try {
        EXPECT_TRUE(validator.accepts(Json::parse(drawn.text))) << schema.dump() << "\n" << drawn.text;
      } catch (const Error& error) {
        // A grammar does not bound numbers such as 1e999, and does not remember names of additional properties.
        const std::string_view fault = error.what();
        if (fault.find("number overflow") == fault.npos && fault.find("duplicate key") == fault.npos)
          ADD_FAILURE() << error.what() << "\n" << schema.dump() << "\n" << drawn.text;
      }
    }
  }
  EXPECT_GT(complete, all * 3 / 4);
}

TEST(GrammarSchemas, AreKeptByTokensOfBytes) {
  GrammarVocabulary vocabulary{.texts = {}, .stop_tokens = {256}};
  for (int byte = 0; byte < 256; ++byte) vocabulary.texts.emplace_back(1, static_cast<char>(byte));
  vocabulary.texts.emplace_back();
  expect_schemas_kept(vocabulary, 60, 1);
}

TEST(GrammarSchemas, AreKeptByTokensOfATokenizer) {
  const auto tokenizer = load_tokenizer(source_dir() / "tests/train/rolling_likelihood/bos");
  expect_schemas_kept(grammar_vocabulary(*tokenizer, 352, {1}), 60, 2);
}

TEST(GrammarVocabularyOfATokenizer, HasTheTextsOfTextTokens) {
  const auto tokenizer = load_tokenizer(source_dir() / "tests/train/rolling_likelihood/bos");
  const GrammarVocabulary vocabulary = grammar_vocabulary(*tokenizer, 352, {1});
  ASSERT_EQ(vocabulary.texts.size(), 352u);
  EXPECT_TRUE(vocabulary.texts[0].empty());  // <|begin|>
  EXPECT_TRUE(vocabulary.texts[351].empty());
  std::string text;
  for (const std::int32_t id : tokenizer->encode("The ferry {\"a\": \xc3\xa4}", {.add_special_tokens = false}))
    text += vocabulary.texts[static_cast<std::size_t>(id)];
  EXPECT_EQ(text, "The ferry {\"a\": \xc3\xa4}");
}

}  // namespace
}  // namespace quench::testing
