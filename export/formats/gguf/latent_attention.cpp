#include "export/formats/gguf/latent_attention.h"

#include <cstring>

#include "core/system/check.h"

namespace quench {
namespace {

// to[j,i] = from[i,j], of elements of `size` bytes.
void transpose_elements(const std::byte* from, std::int64_t rows, std::int64_t columns, std::size_t size,
                        std::byte* to) {
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j)
      std::memcpy(to + static_cast<std::size_t>(j * rows + i) * size,
                  from + static_cast<std::size_t>(i * columns + j) * size, size);
}

std::size_t element_bytes(const Tensor& tensor) {
  return tensor.nbytes() / static_cast<std::size_t>(tensor.numel());
}

}  // namespace

Tensor latent_keys(const Tensor& kv_b, const nn::MlaSpec& mla, std::int64_t heads) {
  const std::size_t size = element_bytes(kv_b), row = static_cast<std::size_t>(mla.kv_rank) * size;
  const Tensor keys = Tensor::empty({heads, mla.kv_rank, mla.nope_dim}, kv_b.dtype());
  for (std::int64_t head = 0; head < heads; ++head)
    transpose_elements(static_cast<const std::byte*>(kv_b.raw_data()) +
                           static_cast<std::size_t>(head * (mla.nope_dim + mla.value_dim)) * row,
                       mla.nope_dim, mla.kv_rank, size,
                       static_cast<std::byte*>(keys.raw_data()) + static_cast<std::size_t>(head * mla.nope_dim) * row);
  return keys;
}

Tensor latent_values(const Tensor& kv_b, const nn::MlaSpec& mla, std::int64_t heads) {
  const Tensor values = Tensor::empty({heads, mla.value_dim, mla.kv_rank}, kv_b.dtype());
  for (std::int64_t head = 0; head < heads; ++head)
    values.select(0, head).copy_from(
        kv_b.narrow(0, head * (mla.nope_dim + mla.value_dim) + mla.nope_dim, mla.value_dim));
  return values;
}

Tensor joined_latent(const Tensor& keys, const Tensor& values, const nn::MlaSpec& mla) {
  const std::int64_t heads = keys.size(0), rows = mla.nope_dim + mla.value_dim;
  QUENCH_CHECK(keys.dtype() == values.dtype() && values.size(0) == heads, "{} and {} of latent attention",
               keys.describe(), values.describe());
  const Tensor kv_b = Tensor::empty({heads * rows, mla.kv_rank}, keys.dtype());
  const std::size_t size = element_bytes(keys), row = static_cast<std::size_t>(mla.kv_rank) * size;
  for (std::int64_t head = 0; head < heads; ++head) {
    transpose_elements(
        static_cast<const std::byte*>(keys.raw_data()) + static_cast<std::size_t>(head * mla.nope_dim) * row,
        mla.kv_rank, mla.nope_dim, size,
        static_cast<std::byte*>(kv_b.raw_data()) + static_cast<std::size_t>(head * rows) * row);
    kv_b.narrow(0, head * rows + mla.nope_dim, mla.value_dim).copy_from(values.select(0, head));
  }
  return kv_b;
}

}  // namespace quench
