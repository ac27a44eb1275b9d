#pragma once
// Schemes of a model's layers by a budget of bits or bytes: of all choices within it, that of least cost.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/json/json.h"
#include "export/table/reader_table.h"

namespace quench {

// One of the two limits, and the schemes of the choice.
struct BitBudget {
  double bits = 0;                        // mean bits a weight, of the matrices that the choice is for; 0: none
  std::int64_t bytes = 0;                 // all weights files; 0: none
  std::vector<const Scheme*> candidates;  // null: high precision
  std::int64_t search_steps = 16;         // trials by measured divergence; 0: the estimate decides
  std::int64_t tokenizer_bytes = 0;       // tokenizer in them (ExportFormat::tokenizer_bytes)
};

// "5GB", "800MiB", also kB, MB, KiB and GiB (10^3 or 2^10 and their powers); fractions allowed. nullopt: another form,
// or less than 1 byte.
[[nodiscard]] std::optional<std::int64_t> parse_file_size(std::string_view text) noexcept;

// `names`: separated by commas, "none" for high precision; empty: weight-only schemes of the format, in high precision
// too. GGUF: its types, those that need an importance matrix only if there is one. Else symmetric integers of 2 to 8
// bits in groups that `reader` (null: any reader of the format) runs. Throws bad_config naming `key`.
[[nodiscard]] std::vector<const Scheme*> candidate_schemes(std::string_view names, const ExportFormat& format,
                                                           const FolderReader* reader, bool with_importance,
                                                           std::string_view key);

inline constexpr std::string_view kPlannedTable = "model.embed_tokens";  // name of the embedding table in plans

// Scheme of one layer, or of the embedding table.
struct PlannedLayer {
  std::string layer;
  const Scheme* scheme = nullptr;  // null: high precision
  std::int64_t bits = 0;           // stored
  std::int64_t weights = 0;
};

// Search by the KL divergence of outputs, measured in nats a token.
struct PlanSearch {
  std::int64_t tokens = 0;
  std::string start;  // choice it began with: "the estimate", or a scheme
  double start_divergence = 0, divergence = 0;
  std::int64_t trials = 0, taken = 0;
};

struct SchemePlan {
  std::vector<PlannedLayer> layers;  // that the choice was for, in model order
  double bits_per_weight = 0;        // mean of these
  std::int64_t bytes = 0;            // all weights files: an estimate, at least what is written
  // Costs are expected KL divergences in nats a token (Sensitivity); else sums of the layers' relative errors.
  bool measured = false;
  double cost = 0;
  std::optional<PlanSearch> search = {};
};

// The choice is for linear layers that the rules leave to their scheme, and in GGUF files for the embedding table.
// Layers that one tensor of the file holds, or that a reader of the format runs as one (fused_layers.h; `reader` null:
// any), get one scheme. With calibration data in `rules` costs are measured on them: estimates of all schemes first,
// then the divergence of whole choices, on at most 4096 tokens. The best of the estimate's choices, uniform schemes and
// mixes is where BitBudget::search_steps trials begin, so that the choice is at most as bad as those. The model's
// weights are as before afterwards; meanwhile the CPU holds a copy. `progress`: choices measured, and all. Without data
// a warning says so. Throws bad_config naming the least and the most that can be reached if nothing is within the
// budget; `option` names it.
[[nodiscard]] SchemePlan plan_schemes(nn::CausalLm& model, const std::vector<ModelTensor>& tensors,
                                      const nn::ModelConfig& config, const QuantizationRules& rules,
                                      const ExportFormat& format, const FolderReader* reader, const BitBudget& budget,
                                      std::string_view option, const QuantizationProgress& progress = {});

// Sets `mixed`, `embeddings`, and as `scheme` that of most weights.
void apply_plan(const SchemePlan& plan, QuantizationRules& rules);

// One line for each group of layers that differ in depth alone: "model.layers.*.mlp.down_proj  x30  q4_k 21, q5_k 9".
[[nodiscard]] std::string to_text(const SchemePlan& plan);
// {"scheme" (of most weights), "bits_per_weight", "estimated_bytes", "cost", "cost_unit", "search", "layers": {name:
// scheme or null}, "rules": ["name=scheme", ...]}
[[nodiscard]] Json to_json(const SchemePlan& plan);

}  // namespace quench
