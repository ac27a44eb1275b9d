#include "apps/options/quantization_options.h"

#include "apps/options/choice_types.h"

namespace quench {

void QuantizationOptions::add_to(const Command& verb) {
  verb.add_option("--scheme", section.scheme, "Quantization scheme of weights and inputs: " + scheme_names())
      .type_name(kSchemeType);
  std::string methods;
  for (const Quantizer& quantizer : quantizers())
    methods += fmt::format("{}{} ({})", methods.empty() ? "" : "; ", quantizer.name, quantizer.summary);
  verb.add_option("--method", section.method, "Quantization method: " + methods).type_name(kMethodType).show_default();
  verb.add_option(
      "--rule", section.rules,
      "PATTERN=SCHEME: another scheme, or none, for the layers whose names match; repeatable, the first match applies");
  verb.add_option("--plan", section.plan,
                  "File of a plan (--save-plan) that names the scheme of each layer, in place of --scheme");
  verb.add_option("--embeddings", section.embeddings,
                  "Scheme of the embedding table; default: high precision, with GGUF schemes that of llama.cpp")
      .type_name(kSchemeType);
  exclude_option = verb.add_option("--exclude", exclude,
                                   "Patterns of layers that stay in high precision; none by default with GGUF schemes")
                       .delimiter(',')
                       .show_default();
  verb.add_option(
          "--calibration", section.calibration,
          "Calibration data for methods and schemes that need it, and for the importance matrix of GGUF schemes: files "
          "of text, records or tokens, or folders of them")
      .takes_hub_name();
  verb.add_option("--imatrix", section.imatrix,
                  "Importance matrix of llama.cpp (llama-imatrix; GGUF or legacy .dat) for GGUF schemes");
  verb.add_option("--save-imatrix", section.save_imatrix,
                  "File for the importance matrix that is computed on --calibration, in llama.cpp's GGUF form");
  verb.add_option("--calibration-samples", section.calibration_samples, "Number of calibration sequences")
      .positive()
      .show_default();
  verb.add_option(
          "--calibration-seq-len", section.calibration_seq_len,
          fmt::format("Tokens of each calibration sequence; 0: {}, at most the model's context", kCalibrationTokens))
      .non_negative()
      .show_default();
  verb.add_option(
          "--damping", section.damping,
          fmt::format("GPTQ: damping of the Hessian, as a share of its mean diagonal ({})", MethodOptions().damping))
      .between(0.0, 1e6);
  const CommandOption ordered = verb.add_flag("--act-order", act_order,
                                              "GPTQ: quantize columns in order of decreasing activation (desc_act), "
                                              "under scales of least squared error (default)");
  verb.add_flag("--no-act-order", no_act_order,
                "GPTQ: quantize columns in their order, a group's scales by its amax at its first column")
      .excludes(ordered);
  verb.add_option("--smoothing", section.smoothing,
                  fmt::format("SmoothQuant migration strength: 0 leaves the inputs unchanged, 1 moves their whole "
                              "range into the weights ({})",
                              MethodOptions().smoothing))
      .between(0.0, 1.0);
  verb.add_option("--iterations", section.iterations,
                  fmt::format("AutoRound: steps of each decoder layer ({})", MethodOptions().iterations))
      .positive();
  verb.add_option("--batch-size", section.batch_size,
                  fmt::format("AutoRound: calibration sequences of a step ({})", MethodOptions().batch_size))
      .positive();
}

QuantizationSection QuantizationOptions::named() const {
  QuantizationSection result = section;
  if (exclude_option && exclude_option->given()) result.exclude = exclude;
  if (act_order || no_act_order) result.act_order = act_order;
  return result;
}

}  // namespace quench
