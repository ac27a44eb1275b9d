#include <algorithm>
#include <array>

#include "autograd/functions.h"
#include "autograd/functions_tensor.h"
#include "core/ops/elementwise.h"
#include "core/tensor/op_checks.h"

namespace quench::autograd {
namespace {

// Last axis of a matrix, whose rows may have gaps between them.
bool is_columns(const Tensor& x, int axis) {
  return x.rank() == 2 && axis == 1;
}

// `axis` of x from the start. Throws unless x is f32 or bf16, contiguous (columns: contiguous rows), and has the axis.
int checked_axis(std::string_view function, const Tensor& x, int axis) {
  check_float_tensor(function, "x", x, x.rank());
  QUENCH_CHECK(axis >= -x.rank() && axis < x.rank(), "{}: x is {}, which has no axis {}", function, x.describe(), axis);
  const int positive = axis < 0 ? axis + x.rank() : axis;
  if (is_columns(x, positive))
    check_contiguous_rows(function, "x", x);
  else
    check_contiguous(function, "x", x);
  return positive;
}

// x as a matrix whose rows hold `axis` and the axes after it: a range of the axis is a range of columns.
Tensor rows_before(const Tensor& x, int axis) {
  if (is_columns(x, axis)) return x;
  std::int64_t rows = 1, columns = 1;
  for (int i = 0; i < x.rank(); ++i) (i < axis ? rows : columns) *= x.size(i);
  return x.view({rows, columns});
}

// Elements of one step along `axis`.
std::int64_t step_of(const Shape& shape, int axis) {
  std::int64_t step = 1;
  for (int i = axis + 1; i < shape.rank(); ++i) step *= shape[i];
  return step;
}

// Elements [first, first + length) of `axis` of `from`, in a new tensor.
Tensor copy_range(const Tensor& from, int axis, std::int64_t first, std::int64_t length) {
  Shape shape = from.shape();
  shape[axis] = length;
  const Tensor out = Tensor::empty(shape, from.dtype(), from.device());
  const std::int64_t step = step_of(shape, axis);
  copy_rows({rows_before(from, axis).narrow(1, first * step, length * step), rows_before(out, axis)});
  return out;
}

// The reverse: `part` becomes elements of `axis` of `to` from `first` on.
void put_range(const Tensor& part, const Tensor& to, int axis, std::int64_t first) {
  const std::int64_t step = step_of(to.shape(), axis);
  copy_rows({rows_before(part, axis), rows_before(to, axis).narrow(1, first * step, part.size(axis) * step)});
}

}  // namespace

Variable slice(const Variable& x, int given_axis, std::int64_t first, std::int64_t length) {
  const Tensor in = x.value();
  const int axis = checked_axis("slice", in, given_axis);
  QUENCH_CHECK(first >= 0 && length >= 0 && first <= in.size(axis) - length,
               "slice: x is {}; elements {} to {} are not within axis {}", in.describe(), first, first + length, axis);
  const MemoryScope scope(MemoryCategory::activations);
  Variable out(copy_range(in, axis, first, length));
  Tape::record("slice", {x}, std::array{&out}, [&] {
    return [axis, first, shape = in.shape(), dx = x.gradient(), dout = out.gradient()] {
      const MemoryScope backward_scope(MemoryCategory::activations);
      const Tensor dy = dout->value(), gradient = Tensor::zeros(shape, dy.dtype(), dy.device());
      put_range(dy, gradient, axis, first);
      dx->contribute(gradient);
    };
  });
  return out;
}

Variable concat(const std::vector<Variable>& parts, int given_axis) {
  QUENCH_CHECK(!parts.empty(), "concat: no parts");
  const Tensor first = parts.front().value();
  const int axis = checked_axis("concat", first, given_axis);
  Shape shape = first.shape();
  shape[axis] = 0;
  for (const Variable& part : parts) {
    const Tensor value = part.value();
    (void)checked_axis("concat", value, axis);
    Shape expected = first.shape();
    if (value.rank() == first.rank()) expected[axis] = value.size(axis);
    QUENCH_CHECK(value.shape() == expected && value.dtype() == first.dtype() && value.device() == first.device(),
                 "concat: parts are {} and {}; expected one dtype and device, and equal sizes of all axes but {}",
                 first.describe(), value.describe(), axis);
    shape[axis] += value.size(axis);
  }
  const MemoryScope scope(MemoryCategory::activations);
  Variable out(Tensor::empty(shape, first.dtype(), first.device()));
  std::vector<Tape::Input> inputs;
  std::int64_t at = 0;
  for (const Variable& part : parts) {
    put_range(part.value(), out.value(), axis, at);
    at += part.value().size(axis);
    inputs.emplace_back(part);
  }
  Tape::record("concat", inputs, std::array{&out}, [&] {
    std::vector<std::pair<std::shared_ptr<Gradient>, std::int64_t>> lengths;  // gradient, or null, and size of the axis
    for (const Variable& part : parts) lengths.emplace_back(part.gradient(), part.value().size(axis));
    return [axis, lengths = std::move(lengths), dout = out.gradient()] {
      const MemoryScope backward_scope(MemoryCategory::activations);
      std::int64_t begin = 0;
      for (const auto& [gradient, length] : lengths) {
        if (gradient) gradient->contribute(copy_range(dout->value(), axis, begin, length));
        begin += length;
      }
    };
  });
  return out;
}

Variable concatenate_columns(const Variable& a, const Variable& b) {
  QUENCH_CHECK(a.value().rank() == 2 && b.value().rank() == 2,
               "concatenate_columns: a is {}, b is {}; expected matrices", a.value().describe(), b.value().describe());
  return concat({a, b}, 1);
}

}  // namespace quench::autograd
