#pragma once
// Mark of weights files that an export wrote: `written_by` in safetensors' __metadata__, `quench.export` in GGUF.

#include <map>
#include <string>

namespace quench {

inline constexpr const char* kGgufExportMark = "quench.export";
inline constexpr const char* kWriterKey = "written_by";
inline constexpr const char* kWriterName = "quench";

// For write_safetensors(), with the format that Transformers expects.
[[nodiscard]] std::map<std::string, std::string> export_metadata();

}  // namespace quench
