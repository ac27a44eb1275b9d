#include "apps/quantization_options.h"

namespace quench {

void QuantizationOptions::add_to(CLI::App& verb) {
  verb.add_option("--scheme", scheme, "How weights, and inputs of products, are quantized: " + scheme_names());
  std::string methods;
  for (const Quantizer& quantizer : quantizers())
    methods += fmt::format("{}{} ({})", methods.empty() ? "" : "; ", quantizer.name, quantizer.summary);
  verb.add_option("--method", method, "How codes are chosen: " + methods)->capture_default_str();
  verb.add_option("--rule", rules,
                  "PATTERN=SCHEME: another scheme for the layers whose names match the pattern, or \"none\"; may be "
                  "given several times, the first that matches counts");
  verb.add_option("--exclude", exclude, "Patterns of layers that stay in high precision")
      ->delimiter(',')
      ->capture_default_str();
}

std::optional<QuantizationRules> QuantizationOptions::resolve() const {
  if (scheme.empty()) {
    QUENCH_CHECK_AS(ErrorCode::bad_config, rules.empty(), "--rule goes with --scheme");
    return std::nullopt;
  }
  QuantizationRules resolved{.scheme = &require_scheme(scheme, "--scheme"), .rules = {}, .exclude = exclude};
  resolved.quantizer = &require_quantizer(method, "--method");
  for (const std::string& rule : rules) resolved.rules.push_back(parse_rule(rule, "--rule"));
  return resolved;
}

}  // namespace quench
