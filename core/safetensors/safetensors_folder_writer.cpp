#include <algorithm>
#include <numeric>

#include "core/json/json.h"
#include "core/safetensors/safetensors_folder.h"
#include "core/system/replacement.h"
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

std::vector<std::string> weights_files(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (is_weights_file(entry.path().filename().string())) names.push_back(entry.path().filename().string());
  // Readers start at these: first to go.
  std::ranges::partition(names,
                         [](const std::string& name) { return name == kModelFileName || name == kModelIndexName; });
  return names;
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
  const auto shards = split(std::move(items), layout.sizes, max_shard_bytes);
  StagingFolder fresh(folder / "model");
  std::vector<std::string> names;
  std::map<std::string, std::string> weight_map;
  for (std::size_t i = 0; i < shards.size(); ++i) {
    names.push_back(shards.size() == 1 ? std::string(kModelFileName)
                                       : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size()));
    for (const SafetensorsItem& item : shards[i]) weight_map.emplace(item.name, names.back());
    write_safetensors(fresh.path() / names.back(), shards[i], metadata);
  }
  if (shards.size() > 1) {
    Json table = Json::object();
    for (const auto& [tensor, file] : weight_map) table.as_object().emplace_back(tensor, file);
    Json totals = Json::object();
    totals.set("total_size", std::accumulate(layout.sizes.begin(), layout.sizes.end(), std::uint64_t{0}));
    Json index = Json::object();
    index.set("metadata", std::move(totals));
    index.set("weight_map", std::move(table));
    names.emplace_back(kModelIndexName);
    write_file_atomically(fresh.path() / names.back(), index.dump(2) + "\n");
  }
  const std::vector<std::string> old = weights_files(folder);
  remove_replaced(exchange_files(fresh.path(), folder, names, old), old);
}

}  // namespace quench
