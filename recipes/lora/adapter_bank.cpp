#include "recipes/lora/adapter_bank.h"

#include <map>

#include "core/ops/adapters/row_adapters.h"
#include "core/ops/elementwise.h"
#include "nn/modules/adapter_rows.h"

namespace quench::recipes {
namespace {

// A and B of all adapters, as RowAdaptersArgs.
struct Stack {
  Tensor a, b;
};

class BankLinear final : public nn::LinearKernelWrapper {
 public:
  BankLinear(std::shared_ptr<const nn::LinearKernel> base, Stack stack)
      : nn::LinearKernelWrapper(std::move(base)), stack_(std::move(stack)) {}

  [[nodiscard]] bool supports(const nn::LinearCall& call, const nn::Parameter& /*weight*/,
                              const nn::Weight& /*bias*/) const override {
    return !call.is_fused() && call.mode != nn::LinearMode::recompute;
  }
  [[nodiscard]] std::shared_ptr<const nn::LinearKernel> with_adapter(
      const std::shared_ptr<nn::LowRankAdapter>& /*adapter*/) const override {
    return nullptr;
  }

 private:
  [[nodiscard]] nn::LinearOutput do_run(const nn::LinearCall& call, const nn::Parameter& weight,
                                        const nn::Weight& bias) const override {
    nn::LinearOutput output = wrapped().run(call, weight, bias);
    if (const Tensor rows = nn::AdapterRowsScope::current(); rows.defined())
      row_adapters({.x = call.x.value(), .a = stack_.a, .b = stack_.b, .rows = rows, .y = output.y.value()});
    return output;
  }

  Stack stack_;
};

void require_low_rank(const NamedAdapters& named) {
  const Adapters& adapters = *named.adapters;
  constexpr std::string_view kAlone = "serve it alone, or merged into the weights";
  QUENCH_CHECK_AS(ErrorCode::unsupported, !adapters.options().dora,
                  "adapter {}: trained magnitudes (use_dora) are not among the updates that many adapters share a "
                  "batch with; {}",
                  named.name, kAlone);
  for (const SavedModules::Module& module : adapters.saved().modules())
    QUENCH_FAIL(ErrorCode::unsupported, "adapter {}: a weight of its own for {}, which all adapters share; {}",
                named.name, module.name, kAlone);
  for (const TokenRows::Module& module : adapters.tokens().modules())
    QUENCH_FAIL(ErrorCode::unsupported,
                "adapter {}: rows of its own in {} (trainable_token_indices), which all "
                "adapters share; {}",
                named.name, module.name, kAlone);
  for (const std::string& name : adapters.adapted_experts())
    QUENCH_FAIL(ErrorCode::unsupported, "adapter {}: updates of the experts of {}; {}", named.name, name, kAlone);
}

// f32 on the CPU, contiguous.
Tensor host_values(const nn::Parameter& parameter) {
  const nn::Weight::Acquired acquired = parameter.weight().acquire();
  const Tensor from = acquired.value().to(Device{}), to = Tensor::empty(from.shape(), DType::f32);
  cast({from, to});
  return to;
}

Tensor on_device(const Tensor& values, DType dtype, Device device) {
  const Tensor to = Tensor::empty(values.shape(), dtype);
  cast({values, to});
  return to.to(device);
}

// `adapters`: one for each of the bank, null: none of this layer.
Stack stack_of(const nn::Parameter& weight, const std::vector<const nn::LowRankAdapter*>& adapters, DType dtype,
               Device device) {
  const std::int64_t count = std::ssize(adapters), out = weight.global_shape[0], in = weight.global_shape[1];
  std::int64_t rank = 0;
  for (const nn::LowRankAdapter* adapter : adapters)
    if (adapter != nullptr) rank = std::max(rank, adapter->rank());
  const Tensor a = Tensor::zeros({count, rank, in}, DType::f32), b = Tensor::zeros({count, rank, out}, DType::f32);
  for (std::int64_t i = 0; i < count; ++i) {
    const nn::LowRankAdapter* adapter = adapters[static_cast<std::size_t>(i)];
    if (adapter == nullptr) continue;
    a.select(0, i).narrow(0, 0, adapter->rank()).copy_from(host_values(adapter->a()));
    for (std::size_t p = 0; p < adapter->pieces().size(); ++p) {
      const nn::LowRankPiece& piece = adapter->pieces()[p];
      const Tensor values = host_values(adapter->b(p));
      float* const to = b.data<float>() + (i * rank + piece.rank_begin) * out + piece.row_begin;
      for (std::int64_t row = 0; row < piece.rows; ++row)
        for (std::int64_t r = 0; r < piece.rank; ++r)
          to[r * out + row] = piece.scale * values.data<float>()[row * piece.rank + r];
    }
  }
  return {on_device(a, dtype, device), on_device(b, dtype, device)};
}

}  // namespace

std::int64_t attach_adapter_bank(std::span<const NamedAdapters> adapters, DType dtype, Device device) {
  for (const NamedAdapters& named : adapters) require_low_rank(named);
  std::vector<nn::Linear*> layers;  // in the order of the adapters, for equal runs
  std::map<nn::Linear*, std::vector<const nn::LowRankAdapter*>> of_layer;
  for (std::size_t i = 0; i < adapters.size(); ++i)
    for (const auto& [linear, adapter] : adapters[i].adapters->low_rank()) {
      const auto [entry, added] = of_layer.try_emplace(linear, adapters.size());
      if (added) layers.push_back(linear);
      entry->second[i] = adapter;
    }
  const MemoryScope scope(MemoryCategory::parameters);
  std::int64_t bytes = 0;
  for (nn::Linear* linear : layers) {
    Stack stack = stack_of(linear->weight(), of_layer.at(linear), dtype, device);
    bytes += static_cast<std::int64_t>(stack.a.nbytes() + stack.b.nbytes());
    linear->set_kernel(std::make_shared<BankLinear>(linear->shared_kernel(), std::move(stack)));
  }
  return bytes;
}

}  // namespace quench::recipes
