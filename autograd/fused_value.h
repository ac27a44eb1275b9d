#pragma once
// Fused value: a value or gradient in the form in which its producer left it, the requests that its consumers make and
// the producer's answers. Drawn in docs/reference/architecture.md, "Life of a float8 layer's input".
//
// Producers may ignore requests; the consumer then runs its own pass, with the same bits. No other reader gets an
// answer in place of the value: value() throws where only the answer is there.

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "core/ops/quantize/quant_outputs.h"

namespace quench::autograd {

// Base class of a request for another value in place of the result, of its shape and dtype (e.g. rounded to the format
// of the consumer's GEMM). Producers find a kind that they support by its type.
class ValueSubstitution {
 public:
  ValueSubstitution() = default;
  ValueSubstitution(const ValueSubstitution&) = delete;
  ValueSubstitution& operator=(const ValueSubstitution&) = delete;
  virtual ~ValueSubstitution() = default;
};

// Quantization outputs (amax, float8 rows, column amax, codes) that the consumer of a value or gradient wants from its
// producer.
struct QuantOutputRequest {
  bool amax = false;                            // tensorwise amax
  Tensor amax_into = {};                        // f32 []: maximum with that amax, in place of a new tensor
  std::shared_ptr<bool> amax_raised = {};       // set by the producer that raises amax_into, if not null
  bool rows = false;                            // rowwise float8
  bool column_amax = false;                     // amax of each column
  ElementFormat element = ElementFormat::e4m3;  // element format of `rows` and codes
  bool power_of_two = false;
  // float8 codes under this tensorwise encode scale, f32 [], of results whose rows `row_multiple` divides: as they are
  // and, if wanted, transposed. Undefined: none.
  Tensor scale = {};
  bool natural_codes = true, transposed_codes = false;
  std::int64_t row_multiple = 1;
  bool value_needed = true;  // false: next to codes the value may be left out (ValueForm::codes_only)
  // For the sole consumer, if the producer can recompute the result. The answer is FusedValue::substituted() with the
  // same object; otherwise the value is the result.
  std::shared_ptr<const ValueSubstitution> substitution = nullptr;

  [[nodiscard]] bool wanted() const noexcept { return amax || rows || column_amax || scale.defined(); }
  // The requested substitution, if of type `Kind`; else nullptr.
  template <class Kind>
  [[nodiscard]] std::shared_ptr<const Kind> substitution_as() const {
    return std::dynamic_pointer_cast<const Kind>(substitution);
  }
};

// Without codes. amax is request.amax_into, or starts at 0.
[[nodiscard]] QuantOutputs make_quant_outputs(const QuantOutputRequest& request, const Tensor& result);
// With codes, for producers that write them. `like`: dtype and device of the result.
[[nodiscard]] QuantOutputs make_coded_outputs(const QuantOutputRequest& request, const Shape& shape,
                                              const Tensor& like);

// Shape, dtype and device of a tensor without values; not contiguous, so that ops refuse it.
[[nodiscard]] Tensor unstored_value(const Shape& shape, const Tensor& like);

class RecomputeHandle;

// Form in which a value exists.
enum class ValueForm : std::uint8_t {
  undefined,
  stored,        // the value itself
  codes_only,    // left out: there are only the codes that one consumer requested, or nothing where there is none
  recomputable,  // left out likewise; Saved() keeps the means to recompute it
  substituted,   // replaced by the value that one consumer requested
};

// A value, or what its producer left in its place. Copies share everything.
class FusedValue {
 public:
  FusedValue() = default;
  FusedValue(Tensor value, QuantOutputs outputs = {})  // NOLINT(google-explicit-constructor)
      : tensor_(std::move(value)), quant_outputs_(std::move(outputs)) {}
  // Value of the given shape that is left out next to `outputs`, which have its codes; dtype and device of `like`.
  [[nodiscard]] static FusedValue codes_only(const Shape& shape, const Tensor& like, QuantOutputs outputs);
  // Value without a reader: left out.
  [[nodiscard]] static FusedValue left_out(const Shape& shape, const Tensor& like);
  // `value` if it is defined, otherwise codes_only().
  [[nodiscard]] static FusedValue produced(Tensor value, const Shape& shape, const Tensor& like, QuantOutputs outputs);
  // Answer to `request`; a null request: the value itself.
  [[nodiscard]] static FusedValue substituted(Tensor value, std::shared_ptr<const ValueSubstitution> request);

  [[nodiscard]] ValueForm form() const noexcept;
  [[nodiscard]] bool defined() const noexcept { return tensor_.defined(); }
  [[nodiscard]] const Shape& shape() const noexcept { return tensor_.shape(); }
  [[nodiscard]] DType dtype() const noexcept { return tensor_.dtype(); }
  [[nodiscard]] Device device() const { return tensor_.device(); }

  // The value. Throws invalid_argument if it was left out or substituted.
  [[nodiscard]] const Tensor& value() const {
    if (left_out_ || substitution_ != nullptr) refuse();
    return tensor_;
  }
  // For the consumer that requested codes: value(), or if it was left out a tensor of its shape that ops refuse, to be
  // passed along with quant_outputs().
  [[nodiscard]] const Tensor& operand() const { return left_out_ ? tensor_ : value(); }
  [[nodiscard]] const QuantOutputs& quant_outputs() const noexcept { return quant_outputs_; }
  // The answer to this request; undefined: not answered, read value().
  [[nodiscard]] Tensor answer_to(const std::shared_ptr<const ValueSubstitution>& request) const {
    return request != nullptr && substitution_ == request ? tensor_ : Tensor();
  }

  // The producer's means to recompute the value; null: none.
  void set_recompute(std::shared_ptr<RecomputeHandle> recompute) noexcept { recompute_ = std::move(recompute); }
  [[nodiscard]] const std::shared_ptr<RecomputeHandle>& recompute() const noexcept { return recompute_; }
  // Saving the value again costs no memory.
  void set_saved_by_producer() noexcept { saved_by_producer_ = true; }
  [[nodiscard]] bool saved_by_producer() const noexcept { return saved_by_producer_; }

 private:
  [[noreturn]] void refuse() const;

  Tensor tensor_;
  QuantOutputs quant_outputs_;
  std::shared_ptr<RecomputeHandle> recompute_;
  std::shared_ptr<const ValueSubstitution> substitution_;
  bool left_out_ = false, saved_by_producer_ = false;
};

// Recompute of a value in the backward pass, in place of saving it. Shared by the value, its producer's record and the
// records that save it.
class RecomputeHandle {
 public:
  // Deferred use of the recomputed value; `request` is answered only for a sole use.
  struct Use {
    std::function<void(FusedValue value)> run;
    QuantOutputRequest request = {};
  };
  // `in_backward`: the producer's backward function recomputes the value anyway, so that uses may wait for it.
  explicit RecomputeHandle(std::function<Tensor()> recompute, bool in_backward = false)
      : recompute_(std::move(recompute)), in_backward_(in_backward) {}

  // The value, by a pass of its own. Throws invalid_argument after end().
  [[nodiscard]] Tensor value() const;
  [[nodiscard]] bool in_backward() const noexcept { return in_backward_; }

  // Waits for the producer; false, without effect, if it will not recompute the value.
  [[nodiscard]] bool defer(Use use);
  [[nodiscard]] bool has_uses() const noexcept { return !waiting_.empty(); }
  // The request if there is one use; several get the value alone.
  [[nodiscard]] QuantOutputRequest request() const {
    return waiting_.size() == 1 ? waiting_.front().request : QuantOutputRequest{};
  }
  // Runs the waiting uses. The last one gets the caller's reference, and may free the value.
  void run_uses(FusedValue value);
  // Runs uses that the producer's backward function left, since no gradient reached it.
  void run_remaining() {
    if (has_uses()) run_uses(value());
  }

  // From the producer: its operands are overwritten or freed from here on.
  void end() noexcept { recompute_ = nullptr; }
  // From the producer: its backward function is fused into another, and recomputes nothing.
  void end_deferring() noexcept { in_backward_ = false; }

 private:
  std::function<Tensor()> recompute_;
  bool in_backward_;
  std::vector<Use> waiting_;
};

}  // namespace quench::autograd
