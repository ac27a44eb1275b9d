#include "core/ops/loss/cross_entropy.h"

#include "core/memory/memory_part.h"
#include "core/ops/quantize/quantize.h"
#include "core/tensor/op_checks.h"

namespace quench {

constinit KernelSlot<CrossEntropyArgs> cross_entropy_slot("cross_entropy");

namespace {

void check_codes(const CrossEntropyArgs& args) {
  const QuantTensor& codes = args.codes;
  QUENCH_CHECK(!args.dlogits.defined() &&
                   (codes.format().element == ElementFormat::e4m3 || codes.format().element == ElementFormat::e5m2) &&
                   codes.format() == code_format(codes.format().element, Granularity::tensor) &&
                   codes.shape() == args.logits.shape(),
               "cross_entropy: gradient codes are {} for logits {}{}; expected float8 of their shape under one scale",
               codes.describe(), args.logits.describe(), args.dlogits.defined() ? " next to dlogits" : "");
  check_same_device("cross_entropy", {&args.logits, &codes.payload(), &codes.scales()});
}

}  // namespace

void cross_entropy(const CrossEntropyArgs& args) {
  constexpr std::string_view op = "cross_entropy";
  check_float_tensor(op, "logits", args.logits, 2);
  check_contiguous(op, "logits", args.logits);
  const std::int64_t n = args.logits.size(0), vocab = args.logits.size(1);
  check_tensor(op, "labels", args.labels, {n}, DType::i32);
  check_contiguous(op, "labels", args.labels);
  check_tensor(op, "losses", args.losses, {n}, DType::f32);
  check_contiguous(op, "losses", args.losses);
  if (args.dlogits.defined()) {
    check_float_tensor(op, "dlogits", args.dlogits, 2);
    check_tensor(op, "dlogits", args.dlogits, {n, vocab}, args.dlogits.dtype());
    check_contiguous(op, "dlogits", args.dlogits);
    QUENCH_CHECK(args.dlogits.raw_data() != args.logits.raw_data() || args.dlogits.dtype() == args.logits.dtype(),
                 "cross_entropy: dlogits ({}) may alias logits ({}) only with the same dtype", args.dlogits.describe(),
                 args.logits.describe());
  }
  check_same_device(op, {&args.logits, &args.labels, &args.losses, &args.dlogits});
  if (args.logits.device().is_cpu()) {
    const auto* labels = args.labels.data<std::int32_t>();
    for (std::int64_t i = 0; i < n; ++i)
      QUENCH_CHECK(labels[i] == kIgnoreLabel || (labels[i] >= 0 && labels[i] < vocab),
                   "cross_entropy: label {} of row {} is neither {} nor in [0, {})", labels[i], i, kIgnoreLabel, vocab);
  }
  if (args.codes.defined()) check_codes(args);
  if (n == 0) return;
  const Device device = args.logits.device();
  const DeviceType kernel = device.is_meta() ? args.planned_for : device.type;
  const bool fused = kernel == DeviceType::cuda && args.codes.source_dtype() == DType::bf16 &&
                     args.codes.format().element == ElementFormat::e5m2;
  if (args.codes.defined() && !fused) {
    const MemoryPartScope part(MemoryPart::logits);
    CrossEntropyArgs plain = args;
    plain.codes = {};
    plain.dlogits = Tensor::empty(args.logits.shape(), args.codes.source_dtype(), device);
    cross_entropy_slot(device.type, plain);
    return float8_cast_slot(device.type, {.x = plain.dlogits, .out = args.codes});
  }
  cross_entropy_slot(device.type, args);
}

}  // namespace quench
