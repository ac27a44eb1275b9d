#pragma once
// Loss, logits and gradients of a model in slices, against those of the whole one.

#include "distributed/ranks.h"
#include "distributed/tensor/group_tensor_exchange.h"
#include "nn/modules/slice_map.h"
#include "tests/distributed/one_pass.h"

namespace quench::testing {

struct TensorPass {
  std::string model;  // members of config.json
  DType dtype = DType::f32;
  std::int64_t length = 33;  // tokens of a row
  double tolerance = 1e-5;   // relative, of the loss and of the norm of each parameter's gradient
  int vocabulary = 60;       // a multiple of the ranks
  autograd::Recompute recompute = autograd::Recompute::none;

  // Every rank has a slice of the model, and all sequences.
  void check(const distributed::Ranks& ranks, Device device) const {
    const nn::ModelConfig config = pass_model(model, vocabulary);
    nn::CausalLm one(config, {.dtype = dtype, .device = device});
    nn::CausalLm slices(config, {.dtype = dtype, .device = device, .tensor = {ranks.rank, ranks.size}});
    for (nn::CausalLm* each : {&one, &slices}) each->initialize(7);
    const distributed::GroupTensorExchange exchange(ranks.world,
                                                    std::make_shared<distributed::ExposedCommTimer>(device));
    slices.set_tensor_exchange(&exchange);
    const auto expected = one.parameters(), got = slices.parameters();
    for (std::size_t i = 0; i < expected.size(); ++i)
      QUENCH_CHECK_AS(
          ErrorCode::failed,
          pass_values(whole(*got[i], got[i]->variable.value(), ranks)) == pass_values(expected[i]->variable.value()),
          "initial values of {}", expected[i]->name);
    const Batch batch = pass_batch(length);
    const double loss = run_pass(one, batch, length, recompute), own = run_pass(slices, batch, length, recompute);
    expect_near(own, loss, std::abs(loss), tolerance, "loss");
    for (std::size_t i = 0; i < expected.size(); ++i) {
      Tensor gradient = got[i]->variable.grad();
      if (got[i]->slice.is_shared())
        distributed::all_reduce(*ranks.world, gradient, distributed::ReduceOp::sum, "gradient");
      else
        gradient = whole(*got[i], gradient, ranks);
      expect_same_gradient(gradient, expected[i]->variable.grad(), tolerance, expected[i]->name);
    }
    const autograd::NoGrad no_grad;
    const auto logits = [&](const nn::CausalLm& on) {
      const Tensor ids = batch.input_ids.view({batch.input_ids.numel()}).to(device);
      return on.logits(on.hidden(ids, batch_context(on, batch)));
    };
    expect_same_gradient(logits(slices), logits(one), tolerance, "no weight: logits");
  }

 private:
  static Tensor whole(const nn::Parameter& parameter, const Tensor& own, const distributed::Ranks& ranks) {
    if (parameter.slice.is_whole()) return own;
    Shape shape = own.shape();
    shape[0] *= ranks.size;
    const Tensor all = Tensor::empty(shape, own.dtype(), own.device());
    ranks.world->all_gather(own, all, "slices").wait();
    return nn::join_slices(parameter, all);
  }
};

}  // namespace quench::testing
