#pragma once
// Small tokenizer descriptions to build tokenizers from, in memory.

#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "core/json/json.h"
#include "data/tokenizer/json_tokenizer.h"
#include "data/tokenizer/model/byte_alphabet.h"
#include "data/tokenizer/tokenizer.h"

namespace quench::testing {

using Ids = std::vector<std::int32_t>;

inline Ids ids_of(const Json& list) {
  Ids ids;
  for (const Json& id : list.as_array()) ids.push_back(static_cast<std::int32_t>(id.as_int()));
  return ids;
}

inline Json byte_level(bool add_prefix_space, bool use_regex) {
  return Json::Object{
      {"type", "ByteLevel"}, {"add_prefix_space", add_prefix_space}, {"trim_offsets", true}, {"use_regex", use_regex}};
}

inline Json added_token(int id, const char* content, std::vector<const char*> flags = {}) {
  Json token = Json::Object{{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
                            {"rstrip", false}, {"normalized", false}, {"special", false}};
  for (const char* flag : flags) token.set(flag, true);
  return token;
}

// The 256 bytes (ids 0 to 255), then the given tokens, whose merges are given as pairs of texts.
inline Json description(const std::vector<std::pair<std::string, std::string>>& merges = {},
                        Json pre_tokenizer = byte_level(false, false)) {
  Json::Object vocabulary;
  for (int byte = 0; byte < 256; ++byte) {
    vocabulary.emplace_back(to_byte_alphabet(std::string(1, static_cast<char>(byte))), byte);
  }
  Json::Array merge_list;
  for (const auto& [left, right] : merges) {
    const std::string token = to_byte_alphabet(left + right);
    const bool known =
        std::any_of(vocabulary.begin(), vocabulary.end(), [&](const auto& m) { return m.first == token; });
    if (!known) vocabulary.emplace_back(token, static_cast<std::int64_t>(vocabulary.size()));
    merge_list.push_back(Json::Array{to_byte_alphabet(left), to_byte_alphabet(right)});
  }
  return Json::Object{
      {"version", "1.0"},
      {"added_tokens", Json::array()},
      {"normalizer", nullptr},
      {"pre_tokenizer", std::move(pre_tokenizer)},
      {"post_processor", nullptr},
      {"decoder", byte_level(false, false)},
      {"model", Json::Object{{"type", "BPE"}, {"vocab", std::move(vocabulary)}, {"merges", std::move(merge_list)}}}};
}

inline std::unique_ptr<JsonTokenizer> load(const Json& json, const std::string& config = "") {
  std::vector<std::pair<std::string, std::string>> files{{"tokenizer.json", json.dump(1)}};
  if (!config.empty()) files.emplace_back("tokenizer_config.json", config);
  return std::make_unique<JsonTokenizer>(TokenizerFiles("tokenizer.json", std::move(files)));
}

// The message of the quench::Error that `action` throws, after its code: "corrupt: ...". Empty if it throws none.
inline std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return std::string(to_string(error.code())) + ": " + error.what();
  }
  return "";
}

inline std::string load_error(const Json& json) {
  return error_of([&] { load(json); });
}

inline std::string random_bytes(std::mt19937& random, std::size_t size, std::string_view alphabet) {
  std::string bytes;
  for (std::size_t i = 0; i < size; ++i) bytes += alphabet[random() % alphabet.size()];
  return bytes;
}

// Seconds of processor time that `action` takes: what other processes do does not count.
inline double cpu_seconds(const std::function<void()>& action) {
  const std::clock_t start = std::clock();
  action();
  return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
}

}  // namespace quench::testing
