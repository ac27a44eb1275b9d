#pragma once
// Decoder layer on a residual stream, with norms before or after its sublayers or both (BlockSpec).

#include <optional>
#include <utility>

#include "nn/modules/rms_norm.h"
#include "nn/modules/sublayer.h"

namespace quench::nn {

class DecoderLayer : public Module {
 public:
  DecoderLayer(const ModelConfig& config, const BlockSpec& block, const ParameterOptions& options);

  // The hidden state is the sum of the pair; each addition is fused into the following norm, if there is one. `delta`
  // is undefined before the first layer.
  [[nodiscard]] std::pair<Variable, Variable> forward(const Variable& residual, const Variable& delta,
                                                      const ForwardContext& context) const;

 private:
  struct Part {
    std::optional<RmsNorm> norm;  // applied to the input
    std::unique_ptr<SubLayer> module;
    std::optional<RmsNorm> post_norm;  // applied to the output
  };
  void add_part(Part& part, const NormSpec& norm, std::string_view name, const std::optional<NormSpec>& post_norm,
                std::int64_t width, const ParameterOptions& options);
  // Returns residual + delta, and the sublayer's contribution to the stream.
  [[nodiscard]] std::pair<Variable, Variable> run_part(const Part& part, const Variable& residual,
                                                       const Variable& delta, const ForwardContext& context) const;
  // The sublayer on `input`, in tiles of rows if `tiled`.
  [[nodiscard]] Variable run_module(const Part& part, const Variable& input, const ForwardContext& context,
                                    bool tiled) const;
  // The same on all rows of a tensor-parallel group.
  [[nodiscard]] Variable run_rows(const Part& part, const Variable& input, const ForwardContext& context,
                                  bool tiled) const;
  [[nodiscard]] bool is_tiled(const Part& part, std::int64_t rows, const ForwardContext& context) const;
  // Update of the stream by a sublayer's output.
  [[nodiscard]] Variable contribution(const Part& part, Variable out) const;

  Part attention_, feed_forward_;
  float multiplier_;
};

}  // namespace quench::nn
