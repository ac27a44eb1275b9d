#include "train/config/not_yet.h"

#include <algorithm>
#include <iterator>

#include "core/system/check.h"

namespace quench {
namespace {

struct Key {
  std::string_view path;
  std::string_view what;
  std::string_view neutral;  // JSON list of the values that ask for nothing
};

constexpr Key kKeys[] = {
    {"parallel.float8_all_gather", "gathering of float8 weights", "[true]"},
    {"export.scheme", "quantized exports", "[null]"},
};

struct Value {
  std::string_view path;
  std::string_view value;
  std::string_view what;
};

constexpr Value kValues[] = {
    {"export.format", "compressed-tensors", "quantized exports"},
    {"export.format", "torchao", "quantized exports"},
    {"export.format", "gguf", "GGUF"},
};

// `below` is `above` or one of its members.
bool within(std::string_view below, std::string_view above) {
  return below.starts_with(above) && (below.size() == above.size() || below[above.size()] == '.');
}

const Key* find_key(std::string_view path) {
  const auto* found = std::ranges::find_if(kKeys, [&](const Key& key) { return within(path, key.path); });
  return found == std::end(kKeys) ? nullptr : found;
}

}  // namespace

bool is_not_yet(std::string_view path) {
  return std::ranges::any_of(kKeys, [&](const Key& key) { return within(path, key.path) || within(key.path, path); });
}

std::string not_yet_refusal(std::string_view path, const Json& value) {
  const Key* key = find_key(path);
  if (key == nullptr) {
    // Above such keys there is an object of them, or nothing.
    key = std::ranges::find_if(kKeys, [&](const Key& one) { return within(one.path, path); });
    if (key == std::end(kKeys) || value.is_null() || value.is_object()) return {};
    return fmt::format("this version does not have {} yet", key->what);
  }
  const Json neutral = Json::parse(key->neutral);
  if (path == key->path && std::ranges::find(neutral.as_array(), value) != neutral.as_array().end()) return {};
  return fmt::format("this version does not have {} yet", key->what);
}

std::string not_yet_value(std::string_view path, const Json& value) {
  if (!value.is_string()) return {};
  const auto* found = std::ranges::find_if(
      kValues, [&](const Value& row) { return row.path == path && row.value == value.as_string(); });
  return found == std::end(kValues) ? "" : fmt::format("; this version does not have {} yet", found->what);
}

}  // namespace quench
