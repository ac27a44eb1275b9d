#include <algorithm>
#include <numeric>

#include "core/json/json.h"
#include "core/safetensors/safetensors_folder.h"
#include "core/system/file.h"
#include "core/system/temporary.h"

namespace quench {
namespace {

// Greedy, in order.
std::vector<std::vector<SafetensorsItem>> split(std::vector<SafetensorsItem> items,
                                                const std::vector<std::uint64_t>& sizes,
                                                std::uint64_t max_shard_bytes) {
  std::vector<std::vector<SafetensorsItem>> shards(1);
  std::uint64_t filled = 0;
  for (std::size_t i = 0; i < items.size(); ++i) {
    const bool fits = filled <= max_shard_bytes && sizes[i] <= max_shard_bytes - filled;
    if (!fits && !shards.back().empty()) {
      shards.emplace_back();
      filled = 0;
    }
    filled += sizes[i];
    shards.back().push_back(std::move(items[i]));
  }
  return shards;
}

bool is_digits(std::string_view text) noexcept {
  return text.size() >= 5 && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// "model-00001-of-00002.safetensors"
bool is_shard_name(std::string_view name) noexcept {
  constexpr std::string_view kFront = "model-", kMiddle = "-of-", kBack = ".safetensors";
  if (!name.starts_with(kFront) || !name.ends_with(kBack) || name.size() < kFront.size() + kBack.size()) return false;
  name = name.substr(kFront.size(), name.size() - kFront.size() - kBack.size());
  const auto middle = name.find(kMiddle);
  return middle != std::string_view::npos && is_digits(name.substr(0, middle)) &&
         is_digits(name.substr(middle + kMiddle.size()));
}

// Removed on destruction unless published.
class StagedFiles {
 public:
  explicit StagedFiles(const std::filesystem::path& folder) : folder_(folder) {}
  ~StagedFiles() {
    std::error_code ignored;
    for (const auto& [temporary, name] : files_) std::filesystem::remove(temporary, ignored);
  }
  StagedFiles(const StagedFiles&) = delete;
  StagedFiles& operator=(const StagedFiles&) = delete;

  std::filesystem::path add(const std::string& name) {
    return files_.emplace_back(temporary_name(folder_ / name), name).first;
  }

  // The last rename follows durable others.
  void publish() {
    for (std::size_t i = 0; i < files_.size(); ++i) {
      const auto& [temporary, name] = files_[i];
      if (i + 1 == files_.size()) sync_directory(folder_);
      std::error_code error;
      std::filesystem::rename(temporary, folder_ / name, error);
      QUENCH_CHECK_AS(ErrorCode::io, !error, "cannot rename {} to {}: {}", temporary.string(), name, error.message());
    }
    files_.clear();
    sync_directory(folder_);
  }

 private:
  std::filesystem::path folder_;
  std::vector<std::pair<std::filesystem::path, std::string>> files_;
};

void remove_file(const std::filesystem::path& path) {
  std::error_code error;
  std::filesystem::remove(path, error);
  QUENCH_CHECK_AS(ErrorCode::io, !error, "cannot remove {}: {}", path.string(), error.message());
}

void remove_shards(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> old;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (is_shard_name(entry.path().filename().string())) old.push_back(entry.path());
  for (const auto& path : old) remove_file(path);
}

}  // namespace

bool is_weights_file(std::string_view name) noexcept {
  return name == kModelFileName || name == kModelIndexName || is_shard_name(name);
}

void write_safetensors_folder(const std::filesystem::path& folder, std::vector<SafetensorsItem> items,
                              std::uint64_t max_shard_bytes, const std::map<std::string, std::string>& metadata) {
  // Validates all items first, with unique names across shards.
  const SafetensorsLayout layout = layout_safetensors(items, metadata);
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  QUENCH_CHECK_AS(ErrorCode::io, !error, "cannot create folder {}: {}", folder.string(), error.message());
  const auto index_path = folder / kModelIndexName;
  const auto shards = split(std::move(items), layout.sizes, max_shard_bytes);
  if (shards.size() == 1) {
    // Readers prefer the single file: its rename switches models.
    write_safetensors(folder / kModelFileName, shards[0], metadata);
    remove_file(index_path);
    remove_shards(folder);
    return;
  }

  StagedFiles staged(folder);
  std::map<std::string, std::string> weight_map;
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const std::string name = fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
    for (const SafetensorsItem& item : shards[i]) weight_map.emplace(item.name, name);
    write_safetensors(staged.add(name), shards[i], metadata);
  }
  Json table = Json::object();
  for (const auto& [tensor, file] : weight_map) table.as_object().emplace_back(tensor, file);
  Json totals = Json::object();
  totals.set("total_size", std::accumulate(layout.sizes.begin(), layout.sizes.end(), std::uint64_t{0}));
  Json index = Json::object();
  index.set("metadata", std::move(totals));
  index.set("weight_map", std::move(table));

  write_file_atomically(staged.add(std::string(kModelIndexName)), index.dump(2) + "\n");

  remove_file(index_path);
  remove_file(folder / kModelFileName);
  remove_shards(folder);
  sync_directory(folder);
  staged.publish();
}

}  // namespace quench
