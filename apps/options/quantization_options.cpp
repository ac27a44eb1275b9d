#include "apps/options/quantization_options.h"

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
  verb.add_option("--calibration", calibration,
                  "Text, JSON-lines or token files for methods and schemes that are calibrated");
  verb.add_option("--calibration-samples", calibration_samples, "Sequences of the calibration data")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  verb.add_option("--calibration-seq-len", calibration_tokens,
                  fmt::format("Tokens of each; 0: {}, at most the model's context", kCalibrationTokens))
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  verb.add_option("--damping", damping,
                  fmt::format("GPTQ: part of the mean that is added to the diagonal of the inputs' matrix ({})",
                              MethodOptions().damping))
      ->check(CLI::Range(0.0, 1e6));
  verb.add_flag("--act-order", activation_order, "GPTQ: columns with the largest inputs first");
  verb.add_option(
          "--smoothing", smoothing,
          fmt::format("SmoothQuant: 0 leaves the inputs as they are, 1 moves all of their range into the weights "
                      "({})",
                      MethodOptions().smoothing))
      ->check(CLI::Range(0.0, 1.0));
}

std::optional<QuantizationRules> QuantizationOptions::resolve() const {
  if (scheme.empty()) {
    QUENCH_CHECK_AS(ErrorCode::bad_config, rules.empty(), "--rule goes with --scheme");
    QUENCH_CHECK_AS(ErrorCode::bad_config, calibration.empty(), "--calibration goes with --scheme");
    return std::nullopt;
  }
  QuantizationRules resolved{.scheme = &require_scheme(scheme, "--scheme"), .rules = {}, .exclude = exclude};
  resolved.quantizer = &require_quantizer(method, "--method");
  if (damping) require_method_option(*resolved.quantizer, kDampingOption, "--damping");
  if (activation_order) require_method_option(*resolved.quantizer, kActivationOrderOption, "--act-order");
  if (smoothing) require_method_option(*resolved.quantizer, kSmoothingOption, "--smoothing");
  resolved.options = {.damping = damping.value_or(MethodOptions().damping),
                      .activation_order = activation_order,
                      .smoothing = smoothing.value_or(MethodOptions().smoothing)};
  for (const std::string& rule : rules) resolved.rules.push_back(parse_rule(rule, "--rule"));
  const bool needed = needs_calibration(resolved);
  QUENCH_CHECK_AS(
      ErrorCode::bad_config, !needed || !calibration.empty(),
      "--scheme {} with --method {} needs calibration data: name files of text or tokens with --calibration", scheme,
      method);
  QUENCH_CHECK_AS(ErrorCode::bad_config, needed || calibration.empty(),
                  "--calibration has no effect on --scheme {} with --method {}", scheme, method);
  return resolved;
}

std::shared_ptr<const CalibrationData> QuantizationOptions::read_calibration(const Tokenizer* tokenizer,
                                                                             const nn::ModelConfig& model,
                                                                             const std::string& no_tokenizer) const {
  if (calibration.empty()) return nullptr;
  CalibrationOptions options{
      .data = {.files = calibration}, .samples = calibration_samples, .tokens = calibration_tokens};
  if (!no_tokenizer.empty()) options.data.no_tokenizer = no_tokenizer;
  return read_calibration_data(options, tokenizer, model);
}

}  // namespace quench
