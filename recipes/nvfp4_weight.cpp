#include "recipes/nvfp4_weight.h"

#include "core/number/nvfp4.h"
#include "core/ops/block_scaled_gemm.h"

namespace quench::recipes {
namespace {

constexpr QuantFormat kNvfp4Format{.element = ElementFormat::e2m1,
                                   .granularity = Granularity::block,
                                   .block_size = kNvfp4BlockSize,
                                   .scale_dtype = DType::f8_e4m3,
                                   .scale_direction = ScaleDirection::decode};

}  // namespace

bool Nvfp4Weight::fits(const PackedMatrix& weight) {
  return weight.defined() && weight.codes().dtype() == DType::f4_e2m1 && weight.group_size() == kNvfp4BlockSize &&
         weight.columns() % kNvfp4BlockSize == 0 && weight.scales().dtype() == DType::f32 &&
         weight.global_scales().defined() && !weight.offsets().defined();
}

Nvfp4Weight::Nvfp4Weight(const PackedMatrix& weight) {
  QUENCH_CHECK(fits(weight), "nvfp4 weight: {} is not NVFP4", weight.describe());
  const Device device = weight.device();
  const MemoryScope scope(MemoryCategory::parameters);
  const Tensor products = weight.scales().to(Device{}), globals = weight.global_scales().to(Device{});
  const auto* global = globals.data<float>();
  const auto* product = products.data<float>();
  for (std::int64_t begin = 0, end = 0; begin < weight.rows(); begin = end) {
    while (end < weight.rows() && global[end] == global[begin]) ++end;
    const std::int64_t rows = end - begin, groups = weight.groups();
    const Tensor scales = Tensor::empty({rows, groups}, DType::f8_e4m3);
    auto* codes = static_cast<std::uint8_t*>(scales.raw_data());
    for (std::int64_t i = 0; i < rows * groups; ++i) {
      const float scale = product[begin * groups + i];
      codes[i] = E4m3::encode(scale / global[begin]);
      if (E4m3::decode(codes[i]) * global[begin] != scale) {
        parts_.clear();
        return;
      }
    }
    parts_.emplace_back(kNvfp4Format, Shape{rows, weight.columns()}, DType::bf16, weight.codes().narrow(0, begin, rows),
                        scales.to(device), globals.narrow(0, begin, 1).view({1}).to(device));
  }
}

void Nvfp4Weight::multiply(const QuantTensor& x, const Tensor& y) const {
  std::int64_t row = 0;
  for (const QuantTensor& part : parts_) {
    block_scaled_gemm({.a = x, .b = part, .c = y.narrow(1, row, part.shape()[0])});
    row += part.shape()[0];
  }
}

}  // namespace quench::recipes
