#pragma once
// "auto" as a choice, resolved later; null in code.

#include <string>
#include <string_view>
#include <vector>

#include "core/system/choice_table.h"

namespace quench {

inline constexpr std::string_view kAutomaticChoice = "auto";

template <class Entry>
[[nodiscard]] std::vector<std::string> names_with_auto(const ChoiceTable<Entry>& table) {
  std::vector<std::string> names = table.names();
  names.emplace(names.begin(), kAutomaticChoice);
  return names;
}

// Null for "auto". Throws bad_config listing the names; `key`: config key or option.
template <class Entry>
[[nodiscard]] const Entry* require_or_auto(const ChoiceTable<Entry>& table, std::string_view name,
                                           std::string_view key) {
  if (name == kAutomaticChoice) return nullptr;
  const Entry* entry = table.find(name);
  QUENCH_CHECK_AS(ErrorCode::bad_config, entry != nullptr, "{} '{}' is unknown; known: {}", key, name,
                  fmt::join(names_with_auto(table), ", "));
  return entry;
}

template <class Entry>
[[nodiscard]] std::string_view name_or_auto(const Entry* entry) noexcept {
  return entry == nullptr ? kAutomaticChoice : std::string_view(entry->name);
}

}  // namespace quench
