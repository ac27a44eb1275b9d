// Tokenizers of the shapes that SentencePiece models are converted to, and of gpt-oss's, against what Hugging Face
// tokenizers makes of the same files (tests/reference/make_tokenizers.py, make_harmony.py).

#include <gtest/gtest.h>

#include "core/system/utf8.h"
#include "data/tokenizer/stream_decoder.h"
#include "tests/data/tokenizer/bpe_fixtures.h"
#include "tests/testing.h"

namespace quench {
namespace {

using testing::Ids;
using testing::ids_of;

void expect_equal(const Tokenizer& tokenizer, const std::string& text, const Json::Array& expected) {
  const Ids plain = tokenizer.encode(text, {.add_special_tokens = false});
  EXPECT_EQ(tokenizer.encode(text), ids_of(expected[0]));
  EXPECT_EQ(plain, ids_of(expected[1]));
  // Where bytes are no text, theirs are replaced.
  EXPECT_EQ(replace_invalid_utf8(tokenizer.decode(plain)), expected[2].as_string());
  EXPECT_EQ(replace_invalid_utf8(tokenizer.decode(plain, {.skip_special = true})), expected[3].as_string());
  StreamDecoder stream(tokenizer);
  std::string streamed;
  for (const std::int32_t id : plain) streamed += stream.push(id);
  EXPECT_EQ(streamed + stream.finish(), tokenizer.decode(plain));
}

class TokenizerReferenceGolden : public ::testing::TestWithParam<const char*> {};

TEST_P(TokenizerReferenceGolden, EveryShapeEncodesAndDecodesEveryText) {
  const Json reference = Json::parse_file(testing::source_dir() / fmt::format("tests/reference/{}.json", GetParam()));
  const auto& texts = reference.at("texts").as_array();
  for (const Json& entry : reference.at("tokenizers").as_array()) {
    Json file = entry.at("pipeline");
    file.set("model", reference.at("models").at(entry.at("model").as_string()));
    const auto tokenizer = testing::load(file);
    const auto& cases = entry.at("cases").as_array();
    ASSERT_EQ(texts.size(), cases.size());
    for (std::size_t i = 0; i < texts.size(); ++i) {
      SCOPED_TRACE(entry.at("name").as_string() + " " + texts[i].dump());
      expect_equal(*tokenizer, texts[i].as_string(), cases[i].as_array());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Files, TokenizerReferenceGolden, ::testing::Values("tokenizers", "harmony"),
                         [](const auto& file) { return std::string(file.param); });

}  // namespace
}  // namespace quench
