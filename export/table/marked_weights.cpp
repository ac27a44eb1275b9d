#include "export/table/marked_weights.h"

#include "core/safetensors/safetensors.h"
#include "core/system/check.h"
#include "export/formats/export_mark.h"
#include "export/formats/gguf/reader.h"

namespace quench {

bool has_export_mark(const std::filesystem::path& file) {
  try {
    if (is_gguf_path(file)) return read_gguf_head(file).metadata.contains(kGgufExportMark);
    const SafetensorsReader reader(file);
    const auto found = reader.header().metadata.find(kWriterKey);
    return found != reader.header().metadata.end() && found->second == kWriterName;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace quench
