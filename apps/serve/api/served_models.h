#pragma once
// Names that clients choose by: the model's, and those of its adapters.

#include <cstdint>
#include <string>
#include <vector>

namespace quench::serve {

struct ServedModels {
  std::string base;
  std::vector<std::string> adapters;  // in the engine's order

  // Adapter of a name; -1: the base, whose name may be empty too. Throws ApiError 404 for others.
  [[nodiscard]] std::int64_t adapter_of(const std::string& name) const;
  [[nodiscard]] const std::string& name_of(std::int64_t adapter) const {
    return adapter < 0 ? base : adapters[static_cast<std::size_t>(adapter)];
  }
};

}  // namespace quench::serve
