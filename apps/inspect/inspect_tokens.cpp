#include "apps/inspect/inspect_tokens.h"

#include <algorithm>
#include <cstdio>
#include <vector>

#include "data/formats/token_source.h"
#include "data/formats/validation_cache.h"

namespace quench {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSummary = "dataset.json";  // written by quench tokenize

std::vector<fs::path> token_files(const fs::path& path) {
  if (!fs::is_directory(path)) return {path};
  const Json summary = Json::parse_file(path / kSummary);
  std::vector<fs::path> files;
  for (const char* part : {"train", "validation"})
    for (const Json& shard : summary.at(part).at("shards").as_array())
      files.push_back(path / fs::path(shard.at("file").as_string()).filename());
  return files;
}

}  // namespace

bool is_token_data(const fs::path& path) {
  std::error_code ignored;  // error of a folder that cannot be read
  return fs::is_regular_file(path) || (fs::is_directory(path) && fs::exists(path / kSummary, ignored));
}

Json inspect_tokens(const fs::path& path, bool verify) {
  std::uint64_t tokens = 0, bytes = 0;
  Json files = Json::array();
  std::string fingerprint, faults;
  for (const fs::path& file : token_files(path)) {
    try {
      ValidationCache checks;
      const auto source = open_token_file(file, {.checks = verify ? &checks : nullptr});
      tokens += source->size();
      bytes += fs::file_size(file);
      if (fingerprint.empty()) fingerprint = source->tokenizer_fingerprint();
      files.push_back(Json::Object{{"name", file.filename().string()},
                                   {"bytes", static_cast<std::int64_t>(fs::file_size(file))},
                                   {"tokens", source->size()}});
    } catch (const Error& error) {
      if (error.code() != ErrorCode::corrupt) throw;
      faults += fmt::format("{}{}", faults.empty() ? "" : "\n", error.what());
    }
  }
  QUENCH_CHECK_AS(ErrorCode::corrupt, faults.empty(), "{}", faults);
  if (verify)
    std::fprintf(stderr, "verified: %zu files, %llu tokens\n", files.as_array().size(),
                 static_cast<unsigned long long>(tokens));
  Json json = Json::object();
  json.set("kind", "token shards");
  json.set("tokens", tokens);
  json.set("bytes", bytes);
  if (!fingerprint.empty()) json.set("tokenizer_fingerprint", fingerprint);
  json.set("files", std::move(files));
  return json;
}

}  // namespace quench
