#include "python/src/arrays.h"

#include <nanobind/ndarray.h>

#include <memory>

#include "core/system/check.h"

namespace quench::python {
namespace {

using AnyArray = nb::ndarray<nb::ro>;

std::string dtype_text(nb::dlpack::dtype type) {
  using Code = nb::dlpack::dtype_code;
  switch (static_cast<Code>(type.code)) {
    case Code::Int: return fmt::format("int{}", type.bits);
    case Code::UInt: return fmt::format("uint{}", type.bits);
    case Code::Float: return fmt::format("float{}", type.bits);
    case Code::Bfloat: return "bfloat16";
    case Code::Bool: return "bool";
    default: return fmt::format("type {} of {} bits", type.code, type.bits);
  }
}

std::string shape_text(const AnyArray& array) {
  std::vector<std::int64_t> sizes;
  for (std::size_t i = 0; i < array.ndim(); ++i) sizes.push_back(static_cast<std::int64_t>(array.shape(i)));
  return fmt::format("[{}]", fmt::join(sizes, ", "));
}

void check_id(std::int64_t id, std::int64_t vocabulary, std::string_view what, std::size_t index) {
  QUENCH_CHECK(id >= 0 && id < vocabulary, "{}: {} at position {} is outside the vocabulary of {}", what, id, index,
               vocabulary);
}

template <class T>
void copy_ids(const AnyArray& array, std::int64_t vocabulary, std::string_view what, TokenBatch& batch) {
  const auto* data = static_cast<const T*>(array.data());
  const std::int64_t row_stride = batch.single ? 0 : array.stride(0), stride = array.stride(batch.single ? 0 : 1);
  for (std::int64_t r = 0; r < batch.rows; ++r)
    for (std::int64_t t = 0; t < batch.length; ++t) {
      const T id = data[r * row_stride + t * stride];
      // Ids of uint64 above int64 become negative, thus refused.
      check_id(static_cast<std::int64_t>(id), vocabulary, what, batch.ids.size());
      batch.ids.push_back(static_cast<std::int32_t>(id));
    }
}

void require_tokens(const TokenBatch& batch, std::string_view what) {
  QUENCH_CHECK(batch.rows > 0 && batch.length > 0, "{}: no tokens", what);
}

TokenBatch from_array(const AnyArray& array, std::int64_t vocabulary, std::string_view what) {
  using Code = nb::dlpack::dtype_code;
  const nb::dlpack::dtype type = array.dtype();
  const bool integer =
      (type.code == static_cast<std::uint8_t>(Code::Int) || type.code == static_cast<std::uint8_t>(Code::UInt)) &&
      type.lanes == 1;
  QUENCH_CHECK(integer, "{}: an array of {}, expected integers", what, dtype_text(type));
  QUENCH_CHECK(array.device_type() == nb::device::cpu::value,
               "{}: an array on device type {}, expected the CPU: pass array.cpu()", what, array.device_type());
  QUENCH_CHECK(array.ndim() == 1 || array.ndim() == 2, "{}: an array {}, expected [T] or [B, T]", what,
               shape_text(array));
  TokenBatch batch;
  batch.single = array.ndim() == 1;
  batch.rows = batch.single ? 1 : static_cast<std::int64_t>(array.shape(0));
  batch.length = static_cast<std::int64_t>(array.shape(batch.single ? 0 : 1));
  require_tokens(batch, what);
  const bool is_signed = type.code == static_cast<std::uint8_t>(Code::Int);
  switch (type.bits) {
    case 8:
      is_signed ? copy_ids<std::int8_t>(array, vocabulary, what, batch)
                : copy_ids<std::uint8_t>(array, vocabulary, what, batch);
      break;
    case 16:
      is_signed ? copy_ids<std::int16_t>(array, vocabulary, what, batch)
                : copy_ids<std::uint16_t>(array, vocabulary, what, batch);
      break;
    case 32:
      is_signed ? copy_ids<std::int32_t>(array, vocabulary, what, batch)
                : copy_ids<std::uint32_t>(array, vocabulary, what, batch);
      break;
    default:
      is_signed ? copy_ids<std::int64_t>(array, vocabulary, what, batch)
                : copy_ids<std::uint64_t>(array, vocabulary, what, batch);
      break;
  }
  return batch;
}

void append_ids(nb::handle list, std::int64_t vocabulary, std::string_view what, std::vector<std::int32_t>& ids) {
  for (const nb::handle item : list) {
    QUENCH_CHECK(PyLong_Check(item.ptr()) && !PyBool_Check(item.ptr()), "{}: {} in a list of token ids", what,
                 nb::repr(item).c_str());
    int overflow = 0;
    const long long id = PyLong_AsLongLongAndOverflow(item.ptr(), &overflow);
    check_id(overflow != 0 ? -1 : id, vocabulary, what, ids.size());
    ids.push_back(static_cast<std::int32_t>(id));
  }
}

TokenBatch from_lists(nb::handle lists, std::int64_t vocabulary, std::string_view what) {
  TokenBatch batch;
  for (const nb::handle list : lists) {
    QUENCH_CHECK(PyList_Check(list.ptr()) || PyTuple_Check(list.ptr()), "{}: {} in a list of lists of token ids", what,
                 nb::repr(list.type()).c_str());
    const std::size_t before = batch.ids.size();
    append_ids(list, vocabulary, what, batch.ids);
    const auto length = static_cast<std::int64_t>(batch.ids.size() - before);
    QUENCH_CHECK(batch.rows == 0 || length == batch.length,
                 "{}: row {} has {} tokens, the rows before it {}: rows of one call have the same length", what,
                 batch.rows, length, batch.length);
    batch.length = length;
    ++batch.rows;
  }
  require_tokens(batch, what);
  return batch;
}

}  // namespace

TokenBatch token_batch(nb::handle tokens, std::int64_t vocabulary, std::string_view what) {
  if (PyList_Check(tokens.ptr()) || PyTuple_Check(tokens.ptr())) {
    const bool nested = nb::len(tokens) > 0 && !PyLong_Check(nb::object(tokens[0]).ptr());
    if (nested) return from_lists(tokens, vocabulary, what);
    TokenBatch batch{.rows = 1, .single = true};
    append_ids(tokens, vocabulary, what, batch.ids);
    batch.length = static_cast<std::int64_t>(batch.ids.size());
    require_tokens(batch, what);
    return batch;
  }
  AnyArray array;
  QUENCH_CHECK(nb::try_cast(tokens, array), "{}: {}, expected a list of token ids or an integer array", what,
               nb::repr(tokens.type()).c_str());
  return from_array(array, vocabulary, what);
}

std::vector<std::int32_t> token_list(nb::handle tokens, std::int64_t vocabulary, std::string_view what) {
  TokenBatch batch = token_batch(tokens, vocabulary, what);
  QUENCH_CHECK(batch.single, "{}: {} rows of token ids, expected one", what, batch.rows);
  return std::move(batch.ids);
}

nb::object array_of(const Tensor& tensor) {
  QUENCH_CHECK(tensor.is_contiguous(), "an array of {}", tensor.describe());
  const nb::dlpack::dtype type = tensor.dtype() == DType::f32 ? nb::dtype<float>() : nb::dtype<std::int32_t>();
  QUENCH_CHECK(tensor.dtype() == DType::f32 || tensor.dtype() == DType::i32, "an array of {}", tensor.describe());
  std::vector<std::size_t> sizes;
  for (int axis = 0; axis < tensor.rank(); ++axis) sizes.push_back(static_cast<std::size_t>(tensor.size(axis)));
  auto kept = std::make_unique<Tensor>(tensor);
  const nb::capsule owner(kept.get(), [](void* held) noexcept { delete static_cast<Tensor*>(held); });
  void* const data = kept.release()->raw_data();
  const Device device = tensor.device();
  const int kind = device.is_cpu() ? nb::device::cpu::value : nb::device::cuda::value;
  return nb::cast(nb::ndarray<nb::array_api>(data, sizes.size(), sizes.data(), owner, nullptr, type, kind,
                                             device.is_cpu() ? 0 : device.index));
}

}  // namespace quench::python
