#pragma once
// Metadata of one architecture by type.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "export/formats/gguf/head_parser.h"

namespace quench {

class GgufFields {
 public:
  // `head` must outlive the object. `source`: for errors.
  GgufFields(const GgufHead& head, std::string prefix, std::string_view source)
      : head_(head), prefix_(std::move(prefix)), source_(source) {}

  [[nodiscard]] const std::string& source() const noexcept { return source_; }
  [[nodiscard]] std::string name(std::string_view key) const { return prefix_ + std::string(key); }
  // Without the architecture's prefix.
  [[nodiscard]] std::vector<std::string> keys(std::string_view beginning) const;

  [[nodiscard]] const Json* find(std::string_view key) const;
  // Absent, or throws corrupt naming file and key. Integers: 0 to 2^31. Reals: finite, or integers. Per-layer lists:
  // equal entries, else throws unsupported.
  [[nodiscard]] std::optional<std::int64_t> find_integer(std::string_view key) const;
  [[nodiscard]] std::optional<double> find_number(std::string_view key) const;
  [[nodiscard]] std::optional<std::string> find_text(std::string_view key) const;
  [[nodiscard]] std::optional<bool> find_flag(std::string_view key) const;
  // Positive. Throws unsupported if absent.
  [[nodiscard]] std::int64_t integer(std::string_view key) const;
  [[nodiscard]] double number(std::string_view key) const;

 private:
  [[noreturn]] void refuse(std::string_view key, const Json& value, std::string_view expected) const;
  [[noreturn]] void refuse_missing(std::string_view key) const;
  [[nodiscard]] const Json* find_single(std::string_view key) const;

  const GgufHead& head_;
  std::string prefix_, source_;
};

}  // namespace quench
