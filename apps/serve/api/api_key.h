#pragma once
// Bearer token of the server.

#include <filesystem>
#include <string>
#include <string_view>

namespace quench::serve {

// First line of the file without white space around it. Throws bad_config for an empty one.
[[nodiscard]] std::string read_api_key(const std::filesystem::path& file);

// Throws bad_config, without quoting it, unless the key is printable ASCII without spaces, as headers carry.
void check_api_key(std::string_view key);

// "Bearer KEY", compared in time that depends on the lengths alone.
[[nodiscard]] bool is_authorized(std::string_view authorization, std::string_view key) noexcept;

// Host header of a server without key: localhost, an address, or `served`. Others are names that a web site has
// pointed at this machine (DNS rebinding).
[[nodiscard]] bool is_own_host(std::string_view host, std::string_view served);

// 127.0.0.0/8, ::1, localhost.
[[nodiscard]] bool is_loopback(std::string_view host);

}  // namespace quench::serve
