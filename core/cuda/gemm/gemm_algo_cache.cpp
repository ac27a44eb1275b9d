#include "core/cuda/gemm/gemm_algo_cache.h"

#include <array>
#include <cstdlib>
#include <cstring>

#include "core/json/json.h"
#include "core/system/file.h"
#include "core/system/log.h"

namespace quench::cuda {
namespace {

constexpr std::size_t kMaxFileBytes = std::size_t{16} << 20;

using Words = std::array<std::uint64_t, sizeof(cublasLtMatmulAlgo_t) / sizeof(std::uint64_t)>;
static_assert(sizeof(Words) == sizeof(cublasLtMatmulAlgo_t));

std::string file_name(std::string_view device, std::size_t version) {
  std::string name = fmt::format("gemm-{}-{}.json", device, version);
  for (char& c : name)
    if (c == ' ' || c == '/') c = '_';
  return name;
}

}  // namespace

std::filesystem::path gemm_algo_cache_folder() {
  if (const char* folder = std::getenv("QUENCH_GEMM_CACHE")) return folder;
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache != '\0')
    return std::filesystem::path(cache) / "quench";
  if (const char* home = std::getenv("HOME"); home != nullptr && *home != '\0')
    return std::filesystem::path(home) / ".cache" / "quench";
  return {};
}

GemmAlgoCache::GemmAlgoCache(const std::filesystem::path& folder, std::string_view device,
                             std::size_t library_version) {
  if (folder.empty()) return;
  path_ = folder / file_name(device, library_version);
  read();
}

void GemmAlgoCache::read() {
  std::error_code ignored;
  if (!std::filesystem::exists(path_, ignored)) return;
  try {
    const Json json = Json::parse_file(path_, {.max_bytes = kMaxFileBytes});
    for (const auto& [problem, value] : json.as_object()) {
      const auto& stored = value.as_array();
      Words words{};
      QUENCH_CHECK_AS(ErrorCode::corrupt, stored.size() == words.size(), "{}: '{}' has {} words, expected {}",
                      path_.string(), problem, stored.size(), words.size());
      for (std::size_t i = 0; i < words.size(); ++i) words[i] = stored[i].as_uint();
      cublasLtMatmulAlgo_t algorithm;
      std::memcpy(&algorithm, words.data(), sizeof algorithm);
      choices_.try_emplace(problem, algorithm);
    }
  } catch (const Error& error) {
    QUENCH_LOG_WARN("GEMM algorithms are tuned again: {}", error.what());
  }
}

void GemmAlgoCache::write() {
  Json json = Json::object();
  for (const auto& [problem, algorithm] : choices_) {
    Words words{};
    std::memcpy(words.data(), &algorithm, sizeof algorithm);
    Json::Array stored;
    for (const std::uint64_t word : words) stored.emplace_back(word);
    json.set(problem, Json(std::move(stored)));
  }
  std::filesystem::create_directories(path_.parent_path());
  write_file_atomically(path_, json.dump(1) + "\n");
}

std::optional<cublasLtMatmulAlgo_t> GemmAlgoCache::find(const std::string& problem) const {
  const auto it = choices_.find(problem);
  return it == choices_.end() ? std::nullopt : std::optional(it->second);
}

void GemmAlgoCache::insert(const std::string& problem, const cublasLtMatmulAlgo_t& algorithm) {
  choices_.insert_or_assign(problem, algorithm);
  if (path_.empty() || warned_) return;
  try {
    read();  // entries of other processes
    write();
  } catch (const std::exception& error) {
    QUENCH_LOG_WARN("the tuned GEMM algorithms are not saved: {}", error.what());
    warned_ = true;
  }
}

}  // namespace quench::cuda
