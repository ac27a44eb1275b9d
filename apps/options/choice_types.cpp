#include "apps/options/choice_types.h"

#include "core/system/automatic_choice.h"
#include "data/sampling/data_formats.h"
#include "data/text/text_format.h"
#include "export/methods/method_table.h"
#include "export/schemes/scheme.h"
#include "export/table/format.h"

namespace quench {
namespace {

template <class Table>
std::vector<std::string> names_in(const Table& table) {
  std::vector<std::string> names;
  for (const auto& entry : table) names.emplace_back(entry.name);
  return names;
}

}  // namespace

std::vector<std::string> choices_of_type(std::string_view type) {
  if (type == kSchemeType) return names_in(scheme_table());
  if (type == kMethodType) return names_in(quantizers());
  if (type == kInputFormatType) return names_with_auto(text_formats());
  if (type == kDataFormatType) return data_format_names();
  if (type != kExportFormatType) return {};
  std::vector<std::string> names = export_format_names();
  for (const std::string_view format : kAdapterFormats) names.emplace_back(format);
  return names;
}

}  // namespace quench
