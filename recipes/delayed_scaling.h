#pragma once
// Delayed scaling of a model's float8 operands (core/ops/quantize/delayed_scaling.h): amax histories of x and of the
// output gradient of every linear layer, and their encode scales, in one tensor each.
//
// In a step, an operand with a history is cast under its stored scale, in all micro-batches; one without, by its own
// amax. Equal on all ranks if recorded() is reduced before advance().

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/number/element_format.h"
#include "core/tensor/tensor.h"

namespace quench::recipes {

// Scaling of an operand in one pass; default: by its own amax, not recorded.
struct OperandScaling {
  Tensor scale = {};     // f32 []: encode scale; undefined: of its own amax
  Tensor recorded = {};  // f32 []: to become the maximum with its amax; undefined: not recorded
  // Whether a producer has raised `recorded` for the layer's next operand; null: none was asked.
  std::shared_ptr<bool> raised = {};
};

struct DelayedScalingOptions {
  std::int64_t history = 16;  // steps
  int margin = 0;             // scales are divided by 2^margin
};

class DelayedScaling {
 public:
  explicit DelayedScaling(const DelayedScalingOptions& options) : options_(options) {}
  DelayedScaling(const DelayedScaling&) = delete;
  DelayedScaling& operator=(const DelayedScaling&) = delete;

  // Number of the layer; the same for the same name.
  std::size_t add_layer(const std::string& name, ElementFormat input, ElementFormat output_gradient);
  // Empty histories on `device`, after the last new layer. Before: every operand scales by its own amax.
  void allocate(Device device);

  // Line of the start report.
  [[nodiscard]] std::string describe() const;
  [[nodiscard]] OperandScaling input(std::size_t layer, bool records) const { return scaling(2 * layer, records); }
  [[nodiscard]] OperandScaling output_gradient(std::size_t layer, bool records) const {
    return scaling(2 * layer + 1, records);
  }

  // f32 [2 * layers]: amax of this step so far.
  [[nodiscard]] const Tensor& recorded() const noexcept { return recorded_; }
  // Operands that no step has recorded yet; they decide on the host which scale applies.
  [[nodiscard]] bool waits_for_amax() const noexcept;
  // Values of recorded(), reduced, before an advance() that shall let these operands use their history.
  void observe(std::span<const float> recorded);

  // End of a step, applied or skipped: asynchronous, one kernel.
  void advance();
  // Forgets this step's amax: histories and scales stay.
  void discard();

  // State in checkpoints.
  struct LayerHistory {
    std::string name;  // module path
    Tensor amax;       // f32 [2, history], of x and of the output gradient, newest first; a view
  };
  [[nodiscard]] std::vector<LayerHistory> histories() const;
  // Takes over what was written to histories(). Synchronises. Throws corrupt naming a layer whose values are negative
  // or not finite.
  void restored();

 private:
  [[nodiscard]] OperandScaling scaling(std::size_t operand, bool records) const;

  DelayedScalingOptions options_;
  std::vector<std::string> names_;
  std::vector<float> largest_;  // maximum of each operand's format
  std::vector<bool> has_history_, observed_;
  Tensor recorded_, scale_, device_largest_;  // f32 [operands]
  Tensor history_;                            // f32 [operands, history]
};

// One layer's part; default-constructed: dynamic scaling.
class LayerScaling {
 public:
  LayerScaling() = default;
  LayerScaling(std::shared_ptr<DelayedScaling> scaling, const std::string& name, ElementFormat input,
               ElementFormat output_gradient)
      : scaling_(std::move(scaling)) {
    if (!scaling_) return;
    layer_ = scaling_->add_layer(name, input, output_gradient);
    raised_ = std::make_shared<bool>(false);
  }

  [[nodiscard]] OperandScaling input(bool records) const {
    if (!scaling_) return {};
    OperandScaling scaling = scaling_->input(layer_, records);
    if (records) scaling.raised = raised_;
    return scaling;
  }
  [[nodiscard]] OperandScaling output_gradient(bool records) const {
    return scaling_ ? scaling_->output_gradient(layer_, records) : OperandScaling{};
  }

 private:
  std::shared_ptr<DelayedScaling> scaling_;
  std::size_t layer_ = 0;
  std::shared_ptr<bool> raised_;  // input was raised by its producer; shared by copies
};

}  // namespace quench::recipes
