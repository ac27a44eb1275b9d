#pragma once
// Inputs of a forward pass besides token ids: positions, sequences, KV cache, hooks.

#include <functional>
#include <memory>
#include <vector>

#include "autograd/activation_policy.h"
#include "autograd/functions.h"
#include "autograd/functions_moe.h"
#include "autograd/tape.h"
#include "core/ops/attention.h"
#include "core/ops/experts/router.h"
#include "nn/modules/rope_table.h"

namespace quench::autograd {
class TensorExchange;
}

namespace quench::nn {

// Hooks around each decoder layer, for FSDP and optimizer state offload. Empty functions are skipped.
struct UnitHooks {
  std::function<void(std::int64_t unit)> before_forward;
  std::function<void(std::int64_t unit)> after_forward;
  std::function<void(std::int64_t unit)> before_backward;
  std::function<void(std::int64_t unit)> after_backward;
};

// Receives outputs of decoder layers as the forward pass makes them.
class LayerOutputs {
 public:
  virtual ~LayerOutputs() = default;
  [[nodiscard]] virtual bool takes(std::int64_t layer) const = 0;
  // Hidden states [N,H] after the layer, before any final norm. Returns what the rest of the model reads: the same
  // value.
  [[nodiscard]] virtual autograd::Variable take(std::int64_t layer, const autograd::Variable& hidden) = 0;
};

class ExpertLoad;
class KvCache;
struct PagedKeys;

struct ForwardContext {
  std::shared_ptr<const LayerTables> rotations;
  Tensor positions;      // i32 [N], within the sequence
  Tensor rotation_rows;  // i32 [N]: rows of `rotations`; `positions` unless sequences differ in their tables
  std::vector<SequenceRange> sequences;  // cover the N tokens
  autograd::KeyRows keys;                // key rows of sequences with a shared prefix
  // Ranks with slices of the weights: hidden states between layers are this rank's rows; null: all rows.
  const autograd::TensorExchange* tensor = nullptr;
  KvCache* cache = nullptr;          // decode: appended to and read; null in training
  const PagedKeys* paged = nullptr;  // the same in pages
  // The number of keys is known in device memory only; k_length of the sequence is an upper bound.
  bool length_on_device = false;
  autograd::Recompute recompute = autograd::Recompute::none;
  autograd::ActivationPolicy activations;
  RouterTerms router_terms;
  // Share of the whole batch's counted rows, where sequences are in parts (keys.exchange): router_terms are means over
  // the whole.
  float part = 1.0f;
  ExpertLoad* expert_load = nullptr;
  // Rows that expert_load and router_terms count (autograd::select_tokens()): no padding. Without pairs: all.
  autograd::TokenPermutation counted_rows;
  // Tokens of a tile of feed-forward parts, which then save their input alone (autograd/regions/row_tiles.h); 0: whole.
  // Not where router_terms are wanted.
  std::int64_t mlp_tile_tokens = 0;
  // In the recompute of a layer, whose value nothing reads.
  bool layer_value_unread = false;
  // Range of layers that the pass runs (nn::CausalLm::chunks()), and the hidden states [N,H] before them; undefined
  // before the first layer.
  std::size_t chunk = 0;
  autograd::Variable chunk_input;
  LayerOutputs* layer_outputs = nullptr;  // must outlive the forward pass; not called in a recompute
  // Called in this order before a unit's pass, in reverse after it. Must outlive the backward pass.
  std::vector<const UnitHooks*> hooks;

  [[nodiscard]] bool caches_keys() const noexcept { return cache != nullptr || paged != nullptr; }
  [[nodiscard]] const RopeTable& rotation(std::int64_t layer) const {
    return rotations->at(static_cast<std::size_t>(layer));
  }
};

}  // namespace quench::nn
