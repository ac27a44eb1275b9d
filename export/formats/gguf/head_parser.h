#pragma once
// Strict GGUF header parser. Files are untrusted: lengths are checked before allocation; tensors are contiguous within
// the file.

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/json/json.h"
#include "core/tensor/shape.h"

namespace quench {

struct GgufEntry {
  std::string name;
  Shape shape;  // slowest axis first
  std::uint32_t type = 0;
  std::uint64_t begin = 0;  // byte offset in the file
  std::uint64_t bytes = 0;
  std::int64_t part = 1;  // number in a split model (parts.h)
};

struct GgufHead {
  std::map<std::string, Json> metadata;  // numbers, strings, arrays of them
  std::vector<GgufEntry> tensors;
};

// `head`: first bytes of a file of file_size bytes; empty if the header is longer: retry. Limits: versions 2 and 3,
// 1,000,000 keys and tensors, 4,194,304 items in all arrays, strings of 64 MiB, names of 1 to 63 bytes, 4 axes, the
// types of block_formats() and f32, f16, bf16. Throws corrupt or unsupported naming `source` and cause. Pure function;
// fuzz target.
[[nodiscard]] std::optional<GgufHead> parse_gguf_head(std::span<const std::uint8_t> head, std::uint64_t file_size,
                                                      std::string_view source);

}  // namespace quench
