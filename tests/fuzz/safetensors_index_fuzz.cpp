// Indices of sharded models: no input crashes the parser, and no accepted file name leaves its folder.

#include <cstdint>
#include <cstdlib>
#include <filesystem>

#include "core/safetensors/safetensors_folder.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    for (const auto& [tensor, file] : quench::parse_safetensors_index(text, "fuzz")) {
      const std::filesystem::path path(file);
      if (tensor.empty() || path.filename() != path || file == "." || file == "..") std::abort();
    }
  } catch (const quench::Error& error) {
    if (error.code() != quench::ErrorCode::corrupt) std::abort();
  }
  return 0;
}
