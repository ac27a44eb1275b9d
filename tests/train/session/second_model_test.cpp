// Tokenizer and weights of a second model: a distillation's teacher, a preference loss's reference.

#include <gmock/gmock.h>

#include "data/formats/content_hash.h"
#include "data/tokenizer/tokenizer_kind.h"
#include "tests/testing.h"
#include "train/session/frozen_model.h"

namespace quench {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using testing::read_file;
using testing::TempDir;
using testing::write_file;

void replace_in(const fs::path& file, std::string_view from, std::string_view to) {
  std::string text = read_file(file);
  const std::size_t at = text.find(from);
  ASSERT_NE(at, std::string::npos) << from;
  write_file(file, text.replace(at, from.size(), to));
}

TEST(SecondModel, MayNameOtherTokensOfBeginAndEnd) {
  const TempDir folder;
  const auto base = load_tokenizer("bytes");
  const auto run = base->with_tokens(std::vector<NewToken>{{"<|turn|>"}});
  run->save(folder / "model");
  const auto same = require_same_tokenizer("distill.teacher", (folder / "model").string(), *run, "hint");
  ASSERT_NE(same, nullptr);
  EXPECT_EQ(same->fingerprint(), run->fingerprint());
  // As a chat model has it, next to its base model.
  replace_in(folder / "model/tokenizer_config.json", R"("eos_token": "<|end_of_text|>")", R"("eos_token": "<|turn|>")");
  const auto chat = require_same_tokenizer("distill.teacher", (folder / "model").string(), *run, "hint");
  ASSERT_NE(chat, nullptr);
  EXPECT_NE(chat->fingerprint(), run->fingerprint());
  EXPECT_NE(chat->eos_id(), run->eos_id());
  // More tokens than the run's.
  EXPECT_NE(require_same_tokenizer("distill.teacher", (folder / "model").string(), *base, "hint"), nullptr);
  EXPECT_EQ(require_same_tokenizer("distill.teacher", (folder / "none").string(), *run, "hint"), nullptr);
}

TEST(SecondModel, MustHaveTheRunsTokens) {
  const TempDir folder;
  const auto base = load_tokenizer("bytes");
  const auto run = base->with_tokens(std::vector<NewToken>{{"<|turn|>"}});
  base->save(folder / "without");
  base->with_tokens(std::vector<NewToken>{{"<|other|>"}})->save(folder / "other");
  const auto refused = [&](const char* name) -> std::string {
    try {
      (void)require_same_tokenizer("preference.reference", (folder / name).string(), *run, "name another");
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::bad_config);
      return error.what();
    }
    return "not refused";
  };
  EXPECT_THAT(refused("without"), HasSubstr("token 259 is no token"));
  EXPECT_THAT(refused("other"), HasSubstr(R"(token 259 is "<|other|>")"));
  EXPECT_THAT(refused("other"), HasSubstr(R"("<|turn|>" in the run; name another)"));
  EXPECT_THAT(refused("other"), HasSubstr("preference.reference"));
}

TEST(SecondModel, WeightsAreKnownByTheContentsOfTheirFiles) {
  const TempDir folder;
  fs::create_directories(folder / "model");
  const auto hash = [&](const fs::path& model) {
    Hash128 key;
    ValidationCache checks;
    add_weight_files(key, model, checks);
    return key.text();
  };
  const fs::path gguf = folder / "model/model.gguf";
  write_file(folder / "model/config.json", "{}");
  write_file(gguf, "one");
  write_file(folder / "model/README.md", "one");
  const std::string of_folder = hash(folder / "model"), of_file = hash(gguf);
  write_file(folder / "model/README.md", "two");
  EXPECT_EQ(hash(folder / "model"), of_folder);
  write_file(gguf, "two");
  EXPECT_NE(hash(folder / "model"), of_folder);
  EXPECT_NE(hash(gguf), of_file);
}

}  // namespace
}  // namespace quench
