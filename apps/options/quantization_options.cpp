#include "apps/options/quantization_options.h"

#include <algorithm>

namespace quench {

void QuantizationOptions::add_to(const Command& verb) {
  verb.add_option("--scheme", section.scheme, "How weights, and inputs of products, are quantized: " + scheme_names());
  std::string methods;
  for (const Quantizer& quantizer : quantizers())
    methods += fmt::format("{}{} ({})", methods.empty() ? "" : "; ", quantizer.name, quantizer.summary);
  verb.add_option("--method", section.method, "How codes are chosen: " + methods).show_default();
  verb.add_option("--rule", section.rules,
                  "PATTERN=SCHEME: another scheme for the layers whose names match the pattern, or \"none\"; may be "
                  "given several times, the first that matches counts");
  verb.add_option("--embeddings", section.embeddings,
                  "A scheme for the embedding table, which stays in high precision otherwise");
  verb.add_option("--exclude", exclude, "Patterns of layers that stay in high precision").delimiter(',').show_default();
  verb.add_option("--calibration", section.calibration,
                  "Files of text, records or tokens, or folders of them, for methods and schemes that are calibrated");
  verb.add_option("--calibration-samples", section.calibration_samples, "Sequences of the calibration data")
      .positive()
      .show_default();
  verb.add_option("--calibration-seq-len", section.calibration_seq_len,
                  fmt::format("Tokens of each; 0: {}, at most the model's context", kCalibrationTokens))
      .non_negative()
      .show_default();
  verb.add_option("--damping", section.damping,
                  fmt::format("GPTQ: part of the mean that is added to the diagonal of the inputs' matrix ({})",
                              MethodOptions().damping))
      .between(0.0, 1e6);
  verb.add_flag("--act-order", section.act_order, "GPTQ: columns with the largest inputs first");
  verb.add_option(
          "--smoothing", section.smoothing,
          fmt::format("SmoothQuant: 0 leaves the inputs as they are, 1 moves all of their range into the weights "
                      "({})",
                      MethodOptions().smoothing))
      .between(0.0, 1.0);
}

std::optional<QuantizationRules> QuantizationOptions::resolve() const {
  QuantizationSection named = section;
  named.exclude = exclude;
  const auto key = [](std::string_view member) {
    std::string name(member == "rules" ? "rule" : member);
    std::ranges::replace(name, '_', '-');
    return "--" + name;
  };
  return resolve_quantization(named, {.key = key, .report = [&](std::string_view member, const std::string& reason) {
                                        QUENCH_FAIL(ErrorCode::bad_config, "{} {}", key(member), reason);
                                      }});
}

}  // namespace quench
