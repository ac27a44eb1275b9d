#include "apps/reference_page.h"

#include <array>

#include "core/system/check.h"
#include "data/text/record_kind.h"
#include "data/text/text_format.h"
#include "export/table/reader_table.h"
#include "train/config/config_schema.h"
#include "train/evaluation/choice_task.h"

namespace quench {
namespace {

struct GeneratedPart {
  std::string_view name;
  std::string (*text)();
};

std::string record_kind_reference() {
  std::string text = "| kind | a record | is |\n|---|---|---|\n";
  for (const RecordKind& kind : record_kinds())
    text += fmt::format("| `{}` | `{}` | {} |\n", kind.name, kind.form, kind.summary);
  return text + "\n";
}

std::string text_format_reference() {
  std::string text = "| format | files | holds |\n|---|---|---|\n";
  for (const TextFormat& format : text_formats())
    text += fmt::format("| `{}` | `{}` | {} |\n", format.name, fmt::join(format.extensions, "`, `"), format.summary);
  return text + "\n";
}

std::string choice_task_reference() {
  std::string text = "| task | asks for | fields of a record |\n|---|---|---|\n";
  for (const ChoiceTask& task : choice_tasks())
    text += fmt::format("| `{}` | {} | `{}` |\n", task.name, task.summary, task.fields);
  return text + "\n";
}

constexpr std::array<GeneratedPart, 5> kParts = {{{kConfigReference, config_reference},
                                                  {"formats of text", text_format_reference},
                                                  {"kinds of records", record_kind_reference},
                                                  {"evaluation tasks", choice_task_reference},
                                                  {"readers of exports", reader_reference}}};

}  // namespace

std::string update_reference_page(std::string_view page) {
  std::string text(page);
  bool any = false;
  for (const GeneratedPart& part : kParts) {
    if (!has_generated_part(text, part.name)) continue;
    text = replace_generated_part(text, part.name, part.text());
    any = true;
  }
  QUENCH_CHECK_AS(ErrorCode::corrupt, any, "the page has none of the marks <!-- begin generated: ... -->");
  return text;
}

}  // namespace quench
