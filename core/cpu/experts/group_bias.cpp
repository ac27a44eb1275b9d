#include "core/ops/experts/group_bias.h"

#include "core/cpu/parallel.h"
#include "core/cpu/vector_math.h"

namespace quench::cpu::QUENCH_CPU_NAMESPACE {
namespace {

// Expert's rows [begin, end).
struct ExpertRange {
  std::int64_t begin, end;
};
ExpertRange range_of_expert(const Tensor& ends, std::int64_t expert) {
  const auto* of = ends.data<std::int32_t>();
  return {expert == 0 ? 0 : of[expert - 1], of[expert]};
}

float weight_of(const Tensor& weights, std::int32_t pair) {
  return weights.defined() ? weights.data<float>()[pair] : 1.0f;
}

template <class T>
void add_bias(const GroupBiasArgs& args) {
  const std::int64_t experts = args.ends.size(0), width = args.y.size(1);
  const std::int32_t* pairs = args.pairs.data<std::int32_t>();
  for (std::int64_t e = 0; e < experts; ++e) {
    const ExpertRange group = range_of_expert(args.ends, e);
    const T* bias = args.bias.data<T>() + e * width;
    parallel_ranges(group.end - group.begin, (group.end - group.begin) * width,
                    [&](std::int64_t from, std::int64_t to) {
                      for (std::int64_t row = group.begin + from; row < group.begin + to; ++row) {
                        if (pairs[row] < 0) continue;
                        T* y = args.y.data<T>() + row * width;
                        const F32 weight = broadcast(weight_of(args.weights, pairs[row]));
                        for_vectors(width, [&](std::int64_t i, auto count) {
                          store(y + i, fma(weight, load(bias + i, count), load(y + i, count)), count);
                        });
                      }
                    });
  }
}

template <class T, class D>
void bias_gradient(const GroupBiasBackwardArgs& args) {
  const std::int64_t experts = args.ends.size(0), width = args.dy.size(1);
  const std::int32_t* pairs = args.pairs.data<std::int32_t>();
  const MemoryScope scope(MemoryCategory::workspace);
  const Tensor sums = Tensor::zeros({experts, width}, DType::f32);
  parallel_ranges(experts, args.dy.numel(), [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t e = first; e < last; ++e) {
      const ExpertRange group = range_of_expert(args.ends, e);
      float* sum = sums.data<float>() + e * width;
      for (std::int64_t row = group.begin; row < group.end; ++row) {
        if (pairs[row] < 0) continue;
        const T* dy = args.dy.data<T>() + row * width;
        const F32 weight = broadcast(weight_of(args.weights, pairs[row]));
        for_vectors(width, [&](std::int64_t i, auto count) {
          store(sum + i, fma(weight, load(dy + i, count), load(sum + i, count)), count);
        });
      }
      D* out = args.dbias.data<D>() + e * width;
      for_vectors(width, [&](std::int64_t i, auto count) {
        const F32 before = args.accumulate ? load(out + i, count) : F32{};
        store(out + i, before + load(sum + i, count), count);
      });
    }
  });
}

template <class T>
void weight_gradient(const GroupBiasBackwardArgs& args) {
  const std::int64_t experts = args.ends.size(0), width = args.dy.size(1);
  const std::int32_t* pairs = args.pairs.data<std::int32_t>();
  Tensor(args.dweights).zero();
  for (std::int64_t e = 0; e < experts; ++e) {
    const ExpertRange group = range_of_expert(args.ends, e);
    const T* bias = args.bias.data<T>() + e * width;
    parallel_ranges(
        group.end - group.begin, (group.end - group.begin) * width, [&](std::int64_t from, std::int64_t to) {
          for (std::int64_t row = group.begin + from; row < group.begin + to; ++row) {
            if (pairs[row] < 0) continue;
            const T* dy = args.dy.data<T>() + row * width;
            F32 sum{};
            for_vectors(
                width, [&](std::int64_t i, auto count) { sum = fma(load(dy + i, count), load(bias + i, count), sum); });
            args.dweights.data<float>()[pairs[row]] = reduce_add(sum);
          }
        });
  }
}

void group_bias_kernel(const GroupBiasArgs& args) {
  dispatch<float, bfloat16>(args.y.dtype(), "add_group_bias", [&]<class T>() { add_bias<T>(args); });
}

void group_bias_backward_kernel(const GroupBiasBackwardArgs& args) {
  dispatch<float, bfloat16>(args.dy.dtype(), "group_bias_backward", [&]<class T>() {
    if (args.dbias.defined() && args.dbias.dtype() == DType::f32) bias_gradient<T, float>(args);
    if (args.dbias.defined() && args.dbias.dtype() != DType::f32) bias_gradient<T, T>(args);
    if (args.dweights.defined()) weight_gradient<T>(args);
  });
}

QUENCH_CPU_KERNEL(group_bias_slot, group_bias_kernel);
QUENCH_CPU_KERNEL(group_bias_backward_slot, group_bias_backward_kernel);

}  // namespace
}  // namespace quench::cpu::QUENCH_CPU_NAMESPACE
