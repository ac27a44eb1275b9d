#pragma once
// Typed reads of config.json with defaults and ranges; faults are collected, not thrown.

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/json/json.h"
#include "core/system/check.h"

namespace quench::nn {

inline constexpr std::int64_t kMaxDimension = std::int64_t{1} << 31;

// Reader of config.json; collects all faults for one error message.
class ConfigReader {
 public:
  ConfigReader(const Json& json, std::string_view source) : json_(json), source_(source) {}

  [[nodiscard]] const Json& json() const noexcept { return json_; }
  [[nodiscard]] std::string_view source() const noexcept { return source_; }

  // nullptr if absent or null.
  [[nodiscard]] const Json* find(std::string_view key) const {
    const Json* value = json_.find(key);
    return value == nullptr || value->is_null() ? nullptr : value;
  }

  void fault(std::string_view key, const std::string& what) {
    const Json* value = json_.find(key);
    const std::string where = value != nullptr && value->line() > 0 ? fmt::format(":{}", value->line()) : "";
    faults_.push_back(fmt::format("{}{}: {}: {}", source_, where, key, what));
  }

  // Faults of a reader of one member, whose source names it.
  void take_faults(const ConfigReader& inner) {
    faults_.insert(faults_.end(), inner.faults_.begin(), inner.faults_.end());
  }

  std::int64_t integer(std::string_view key, std::optional<std::int64_t> fallback, std::int64_t low,
                       std::int64_t high) {
    const Json* value = find(key);
    if (value == nullptr) {
      if (!fallback) fault(key, "is missing");
      return fallback.value_or(low);
    }
    if (!value->is_integer()) {
      fault(key, fmt::format("expected an integer, got {}", value->type_name()));
      return low;
    }
    const bool fits = value->dump().size() < 19;
    const std::int64_t number = fits ? value->as_int() : high + (high < INT64_MAX ? 1 : 0);
    if (!fits || number < low || number > high) {
      fault(key, fmt::format("{} is outside {}..{}", value->dump(), low, high));
      return low;
    }
    return number;
  }

  double number(std::string_view key, double fallback, bool positive) {
    const Json* value = find(key);
    if (value == nullptr) return fallback;
    if (!value->is_number()) {
      fault(key, fmt::format("expected a number, got {}", value->type_name()));
      return fallback;
    }
    const double x = value->as_double();
    if (!std::isfinite(x) || (positive && x <= 0)) {
      fault(key, fmt::format("{} is not a positive number", value->dump()));
      return fallback;
    }
    return x;
  }

  bool boolean(std::string_view key, bool fallback) {
    const Json* value = find(key);
    if (value == nullptr) return fallback;
    if (!value->is_bool()) {
      fault(key, fmt::format("expected true or false, got {}", value->type_name()));
      return fallback;
    }
    return value->as_bool();
  }

  std::string string(std::string_view key, std::string fallback) {
    const Json* value = find(key);
    if (value == nullptr) return fallback;
    if (!value->is_string()) {
      fault(key, fmt::format("expected a string, got {}", value->type_name()));
      return fallback;
    }
    return value->as_string();
  }

  std::vector<std::int64_t> ids(std::string_view key) {
    const Json* value = find(key);
    std::vector<std::int64_t> result;
    if (value == nullptr) return result;
    const auto take = [&](const Json& item) {
      if (item.is_integer() && item.as_int() >= 0) return result.push_back(item.as_int());
      fault(key, fmt::format("expected a token id, got {}", item.dump()));
    };
    if (value->is_array()) {
      for (const Json& item : value->as_array()) take(item);
    } else {
      take(*value);
    }
    return result;
  }

  [[nodiscard]] const std::vector<std::string>& faults() const { return faults_; }

 private:
  const Json& json_;
  std::string_view source_;
  std::vector<std::string> faults_;
};

}  // namespace quench::nn
