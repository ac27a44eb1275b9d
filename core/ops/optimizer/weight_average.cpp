#include "core/ops/optimizer/weight_average.h"

#include "core/tensor/op_checks.h"

namespace quench {

constinit KernelSlot<WeightAverageArgs> weight_average_slot("average_weights");

void average_weights(const WeightAverageArgs& args) {
  constexpr std::string_view op = "average_weights";
  QUENCH_CHECK(args.step >= 1 && args.decay > 0 && args.decay < 1,
               "average_weights: step {}, decay {}; the first step is 1, decay is in (0, 1)", args.step, args.decay);
  if (args.tensors.empty()) return;
  const Device device = args.tensors.front().param.device();
  for (const AveragedTensor& t : args.tensors) {
    for (const auto& [name, tensor] : {std::pair("param", &t.param), {"average", &t.average}}) {
      QUENCH_CHECK(tensor->defined() && is_f32_or_bf16(tensor->dtype()) && tensor->shape() == t.param.shape(),
                   "average_weights: {} is {}, expected f32 or bf16 of the shape of param, {}", name,
                   tensor->describe(), t.param.describe());
      check_contiguous(op, name, *tensor);
      QUENCH_CHECK(tensor->device() == device, "average_weights: {} is {}, the others are on {}", name,
                   tensor->describe(), device.to_string());
    }
    QUENCH_CHECK(t.element_offset >= 0, "average_weights: element_offset is {}", t.element_offset);
  }
  weight_average_slot(device.type, args);
}

}  // namespace quench
