#pragma once
// Table of token file formats, and their detection.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string_view>

#include "core/system/choice_table.h"
#include "data/formats/token_layout.h"

namespace quench {

// Opened token file and its layout.
struct OpenTokens {
  std::unique_ptr<BinaryFile> file;
  TokenLayout layout;
};

// Entry of the table of token file formats.
struct TokenFormat {
  std::string_view name;
  std::string_view summary;
  // Throws the errors of the header reader.
  OpenTokens (*open)(const std::filesystem::path& path);
  // `start`: at most the first 256 bytes (empty if `path` does not exist). Null: the format must be named.
  bool (*recognises)(const std::filesystem::path& path, std::string_view start) = nullptr;
  std::uint64_t largest_vocab = 0;                   // bound of its ids; 0: unlimited
  void (*verify)(const BinaryFile& file) = nullptr;  // whole file; throws corrupt
};

// In order of detection.
[[nodiscard]] const ChoiceTable<TokenFormat>& token_formats();

// Throws not_found; unsupported with the likely content (evaluation file, model, text, headerless file) and a remedy.
[[nodiscard]] const TokenFormat& detect_token_format(const std::filesystem::path& path);

// Likely content by first bytes, and remedy.
[[nodiscard]] std::string_view file_guess(std::string_view start);

// From either path or the common prefix.
struct MegatronPaths {
  std::filesystem::path bin;
  std::filesystem::path idx;
};
// Both files of a pair; neither needs to exist.
[[nodiscard]] MegatronPaths megatron_paths(const std::filesystem::path& path);
// For the common prefix `path`, if the pair exists and `path` is no file.
[[nodiscard]] std::optional<std::filesystem::path> megatron_pair(const std::filesystem::path& path);

}  // namespace quench
