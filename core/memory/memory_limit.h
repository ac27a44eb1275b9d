#pragma once
// Memory limit of a device: the allocator's segments and the memory of this process outside them (CUDA context, library
// code and workspaces) stay within it.

#include <optional>
#include <string_view>

#include "core/device/device.h"

namespace quench {

// Upper bound of the memory outside the allocator that counts against a limit: the CUDA context and loaded libraries.
// More is another process's.
inline constexpr std::int64_t kMostOutsideBytes = std::int64_t{1} << 30;

// "24GB" (10^9), "16GiB" (2^30), also MB and MiB; fractions allowed. nullopt: another form, or below 1 MiB or above
// 2^60 bytes.
[[nodiscard]] std::optional<std::int64_t> parse_memory_size(std::string_view text) noexcept;
// Throws bad_config naming `option`.
[[nodiscard]] std::int64_t require_memory_size(std::string_view text, std::string_view option);

// Device memory outside the allocator: total - free - reserved, within [0, kMostOutsideBytes].
[[nodiscard]] std::int64_t outside_bytes(const DeviceMemory& memory, std::int64_t reserved) noexcept;
// Free and total memory under `limit` (0: none). kMostOutsideBytes of it are set aside, since libraries load later.
[[nodiscard]] DeviceMemory within_limit(const DeviceMemory& memory, std::int64_t reserved, std::int64_t limit) noexcept;

// Sets the limit of a GPU's allocator; empty `size`: none. Throws bad_config for another device.
void limit_memory(Device device, std::string_view size, std::string_view option);

}  // namespace quench
