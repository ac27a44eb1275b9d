#include "export/quantizer.h"

#include <array>

#include "export/half_quadratic.h"
#include "export/round_to_nearest.h"

namespace quench {
namespace {

std::string no_problem(const OperandScheme&) {
  return {};
}

constexpr std::array kQuantizers = {
    Quantizer{"rtn", "round to nearest, scales from the largest magnitudes", no_problem, round_to_nearest},
    Quantizer{"hqq", "half-quadratic: scales or zero points that forgive outliers; integers only, no data",
              half_quadratic_problem, half_quadratic},
};

}  // namespace

std::span<const Quantizer> quantizers() {
  return kQuantizers;
}

std::vector<std::string> quantizer_names() {
  std::vector<std::string> names;
  for (const Quantizer& quantizer : kQuantizers) names.emplace_back(quantizer.name);
  return names;
}

const Quantizer& require_quantizer(std::string_view name, std::string_view key) {
  for (const Quantizer& quantizer : kQuantizers)
    if (quantizer.name == name) return quantizer;
  QUENCH_FAIL(ErrorCode::bad_config, "{} '{}' is unknown; known: {}", key, name, fmt::join(quantizer_names(), ", "));
}

}  // namespace quench
