#include "train/model_folder/export_folder.h"

#include <algorithm>
#include <string>
#include <system_error>

#include "core/safetensors/safetensors_folder.h"
#include "core/system/check.h"
#include "core/system/file.h"
#include "core/system/log.h"
#include "core/system/output_folder.h"
#include "core/system/replacement.h"
#include "export/formats/gguf/writer.h"
#include "export/table/format.h"
#include "export/table/marked_weights.h"
#include "train/model_folder/carried_files.h"
#include "train/model_folder/model_card.h"
#include "train/model_folder/peft_folder.h"

namespace quench {
namespace {

namespace fs = std::filesystem;

// Stale files would mislead readers.
bool misleads(std::string_view name) {
  return is_weights_file(name) || is_format_file(name) || is_tokenizer_part(name);
}

// By name, except a README.md that is no model card.
OwnEntry named_in(const fs::path& folder) {
  return [folder](std::string_view entry) {
    return is_export_file(entry) || (entry == kModelCardName && is_model_card(folder / entry));
  };
}

bool is_weights_name(std::string_view name) {
  return (is_weights_file(name) && name != kModelIndexName) || is_format_file(name) || name == kAdapterWeightsName;
}

// A GGUF file of a name of its own that an export wrote.
bool is_named_gguf_export(const fs::path& file) {
  return file.extension() == ".gguf" && fs::is_regular_file(file) && has_export_mark(file);
}

// By marks in all weights files; without weights, by a model card. Another program that saves a model over an export
// keeps its card, not the marks. A GGUF file of another name is no mark of the other files of an export. Folders
// without files have nothing to lose.
bool is_own_export(const fs::path& folder) {
  if (foreign_entries(folder, [](std::string_view) { return false; }).empty()) return true;
  bool any = false, gguf = false, others = false;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string(), suffix = entry.path().extension().string();
    if (!is_weights_name(name)) {
      gguf = gguf || is_named_gguf_export(entry.path());
      others = others || is_export_file(name);
      continue;
    }
    // Files of an added format have no mark.
    const bool is_known = is_format_file(name) && suffix != ".safetensors" && suffix != ".gguf";
    if (!is_known && !has_export_mark(entry.path())) return false;
    any = true;
  }
  return any || (gguf && !others) || is_model_card(folder / kModelCardName);
}

OwnEntry own_in(const fs::path& folder) {
  return
      [named = named_in(folder), own = is_own_export(folder)](std::string_view entry) { return own && named(entry); };
}

std::vector<std::string> file_names(const fs::path& folder) {
  std::vector<std::string> names;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder))
    if (entry.symlink_status().type() == fs::file_type::regular) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

void require_apart(const ExportTarget& target) {
  const auto refuse = [&](const fs::path& other, std::string_view relation) {
    QUENCH_FAIL(ErrorCode::bad_config,
                "the model cannot be written to {}: it {} {}, which the export must not touch; "
                "choose another folder",
                target.folder.string(), relation, other.string());
  };
  const auto judge = [&](const fs::path& other, bool outside) {
    if (other.empty()) return;
    const bool around = is_within(other, target.folder), inside = is_within(target.folder, other);
    if (around && inside) refuse(other, "is");
    if (around) refuse(other, "holds");
    if (inside && outside) refuse(other, "lies in");
  };
  for (const fs::path& source : target.sources) judge(source, true);
  for (const fs::path& path : target.kept) judge(path, false);
}

// Completing files last: readers see no weights, then all.
void order_for_readers(std::vector<std::string>& names) {
  const auto rank = [](const std::string& name) {
    return name == kModelIndexName || name == kModelFileName ? 2 : is_weights_file(name) ? 1 : 0;
  };
  std::ranges::stable_sort(names, {}, rank);
}

void publish_beside(const fs::path& fresh, const fs::path& folder) {
  std::vector<std::string> arriving = file_names(fresh);
  const fs::file_status card = fs::symlink_status(folder / kModelCardName);
  if (fs::exists(card) && !(fs::is_regular_file(card) && is_model_card(folder / kModelCardName)))
    std::erase(arriving, kModelCardName);
  order_for_readers(arriving);
  std::vector<std::string> leaving;
  for (const std::string& name : file_names(folder))
    if (misleads(name) || std::ranges::find(arriving, name) != arriving.end()) leaving.push_back(name);
  order_for_readers(leaving);
  std::ranges::reverse(leaving);

  const fs::path replaced = exchange_files(fresh, folder, arriving, leaving);
  if (remove_replaced(replaced, arriving)) return;
  QUENCH_LOG_WARN("{}: files of an earlier model that the new one does not have are now in {}: {}", folder.string(),
                  replaced.filename().string(), list_names(file_names(replaced)));
}

}  // namespace

bool is_file_target(const ExportTarget& target) {
  std::error_code ignored;
  return target.folder.extension() == ".gguf" && !fs::is_directory(target.folder, ignored);
}

void require_file_format(const ExportTarget& target, std::string_view format, std::string_view weights_file) {
  QUENCH_CHECK_AS(ErrorCode::bad_config, weights_file == kGgufFileName || !is_file_target(target),
                  "{} names a GGUF file, and format {} writes a folder: name a folder, or use format gguf",
                  target.folder.string(), format);
}

bool is_export_file(std::string_view name) {
  return is_weights_file(name) || is_format_file(name) || is_small_file(name) || name == "adapter_config.json" ||
         name == "adapter_model.safetensors" || name == "adapter_base.json";
}

void require_export_target(const ExportTarget& target) {
  QUENCH_CHECK_AS(ErrorCode::bad_config, !target.folder.empty(), "the name of the folder to write to is empty");
  std::error_code error;
  const fs::file_status status = fs::status(target.folder, error);
  QUENCH_CHECK_AS(ErrorCode::bad_config, fs::status_known(status), "the model cannot be written to {}: {}",
                  target.folder.string(), error.message());
  if (is_file_target(target)) {
    QUENCH_CHECK_AS(ErrorCode::bad_config, !fs::exists(status) || fs::is_regular_file(status),
                    "the model cannot be written to {}: it exists and is not a file", target.folder.string());
    QUENCH_CHECK_AS(ErrorCode::bad_config, !fs::exists(status) || target.overwrite || has_export_mark(target.folder),
                    "the model cannot be written to {}: it exists and is not a GGUF file that an export wrote (those "
                    "of version 0.2 have no mark); choose another name, or overwrite (--overwrite, export.overwrite)",
                    target.folder.string());
    return require_apart(target);
  }
  QUENCH_CHECK_AS(ErrorCode::bad_config, !fs::exists(status) || fs::is_directory(status),
                  "the model cannot be written to {}: it exists and is not a folder", target.folder.string());
  QUENCH_CHECK_AS(ErrorCode::bad_config,
                  fs::exists(status) || !fs::is_symlink(fs::symlink_status(target.folder, error)),
                  "the model cannot be written to {}: it is a dangling link", target.folder.string());
  require_apart(target);
  std::vector<std::string> foreign = foreign_entries(target.folder, named_in(target.folder));
  // Other exports; they stay.
  std::erase_if(foreign, [&](const std::string& name) { return is_named_gguf_export(target.folder / name); });
  QUENCH_CHECK_AS(ErrorCode::bad_config, foreign.empty() || target.overwrite,
                  "{} has files that are not part of an export: {}; choose another folder, or overwrite (--overwrite, "
                  "export.overwrite): files of the same names are then replaced, the others stay",
                  target.folder.string(), list_names(foreign));
  for (const std::string& name : foreign) {
    const std::string bare = name.ends_with('/') ? name.substr(0, name.size() - 1) : name;
    QUENCH_CHECK_AS(ErrorCode::bad_config, !is_export_file(bare),
                    "the model cannot be written to {}: {} exists and is not a file", target.folder.string(), name);
  }
  QUENCH_CHECK_AS(ErrorCode::bad_config, target.overwrite || is_own_export(target.folder),
                  "{} holds a model or files without the mark of an export (those of version 0.2 have none): {}; "
                  "choose another folder, or overwrite (--overwrite, export.overwrite)",
                  target.folder.string(), list_names(file_names(target.folder)));
}

void publish_export(StagingFolder& fresh, const ExportTarget& target) {
  require_export_target(target);
  const fs::path folder = resolved_path(target.folder);
  if (is_file_target(target)) {
    return rename_durably(fresh.path() / kGgufFileName, folder);
  }
  if (foreign_entries(folder, own_in(folder)).empty()) return replace_folder(fresh, folder, own_in(folder));
  sync_directory(fresh.path());
  publish_beside(fresh.path(), folder);
}

}  // namespace quench
