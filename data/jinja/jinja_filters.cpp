#include "data/jinja/jinja_filters.h"

#include <algorithm>
#include <array>

#include "core/system/check.h"

namespace quench::jinja {
namespace {

const NamedFunction* find_filter(std::string_view name) noexcept {
  for (const auto& table : {text_filters(), item_filters(), number_filters()})
    for (const NamedFunction& filter : table)
      if (filter.name == name) return &filter;
  return nullptr;
}

}  // namespace

bool is_filter(std::string_view name) noexcept {
  return find_filter(name) != nullptr;
}

Value apply_filter(std::string_view name, const Value& input, const Arguments& arguments, Meter& meter) {
  meter.step();
  const NamedFunction* filter = find_filter(name);
  QUENCH_CHECK_AS(ErrorCode::unsupported, filter != nullptr, "the filter '{}' is not supported", name);
  return filter->apply(input, arguments, meter);
}

}  // namespace quench::jinja
