#include "core/ops/quantize/quant_sink.h"

#include "core/ops/op_checks.h"
#include "core/ops/quantize/quantize.h"

namespace quench {
namespace {

// maximum = max(maximum, x) with NaN kept: a matrix of the two as rows, and its columns' largest magnitudes.
void raise(const Tensor& maximum, const Tensor& x) {
  const std::int64_t count = maximum.numel();
  const Tensor both = Tensor::empty({2, count}, DType::f32, maximum.device());
  both.narrow(0, 0, 1).view({count}).copy_from(maximum.view({count}));
  both.narrow(0, 1, 1).view({count}).copy_from(x.view({count}));
  maximum.view({count}).copy_from(amax(both, Granularity::column).view({count}));
}

}  // namespace

void check_sink(std::string_view op, const Float8Sink& sink, const Tensor& result) {
  if (!sink.wanted()) return;
  QUENCH_CHECK(result.rank() == 2 && result.is_contiguous(), "{}: a float8 sink needs a contiguous matrix, not {}", op,
               result.describe());
  if (sink.amax.defined()) check_tensor(op, "sink.amax", sink.amax, {}, DType::f32);
  if (sink.column_amax.defined()) {
    check_tensor(op, "sink.column_amax", sink.column_amax, {1, result.size(1)}, DType::f32);
    check_contiguous(op, "sink.column_amax", sink.column_amax);
  }
  if (sink.rows.defined()) {
    const QuantFormat& format = sink.rows.format();
    QUENCH_CHECK(sink.rows.shape() == result.shape() && format.granularity == Granularity::row &&
                     format.orientation == Orientation::natural && format.scale_dtype == DType::f32 &&
                     (format.element == ElementFormat::e4m3 || format.element == ElementFormat::e5m2),
                 "{}: sink.rows is {}, expected {} as float8 by row", op, sink.rows.describe(),
                 result.shape().to_string());
  }
  check_same_device(op, {&result, &sink.amax, &sink.column_amax, &sink.rows.payload()});
}

void fill_sink(const Float8Sink& sink, const Tensor& result) {
  if (!sink.wanted()) return;
  const DeviceType device = result.device().type;
  const MemoryScope scope(MemoryCategory::workspace);
  if (sink.amax.defined()) raise(sink.amax, amax(result, Granularity::tensor));
  if (result.size(0) == 0) return;  // no rows and no scales, and nothing that raises a maximum
  if (sink.rows.defined())
    float8_rows_slot(device, {result, sink.rows, sink.power_of_two, sink.column_amax});
  else if (sink.column_amax.defined())
    raise(sink.column_amax, amax(result, Granularity::column));
}

}  // namespace quench
