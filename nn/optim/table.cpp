#include "nn/optim/table.h"

#include <algorithm>
#include <array>

#include "nn/optim/adamw.h"
#include "nn/optim/composite_optimizer.h"
#include "nn/optim/low_bit_adamw.h"
#include "nn/optim/multiplicative_updates.h"
#include "nn/optim/muon.h"
#include "nn/optim/sgd.h"

namespace quench::nn {
namespace {

using Parameters = std::vector<Parameter*>;

std::unique_ptr<Optimizer> make_adamw(const Parameters& parameters, const OptimizerOptions& options) {
  return std::make_unique<AdamW>(parameters, options);
}

template <MomentFormat kFormat>
std::unique_ptr<Optimizer> make_low_bit_adamw(const Parameters& parameters, const OptimizerOptions& options) {
  return std::make_unique<CompositeOptimizer>(
      parameters, [](const Parameter& p) { return has_low_bit_moments(p, kFormat); },
      [&](const Parameters& some) { return std::make_unique<LowBitAdamW>(some, kFormat, options); },
      [&](const Parameters& others) { return make_adamw(others, options); });
}

std::unique_ptr<Optimizer> make_sgd(const Parameters& parameters, const OptimizerOptions& options) {
  return std::make_unique<Sgd>(parameters, options);
}

std::unique_ptr<Optimizer> make_muon(const Parameters& parameters, const OptimizerOptions& options) {
  return std::make_unique<CompositeOptimizer>(
      parameters, [&](const Parameter& p) { return suits_muon(p, options); },
      [&](const Parameters& some) { return std::make_unique<Muon>(some, options); },
      [&](const Parameters& others) { return make_adamw(others, options); });
}

constexpr std::array<std::string_view, 3> kAdamWKeys{"betas", "eps", "state"};
constexpr std::array<std::string_view, 3> kSgdKeys{"momentum", "nesterov", "state"};
constexpr std::array<std::string_view, 6> kMuonKeys{"betas", "eps", "state", "momentum", "nesterov", "muon_exclude"};

}  // namespace

const ChoiceTable<OptimizerEntry>& optimizer_table() {
  static const ChoiceTable<OptimizerEntry> table(
      "optimizer", {{"adamw", "AdamW with decoupled weight decay", kAdamWKeys, 2, 0, {}, make_adamw, true},
                    {"adamw_8bit", "AdamW, moments of matrices in 8 bits by blocks of 256", kAdamWKeys, 2, 1, "8 bits",
                     make_low_bit_adamw<MomentFormat::int8>},
                    {"adamw_4bit", "AdamW, moments of matrices in 4 bits by blocks of 128", kAdamWKeys, 2, 0.5,
                     "4 bits", make_low_bit_adamw<MomentFormat::int4>},
                    {"adamw_fp8", "AdamW, moments of matrices in e4m3 by blocks of 256", kAdamWKeys, 2, 1, "e4m3",
                     make_low_bit_adamw<MomentFormat::fp8>},
                    {"sgd",
                     "gradient descent with momentum; weight decay is added to the gradient",
                     kSgdKeys,
                     0,
                     0,
                     {},
                     make_sgd,
                     true},
                    {"muon",
                     "orthogonalised momentum for matrices, AdamW for embeddings, the head and vectors",
                     kMuonKeys,
                     1,
                     0,
                     {},
                     make_muon}});
  return table;
}

const OptimizerEntry& find_optimizer(std::string_view name) {
  return optimizer_table().require(name);
}

std::unique_ptr<Optimizer> make_optimizer(const OptimizerEntry& entry, const std::vector<Parameter*>& parameters,
                                          const OptimizerOptions& options) {
  const auto is_scales = [](const Parameter& p) { return p.scales; };
  const auto make = [&](const Parameters& some) { return entry.make(some, options); };
  if (std::ranges::none_of(parameters, [&](const Parameter* p) { return is_scales(*p); })) return make(parameters);
  return std::make_unique<CompositeOptimizer>(
      parameters, is_scales,
      [&](const Parameters& scales) { return std::make_unique<MultiplicativeUpdates>(scales, options, make); }, make);
}

}  // namespace quench::nn
