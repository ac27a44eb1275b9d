#pragma once
// What one pass through the model shares between its layers.

#include <functional>
#include <vector>

#include "autograd/activation_policy.h"
#include "autograd/tape.h"
#include "core/ops/attention.h"
#include "core/ops/experts/router.h"
#include "nn/attention/kv_cache.h"
#include "nn/attention/rope_table.h"

namespace quench::nn {

// Called around each unit (decoder layer): where sharded training gathers, prefetches and frees weights, and optimizer
// state travels. Empty functions are skipped.
struct UnitHooks {
  std::function<void(std::int64_t unit)> before_forward;
  std::function<void(std::int64_t unit)> after_forward;
  std::function<void(std::int64_t unit)> before_backward;
  std::function<void(std::int64_t unit)> after_backward;
};

class ExpertLoad;

struct ForwardContext {
  RopeTable rope;
  RopeTable query_scales;                // of layers without rotation (make_query_scales); undefined: 1
  Tensor positions;                      // i32 [N]: position of every token within its sequence
  std::vector<SequenceRange> sequences;  // tile the N tokens
  KvCache* cache = nullptr;              // generation: keys and values go here, attention reads from here
  // Generation of one token: its position, and so the number of keys, is known to the device alone; k_length of the
  // sequence is a bound.
  bool length_on_device = false;
  autograd::Recompute recompute = autograd::Recompute::none;
  autograd::ActivationPolicy activations;  // selective recompute: which layers make their largest activation again
  RouterTerms router_terms;                // of the training loss, for each layer with experts
  ExpertLoad* expert_load = nullptr;  // where layers with experts say how many tokens each expert got; null: nowhere
  // Before a unit's pass in this order, after it in the reverse one. They outlive the backward pass.
  std::vector<const UnitHooks*> hooks;
};

}  // namespace quench::nn
