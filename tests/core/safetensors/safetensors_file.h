#pragma once
// Builds safetensors files byte by byte, valid or not.

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/safetensors/safetensors.h"

namespace quench::testing {

inline std::string little_endian(std::uint64_t value) {
  std::string bytes(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) bytes[i] = static_cast<char>(value >> (8 * i) & 0xFF);
  return bytes;
}

// A file with this header and so many bytes of data (byte i is i mod 251).
inline std::string safetensors_file(std::string_view header, std::size_t data_bytes = 0) {
  std::string file = little_endian(header.size());
  file += header;
  for (std::size_t i = 0; i < data_bytes; ++i) file += static_cast<char>(i % 251);
  return file;
}

// The names of a folder's files, sorted.
inline std::vector<std::string> files_in(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

inline SafetensorsHeader parse_file_bytes(std::string_view file) {
  return parse_safetensors_header({reinterpret_cast<const std::uint8_t*>(file.data()), file.size()}, file.size(),
                                  "model.safetensors");
}

}  // namespace quench::testing
