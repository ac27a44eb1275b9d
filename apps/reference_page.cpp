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

constexpr std::string_view kVerbReference = "verbs";

// Table cell: one line, bars and angle brackets escaped.
std::string table_cell(std::string_view text) {
  std::string cell;
  for (const char c : text) {
    if (c == '|')
      cell += "\\|";
    else if (c == '<')
      cell += "&lt;";
    else
      cell += c == '\n' ? ' ' : c;
  }
  return cell;
}

// Empty without options.
std::string option_table(const Command& command) {
  std::string rows;
  for (const CommandOption& option : command.options()) {
    if (option.hidden() || option.shown_name() == "--help") continue;
    const std::string shown = option.shown_name().empty() ? option.position() : option.shown_name();
    const std::string value = option.most_values() == 0 || option.shown_name().empty() ? "" : " " + option.type_name();
    rows += fmt::format("| `{}{}` | {} |\n", shown, value, table_cell(option.help()));
  }
  return rows.empty() ? rows : "| option | meaning |\n|---|---|\n" + rows + "\n";
}

void add_verb_reference(const Command& verb, const std::string& name, std::string& text) {
  text += fmt::format("### {}\n\n{}.\n\n{}", name, verb.summary(), option_table(verb));
  for (const Command& subcommand : verb.commands())
    if (!subcommand.hidden()) add_verb_reference(subcommand, name + " " + subcommand.name(), text);
}

std::string verb_reference(const Command& program) {
  std::string text = "### quench\n\nBefore the verb.\n\n" + option_table(program);
  for (const Command& verb : program.commands())
    if (!verb.hidden()) add_verb_reference(verb, "quench " + verb.name(), text);
  return text;
}

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

std::string update_reference_page(std::string_view page, const Command& program) {
  std::string text(page);
  bool any = has_generated_part(text, kVerbReference);
  if (any) text = replace_generated_part(text, kVerbReference, verb_reference(program));
  for (const GeneratedPart& part : kParts) {
    if (!has_generated_part(text, part.name)) continue;
    text = replace_generated_part(text, part.name, part.text());
    any = true;
  }
  QUENCH_CHECK_AS(ErrorCode::corrupt, any, "the page has none of the marks <!-- begin generated: ... -->");
  return text;
}

}  // namespace quench
