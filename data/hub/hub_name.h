#pragma once
// Names of repositories of the Hugging Face Hub on the command line and in configs: hf:ORG/NAME[@REVISION], of data
// sets hf:datasets/ORG/NAME[@REVISION].

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace quench::hub {

inline constexpr std::string_view kScheme = "hf:";
inline constexpr std::string_view kDefaultRevision = "main";

enum class RepoType : std::uint8_t { model, dataset };
// "model", "dataset"
[[nodiscard]] std::string_view to_string(RepoType type) noexcept;
// Throws bad_config naming the known types.
[[nodiscard]] RepoType require_repo_type(std::string_view word, std::string_view option);

// Repository at a revision: branch, tag, commit or refs/pr/N.
struct HubName {
  RepoType type = RepoType::model;
  std::string id{};  // ORG/NAME, or NAME of the hub's oldest models
  std::string revision{kDefaultRevision};

  // As parse() reads it; the default revision is left out.
  [[nodiscard]] std::string text() const;
};

// With or without the scheme. Throws bad_config naming the fault: empty parts, characters that the hub does not allow,
// "..".
[[nodiscard]] HubName parse_hub_name(std::string_view text);
// nullopt: no scheme, or malformed.
[[nodiscard]] std::optional<HubName> find_hub_name(std::string_view text);
// Throws bad_config: empty, "..", control characters, or characters that git does not allow.
void require_revision(std::string_view revision);

// 40 hexadecimal digits, lower case.
[[nodiscard]] bool is_commit(std::string_view text) noexcept;

}  // namespace quench::hub
