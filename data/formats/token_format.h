#pragma once
// Registry of readable token file formats, and their detection.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string_view>

#include "core/system/choice_table.h"
#include "data/formats/token_layout.h"

namespace quench {

struct OpenTokens {
  std::unique_ptr<BinaryFile> file;
  TokenLayout layout;
};

struct TokenFormat {
  std::string_view name;
  std::string_view summary;
  // Throws the errors of the format's header reader.
  OpenTokens (*open)(const std::filesystem::path& path);
  // True for a file of the format, given `start`, at most its first 256 bytes (empty if `path` does not exist). Null:
  // the format must be named.
  bool (*recognises)(const std::filesystem::path& path, std::string_view start) = nullptr;
  std::uint64_t largest_vocab = 0;                   // vocabulary limit of its ids; 0: none
  void (*verify)(const BinaryFile& file) = nullptr;  // reads the whole file; throws corrupt
};

[[nodiscard]] const ChoiceTable<TokenFormat>& token_formats();

// Detected format. Throws not_found; unsupported with the likely content (evaluation file, model, text, headerless
// file) and a remedy.
[[nodiscard]] const TokenFormat& detect_token_format(const std::filesystem::path& path);

// Message on the likely content of a file of unknown format, from its first bytes, with a remedy.
[[nodiscard]] std::string_view file_guess(std::string_view start);

// .bin and .idx files of a Megatron-LM dataset, from either path or the common prefix.
struct MegatronPaths {
  std::filesystem::path bin;
  std::filesystem::path idx;
};
[[nodiscard]] MegatronPaths megatron_paths(const std::filesystem::path& path);
// .bin file of the pair with the common prefix `path`, if the pair exists and `path` is not a file.
[[nodiscard]] std::optional<std::filesystem::path> megatron_pair(const std::filesystem::path& path);

}  // namespace quench
