#include <algorithm>
#include <numeric>

#include "core/json/json.h"
#include "core/safetensors/safetensors.h"
#include "core/safetensors/safetensors_limits.h"
#include "core/system/replacement.h"
#include "core/system/utf8.h"

namespace quench {
namespace {

// Throws if readers reject name, dtype or shape.
std::uint64_t checked_bytes(const SafetensorsItem& item) {
  const std::string_view problem = safetensors_name_problem(item.name);
  QUENCH_CHECK(problem.empty(), "write_safetensors: tensor name {} {}", in_quotes(item.name), problem);
  (void)safetensors_name(item.dtype);
  for (const std::int64_t dimension : item.shape)
    QUENCH_CHECK(dimension >= 0 && static_cast<std::uint64_t>(dimension) <= kSafetensorsMaxDimension,
                 "write_safetensors: tensor \"{}\" has shape {}", item.name, item.shape.to_string());
  std::int64_t bits = 0;
  QUENCH_CHECK(!__builtin_mul_overflow(item.shape.numel(), std::int64_t{bit_width(item.dtype)}, &bits),
               "write_safetensors: tensor \"{}\" of shape {} is too large", item.name, item.shape.to_string());
  QUENCH_CHECK(bits % 8 == 0, "write_safetensors: tensor \"{}\" of shape {} and dtype {} does not fill whole bytes",
               item.name, item.shape.to_string(), to_string(item.dtype));
  return static_cast<std::uint64_t>(bits) / 8;
}

void check_data(const SafetensorsItem& item, std::size_t bytes, std::uint64_t expected) {
  QUENCH_CHECK(bytes == expected, "write_safetensors: tensor \"{}\" of shape {} and dtype {} needs {} bytes, got {}",
               item.name, item.shape.to_string(), to_string(item.dtype), expected, bytes);
}

// Later rows of the dtype table first, then name.
std::vector<std::size_t> file_order(std::span<const SafetensorsItem> items) {
  const auto row = [&](std::size_t i) { return find_safetensors_dtype(safetensors_name(items[i].dtype)); };
  std::vector<std::size_t> order(items.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return items[a].dtype != items[b].dtype ? row(a) > row(b) : items[a].name < items[b].name;
  });
  return order;
}

void check_unique_names(std::span<const SafetensorsItem> items) {
  std::vector<std::string_view> names;
  names.reserve(items.size());
  for (const SafetensorsItem& item : items) names.push_back(item.name);
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  QUENCH_CHECK(twice == names.end(), "write_safetensors: two tensors are named \"{}\"", *twice);
}

std::string header_bytes(std::span<const SafetensorsItem> items, const SafetensorsLayout& layout,
                         const std::map<std::string, std::string>& metadata) {
  std::string json(8, '\0');
  json += '{';
  if (!metadata.empty()) {
    Json table = Json::object();
    for (const auto& [key, value] : metadata) {
      QUENCH_CHECK(find_invalid_utf8(key) == std::string::npos && find_invalid_utf8(value) == std::string::npos,
                   "write_safetensors: metadata {} is not valid UTF-8", Json(key).dump());
      table.as_object().emplace_back(key, value);
    }
    json += fmt::format("\"{}\":{}", kSafetensorsMetadataKey, table.dump());
  }
  std::uint64_t offset = 0;
  for (const std::size_t i : layout.order) {
    const SafetensorsItem& item = items[i];
    json += fmt::format("{}{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}", json.size() > 9 ? "," : "",
                        Json(item.name).dump(), safetensors_name(item.dtype), fmt::join(item.shape, ","), offset,
                        offset + layout.sizes[i]);
    offset += layout.sizes[i];
  }
  json += '}';
  json.append((8 - json.size() % 8) % 8, ' ');
  const std::uint64_t length = json.size() - 8;
  QUENCH_CHECK(length <= kSafetensorsMaxHeaderBytes, "write_safetensors: a header of {} bytes; at most {} are allowed",
               length, kSafetensorsMaxHeaderBytes);
  for (std::size_t i = 0; i < 8; ++i) json[i] = static_cast<char>(length >> (8 * i) & 0xFF);
  return json;
}

}  // namespace

SafetensorsLayout layout_safetensors(std::span<const SafetensorsItem> items,
                                     const std::map<std::string, std::string>& metadata) {
  QUENCH_CHECK(items.size() <= kSafetensorsMaxTensors, "write_safetensors: {} tensors; at most {} are allowed",
               items.size(), kSafetensorsMaxTensors);
  QUENCH_CHECK(metadata.size() <= kSafetensorsMaxMetadata,
               "write_safetensors: {} metadata keys; at most {} are allowed", metadata.size(), kSafetensorsMaxMetadata);
  check_unique_names(items);
  SafetensorsLayout layout;
  for (const SafetensorsItem& item : items) {
    layout.sizes.push_back(checked_bytes(item));
    QUENCH_CHECK(!__builtin_add_overflow(layout.file_size, layout.sizes.back(), &layout.file_size),
                 "write_safetensors: more bytes than 2^64");
  }
  layout.order = file_order(items);
  layout.header = header_bytes(items, layout, metadata);
  layout.file_size += layout.header.size();
  return layout;
}

void write_safetensors(const std::filesystem::path& path, const std::vector<SafetensorsItem>& items,
                       const std::map<std::string, std::string>& metadata) {
  const SafetensorsLayout layout = layout_safetensors(items, metadata);
  for (std::size_t i = 0; i < items.size(); ++i)
    if (!items[i].produce) check_data(items[i], items[i].data.size(), layout.sizes[i]);
  FileReplacement file(path, layout.file_size);
  file.write(layout.header);
  for (const std::size_t i : layout.order) {
    if (!items[i].produce) {
      file.write(items[i].data);
      continue;
    }
    const std::vector<std::byte> bytes = items[i].produce();
    check_data(items[i], bytes.size(), layout.sizes[i]);
    file.write(std::span(bytes));
  }
  file.commit();
}

}  // namespace quench
