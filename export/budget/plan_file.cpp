#include "export/budget/plan_file.h"

#include "core/system/file.h"

namespace quench {
void write_plan(const SchemePlan& plan, const std::filesystem::path& file) {
  write_file_atomically(file, to_json(plan).dump(2) + "\n");
}

void read_plan(const std::filesystem::path& file, std::string_view key, QuantizationRules& rules) {
  const std::string what = fmt::format("{} {}", key, file.string());
  const auto scheme_of = [&](const Json& value, std::string_view layer) -> const Scheme* {
    if (value.is_null()) return nullptr;
    QUENCH_CHECK_AS(ErrorCode::bad_config, value.is_string(), "{}: {}: expected the name of a scheme or null", what,
                    layer);
    return &require_layer_scheme(value.as_string(), fmt::format("{}: {}", what, layer));
  };
  Json plan;
  try {
    plan = Json::parse_file(file);
  } catch (const Error& error) {
    QUENCH_FAIL(error.code() == ErrorCode::not_found ? error.code() : ErrorCode::bad_config, "{}: {}", key,
                error.what());
  }
  const Json *scheme = plan.is_object() ? plan.find("scheme") : nullptr,
             *layers = plan.is_object() ? plan.find("layers") : nullptr;
  QUENCH_CHECK_AS(
      ErrorCode::bad_config, scheme != nullptr && layers != nullptr && layers->is_object(),
      "{} is no plan of schemes: expected an object with \"scheme\" and \"layers\", as --save-plan writes it", what);
  rules.scheme = scheme_of(*scheme, "scheme");
  QUENCH_CHECK_AS(ErrorCode::bad_config, rules.scheme != nullptr, "{} quantizes no layer", what);
  for (const auto& [layer, value] : layers->as_object()) {
    const Scheme* chosen = scheme_of(value, layer);
    if (layer != kPlannedTable)
      rules.mixed[layer] = chosen;
    else if (rules.embeddings == nullptr)
      rules.embeddings = chosen;
  }
  rules.planned = true;
}

}  // namespace quench
