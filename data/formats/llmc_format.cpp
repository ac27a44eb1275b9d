#include "data/formats/llmc_format.h"

#include <array>

namespace quench {

TokenLayout read_llmc_layout(const BinaryFile& file) {
  const std::string name = file.path().string();
  constexpr std::uint64_t kHeaderBytes = 256 * sizeof(std::int32_t);
  QUENCH_CHECK_AS(ErrorCode::corrupt, file.size() >= kHeaderBytes,
                  "{}: {} bytes is less than the {}-byte header of an llm.c token file", name, file.size(),
                  kHeaderBytes);
  std::array<std::int32_t, 3> header{};
  file.read(0, std::as_writable_bytes(std::span(header)));
  const auto [magic, version, count] = header;
  QUENCH_CHECK_AS(ErrorCode::unsupported, magic != kLlmcEvalMagic,
                  "{}: this is an llm.c multiple-choice evaluation file, not a token stream", name);
  QUENCH_CHECK_AS(ErrorCode::corrupt, magic == kLlmcMagicU16 || magic == kLlmcMagicU32,
                  "{}: first word is {}, expected {} (u16) or {} (u32) for an llm.c token file", name, magic,
                  kLlmcMagicU16, kLlmcMagicU32);
  const bool wide = magic == kLlmcMagicU32;
  const std::int32_t expected_version = wide ? 7 : 1;
  QUENCH_CHECK_AS(ErrorCode::unsupported, version == expected_version, "{}: llm.c token file of version {}; {} is read",
                  name, version, expected_version);
  QUENCH_CHECK_AS(ErrorCode::corrupt, count > 0, "{}: the header says {} tokens", name, count);

  TokenLayout layout;
  layout.element = wide ? DType::u32 : DType::u16;
  layout.data_offset = kHeaderBytes;
  layout.token_count = static_cast<std::uint64_t>(count);
  const std::uint64_t expected = kHeaderBytes + layout.token_count * (wide ? 4 : 2);
  QUENCH_CHECK_AS(ErrorCode::corrupt, file.size() == expected,
                  "{}: {} tokens need {} bytes with the header, the file has {}", name, count, expected, file.size());
  return layout;
}

}  // namespace quench
