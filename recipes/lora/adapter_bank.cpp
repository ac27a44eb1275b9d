#include "recipes/lora/adapter_bank.h"

#include <map>

#include "core/ops/adapters/row_adapters.h"
#include "core/ops/elementwise.h"
#include "nn/modules/adapter_rows.h"

namespace quench::recipes {
namespace {

// A and B of all adapters, as RowAdaptersArgs.
struct Stack {
  Tensor a;
  std::vector<RowAdapterPart> parts;
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
      row_adapters({.x = call.x.value(), .a = stack_.a, .parts = stack_.parts, .rows = rows, .y = output.y.value()});
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

// Rows of a weight that adapters update, by the first one: their count, and place and number of their ranks in A.
struct Slot {
  std::int64_t rows = 0, rank_begin = 0, rank = 0;
};
using Slots = std::map<std::int64_t, Slot>;

// `adapters`: one for each of the bank, null: none of this layer.
Slots slots_of(const std::vector<const nn::LowRankAdapter*>& adapters) {
  Slots slots;
  for (const nn::LowRankAdapter* adapter : adapters) {
    if (adapter == nullptr) continue;
    for (const nn::LowRankPiece& piece : adapter->pieces()) {
      Slot& slot = slots[piece.row_begin];
      slot.rows = piece.rows;
      slot.rank = std::max(slot.rank, piece.rank);
    }
  }
  std::int64_t next = 0;
  for (auto& [row, slot] : slots) slot.rank_begin = std::exchange(next, next + slot.rank);
  return slots;
}

Stack stack_of(std::int64_t in, const std::vector<const nn::LowRankAdapter*>& adapters, DType dtype, Device device) {
  const Slots slots = slots_of(adapters);
  const std::int64_t count = std::ssize(adapters),
                     rank = slots.rbegin()->second.rank_begin + slots.rbegin()->second.rank;
  const Tensor a = Tensor::zeros({count, rank, in}, DType::f32);
  std::map<std::int64_t, Tensor> b;
  for (const auto& [row, slot] : slots) b[row] = Tensor::zeros({count, slot.rank, slot.rows}, DType::f32);
  for (std::int64_t i = 0; i < count; ++i) {
    const nn::LowRankAdapter* adapter = adapters[static_cast<std::size_t>(i)];
    if (adapter == nullptr) continue;
    const Tensor own_a = host_values(adapter->a());
    for (std::size_t p = 0; p < adapter->pieces().size(); ++p) {
      const nn::LowRankPiece& piece = adapter->pieces()[p];
      const Slot& slot = slots.at(piece.row_begin);
      a.select(0, i).narrow(0, slot.rank_begin, piece.rank).copy_from(own_a.narrow(0, piece.rank_begin, piece.rank));
      const Tensor own_b = host_values(adapter->b(p));
      float* const to = b.at(piece.row_begin).data<float>() + i * slot.rank * slot.rows;
      for (std::int64_t row = 0; row < piece.rows; ++row)
        for (std::int64_t r = 0; r < piece.rank; ++r)
          to[r * slot.rows + row] = piece.scale * own_b.data<float>()[row * piece.rank + r];
    }
  }
  Stack stack{.a = on_device(a, dtype, device), .parts = {}};
  for (const auto& [row, slot] : slots)
    stack.parts.push_back({.b = on_device(b.at(row), dtype, device), .column = row, .rank_begin = slot.rank_begin});
  return stack;
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
    Stack stack = stack_of(linear->weight().global_shape[1], of_layer.at(linear), dtype, device);
    bytes += static_cast<std::int64_t>(stack.a.nbytes());
    for (const RowAdapterPart& part : stack.parts) bytes += static_cast<std::int64_t>(part.b.nbytes());
    linear->set_kernel(std::make_shared<BankLinear>(linear->shared_kernel(), std::move(stack)));
  }
  return bytes;
}

}  // namespace quench::recipes
