#include "core/ops/optimizer/low_bit_adamw.h"

#include "core/cpu/optimizer/optimizer_common.h"
#include "core/number/float8.h"
#include "core/ops/quantize/quantize.h"

namespace quench::cpu::QUENCH_CPU_NAMESPACE {
namespace {

constexpr std::int64_t kMaxBlock = 256;
static_assert(kChunk % kMaxBlock == 0 && kMaxBlock % kLanes == 0 && kMaxBlock <= kBatch);

class Moment {
 public:
  Moment(const MomentCodes& codes, MomentFormat format, bool is_signed)
      : codes_(static_cast<std::uint8_t*>(codes.codes.raw_data())),
        scales_(codes.scales.data<float>()),
        format_(format),
        table_(format == MomentFormat::fp8 ? nullptr : &moment_table(format, is_signed)) {}

  void load(std::int64_t block, float* x) const {
    const std::int64_t n = moment_block(format_);
    const float scale = scales_[block];
    if (format_ == MomentFormat::int8) {
      const std::uint8_t* codes = codes_ + block * n;
      for (std::int64_t i = 0; i < n; ++i) x[i] = table_->values[codes[i]] * scale;
    } else if (format_ == MomentFormat::int4) {
      const std::uint8_t* codes = codes_ + block * n / 2;
      for (std::int64_t i = 0; i < n / 2; ++i) {
        x[2 * i] = table_->values[codes[i] >> 4] * scale;
        x[2 * i + 1] = table_->values[codes[i] & 15] * scale;
      }
    } else {
      const std::uint8_t* codes = codes_ + block * n;
      for (std::int64_t i = 0; i < n; ++i) x[i] = E4m3::decode(codes[i]) * scale;
    }
  }

  void store(std::int64_t block, const float* x) const {
    const std::int64_t n = moment_block(format_);
    float most = 0;
    for (std::int64_t i = 0; i < n; ++i) most = std::max(most, std::abs(x[i]));
    const float scale = std::max(most, kLeastMomentMagnitude) * moment_scale_factor(format_);
    scales_[block] = scale;
    float y[kMaxBlock];
    for (std::int64_t i = 0; i < n; ++i) y[i] = x[i] / scale;
    if (format_ == MomentFormat::fp8) {
      for (std::int64_t i = 0; i < n; ++i) codes_[block * n + i] = E4m3::encode(y[i]);
      return;
    }
    // Vectorized binary search.
    std::int32_t codes[kMaxBlock] = {};
    for (std::int32_t half = table_->size / 2; half > 0; half /= 2)
      for (std::int64_t i = 0; i < n; ++i) codes[i] += y[i] >= table_->thresholds[codes[i] + half] ? half : 0;
    if (format_ == MomentFormat::int8) {
      for (std::int64_t i = 0; i < n; ++i) codes_[block * n + i] = static_cast<std::uint8_t>(codes[i]);
    } else {
      for (std::int64_t i = 0; i < n / 2; ++i)
        codes_[block * n / 2 + i] = static_cast<std::uint8_t>(codes[2 * i] << 4 | codes[2 * i + 1]);
    }
  }

 private:
  std::uint8_t* codes_;
  float* scales_;
  MomentFormat format_;
  const MomentTable* table_;
};

void update(const LowBitAdamWArgs& args, const LowBitAdamWTensor& t, const Coefficients& c, std::int64_t begin,
            std::int64_t end) {
  const Elements param(t.param), grad(t.grad);
  const bool has_master = t.master.defined();
  const bool stochastic = args.adamw.stochastic_rounding && !has_master && t.param.dtype() == DType::bf16;
  const Elements weights(has_master ? t.master : t.param);
  const Moment first(t.exp_avg, args.format, true), second(t.exp_avg_sq, args.format, false);
  RandomBits random(args.adamw.seed, t.random_stream, args.adamw.step, AdamWRounding::param);
  const auto decay = static_cast<float>(-args.adamw.lr * t.weight_decay);
  const std::int64_t block = moment_block(args.format);
  float exp_avg[kMaxBlock], exp_avg_sq[kMaxBlock];
  for (std::int64_t base = begin; base < end; base += block) {
    if (stochastic) random.fill(static_cast<std::uint64_t>(t.element_offset + base), block);
    first.load(base / block, exp_avg);
    second.load(base / block, exp_avg_sq);
    for (std::int64_t offset = 0; offset < block; offset += kLanes) {
      constexpr FullVector count;
      const std::int64_t i = base + offset;
      const F32 g = grad.get(i, count) * c.grad_scale;
      F32 m = load(exp_avg + offset, count), v = load(exp_avg_sq + offset, count), p = weights.get(i, count);
      p = fma(broadcast(decay), p, p);
      m = fma(broadcast(c.weight1), g - m, m);
      v = fma(broadcast(c.weight2), g * g, v * c.beta2);
      p = fma(broadcast(c.step_size), m / (sqrt(v) / c.bias2 + c.eps), p);
      quench::cpu::QUENCH_CPU_NAMESPACE::store(exp_avg + offset, m, count);
      quench::cpu::QUENCH_CPU_NAMESPACE::store(exp_avg_sq + offset, v, count);
      if (has_master) weights.set(i, p, count);
      if (stochastic)
        param.set(i, p, count, random.get(offset));
      else
        param.set(i, p, count);
    }
    first.store(base / block, exp_avg);
    second.store(base / block, exp_avg_sq);
  }
}

void low_bit_adamw_kernel(const LowBitAdamWArgs& args) {
  const float grad_scale = args.adamw.grad_scale.defined() ? *args.adamw.grad_scale.data<float>() : 1.0f;
  if (std::isfinite(grad_scale))
    for_chunks(args.tensors, [&](const LowBitAdamWTensor& t, std::int64_t from, std::int64_t to) {
      update(args, t, coefficients(args.adamw, t.weight_decay, grad_scale), from, to);
    });
  for (const LowBitAdamWTensor& t : args.tensors)
    if (t.amax.defined()) amax_slot(DeviceType::cpu, {t.param, t.amax, Granularity::tensor});
}

QUENCH_CPU_KERNEL(low_bit_adamw_slot, low_bit_adamw_kernel);

}  // namespace
}  // namespace quench::cpu::QUENCH_CPU_NAMESPACE
