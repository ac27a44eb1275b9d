#include "data/formats/token_format.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <utility>

#include "data/formats/llmc_format.h"
#include "data/formats/llmq_format.h"
#include "data/formats/megatron_format.h"
#include "data/formats/npy_format.h"
#include "data/formats/shard_format.h"

namespace quench {
namespace {

template <TokenLayout (*kRead)(const BinaryFile&)>
OpenTokens open_with(const std::filesystem::path& path) {
  auto file = std::make_unique<BinaryFile>(path);
  TokenLayout layout = kRead(*file);
  return {std::move(file), std::move(layout)};
}

OpenTokens open_megatron(const std::filesystem::path& path) {
  const MegatronPaths paths = megatron_paths(path);
  auto tokens = std::make_unique<BinaryFile>(paths.bin);
  TokenLayout layout = read_megatron_layout(BinaryFile(paths.idx), *tokens);
  return {std::move(tokens), std::move(layout)};
}

TokenLayout read_nanogpt_layout(const BinaryFile& file) {
  QUENCH_CHECK_AS(ErrorCode::corrupt, file.size() > 0 && file.size() % 2 == 0,
                  "{}: {} bytes is not a whole number of 16-bit tokens", file.path().string(), file.size());
  TokenLayout layout;
  layout.element = DType::u16;
  layout.token_count = file.size() / 2;
  return layout;
}

bool is_shard(const std::filesystem::path&, std::string_view start) {
  return start.starts_with(kShardMagic);
}

bool is_llmc(const std::filesystem::path&, std::string_view start) {
  std::int32_t magic = 0;
  if (start.size() < sizeof magic) return false;
  std::memcpy(&magic, start.data(), sizeof magic);
  return magic == kLlmcMagicU16 || magic == kLlmcMagicU32 || magic == kLlmcEvalMagic;
}

bool is_llmq(const std::filesystem::path&, std::string_view start) {
  return start.starts_with("BIN.TOK\n") || start.starts_with("********");
}

bool is_npy(const std::filesystem::path&, std::string_view start) {
  return start.starts_with("\x93NUMPY");
}

// Either file, or the common prefix, which is no file.
bool is_megatron(const std::filesystem::path& path, std::string_view start) {
  std::error_code ignored;
  const MegatronPaths pair = megatron_paths(path);
  if (start.empty() && !std::filesystem::exists(path, ignored)) return std::filesystem::exists(pair.idx, ignored);
  return (path.extension() == ".idx" || path.extension() == ".bin") && std::filesystem::exists(pair.idx, ignored) &&
         std::filesystem::exists(pair.bin, ignored);
}

}  // namespace

const ChoiceTable<TokenFormat>& token_formats() {
  static const ChoiceTable<TokenFormat> table(
      "token format",
      {{"quench", "shards that quench tokenize writes", open_with<read_shard_layout>, is_shard, 0, verify_shard},
       {"llm.c", "llm.c's training data, u16 or u32", open_with<read_llmc_layout>, is_llmc},
       {"llmq", "files of LLM.Q and Surogate", open_with<read_llmq_layout>, is_llmq},
       {"nanogpt", "u16 without a header; must be named", open_with<read_nanogpt_layout>, nullptr, 65536},
       {"megatron", "Megatron-LM's .bin and .idx", open_megatron, is_megatron},
       {"npy", "NumPy arrays of integers, 1-D or 2-D", open_with<read_npy_layout>, is_npy}});
  return table;
}

std::string_view file_guess(std::string_view start) {
  if (start.starts_with("version https://git-lfs")) return "it is a Git LFS pointer: fetch the file with git lfs pull";
  if (start.starts_with("PK\x03\x04")) return "it is a zip archive or a torch.save file";
  if (start.starts_with("PAR1")) return "it is a Parquet file";
  if (start.starts_with("PARE")) return "it is an encrypted Parquet file: decrypt it";
  if (start.starts_with("ARROW1")) return "it is an Arrow file";
  if (start.starts_with("GGUF")) return "it is a GGUF model";
  if (start.starts_with("\x1f\x8b") || start.starts_with("\x28\xb5\x2f\xfd"))
    return "it is compressed, and its name does not tell the format: set the format";
  if (start.starts_with("BZh") || start.starts_with("\xFD"
                                                    "7zXZ"))
    return "it is compressed: decompress it, or use gzip or zstd";
  if (start.starts_with("<!DOCTYPE") || start.starts_with("<html")) return "it is a web page";
  const bool text = !start.empty() && std::all_of(start.begin(), start.end(), [](char c) {
    return static_cast<unsigned char>(c) >= 0x20 || c == '\n' || c == '\r' || c == '\t';
  });
  if (text) return "it looks like text: name the format (text, jsonl, csv, ...), or make shards with quench tokenize";
  return "if it holds bare 16-bit token ids (nanoGPT), set the format to \"nanogpt\"";
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

const TokenFormat& detect_token_format(const std::filesystem::path& path) {
  std::array<char, 256> bytes{};
  std::size_t count = 0;
  const auto recognised = [&]() -> const TokenFormat* {
    for (const TokenFormat& format : token_formats())
      if (format.recognises != nullptr && format.recognises(path, {bytes.data(), count})) return &format;
    return nullptr;
  };
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored))
    if (const TokenFormat* format = recognised()) return *format;
  const BinaryFile file(path);
  count = static_cast<std::size_t>(std::min<std::uint64_t>(bytes.size(), file.size()));
  file.read(0, std::as_writable_bytes(std::span(bytes).first(count)));
  if (const TokenFormat* format = recognised()) return *format;
  QUENCH_CHECK_AS(ErrorCode::unsupported, count > 0, "{} is empty", path.string());
  QUENCH_FAIL(ErrorCode::unsupported, "{} is not a token file of a known format; {}", path.string(),
              file_guess({bytes.data(), count}));
}

}  // namespace quench
