#pragma once
// The folder that a model is written to: what may stand there, and how the new files take their place.

#include <filesystem>
#include <string_view>
#include <vector>

#include "core/system/temporary.h"

namespace quench {

struct ExportTarget {
  std::filesystem::path folder;  // or a file (is_file_target())
  // Where files stand that no export writes: leave them and replace only files of the same names.
  bool overwrite = false;
  std::vector<std::filesystem::path> sources;  // read by the export: the target is not one, inside one or around one
  std::vector<std::filesystem::path> kept;     // files and folders that the target is not and is not around
};

// Whether the target is one file in place of a folder: a name that ends in ".gguf" and is no folder's.
[[nodiscard]] bool is_file_target(const ExportTarget& target);
// Throws bad_config where the target is a file and the format, of this name, writes a folder. `weights_file`: that of
// the format that is one file, else "".
void require_file_format(const ExportTarget& target, std::string_view format, std::string_view weights_file);

// Whether an export writes files of this name.
[[nodiscard]] bool is_export_file(std::string_view name);

// Throws bad_config, naming the files in the way, unless the target may be written: it is absent, empty, a folder in
// which every file is of a kind that an export writes, or, with `overwrite`, any folder. A file target may be absent, a
// GGUF file, or, with `overwrite`, any file.
void require_export_target(const ExportTarget& target);

// Gives the complete files of `fresh` their place, of a file target the one GGUF file, or throws and leaves the target
// as it was. A folder of export files alone is replaced in one rename. Beside other files, the old model's weights are
// moved away first and the new index comes last, so that no reader finds a mixture; weights and tokenizer files of the
// old model that the new one does not have stay in a subfolder replaced-N, which a warning names. After a kill on the
// way replaced-N holds the old files.
void publish_export(StagingFolder& fresh, const ExportTarget& target);

}  // namespace quench
