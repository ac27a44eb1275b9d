// Safetensors headers: no input crashes the parser, and what it accepts covers the data buffer exactly.

#include <cstdint>
#include <cstdlib>
#include <set>
#include <string>
#include <vector>

#include "core/safetensors/safetensors.h"
#include "core/safetensors/safetensors_limits.h"

namespace {

void check(bool condition) {
  if (!condition) std::abort();
}

void try_file(std::span<const std::uint8_t> head, std::uint64_t file_size) {
  quench::SafetensorsHeader header;
  try {
    header = quench::parse_safetensors_header(head, file_size, "fuzz");
  } catch (const quench::SafetensorsError&) {
    return;
  }
  std::uint64_t position = 0;
  std::set<std::string> names;
  for (const quench::SafetensorsEntry& entry : header.entries) {
    check(entry.begin == position && entry.end >= entry.begin);
    check(names.insert(entry.name).second);
    const auto* row = quench::find_safetensors_dtype(entry.dtype_name);
    check(row != nullptr && row->dtype == entry.dtype);
    std::uint64_t bits = 0;
    check(!__builtin_mul_overflow(entry.shape.numel(), row->bits, &bits) && bits % 8 == 0 &&
          bits / 8 == entry.nbytes());
    position = entry.end;
  }
  check(header.data_start + position == file_size);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // The input as a whole file.
  const std::span<const std::uint8_t> input(data, size);
  try_file(input, size);
  // The input as a header with a right length in front and, by its last two bytes, some amount of data after.
  std::vector<std::uint8_t> head(8);
  const std::size_t length = size < 2 ? size : size - 2;
  for (std::size_t i = 0; i < 8; ++i) head[i] = static_cast<std::uint8_t>(length >> (8 * i));
  head.insert(head.end(), data, data + length);
  const std::uint64_t data_bytes = size < 2 ? 0 : data[size - 2] + 256u * data[size - 1];
  try_file(head, head.size() + data_bytes);
  return 0;
}
