#pragma once
// Dtypes and limits.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/number/dtype.h"
#include "core/tensor/shape.h"

namespace quench {

inline constexpr std::uint64_t kSafetensorsMaxHeaderBytes = 100'000'000;  // reference implementation
inline constexpr std::size_t kSafetensorsMaxTensors = 1'000'000;
inline constexpr std::size_t kSafetensorsMaxMetadata = 1'000'000;
inline constexpr std::size_t kSafetensorsMaxNameBytes = 512;
inline constexpr std::uint64_t kSafetensorsMaxDimension = (std::uint64_t{1} << 48) - 1;  // the schema's size_t
inline constexpr std::string_view kSafetensorsMetadataKey = "__metadata__";

struct SafetensorsDType {
  std::string_view name;
  std::uint64_t bits;
  std::optional<DType> dtype;  // empty if unsupported
};

// In the reference implementation's order; files store later rows first, which keeps wider elements aligned.
[[nodiscard]] std::span<const SafetensorsDType> safetensors_dtypes() noexcept;

// nullptr if unknown.
[[nodiscard]] const SafetensorsDType* find_safetensors_dtype(std::string_view name) noexcept;

// Empty if valid.
[[nodiscard]] std::string_view safetensors_name_problem(std::string_view name) noexcept;

// JSON-escaped, shortened.
[[nodiscard]] std::string in_quotes(std::string_view name);

}  // namespace quench
