#include "train/config/sections/quantization_section.h"

#include "export/budget/plan_file.h"

namespace quench {
namespace {

class Judge {
 public:
  explicit Judge(const QuantizationFaults& faults) : faults_(faults) {}

  // Reports an error of work(key), which begins with the key. False on error.
  template <class Work>
  bool accepts(std::string_view member, const Work& work) const {
    const std::string key = faults_.key(member);
    try {
      work(key);
      return true;
    } catch (const Error& error) {
      const std::string text = error.what();
      faults_.report(member, text.starts_with(key + " ") ? text.substr(key.size() + 1) : text);
      return false;
    }
  }

 private:
  const QuantizationFaults& faults_;
};

// Options without a scheme.
void require_nothing_asked(const QuantizationSection& section, const QuantizationFaults& faults) {
  const auto report = [&](std::string_view member, bool asked) {
    if (asked) faults.report(member, fmt::format("has no effect without {}", faults.key("scheme")));
  };
  const QuantizationSection nothing;
  report("method", section.method != nothing.method);
  report("rules", !section.rules.empty());
  report("embeddings", !section.embeddings.empty());
  report("calibration", !section.calibration.empty());
  report("imatrix", !section.imatrix.empty());
  report("save_imatrix", !section.save_imatrix.empty());
  report("damping", section.damping.has_value());
  report("act_order", section.act_order.has_value());
  report("smoothing", section.smoothing.has_value());
  report("iterations", section.iterations.has_value());
  report("batch_size", section.batch_size.has_value());
}

// Importance matrix: read, or computed on the calibration data.
void judge_matrix(const QuantizationSection& section, QuantizationRules& rules, const std::string& what,
                  const QuantizationFaults& faults) {
  const bool used = uses_importance(rules), computed = used && !section.calibration.empty();
  if (!used)
    for (const auto& [member, file] : {std::pair("imatrix", section.imatrix), {"save_imatrix", section.save_imatrix}})
      if (!file.empty())
        faults.report(member, fmt::format("has no effect on {}: an importance matrix is for GGUF types under {} {}",
                                          what, faults.key("method"), quantizers().front().name));
  if (used && !section.imatrix.empty() && !section.calibration.empty())
    faults.report("imatrix", fmt::format("and {}, on which a matrix would be computed: name one of the two",
                                         faults.key("calibration")));
  if (used && !section.save_imatrix.empty() && section.calibration.empty())
    faults.report("save_imatrix", fmt::format("needs {}, on which the matrix is computed", faults.key("calibration")));
  rules.imatrix = section.imatrix;
  rules.save_imatrix = section.save_imatrix;
  rules.with_importance = computed || (used && !section.imatrix.empty());
}

}  // namespace

std::vector<std::string> excluded_layers(const QuantizationSection& section) {
  return section.exclude.value_or(QuantizationRules().exclude);
}

QuantizationSection section_of_method(QuantizationSection section, std::string_view method) {
  if (section.method != kAutoMethod) return section;
  section.method = method;
  if (require_quantizer(method, "export.method").calibrated) {
    // The rules ask whether there are files; the run's own rows take their place.
    if (section.calibration.empty()) section.calibration = {"training data"};
    return section;
  }
  const QuantizationSection usual;
  section.calibration.clear();
  section.damping = usual.damping;
  section.act_order = usual.act_order;
  return section;
}

std::optional<QuantizationRules> resolve_quantization(const QuantizationSection& section,
                                                      const QuantizationFaults& faults) {
  if (section.scheme.empty() && section.plan.empty()) {
    require_nothing_asked(section, faults);
    return std::nullopt;
  }
  const Judge judge(faults);
  QuantizationRules rules{.exclude = excluded_layers(section)};
  bool known = true;
  if (section.plan.empty()) {
    known = judge.accepts("scheme", [&](const auto& key) { rules.scheme = &require_scheme(section.scheme, key); });
  } else {
    if (!section.scheme.empty()) faults.report("plan", fmt::format("names the schemes: omit {}", faults.key("scheme")));
    known = judge.accepts("plan", [&](const auto& key) { read_plan(section.plan, key, rules); });
    if (!section.exclude) rules.exclude.clear();
  }
  for (const std::string& rule : section.rules)
    known &= judge.accepts("rules", [&](const auto& key) { rules.rules.push_back(parse_rule(rule, key)); });
  if (!section.embeddings.empty())
    known &= judge.accepts("embeddings", [&](const auto& key) {
      rules.embeddings = &require_layer_scheme(section.embeddings, key);
      QUENCH_CHECK_AS(ErrorCode::bad_config, !rules.embeddings->inputs,
                      "{} '{}' quantizes inputs, which an embedding does not have; use a weight-only scheme", key,
                      section.embeddings);
    });
  known &= judge.accepts("method", [&](const auto& key) { rules.quantizer = &require_quantizer(section.method, key); });
  if (!known) return rules;
  if (rules.scheme->mix != nullptr && !section.exclude) rules.exclude.clear();  // with the head
  const auto acts = [&](bool given, std::string_view member, std::string_view option) {
    if (given)
      (void)judge.accepts(member, [&](const auto& key) { require_method_option(*rules.quantizer, option, key); });
  };
  acts(section.damping.has_value(), "damping", kDampingOption);
  acts(section.act_order.has_value(), "act_order", kActivationOrderOption);
  acts(section.smoothing.has_value(), "smoothing", kSmoothingOption);
  acts(section.iterations.has_value(), "iterations", kIterationsOption);
  acts(section.batch_size.has_value(), "batch_size", kBatchSizeOption);
  rules.options = {.damping = section.damping.value_or(MethodOptions().damping),
                   .activation_order = section.act_order.value_or(MethodOptions().activation_order),
                   .smoothing = section.smoothing.value_or(MethodOptions().smoothing),
                   .iterations = section.iterations.value_or(MethodOptions().iterations),
                   .batch_size = section.batch_size.value_or(MethodOptions().batch_size)};
  const bool needed = needs_calibration(rules);
  const std::string what =
      fmt::format("{} {} with {} {}", faults.key(section.plan.empty() ? "scheme" : "plan"),
                  section.plan.empty() ? section.scheme : section.plan, faults.key("method"), section.method);
  if (needed && section.calibration.empty())
    faults.report("calibration",
                  fmt::format("is missing: {} needs calibration data; name files of text or tokens", what));
  judge_matrix(section, rules, what, faults);
  if (!needed && !section.calibration.empty() && !uses_importance(rules))
    (faults.warn ? faults.warn : faults.report)("calibration", fmt::format("has no effect on {}", what));
  return rules;
}

}  // namespace quench
