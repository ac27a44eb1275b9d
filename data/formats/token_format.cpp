#include "data/formats/token_format.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <utility>

#include "data/formats/llmc_format.h"
#include "data/formats/shard_format.h"

namespace quench {
namespace {

constexpr std::array<std::pair<TokenFormat, std::string_view>, 7> kNames = {{{TokenFormat::automatic, "auto"},
                                                                             {TokenFormat::quench, "quench"},
                                                                             {TokenFormat::llmc, "llm.c"},
                                                                             {TokenFormat::llmq, "llmq"},
                                                                             {TokenFormat::megatron, "megatron"},
                                                                             {TokenFormat::nanogpt, "nanogpt"},
                                                                             {TokenFormat::npy, "npy"}}};

// What a file that is no token file most likely is.
std::string_view guess(std::string_view start) {
  if (start.starts_with("version https://git-lfs")) return "it is a Git LFS pointer: fetch the file with git lfs pull";
  if (start.starts_with("PK\x03\x04")) return "it is a zip archive or a torch.save file";
  if (start.starts_with("PAR1")) return "it is a Parquet file: convert it to JSON lines";
  if (start.starts_with("GGUF")) return "it is a GGUF model";
  if (start.starts_with("\x1f\x8b") || start.starts_with("\x28\xb5\x2f\xfd")) return "it is compressed: decompress it";
  if (start.starts_with("<!DOCTYPE") || start.starts_with("<html")) return "it is a web page";
  const bool text = !start.empty() && std::all_of(start.begin(), start.end(), [](char c) {
    return static_cast<unsigned char>(c) >= 0x20 || c == '\n' || c == '\r' || c == '\t';
  });
  if (text) return "it looks like text: use the format \"text\" or \"jsonl\", or make shards with quench tokenize";
  return "if it holds bare 16-bit token ids (nanoGPT), set the format to \"nanogpt\"";
}

}  // namespace

std::string_view to_string(TokenFormat format) noexcept {
  for (const auto& [value, name] : kNames)
    if (value == format) return name;
  return "unknown";
}

TokenFormat token_format_from_string(std::string_view name) {
  for (const auto& [value, text] : kNames)
    if (text == name) return value;
  QUENCH_FAIL(ErrorCode::bad_config,
              "unknown token format '{}'; known: auto, quench, llm.c, llmq, megatron, nanogpt, npy", name);
}

MegatronPaths megatron_paths(const std::filesystem::path& path) {
  MegatronPaths paths{path, path};
  if (path.extension() == ".bin" || path.extension() == ".idx") {
    paths.bin.replace_extension(".bin");
    paths.idx.replace_extension(".idx");
  } else {
    paths.bin += ".bin";
    paths.idx += ".idx";
  }
  return paths;
}

std::optional<std::filesystem::path> megatron_pair(const std::filesystem::path& path) {
  std::error_code ignored;
  if (path.empty() || std::filesystem::exists(path, ignored)) return std::nullopt;
  const MegatronPaths pair = megatron_paths(path);
  const bool both = std::filesystem::exists(pair.bin, ignored) && std::filesystem::exists(pair.idx, ignored);
  return both ? std::optional(pair.bin) : std::nullopt;
}

TokenFormat detect_token_format(const BinaryFile& file) {
  std::array<char, 256> bytes{};
  const std::size_t count = static_cast<std::size_t>(std::min<std::uint64_t>(bytes.size(), file.size()));
  file.read(0, std::as_writable_bytes(std::span(bytes).first(count)));
  const std::string_view start(bytes.data(), count);
  if (start.starts_with(kShardMagic)) return TokenFormat::quench;
  if (start.starts_with("BIN.TOK\n") || start.starts_with("********")) return TokenFormat::llmq;
  if (start.starts_with("\x93NUMPY")) return TokenFormat::npy;
  if (count >= 4) {
    std::int32_t magic = 0;
    std::memcpy(&magic, bytes.data(), sizeof magic);
    if (magic == kLlmcMagicU16 || magic == kLlmcMagicU32 || magic == kLlmcEvalMagic) return TokenFormat::llmc;
  }
  if (file.path().extension() == ".idx" || file.path().extension() == ".bin") {
    std::error_code ignored;
    const MegatronPaths paths = megatron_paths(file.path());
    if (std::filesystem::exists(paths.idx, ignored) && std::filesystem::exists(paths.bin, ignored))
      return TokenFormat::megatron;
  }
  QUENCH_CHECK_AS(ErrorCode::unsupported, count > 0, "{} is empty", file.path().string());
  QUENCH_FAIL(ErrorCode::unsupported, "{} is not a token file of a known format; {}", file.path().string(),
              guess(start));
}

}  // namespace quench
