#pragma once
// The token file formats that can be read, and how a file is recognised.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string_view>

#include "core/system/choice_table.h"
#include "data/formats/token_layout.h"

namespace quench {

// A token file, open: the file that holds the tokens, and where they are in it.
struct OpenTokens {
  std::unique_ptr<BinaryFile> file;
  TokenLayout layout;
};

struct TokenFormat {
  std::string_view name;
  std::string_view summary;
  // Throws what the format's header reader throws.
  OpenTokens (*open)(const std::filesystem::path& path);
  // Whether a file that begins with `start`, at most 256 bytes, is of the format; `start` is empty where no file is
  // called `path`. Null: files must be named to be of it.
  bool (*recognises)(const std::filesystem::path& path, std::string_view start) = nullptr;
  std::uint64_t largest_vocab = 0;                   // that its ids can count; 0: any
  void (*verify)(const BinaryFile& file) = nullptr;  // reads the whole file; throws corrupt
};

[[nodiscard]] const ChoiceTable<TokenFormat>& token_formats();

// The format that recognises a file. Throws not_found; unsupported with what the file looks like (an evaluation file, a
// model file, text, a headerless file) and what to do.
[[nodiscard]] const TokenFormat& detect_token_format(const std::filesystem::path& path);

// A sentence on what a file of no known format most likely is, from its first bytes, and what to do about it.
[[nodiscard]] std::string_view file_guess(std::string_view start);

// The .bin and .idx files of a Megatron-LM dataset, from the path of either or their common prefix.
struct MegatronPaths {
  std::filesystem::path bin;
  std::filesystem::path idx;
};
[[nodiscard]] MegatronPaths megatron_paths(const std::filesystem::path& path);
// The .bin file of the pair whose common prefix `path` is, if there is such a pair and `path` itself is no file.
[[nodiscard]] std::optional<std::filesystem::path> megatron_pair(const std::filesystem::path& path);

}  // namespace quench
