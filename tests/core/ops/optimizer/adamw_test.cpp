#include "core/ops/optimizer/adamw.h"

#include "core/number/stochastic_rounding.h"
#include "core/ops/optimizer/split_weights.h"
#include "core/ops/quantize/quantize.h"
#include "core/safetensors/safetensors.h"
#include "tests/core/ops/op_testing.h"
#include "tests/testing.h"

namespace quench {
namespace {

using namespace testing;

constexpr double kLr = 1e-2, kBeta1 = 0.9, kBeta2 = 0.95, kEps = 1e-8, kDecay = 0.1;

struct State {
  std::vector<double> p, m, v;
};

void reference_step(State& s, const std::vector<double>& g, int t) {
  for (std::size_t i = 0; i < g.size(); ++i) {
    s.p[i] *= 1 - kLr * kDecay;
    s.m[i] += (1 - kBeta1) * (g[i] - s.m[i]);
    s.v[i] = kBeta2 * s.v[i] + (1 - kBeta2) * g[i] * g[i];
    s.p[i] -=
        kLr / (1 - std::pow(kBeta1, t)) * s.m[i] / (std::sqrt(s.v[i]) / std::sqrt(1 - std::pow(kBeta2, t)) + kEps);
  }
}

AdamWArgs arguments(std::span<const AdamWTensor> tensors, std::int64_t step) {
  return {.tensors = tensors, .lr = kLr, .beta1 = kBeta1, .beta2 = kBeta2, .eps = kEps, .step = step};
}

AdamWTensor make(Generator& random, const Shape& shape, DType param, DType state, bool master) {
  AdamWTensor t{.param = random.normal(shape, param),
                .grad = Tensor::empty(shape, param),
                .exp_avg = Tensor::zeros(shape, state),
                .exp_avg_sq = Tensor::zeros(shape, state),
                .weight_decay = kDecay};
  if (master) {
    t.master = Tensor::empty(shape, DType::f32);
    for (std::int64_t i = 0; i < t.master.numel(); ++i) set_element(t.master, i, get_element(t.param, i));
  }
  return t;
}

TEST(AdamW, FollowsTheFormulaOverSeveralTensorsAndSteps) {
  Generator random(1);
  std::vector<AdamWTensor> tensors;
  std::vector<State> states;
  for (const std::int64_t n : {1, 0, 37, 20000, 512})
    tensors.push_back(make(random, {n}, DType::f32, DType::f32, false));
  for (const AdamWTensor& t : tensors) states.push_back({values(t.param), values(t.exp_avg), values(t.exp_avg_sq)});
  for (int step = 1; step <= 5; ++step) {
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      random.fill_normal(tensors[i].grad);
      reference_step(states[i], values(tensors[i].grad), step);
    }
    adamw(arguments(tensors, step));
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      EXPECT_TRUE(close(tensors[i].param, states[i].p, 1e-6, 1e-7));
      EXPECT_TRUE(close(tensors[i].exp_avg, states[i].m, 1e-6, 1e-7));
      EXPECT_TRUE(close(tensors[i].exp_avg_sq, states[i].v, 1e-6, 1e-9));
    }
  }
}

TEST(AdamW, MasterWeightsCarryTheUpdate) {
  Generator random(2);
  const std::array tensors{make(random, {700}, DType::bf16, DType::f32, true)};
  const AdamWTensor& t = tensors[0];
  State state{values(t.master), values(t.exp_avg), values(t.exp_avg_sq)};
  for (int step = 1; step <= 10; ++step) {
    random.fill_normal(t.grad);
    reference_step(state, values(t.grad), step);
    adamw(arguments(tensors, step));
  }
  EXPECT_TRUE(close(t.master, state.p, 1e-6, 1e-6));
  for (std::int64_t i = 0; i < 700; ++i)
    EXPECT_EQ(t.param.data<bfloat16>()[i].bits, bfloat16(t.master.data<float>()[i]).bits);
}

// Against separate master weights: the same bits (no weight here is a tie between two bf16 values).
TEST(AdamW, SplitMasterWeightsAreTheSameWeights) {
  Generator random(12);
  for (const DType state : {DType::f32, DType::bf16})
    for (const std::int64_t n : {1, 7, 64, 701, 20000}) {
      SCOPED_TRACE(fmt::format("{} elements, states {}", n, to_string(state)));
      const std::array whole{make(random, {n}, DType::bf16, state, true)};
      std::array split{whole[0]};
      split[0].param = whole[0].param.clone();
      split[0].exp_avg = whole[0].exp_avg.clone();
      split[0].exp_avg_sq = whole[0].exp_avg_sq.clone();
      split[0].master = Tensor::empty({n}, DType::i16);
      random.fill_normal(whole[0].master);
      split_weights(whole[0].master, split[0].param, split[0].master);
      for (int step = 1; step <= 5; ++step) {
        random.fill_normal(whole[0].grad);
        AdamWArgs args = arguments(whole, step);
        args.stochastic_rounding = state == DType::bf16;
        args.seed = 5;
        adamw(args);
        args.tensors = split;
        adamw(args);
      }
      EXPECT_TRUE(same_bits(split[0].param, whole[0].param));
      EXPECT_TRUE(same_bits(split[0].exp_avg, whole[0].exp_avg));
      EXPECT_TRUE(same_bits(split[0].exp_avg_sq, whole[0].exp_avg_sq));
      EXPECT_TRUE(same_bits(join_weights(split[0].param, split[0].master), whole[0].master));
    }
}

TEST(AdamW, SplitMasterWeightsKeepUnusualValues) {
  const std::vector<float> values{0.0f,     -0.0f,    1e-45f,    -3e-39f, 3.4e38f,
                                  -3.4e38f, INFINITY, -INFINITY, NAN,     1.00390625f};
  const auto n = static_cast<std::int64_t>(values.size());
  AdamWTensor t{.param = Tensor::empty({n}, DType::bf16),
                .grad = Tensor::zeros({n}, DType::f32),
                .exp_avg = Tensor::zeros({n}, DType::f32),
                .exp_avg_sq = Tensor::zeros({n}, DType::f32),
                .master = Tensor::empty({n}, DType::i16)};
  split_weights(Tensor::from_values<float>({n}, values), t.param, t.master);
  adamw(arguments(std::array{t}, 1));  // no gradient, no decay
  const Tensor after = join_weights(t.param, t.master);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float expected = values[i] == 1.00390625f ? std::nextafter(1.00390625f, 0.0f) : values[i];
    const float actual = after.data<float>()[i];
    EXPECT_TRUE(std::isnan(expected) ? std::isnan(actual) : actual == expected) << i << ": " << actual;
  }
}

TEST(AdamW, Bf16ParametersAndStatesRoundOnceAStep) {
  Generator random(3);
  const std::array tensors{make(random, {300}, DType::bf16, DType::bf16, false)};
  const AdamWTensor& t = tensors[0];
  random.fill_normal(t.grad);
  random.fill_normal(t.exp_avg, 0.1);
  fill(t.exp_avg_sq, 0.5);
  State state{values(t.param), values(t.exp_avg), values(t.exp_avg_sq)};
  reference_step(state, values(t.grad), 3);
  adamw(arguments(tensors, 3));
  EXPECT_TRUE(close(t.param, state.p, 0x1.01p-8, 1e-7));
  EXPECT_TRUE(close(t.exp_avg, state.m, 0x1.01p-8, 1e-7));
  EXPECT_TRUE(close(t.exp_avg_sq, state.v, 0x1.01p-8, 1e-7));
}

TEST(AdamW, StochasticRoundingUsesTheBitsOfEachElement) {
  Generator random(4);
  const std::int64_t n = 1111, offset = 7;
  const AdamWTensor exact = make(random, {n}, DType::f32, DType::f32, false);
  AdamWTensor rounded{.param = Tensor::empty({n}, DType::bf16),
                      .grad = exact.grad,
                      .exp_avg = Tensor::zeros({n}, DType::bf16),
                      .exp_avg_sq = Tensor::zeros({n}, DType::bf16),
                      .weight_decay = kDecay,
                      .random_stream = hash64("layer.weight"),
                      .element_offset = offset};
  for (std::int64_t i = 0; i < n; ++i) {
    set_element(rounded.param, i, get_element(exact.param, i));
    set_element(exact.param, i, get_element(rounded.param, i));
  }
  random.fill_normal(exact.grad);
  const std::array exact_list{exact}, rounded_list{rounded};
  AdamWArgs args = arguments(exact_list, 2);
  adamw(args);
  args.tensors = rounded_list;
  args.stochastic_rounding = true;
  args.seed = 99;
  adamw(args);
  const auto check = [&](const Tensor& actual, const Tensor& unrounded, std::uint64_t step) {
    const RandomKey key{99, hash64("layer.weight"), step};
    for (std::int64_t i = 0; i < n; ++i)
      ASSERT_EQ(actual.data<bfloat16>()[i].bits,
                stochastic_round_bf16(unrounded.data<float>()[i], key, static_cast<std::uint64_t>(i + offset)).bits);
  };
  check(rounded.param, exact.param, 2);
  check(rounded.exp_avg, exact.exp_avg, (1ull << 62) + 2);
  check(rounded.exp_avg_sq, exact.exp_avg_sq, (1ull << 63) + 2);
}

TEST(AdamW, ShardedUpdateRoundsLikeUnsharded) {
  Generator random(5);
  const std::int64_t n = 3000, cut = 1237;
  const std::array whole{make(random, {n}, DType::bf16, DType::bf16, false)};
  random.fill_normal(whole[0].grad);
  std::array<AdamWTensor, 2> shards{whole[0], whole[0]};
  for (int s = 0; s < 2; ++s) {
    const std::int64_t begin = s == 0 ? 0 : cut, length = s == 0 ? cut : n - cut;
    AdamWTensor& shard = shards[static_cast<std::size_t>(s)];
    for (Tensor* t : {&shard.param, &shard.grad, &shard.exp_avg, &shard.exp_avg_sq})
      *t = t->clone().narrow(0, begin, length);
    shard.element_offset = begin;
  }
  AdamWArgs args = arguments(whole, 1);
  args.stochastic_rounding = true;
  adamw(args);
  args.tensors = shards;
  adamw(args);
  for (int s = 0; s < 2; ++s) {
    const AdamWTensor& shard = shards[static_cast<std::size_t>(s)];
    const std::int64_t begin = s == 0 ? 0 : cut, length = s == 0 ? cut : n - cut;
    EXPECT_TRUE(same_bits(shard.param, whole[0].param.narrow(0, begin, length)));
    EXPECT_TRUE(same_bits(shard.exp_avg, whole[0].exp_avg.narrow(0, begin, length)));
    EXPECT_TRUE(same_bits(shard.exp_avg_sq, whole[0].exp_avg_sq.narrow(0, begin, length)));
  }
}

TEST(AdamW, ScalesGradientsAndSkipsOnNonFiniteScale) {
  Generator random(6);
  const AdamWTensor a = make(random, {100}, DType::f32, DType::f32, false);
  random.fill_normal(a.grad);
  AdamWTensor b = a;
  for (Tensor* t : {&b.param, &b.grad, &b.exp_avg, &b.exp_avg_sq}) *t = t->clone();
  for (std::int64_t i = 0; i < 100; ++i) b.grad.data<float>()[i] *= 0.25f;
  const std::array first{a}, second{b};
  const Tensor scale = Tensor::from_values<float>({1}, std::array{0.25f});
  AdamWArgs args = arguments(first, 1);
  args.grad_scale = scale;
  adamw(args);
  adamw(arguments(second, 1));
  EXPECT_TRUE(same_bits(a.param, b.param));
  for (const float bad : {NAN, INFINITY, -INFINITY}) {
    *scale.data<float>() = bad;
    adamw(args);
    EXPECT_TRUE(same_bits(a.param, b.param));
    EXPECT_TRUE(same_bits(a.exp_avg, b.exp_avg));
    EXPECT_TRUE(same_bits(a.exp_avg_sq, b.exp_avg_sq));
  }
}

TEST(AdamW, AmaxMatchesStoredParameter) {
  Generator random(9);
  std::vector<AdamWTensor> tensors{make(random, {0}, DType::bf16, DType::f32, false)};
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const bool master : {false, true})
      for (const std::int64_t n : {1, 33, 40000}) {
        if (master && dtype == DType::f32) continue;
        tensors.push_back(make(random, {n}, dtype, DType::bf16, master));
        random.fill_normal(tensors.back().grad);
      }
  for (AdamWTensor& t : tensors) t.amax = Tensor::from_values<float>({}, std::array{1e30f});  // written, not raised
  const auto check = [&] {
    for (const AdamWTensor& t : tensors) EXPECT_TRUE(same_bits(t.amax, amax(t.param, Granularity::tensor)));
  };
  AdamWArgs args = arguments(tensors, 1);
  args.stochastic_rounding = true;
  args.seed = 3;
  adamw(args);
  check();
  EXPECT_EQ(*tensors[0].amax.data<float>(), 0.0f);
  // Without an update as well.
  for (const AdamWTensor& t : tensors) *t.amax.data<float>() = -1.0f;
  const Tensor before = tensors.back().param.clone();
  args.grad_scale = Tensor::from_values<float>({1}, std::array{NAN});
  adamw(args);
  EXPECT_TRUE(same_bits(before, tensors.back().param));
  check();
  args.grad_scale = Tensor();
  set_element(tensors.back().grad, 777, NAN);
  adamw(args);
  check();
  EXPECT_TRUE(std::isnan(*tensors.back().amax.data<float>()));
  tensors.back().amax = Tensor::zeros({1}, DType::f32);
  EXPECT_THROW(adamw(arguments(tensors, 1)), Error);
}

TEST(AdamW, BitsDoNotDependOnTheThreadCount) {
  Generator random(7);
  const AdamWTensor start = make(random, {50000}, DType::bf16, DType::bf16, false);
  random.fill_normal(start.grad);
  const std::array work{AdamWTensor{.param = start.param.clone(),
                                    .grad = start.grad,
                                    .exp_avg = start.exp_avg.clone(),
                                    .exp_avg_sq = start.exp_avg_sq.clone()}};
  EXPECT_TRUE(independent_of_threads({work[0].param, work[0].exp_avg, work[0].exp_avg_sq}, [&] {
    Tensor(work[0].param).copy_from(start.param);
    Tensor(work[0].exp_avg).copy_from(start.exp_avg);
    Tensor(work[0].exp_avg_sq).copy_from(start.exp_avg_sq);
    AdamWArgs args = arguments(work, 1);
    args.stochastic_rounding = true;
    adamw(args);
  }));
}

TEST(AdamW, RejectsBadArguments) {
  Generator random(8);
  std::array list{make(random, {4}, DType::f32, DType::f32, false)};
  AdamWArgs args = arguments(list, 0);
  EXPECT_THROW(adamw(args), Error);
  args.step = 1;
  args.beta1 = 1.0;
  EXPECT_THROW(adamw(args), Error);
  args.beta1 = kBeta1;
  list[0].grad = Tensor::zeros({5}, DType::f32);
  EXPECT_THROW(adamw(args), Error);
  list[0].grad = Tensor::zeros({4}, DType::f32);
  list[0].master = Tensor::zeros({4}, DType::bf16);
  EXPECT_THROW(adamw(args), Error);
  list[0].master = Tensor::zeros({4}, DType::f32);  // the parameter is f32
  EXPECT_THROW(adamw(args), Error);
  list[0].master = Tensor::zeros({4}, DType::i16);  // likewise, split
  EXPECT_THROW(adamw(args), Error);
  list[0].master = Tensor();
  list[0].exp_avg_sq = Tensor::zeros({4}, DType::bf16);
  EXPECT_THROW(adamw(args), Error);
  list[0].exp_avg_sq = Tensor::zeros({4}, DType::f32);
  args.grad_scale = Tensor::zeros({2}, DType::f32);
  EXPECT_THROW(adamw(args), Error);
  adamw(arguments({}, 1));
}

Tensor golden(SafetensorsReader& reader, const std::string& name) {
  const SafetensorsEntry& entry = reader.at(name);
  Tensor result = Tensor::empty(entry.shape, *entry.dtype);
  reader.read(entry, std::as_writable_bytes(std::span(static_cast<std::byte*>(result.raw_data()), result.nbytes())));
  return result;
}

TEST(AdamWGolden, ReproducesPyTorchsSixSteps) {
  SafetensorsReader reader(golden_dir() / "low_bit_adamw.safetensors");
  const Tensor p = golden(reader, "adamw.p0");
  AdamWTensor t{.param = p,
                .exp_avg = Tensor::zeros(p.shape(), DType::f32),
                .exp_avg_sq = Tensor::zeros(p.shape(), DType::f32),
                .weight_decay = 0.1};
  for (int step = 1; step <= 6; ++step) {
    t.grad = golden(reader, fmt::format("adamw.g{}", step - 1));
    const std::array list{t};
    adamw({.tensors = list, .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .step = step});
    EXPECT_TRUE(same_bits(p, golden(reader, fmt::format("adamw.p{}", step)))) << "step " << step;
  }
}

}  // namespace
}  // namespace quench
