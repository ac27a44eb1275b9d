#include "data/formats/llmq_format.h"

#include <array>
#include <cstring>

namespace quench {
namespace {

constexpr std::uint64_t kLlmqHeaderBytes = 1024;
constexpr std::int32_t kFiller = 0x2A2A2A2A;  // "****"

}  // namespace

TokenLayout read_llmq_layout(const BinaryFile& file) {
  const std::string name = file.path().string();
  QUENCH_CHECK_AS(ErrorCode::corrupt, file.size() >= kLlmqHeaderBytes,
                  "{}: {} bytes is less than the {}-byte header of a BIN.TOK file", name, file.size(),
                  kLlmqHeaderBytes);
  std::array<std::int32_t, 7> header{};
  file.read(0, std::as_writable_bytes(std::span(header)));
  QUENCH_CHECK_AS(ErrorCode::corrupt, header[0] != kFiller,
                  "{}: unfinished BIN.TOK file: its writer stopped before it wrote the header; tokenize again", name);
  QUENCH_CHECK_AS(ErrorCode::corrupt, std::memcmp(header.data(), "BIN.TOK\n", 8) == 0,
                  "{}: does not start with BIN.TOK", name);
  const std::int32_t version = header[2], bytes = header[3], count = header[4], vocab = header[5], masks = header[6];
  QUENCH_CHECK_AS(ErrorCode::unsupported, version >= 1 && version <= 3, "{}: BIN.TOK version {}; 1, 2 and 3 are read",
                  name, version);
  QUENCH_CHECK_AS(ErrorCode::unsupported, bytes == 4, "{}: {} bytes a token; BIN.TOK files have 4", name, bytes);
  QUENCH_CHECK_AS(ErrorCode::corrupt, count > 0, "{}: the header says {} tokens", name, count);
  QUENCH_CHECK_AS(ErrorCode::corrupt, version == 1 || vocab > 0, "{}: the header says a vocabulary of {}", name, vocab);
  const bool mask_field_set = version >= 2 && masks != kFiller;
  QUENCH_CHECK_AS(ErrorCode::corrupt, !mask_field_set || masks == 0 || masks == 1,
                  "{}: has_masks is {}, expected 0 or 1", name, masks);

  TokenLayout layout;
  layout.element = DType::i32;
  layout.data_offset = kLlmqHeaderBytes;
  layout.token_count = static_cast<std::uint64_t>(count);
  if (version >= 2) layout.vocab_size = static_cast<std::uint64_t>(vocab);
  std::uint64_t end = kLlmqHeaderBytes + 4 * layout.token_count;
  if (version == 3) {
    layout.positions_offset = end;
    end += 4 * layout.token_count;
  }
  if (mask_field_set && masks == 1) {
    layout.mask_offset = end;
    layout.mask_at_input = true;
    end += (layout.token_count + 7) / 8;
  }
  QUENCH_CHECK_AS(ErrorCode::corrupt, file.size() == end,
                  "{}: {} tokens{}{} need {} bytes with the header, the file has {}", name, count,
                  layout.positions_offset ? " with position ids" : "", layout.mask_offset ? " with masks" : "", end,
                  file.size());
  return layout;
}

}  // namespace quench
