// Heads of GGUF files: no input crashes the parser, and the tensors of what it accepts lie within the file, one behind
// the other.

#include <cstdint>
#include <cstdlib>
#include <set>
#include <string>

#include "core/system/check.h"
#include "export/gguf/head_parser.h"
#include "export/gguf/types.h"

namespace {

void check(bool condition) {
  if (!condition) std::abort();
}

void try_file(std::span<const std::uint8_t> head, std::uint64_t file_size) {
  std::optional<quench::GgufHead> parsed;
  try {
    parsed = quench::parse_gguf_head(head, file_size, "fuzz");
  } catch (const quench::Error&) {
    return;
  }
  if (!parsed) return check(head.size() < file_size);
  std::uint64_t position = 0;
  std::set<std::string> names;
  for (const quench::GgufEntry& entry : parsed->tensors) {
    check(entry.begin >= position && entry.bytes <= file_size && entry.begin <= file_size - entry.bytes);
    check(names.insert(entry.name).second);
    const auto layout = quench::gguf_type_layout(entry.type);
    check(layout.has_value());
    check(static_cast<std::uint64_t>(entry.shape.numel()) / layout->elements * layout->bytes == entry.bytes);
    position = entry.begin + entry.bytes;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span bytes(data, size);
  try_file(bytes, size);
  try_file(bytes, size + (std::uint64_t{1} << 20));
  return 0;
}
