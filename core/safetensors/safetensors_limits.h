#pragma once
// What the safetensors reader and writer must agree on: the table of dtypes and the limits.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/number/dtype.h"
#include "core/tensor/shape.h"

namespace quench {

inline constexpr std::uint64_t kSafetensorsMaxHeaderBytes = 100'000'000;  // the reference implementation's
inline constexpr std::size_t kSafetensorsMaxTensors = 1'000'000;
inline constexpr std::size_t kSafetensorsMaxMetadata = 1'000'000;
inline constexpr std::size_t kSafetensorsMaxNameBytes = 512;
inline constexpr std::uint64_t kSafetensorsMaxDimension = (std::uint64_t{1} << 48) - 1;  // the schema's size_t
inline constexpr std::string_view kSafetensorsMetadataKey = "__metadata__";

struct SafetensorsDType {
  std::string_view name;
  std::uint64_t bits;
  std::optional<DType> dtype;  // empty if Quench does not compute with it
};

// In the reference implementation's order: a file holds the tensors of later rows first, so that wider elements keep
// their alignment.
[[nodiscard]] std::span<const SafetensorsDType> safetensors_dtypes() noexcept;

// nullptr if the format has no such dtype.
[[nodiscard]] const SafetensorsDType* find_safetensors_dtype(std::string_view name) noexcept;

// Why a tensor may not have this name; empty if it may.
[[nodiscard]] std::string_view safetensors_name_problem(std::string_view name) noexcept;

// A name for an error message: escaped as in JSON, and shortened.
[[nodiscard]] std::string in_quotes(std::string_view name);

}  // namespace quench
