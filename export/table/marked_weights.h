#pragma once
// Mark of Quench's exports in weights files.

#include <filesystem>

namespace quench {

// A safetensors or GGUF file (by suffix) with the mark of an export (export/formats/export_mark.h). False for
// unreadable files. Reads the header.
[[nodiscard]] bool has_export_mark(const std::filesystem::path& file);

}  // namespace quench
