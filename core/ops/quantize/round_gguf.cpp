#include "core/ops/quantize/round_gguf.h"

#include <algorithm>
#include <array>

#include "core/tensor/op_checks.h"

namespace quench {

constinit KernelSlot<RoundGgufArgs> round_gguf_slot("round_gguf");

bool can_round_gguf(BlockType type, DeviceType device) noexcept {
  using enum BlockType;
  constexpr std::array kOnGpus = {q8_0, q4_0, q4_1, q5_0,   q5_1,   q2_k,  q3_k,
                                  q4_k, q5_k, q6_k, iq4_nl, iq4_xs, tq1_0, tq2_0};
  if (device == DeviceType::cuda) return std::ranges::find(kOnGpus, type) != kOnGpus.end();
  return block_format(type).quantize != nullptr;
}

void check_gguf_rows(std::string_view op, const Tensor& x, BlockType type, const Tensor& importance) {
  const BlockFormat& format = block_format(type);
  QUENCH_CHECK(x.defined() && is_f32_or_bf16(x.dtype()) && x.rank() == 2, "{}: x is {}, expected f32 or bf16 [R,C]", op,
               x.describe());
  QUENCH_CHECK(x.size(1) % format.elements == 0, "{}: blocks of {} ({}) do not divide the columns of {}", op,
               format.elements, format.name, x.describe());
  QUENCH_CHECK_AS(ErrorCode::unsupported, can_round_gguf(type, x.device().type), "{}: no kernel for {} on {}", op,
                  format.name, to_string(x.device().type));
  check_contiguous(op, "x", x);
  if (importance.defined()) {
    check_tensor(op, "importance", importance, {x.size(1)}, DType::f32);
    check_contiguous(op, "importance", importance);
  }
}

void round_gguf(const RoundGgufArgs& args) {
  constexpr std::string_view op = "round_gguf";
  check_gguf_rows(op, args.x, args.type, args.importance);
  check_tensor(op, "out", args.out, args.x.shape(), args.x.dtype());
  check_contiguous(op, "out", args.out);
  check_same_device(op, {&args.x, &args.importance, &args.out});
  if (args.x.numel() > 0) round_gguf_slot(args.x.device().type, args);
}

}  // namespace quench
