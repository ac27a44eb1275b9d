#include "recipes/emulated/rounding.h"

#include "autograd/mx_substitution.h"
#include "core/ops/elementwise.h"
#include "core/ops/experts/round_groups.h"
#include "core/ops/experts/round_rows_mx.h"
#include "core/ops/quantize/quantize.h"
#include "core/ops/quantize/round_mx.h"
#include "recipes/emulated/expert_input.h"

namespace quench::recipes {
namespace {

// Crops or zero-pads.
Tensor resized(const Tensor& x, std::int64_t rows, std::int64_t columns) {
  const std::int64_t batch = x.size(0);
  if (x.size(1) == rows && x.size(2) == columns) return x;
  const Tensor result = Tensor::empty({batch, rows, columns}, x.dtype(), x.device());
  const std::int64_t common_rows = std::min(rows, x.size(1)), common_columns = std::min(columns, x.size(2));
  if (rows > x.size(1) || columns > x.size(2)) Tensor(result).zero();
  for (std::int64_t b = 0; b < batch; ++b)
    copy_rows({x.select(0, b).narrow(0, 0, common_rows).narrow(1, 0, common_columns),
               result.select(0, b).narrow(0, 0, common_rows).narrow(1, 0, common_columns)});
  return result;
}

class MxRounding final : public OperandEmulation {
 public:
  explicit MxRounding(MxScaleMode mode)
      : mode_(mode), rowwise_request_(std::make_shared<autograd::MxSubstitution>(mode)) {}
  [[nodiscard]] std::string_view name() const override { return "mxfp8"; }
  [[nodiscard]] std::shared_ptr<const autograd::ValueSubstitution> rowwise_request() const override {
    return rowwise_request_;
  }
  [[nodiscard]] std::int64_t alignment() const override { return kMxBlockSize; }

  [[nodiscard]] Tensor rowwise(const Tensor& x, const CodesSeen&) const override {
    const std::int64_t rows = x.size(0), columns = x.size(1);
    const Tensor whole = resized(x.view({1, rows, columns}), rows, in_blocks(columns));
    return resized(round(whole, Orientation::natural), rows, columns).view({rows, columns});
  }
  [[nodiscard]] Tensor columnwise(const Tensor& x) const override {
    const Tensor whole = resized(x, in_blocks(x.size(1)), x.size(2));
    return resized(round(whole, Orientation::transposed), x.size(1), x.size(2));
  }
  // Groups are whole blocks.
  [[nodiscard]] Tensor grouped_columnwise(const Tensor& x, const Tensor&) const override {
    return columnwise(x.view({1, x.size(0), x.size(1)})).view(x.shape());
  }
  // One pass; permuted copies are not materialised.
  [[nodiscard]] RowForms forms(const GroupRows& rows, const WantedForms& wanted, const CodesSeen& seen) const override {
    const Shape shape{rows.rows(), rows.x.size(1)};
    const auto whole_blocks = [](std::int64_t n) { return n % kMxBlockSize == 0; };
    if (!whole_blocks(shape[1]) || !whole_blocks(shape[0])) return OperandEmulation::forms(rows, wanted, seen);
    const auto fresh = [&] { return Tensor::empty(shape, rows.x.dtype(), rows.x.device()); };
    RowForms result;
    if (wanted.rowwise) result.rowwise = wanted.may_overwrite && !rows.pairs.defined() ? rows.x : fresh();
    if (wanted.grouped_columnwise) result.grouped_columnwise = fresh();
    if (wanted.rowwise || wanted.grouped_columnwise)
      round_rows_mx({.rows = rows, .rowwise = result.rowwise, .columnwise = result.grouped_columnwise, .mode = mode_});
    return result;
  }
  [[nodiscard]] std::function<Tensor()> saved_grouped_columnwise(const Tensor& x, const Tensor&) const override {
    const Tensor batch = x.view({1, x.size(0), x.size(1)});
    const QuantTensor codes =
        quantize_mx(resized(batch, in_blocks(x.size(0)), x.size(1)),
                    {.element = ElementFormat::e4m3, .mode = mode_, .orientation = Orientation::transposed});
    return [codes, shape = x.shape(), dtype = x.dtype()] {
      return resized(dequantize(codes, dtype), shape[0], shape[1]).view(shape);
    };
  }

 private:
  [[nodiscard]] static std::int64_t in_blocks(std::int64_t n) {
    return (n + kMxBlockSize - 1) / kMxBlockSize * kMxBlockSize;
  }
  [[nodiscard]] Tensor round(const Tensor& x, Orientation orientation) const {
    const Tensor out = Tensor::empty_like(x);
    round_mx({.x = x, .out = out, .mode = mode_, .orientation = orientation});
    return out;
  }

  MxScaleMode mode_;
  std::shared_ptr<const autograd::ValueSubstitution> rowwise_request_;
};

class Float8RowRounding final : public OperandEmulation {
 public:
  [[nodiscard]] std::string_view name() const override { return "float8_rowwise"; }
  // As float8 tensor cores, on every device.
  [[nodiscard]] std::int64_t alignment() const override { return 16; }

  [[nodiscard]] Tensor rowwise(const Tensor& x, const CodesSeen& seen) const override {
    return round(x, Granularity::row, seen);
  }
  [[nodiscard]] Tensor columnwise(const Tensor& x) const override { return round(x, Granularity::column, {}); }
  [[nodiscard]] Tensor grouped_columnwise(const Tensor& x, const Tensor& ends) const override {
    const Tensor out = Tensor::empty_like(x);
    round_groups({.x = x, .ends = ends, .out = out, .element = ElementFormat::e4m3, .power_of_two = true});
    return out;
  }

 private:
  [[nodiscard]] static Tensor round(const Tensor& x, Granularity granularity, const CodesSeen& seen) {
    if (x.numel() == 0) return x;
    const QuantTensor codes = quantize_float8(
        x, {.element = ElementFormat::e4m3, .granularity = granularity, .power_of_two_scale = true, .rounding = {}});
    if (seen) seen(x, codes);
    return dequantize(codes, x.dtype());
  }
};

}  // namespace

RowForms OperandEmulation::forms(const GroupRows& rows, const WantedForms& wanted, const CodesSeen& seen) const {
  if (!wanted.rowwise && !wanted.grouped_columnwise) return {};
  const Tensor x = copied(rows);
  return {wanted.rowwise ? rowwise(x, seen) : Tensor(),
          wanted.grouped_columnwise ? grouped_columnwise(x, rows.ends) : Tensor()};
}

std::shared_ptr<const OperandEmulation> mx_rounding(MxScaleMode mode) {
  return std::make_shared<MxRounding>(mode);
}

std::shared_ptr<const OperandEmulation> float8_row_rounding() {
  return std::make_shared<Float8RowRounding>();
}

}  // namespace quench::recipes
