#include "train/config/removed_keys.h"

#include <algorithm>
#include <iterator>

#include "core/system/check.h"

namespace quench {
namespace {

struct Key {
  std::string_view path;
  std::string_view what;
  std::string_view neutral;  // JSON list: no effect
};

constexpr Key kKeys[] = {
    {"optimizer.return_during_update", "state that returns during the update (lower optimizer.offload_ratio)",
     "[0, 0.0]"},
};

const Key* find_key(std::string_view path) {
  const auto* found = std::ranges::find(kKeys, path, &Key::path);
  return found == std::end(kKeys) ? nullptr : found;
}

}  // namespace

bool is_removed_key(std::string_view path) {
  return find_key(path) != nullptr;
}

std::string removed_key_refusal(std::string_view path, const Json& value) {
  const Key* key = find_key(path);
  QUENCH_CHECK(key != nullptr, "{} is not a removed key", path);
  const Json neutral = Json::parse(key->neutral);
  if (std::ranges::find(neutral.as_array(), value) != neutral.as_array().end()) return {};
  return fmt::format("{} was removed in this version", key->what);
}

}  // namespace quench
