#include "core/ops/optimizer/sgd.h"

#include "tests/core/ops/golden_file.h"
#include "tests/core/ops/op_testing.h"

namespace quench::testing {
namespace {

// torch.optim.SGD in f64.
struct Reference {
  std::vector<double> p, b;
  void step(const std::vector<double>& g, double lr, double momentum, bool nesterov, double decay) {
    for (std::size_t i = 0; i < p.size(); ++i) {
      const double d = g[i] + decay * p[i];
      b[i] = momentum * b[i] + d;
      p[i] -= lr * (momentum == 0 ? d : nesterov ? d + momentum * b[i] : b[i]);
    }
  }
};

TEST(Sgd, FollowsTheFormula) {
  Generator random(1);
  for (const double momentum : {0.0, 0.9})
    for (const bool nesterov : {false, true}) {
      std::vector<SgdTensor> tensors;
      std::vector<Reference> references;
      for (const std::int64_t n : {1, 37, 20000}) {
        SgdTensor t{.param = random.normal({n}, DType::f32),
                    .grad = Tensor::empty({n}, DType::f32),
                    .momentum = momentum > 0 ? Tensor::zeros({n}, DType::f32) : Tensor(),
                    .weight_decay = 0.1};
        references.push_back({values(t.param), std::vector<double>(static_cast<std::size_t>(n))});
        tensors.push_back(std::move(t));
      }
      for (int step = 1; step <= 4; ++step) {
        for (std::size_t i = 0; i < tensors.size(); ++i) {
          random.fill_normal(tensors[i].grad);
          references[i].step(values(tensors[i].grad), 1e-2, momentum, nesterov, 0.1);
        }
        sgd({.tensors = tensors, .lr = 1e-2, .momentum = momentum, .nesterov = nesterov, .step = step});
        for (std::size_t i = 0; i < tensors.size(); ++i)
          EXPECT_TRUE(close(tensors[i].param, references[i].p, 1e-6, 1e-7));
      }
    }
}

TEST(Sgd, MasterWeightsCarryTheUpdate) {
  Generator random(2);
  SgdTensor t{.param = random.normal({100}, DType::bf16), .grad = random.normal({100}, DType::bf16)};
  t.master = Tensor::empty({100}, DType::f32);
  for (std::int64_t i = 0; i < 100; ++i) set_element(t.master, i, get_element(t.param, i));
  const std::vector<double> before = values(t.master);
  sgd({.tensors = {&t, 1}, .lr = 1e-3});
  for (std::int64_t i = 0; i < 100; ++i) {
    EXPECT_NEAR(get_element(t.master, i), before[static_cast<std::size_t>(i)] - 1e-3 * get_element(t.grad, i), 1e-6);
    EXPECT_EQ(t.param.data<bfloat16>()[i].bits, bfloat16(t.master.data<float>()[i]).bits);
  }
}

TEST(Sgd, ShardedUpdateRoundsLikeUnsharded) {
  Generator random(3);
  SgdTensor whole{.param = random.normal({1000}, DType::bf16),
                  .grad = random.normal({1000}, DType::f32),
                  .momentum = Tensor::zeros({1000}, DType::bf16),
                  .random_stream = 5};
  SgdTensor copy = whole;
  copy.param = whole.param.clone();
  copy.momentum = whole.momentum.clone();
  std::vector<SgdTensor> shards;
  for (const auto& [begin, n] : {std::pair{0, 37}, std::pair{37, 963}}) {
    SgdTensor shard = copy;
    for (Tensor* x : {&shard.param, &shard.grad, &shard.momentum}) *x = x->narrow(0, begin, n);
    shard.element_offset = begin;
    shards.push_back(shard);
  }
  for (int step = 1; step <= 3; ++step) {
    SgdArgs args{.tensors = {&whole, 1}, .lr = 1e-2, .momentum = 0.9, .step = step, .stochastic_rounding = true};
    sgd(args);
    args.tensors = shards;
    sgd(args);
  }
  EXPECT_TRUE(same_bytes(copy.param, whole.param));
  EXPECT_TRUE(same_bytes(copy.momentum, whole.momentum));
}

TEST(Sgd, ScalesGradientsAndSkipsOnNonFiniteScale) {
  SgdTensor t{.param = Tensor::zeros({4}, DType::f32), .grad = Tensor::zeros({4}, DType::f32)};
  fill(t.grad, 2.0);
  Tensor scale = Tensor::empty({1}, DType::f32);
  scale.data<float>()[0] = 0.5f;
  sgd({.tensors = {&t, 1}, .lr = 1, .grad_scale = scale});
  EXPECT_EQ(t.param.data<float>()[3], -1.0f);
  scale.data<float>()[0] = INFINITY;
  sgd({.tensors = {&t, 1}, .lr = 1, .grad_scale = scale});
  EXPECT_EQ(t.param.data<float>()[3], -1.0f);
}

TEST(Sgd, RejectsBadArguments) {
  SgdTensor t{.param = Tensor::zeros({4}, DType::f32), .grad = Tensor::zeros({5}, DType::f32)};
  EXPECT_THROW(sgd({.tensors = {&t, 1}, .lr = 1}), Error);
  t.grad = Tensor::zeros({4}, DType::f32);
  EXPECT_THROW(sgd({.tensors = {&t, 1}, .lr = 1, .momentum = 0.9}), Error) << "without a tensor for it";
  EXPECT_THROW(sgd({.tensors = {&t, 1}, .lr = 1, .momentum = 1.0}), Error);
  EXPECT_THROW(sgd({.tensors = {&t, 1}, .lr = 1, .step = 0}), Error);
}

}  // namespace
}  // namespace quench::testing
