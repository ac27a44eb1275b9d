// Every stored case of a Llama-3 style tokenizer: text to ids, with and without special tokens, and back.

#include <gtest/gtest.h>

#include <iostream>

#include "core/json/json.h"
#include "data/tokenizer/tokenizer.h"
#include "tests/data/tokenizer/bpe_fixtures.h"
#include "tests/testing.h"

namespace quench {
namespace {

using testing::ids_of;

TEST(TokenizerGolden, EncodesAndDecodesEveryCase) {
  const auto folder = testing::golden_dir() / "tokenizer";
  const auto tokenizer = load_tokenizer(folder / "tokenizer.json");
  const Json cases = Json::parse_file(folder / "cases.json");
  ASSERT_FALSE(cases.as_array().empty());
  int equal = 0;
  for (const Json& item : cases.as_array()) {
    const std::string& text = item.at("text").as_string();
    SCOPED_TRACE("cases.json line " + std::to_string(item.line()));
    const auto ids = tokenizer->encode(text);
    const auto plain = tokenizer->encode(text, {.add_special_tokens = false});
    const auto decoded = tokenizer->decode(plain);
    EXPECT_EQ(ids, ids_of(item.at("ids")));
    EXPECT_EQ(plain, ids_of(item.at("ids_no_special")));
    EXPECT_EQ(decoded, item.at("decoded").as_string());
    equal += ids == ids_of(item.at("ids")) && plain == ids_of(item.at("ids_no_special")) &&
             decoded == item.at("decoded").as_string();
  }
  std::cout << equal << "/" << cases.as_array().size() << " cases equal\n";
}

}  // namespace
}  // namespace quench
