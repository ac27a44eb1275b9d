#pragma once
// Tokenizers for tests of what is built on them.

#include <memory>

#include "core/json/json.h"
#include "data/tokenizer/tokenizer.h"
#include "tests/testing.h"

namespace quench::testing {

// A saved tokenizer with further special tokens, at the ids after its last.
inline std::unique_ptr<Tokenizer> with_special_tokens(const Tokenizer& base, const std::vector<std::string>& tokens) {
  TempDir folder;
  base.save(folder.path());
  Json file = Json::parse_file(folder / "tokenizer.json");
  std::int64_t id = base.vocab_size();
  for (const std::string& token : tokens) {
    if (base.find_token(token)) continue;
    file.find("added_tokens")
        ->push_back(Json::Object{{"id", id++},
                                 {"content", token},
                                 {"single_word", false},
                                 {"lstrip", false},
                                 {"rstrip", false},
                                 {"normalized", false},
                                 {"special", true}});
  }
  write_file(folder / "tokenizer.json", file.dump());
  return load_tokenizer(folder.path());
}

}  // namespace quench::testing
