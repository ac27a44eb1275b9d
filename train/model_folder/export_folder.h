#pragma once
// Target of an export: which folder or file it may replace, and how.

#include <filesystem>
#include <string_view>
#include <vector>

#include "core/system/temporary.h"

namespace quench {

struct ExportTarget {
  std::filesystem::path folder;  // or file (is_file_target())
  // Keeps other files, replaces those of the same names.
  bool overwrite = false;
  std::vector<std::filesystem::path> sources = {};  // inputs: not equal to, around or inside the target
  std::vector<std::filesystem::path> kept = {};     // not equal to or inside the target
};

// A name ending in ".gguf" that is no existing folder.
[[nodiscard]] bool is_file_target(const ExportTarget& target);
// Throws bad_config for a file target with a folder format. `weights_file`: of a single-file format, else "".
void require_file_format(const ExportTarget& target, std::string_view format, std::string_view weights_file);

[[nodiscard]] bool is_export_file(std::string_view name);

// Throws bad_config naming the files in the way, unless the target is absent, empty, a folder of an export's files only
// (weights with the mark of export/formats/export_mark.h, without weights a model card) or, with `overwrite`, any
// folder. File
// target: absent, GGUF with the mark or, with `overwrite`, any file.
void require_export_target(const ExportTarget& target);

// Publishes the files of `fresh` (file target: its GGUF file), or throws with the target unchanged. A folder of an
// export's files only is replaced in one rename. In a mixed folder, old weights are moved away first and the new index
// is written last: readers see no mixture; old weights and tokenizer files without successor are kept in a subfolder
// replaced-N, named in a warning. After a kill, replaced-N holds the old files.
void publish_export(StagingFolder& fresh, const ExportTarget& target);

}  // namespace quench
