#pragma once
// The token file formats that can be read, and how a file is recognised.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>

#include "data/formats/binary_file.h"

namespace quench {

enum class TokenFormat : std::uint8_t {
  automatic,  // by the first bytes, or a .idx file beside a .bin file; never guesses the headerless format
  quench,     // data/formats/shard_format.h
  llmc,       // llm.c training data: u16 (GPT-2) or u32 (Llama 3)
  llmq,       // LLM.Q and Surogate: "BIN.TOK", i32, optionally masks and position ids
  megatron,   // Megatron-LM .bin and .idx
  nanogpt,    // headerless u16
  npy,        // NumPy array of integers, 1-D or 2-D
};

// "auto", "quench", "llm.c", "llmq", "megatron", "nanogpt", "npy"
[[nodiscard]] std::string_view to_string(TokenFormat format) noexcept;
// Throws bad_config listing the names.
[[nodiscard]] TokenFormat token_format_from_string(std::string_view name);

// The format of a file by its first bytes. Throws unsupported with what the file looks like (an evaluation file, a
// model file, text, a headerless file) and what to do.
[[nodiscard]] TokenFormat detect_token_format(const BinaryFile& file);

// The .bin and .idx files of a Megatron-LM dataset, from the path of either or their common prefix.
struct MegatronPaths {
  std::filesystem::path bin;
  std::filesystem::path idx;
};
[[nodiscard]] MegatronPaths megatron_paths(const std::filesystem::path& path);
// The .bin file of the pair whose common prefix `path` is, if there is such a pair and `path` itself is no file.
[[nodiscard]] std::optional<std::filesystem::path> megatron_pair(const std::filesystem::path& path);

}  // namespace quench
