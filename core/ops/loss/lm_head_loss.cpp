#include "core/ops/loss/lm_head_loss.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "core/memory/memory_part.h"
#include "core/ops/elementwise.h"
#include "core/ops/gemm.h"
#include "core/tensor/op_checks.h"

namespace quench {

std::int64_t default_loss_chunk_rows(std::int64_t vocab_size, DeviceType device) {
  // Lower bound: each chunk reads and writes the whole dweight.
  constexpr std::int64_t kMinRows = 256;
  const std::int64_t logits = (std::int64_t{device == DeviceType::cuda ? 1024 : 64} << 20) / 4;
  const std::int64_t rows = std::max(kMinRows, logits / std::max<std::int64_t>(vocab_size, 1));
  if (device != DeviceType::cuda) return rows;
  // Powers of two: fewer idle SMs in the last wave of dgrad tiles.
  const auto power = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(rows)));
  return power <= rows + rows / 6 ? power : rows;
}

namespace {

class PlainGemms final : public HeadGemms {
 public:
  explicit PlainGemms(const Tensor& weight) : weight_(weight) {}
  void logits(const Tensor& hidden, const Tensor& out) override {
    gemm({.a = hidden, .b = weight_, .c = out, .transpose_b = true});
  }
  void gradients(const Tensor& dlogits, const Tensor& hidden, const Tensor& dhidden, const Tensor& dweight,
                 float beta) override {
    if (dhidden.defined()) gemm({.a = dlogits, .b = weight_, .c = dhidden});
    if (dweight.defined()) gemm({.a = dlogits, .b = hidden, .c = dweight, .transpose_a = true, .beta = beta});
  }

 private:
  Tensor weight_;
};

}  // namespace

void lm_head_loss(const LmHeadLossArgs& args) {
  constexpr std::string_view op = "lm_head_loss";
  check_float_tensor(op, "hidden", args.hidden, 2);
  check_contiguous_rows(op, "hidden", args.hidden);
  const std::int64_t rows = args.hidden.size(0), width = args.hidden.size(1);
  const DType dtype = args.hidden.dtype();
  check_tensor(op, "weight", args.weight, {-1, width}, dtype);
  if (args.gemms == nullptr) check_contiguous(op, "weight", args.weight);
  const std::int64_t vocab = args.weight.size(0);
  check_tensor(op, "labels", args.labels, {rows}, DType::i32);
  check_tensor(op, "losses", args.losses, {rows}, DType::f32);
  if (args.dhidden.defined()) check_tensor(op, "dhidden", args.dhidden, args.hidden.shape(), dtype);
  if (args.dweight.defined()) check_gradient_sum(op, "dweight", args.dweight, args.weight.shape(), dtype);
  QUENCH_CHECK(args.options.chunk_rows >= 0, "lm_head_loss: chunk_rows is {}", args.options.chunk_rows);
  check_same_device(op, {&args.hidden, &args.weight, &args.labels, &args.losses, &args.dhidden, &args.dweight});

  if (rows == 0) {
    if (args.dweight.defined() && !args.accumulate_dweight) Tensor(args.dweight).zero();
    return;
  }
  const bool gradients = args.dhidden.defined() || args.dweight.defined();
  const std::int64_t wanted =
      args.options.chunk_rows > 0 ? args.options.chunk_rows : default_loss_chunk_rows(vocab, args.hidden.device().type);
  // Nearly equal chunks of whole tiles.
  constexpr std::int64_t kTile = 128;
  const std::int64_t even = (rows + wanted - 1) / wanted, equal = (rows + even - 1) / even;
  const std::int64_t chunk = equal > 4 * kTile ? std::min(rows, (equal + kTile - 1) / kTile * kTile) : equal;
  const std::int64_t chunks = (rows + chunk - 1) / chunk;

  const MemoryScope scope(MemoryCategory::workspace);
  const Device device = args.hidden.device();
  const bool f32_logits = args.options.f32_logits || !gradients;
  Tensor dlogits;
  Tensor sum = args.dweight;
  if (sum.defined() && sum.dtype() != DType::f32 && chunks > 1 && f32_logits)
    sum = Tensor::empty(args.weight.shape(), DType::f32, device);
  bool add_to_sum = sum.defined() && args.accumulate_dweight;
  if (add_to_sum && sum.dtype() != args.dweight.dtype()) cast({args.dweight, sum});

  PlainGemms plain(args.weight);
  HeadGemms& gemms = args.gemms != nullptr ? *args.gemms : plain;
  if (gradients) gemms.expect_hidden_gradients(args.dhidden.defined());
  const auto chunk_of = [&](DType type) {
    const MemoryPartScope part(MemoryPart::logits);
    return Tensor::empty({chunk, vocab}, type, device);
  };
  const Tensor logits = chunk_of(f32_logits ? DType::f32 : dtype);
  for (std::int64_t begin = 0; begin < rows; begin += chunk) {
    const std::int64_t count = std::min(chunk, rows - begin);
    const Tensor hidden = args.hidden.narrow(0, begin, count);
    const Tensor chunk_logits = logits.narrow(0, 0, count);
    gemms.logits(hidden, chunk_logits);
    CrossEntropyArgs loss{.logits = chunk_logits,
                          .labels = args.labels.narrow(0, begin, count),
                          .losses = args.losses.narrow(0, begin, count),
                          .grad_scale = args.grad_scale,
                          .planned_for = args.options.planned_for};
    if (gradients && args.loss == nullptr) {
      const MemoryPartScope part(MemoryPart::logits);
      loss.codes = gemms.gradient_codes(chunk_logits.shape(), dtype, std::abs(args.grad_scale));
    }
    if (gradients && !loss.codes.defined()) {
      if (!dlogits.defined()) dlogits = logits.dtype() == dtype ? logits : chunk_of(dtype);
      loss.dlogits = dlogits.narrow(0, 0, count);
    }
    if (args.loss != nullptr)
      args.loss->run(loss, begin);
    else
      cross_entropy(loss);
    if (!gradients) continue;
    const Tensor dhidden = args.dhidden.defined() ? args.dhidden.narrow(0, begin, count) : Tensor();
    const float beta = add_to_sum ? 1.0f : 0.0f;
    if (loss.codes.defined())
      gemms.gradients_of_codes(loss.codes, hidden, dhidden, sum, beta);
    else
      gemms.gradients(loss.dlogits, hidden, dhidden, sum, beta);
    add_to_sum = sum.defined();
  }
  if (sum.defined() && sum.dtype() != args.dweight.dtype()) cast({sum, args.dweight});
}

}  // namespace quench
