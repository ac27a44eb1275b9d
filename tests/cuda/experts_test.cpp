// Kernels of experts against the CPU's.

#include <numeric>

#include "core/ops/experts/grouped_gemm.h"
#include "core/ops/experts/round_groups.h"
#include "core/ops/experts/router.h"
#include "core/ops/experts/token_permutation.h"
#include "core/ops/quantize/round_mx.h"
#include "tests/cuda/fused_testing.h"

namespace quench::testing {
namespace {

struct RouterCase {
  std::int64_t tokens, experts, chosen;
  RouterRule rule;
  bool bias = false;
};

std::vector<RouterCase> router_cases() {
  using enum RouterScoring;
  return {
      {37, 8, 2, {.scoring = softmax, .normalize = true}},
      {1, 1, 1, {.scoring = softmax}},
      {1000, 128, 8, {.scoring = softmax, .normalize = true}},
      {65, 7, 7, {.scoring = softmax, .factor = 0.5f}},
      {129, 256, 8, {.scoring = sigmoid, .normalize = true, .factor = 2.5f, .groups = 8, .groups_per_token = 4}, true},
      {33, 2048, 16, {.scoring = sigmoid, .groups = 64, .groups_per_token = 3}},
      {12, 16, 4, {.scoring = softmax, .groups = 4, .groups_per_token = 1}, true}};
}

TEST(CudaExperts, RouterMatchesTheCpu) {
  for (const RouterCase& c : router_cases()) {
    SCOPED_TRACE(fmt::format("{} tokens, {} of {}, {} groups", c.tokens, c.chosen, c.experts, c.rule.groups));
    Generator random(static_cast<std::uint32_t>(c.experts));
    const Tensor logits = random.normal({c.tokens, c.experts}, DType::f32, 2.0);
    const Tensor bias = c.bias ? random.normal({c.experts}, DType::f32, 0.5) : Tensor();
    const Shape chosen{c.tokens, c.chosen};
    const Tensor experts = Tensor::empty(chosen, DType::i32), weights = Tensor::empty(chosen, DType::f32);
    router({logits, bias, experts, weights, c.rule});
    const Tensor gpu_experts = Tensor::zeros(chosen, DType::i32, kGpu), gpu_weights = poisoned(chosen, DType::f32);
    router({on_gpu(logits), on_gpu(bias), gpu_experts, gpu_weights, c.rule});
    EXPECT_EQ(values(on_cpu(gpu_experts)), values(experts));
    EXPECT_TRUE(matches(gpu_weights, weights, 2e-6, 1e-9));

    const Tensor counts = Tensor::zeros({c.experts}, DType::f32), dweights = random.normal(chosen, DType::f32);
    for (const double e : values(experts)) counts.data<float>()[static_cast<std::int64_t>(e)] += 1;
    for (const RouterTerms& terms : {RouterTerms{}, RouterTerms{.balance = 0.3f, .z = 0.1f}}) {
      const Tensor dlogits = Tensor::empty(logits.shape(), DType::f32), gpu = poisoned(logits.shape(), DType::f32);
      router_backward({dweights, logits, experts, counts, dlogits, c.rule, terms});
      router_backward({on_gpu(dweights), on_gpu(logits), on_gpu(experts), on_gpu(counts), gpu, c.rule, terms});
      EXPECT_TRUE(matches(gpu, dlogits, 1e-4, 1e-6));
    }
    const Tensor losses = Tensor::empty({2}, DType::f32), gpu_losses = poisoned({2}, DType::f32);
    router_loss({logits, counts, losses});
    router_loss({on_gpu(logits), on_gpu(counts), gpu_losses});
    EXPECT_TRUE(matches(gpu_losses, losses, 1e-5, 1e-7));
  }
}

TEST(CudaExperts, RouterTakesNaNLast) {
  const Tensor logits = Tensor::zeros({2, 40}, DType::f32);
  for (int e = 0; e < 40; ++e) logits.data<float>()[40 + e] = NAN;
  const Tensor experts = Tensor::zeros({2, 3}, DType::i32, kGpu), weights = poisoned({2, 3}, DType::f32);
  router({on_gpu(logits), {}, experts, weights, {}});
  EXPECT_EQ(values(on_cpu(experts)), (std::vector<double>{0, 1, 2, 0, 1, 2}));
  EXPECT_TRUE(std::isnan(on_cpu(weights).data<float>()[5]));
}

TEST(CudaExperts, LogitsDecideWhereSigmoidsAreEqual) {
  const Tensor logits = Tensor::from_values<float>({2, 4}, std::vector<float>{20, 30, 25, -1, 40, 18, 41, 40.5f});
  const Tensor experts = Tensor::zeros({2, 2}, DType::i32, kGpu), weights = poisoned({2, 2}, DType::f32);
  router({on_gpu(logits), {}, experts, weights, {.scoring = RouterScoring::sigmoid}});
  EXPECT_EQ(values(on_cpu(experts)), (std::vector<double>{1, 2, 2, 3}));
  EXPECT_EQ(values(on_cpu(weights)), (std::vector<double>{1, 1, 1, 1}));
}

struct Rows {
  Tensor counts, ends, rows, pairs;
};

Rows rows_of(const Tensor& experts, std::int64_t count, std::int64_t alignment, Device device) {
  Rows r{Tensor::zeros({count}, DType::f32, device), Tensor::zeros({count}, DType::i32, device),
         Tensor::zeros(experts.shape(), DType::i32, device),
         Tensor::zeros({permuted_row_capacity(experts.numel(), count, alignment)}, DType::i32, device)};
  token_permutation({experts, alignment, r.counts, r.ends, r.rows, r.pairs});
  return r;
}

TEST(CudaExperts, RowsMatchCpu) {
  for (const std::int64_t alignment : {1, 16, 128})
    for (const auto& [tokens, choices, count] :
         {std::tuple{50, 2, 8}, {1, 1, 1}, {5000, 8, 128}, {2048, 1, 3}, {700, 3, 1500}, {33, 4, 8192}}) {
      SCOPED_TRACE(fmt::format("{} x {} to {}, alignment {}", tokens, choices, count, alignment));
      Generator random(11);
      const Tensor experts = random.integers(tokens * choices, count).view({tokens, choices});
      const Rows cpu = rows_of(experts, count, alignment, Device{}),
                 gpu = rows_of(on_gpu(experts), count, alignment, kGpu);
      EXPECT_TRUE(same_bits(on_cpu(gpu.counts), cpu.counts));
      EXPECT_TRUE(same_bits(on_cpu(gpu.ends), cpu.ends));
      EXPECT_TRUE(same_bits(on_cpu(gpu.rows), cpu.rows));
      EXPECT_TRUE(same_bits(on_cpu(gpu.pairs), cpu.pairs));
    }
  const Rows none = rows_of(Tensor::zeros({0, 2}, DType::i32, kGpu), 5, 32, kGpu);
  EXPECT_EQ(values(on_cpu(none.ends)), std::vector<double>(5, 0.0));
}

TEST(CudaExperts, GatherSumAndSwigluMatchTheCpu) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const auto& [tokens, choices, width] : {std::tuple{20, 3, 19}, {300, 2, 256}, {70, 8, 768}, {20, 3, 1184}}) {
      SCOPED_TRACE(fmt::format("{} {} x {} of {}", to_string(dtype), tokens, choices, width));
      Generator random(5);
      const Tensor experts = random.integers(tokens * choices, 6).view({tokens, choices});
      const Rows r = rows_of(experts, 6, 16, Device{});
      const Tensor pairs = on_gpu(r.pairs);
      const std::int64_t n = r.pairs.size(0);
      const Tensor x = random.normal({tokens, width}, dtype), y = random.normal({n, width}, dtype);
      const Tensor copies = Tensor::empty({n, width}, dtype), gpu_copies = poisoned({n, width}, dtype);
      permute_tokens({x, r.pairs, choices, copies});
      permute_tokens({on_gpu(x), pairs, choices, gpu_copies});
      EXPECT_TRUE(same_bits(on_cpu(gpu_copies), copies));
      const Tensor sums = Tensor::empty(x.shape(), dtype), gpu_sums = poisoned(x.shape(), dtype);
      unpermute_tokens({y, r.rows, sums});
      unpermute_tokens({on_gpu(y), on_gpu(r.rows), gpu_sums});
      EXPECT_TRUE(same_bits(on_cpu(gpu_sums), sums)) << "the order of the sums is that of the choices";

      // Columns of wider rows, and tokens without a row.
      const Tensor wide = random.normal({tokens, 2 * width}, dtype), readers = r.rows.clone();
      for (std::int64_t i = 0; i < readers.numel(); i += 3) readers.data<std::int32_t>()[i] = -1;
      const auto columns = [width](const Tensor& t) { return t.narrow(1, width, width); };
      const Tensor gpu_wide = on_gpu(wide), cpu_target = wide.clone();
      permute_tokens({columns(wide), r.pairs, choices, copies});
      permute_tokens({columns(gpu_wide), pairs, choices, gpu_copies});
      EXPECT_TRUE(same_bits(on_cpu(gpu_copies), copies));
      unpermute_tokens({y, readers, columns(cpu_target)});
      unpermute_tokens({on_gpu(y), on_gpu(readers), columns(gpu_wide)});
      EXPECT_TRUE(same_bits(on_cpu(gpu_wide), cpu_target));

      for (const bool score_before_experts : {false, true}) {
        SCOPED_TRACE(score_before_experts);
        const Tensor gate_up = random.normal({n, 2 * width}, dtype, 2.0), dout = random.normal({n, width}, dtype);
        const Tensor weights = random.normal({tokens, choices}, DType::f32);
        const Tensor out = Tensor::empty({n, width}, dtype), dgate_up = Tensor::empty(gate_up.shape(), dtype);
        const Tensor dweights = Tensor::empty(weights.shape(), DType::f32);
        expert_swiglu({gate_up, weights, r.pairs, out, score_before_experts});
        expert_swiglu_backward({dout, gate_up, weights, r.pairs, dgate_up, dweights, {}, score_before_experts});
        const Tensor gpu_gate_up = on_gpu(gate_up), gpu_weights = on_gpu(weights),
                     gpu_out = poisoned(out.shape(), dtype);
        const Tensor gpu_dgate_up = poisoned(gate_up.shape(), dtype),
                     gpu_dweights = poisoned(weights.shape(), DType::f32);
        const Tensor again = poisoned(out.shape(), dtype), gpu_dout = on_gpu(dout);
        expert_swiglu({gpu_gate_up, gpu_weights, pairs, gpu_out, score_before_experts});
        expert_swiglu_backward(
            {gpu_dout, gpu_gate_up, gpu_weights, pairs, gpu_dgate_up, gpu_dweights, again, score_before_experts});
        const double step = dtype == DType::bf16 ? one_step(dtype) : 2e-6;
        EXPECT_TRUE(matches(gpu_out, out, step, 1e-6));
        EXPECT_TRUE(matches(gpu_dgate_up, dgate_up, step, 1e-5));
        EXPECT_TRUE(matches(gpu_dweights, dweights, 1e-4, 1e-4));
        EXPECT_TRUE(same_bits(on_cpu(again), on_cpu(gpu_out)));
        if (width % 32 == 0) {
          const Tensor rounded = poisoned(out.shape(), dtype);
          expert_swiglu({gpu_gate_up, gpu_weights, pairs, rounded, score_before_experts, MxScaleMode::rceil});
          round_mx({.x = again, .out = again});
          EXPECT_TRUE(same_bits(on_cpu(rounded), on_cpu(again))) << "rounded to MX on the way";
        }
        expert_swiglu_backward(
            {gpu_dout, gpu_gate_up, gpu_weights, pairs, gpu_gate_up, gpu_dweights, {}, score_before_experts});
        EXPECT_TRUE(same_bits(on_cpu(gpu_gate_up), on_cpu(gpu_dgate_up))) << "in place";
      }
    }
}

// |gpu - f64 sum| within f32 summation noise and one rounding.
void expect_product(const Tensor& gpu, const std::vector<double>& sum, const std::vector<double>& magnitude) {
  const auto got = values(on_cpu(gpu));
  ASSERT_EQ(got.size(), sum.size());
  for (std::size_t i = 0; i < got.size(); ++i)
    ASSERT_NEAR(got[i], sum[i], 0x1.0p-20 * magnitude[i] + rounding(gpu.dtype()) * std::abs(sum[i]) * 1.01) << i;
}

// All three products of `rows` rows in these groups against their definition in f64.
void check_products(DType dtype, std::int64_t rows, std::int64_t n, std::int64_t k,
                    const std::vector<std::int32_t>& list, std::int64_t alignment, std::uint32_t seed) {
  SCOPED_TRACE(fmt::format("{} rows {} n {} k {} ends {}", to_string(dtype), rows, n, k, fmt::join(list, ",")));
  const auto groups = static_cast<std::int64_t>(list.size());
  Generator random(seed);
  const Tensor ends = on_gpu(ends_of(list));
  const Tensor a = random.normal({rows, k}, dtype), gy = random.normal({rows, n}, dtype);
  const Tensor b = random.normal({groups, n, k}, dtype);
  const auto x = values(a), g = values(gy), w = values(b);
  const auto size = [](std::int64_t count) { return static_cast<std::size_t>(count); };
  std::vector<double> y(size(rows * n)), y_size(y), dx(size(rows * k)), dx_size(dx), dw(w.size()), dw_size(dw);
  std::int64_t begin = 0;
  for (std::int64_t e = 0; e < groups; ++e) {
    for (std::int64_t r = begin; r < list[size(e)]; ++r)
      for (std::int64_t i = 0; i < n; ++i)
        for (std::int64_t j = 0; j < k; ++j) {
          const double xv = x[size(r * k + j)], gv = g[size(r * n + i)], wv = w[size((e * n + i) * k + j)];
          y[size(r * n + i)] += xv * wv;
          y_size[size(r * n + i)] += std::abs(xv * wv);
          dx[size(r * k + j)] += gv * wv;
          dx_size[size(r * k + j)] += std::abs(gv * wv);
          dw[size((e * n + i) * k + j)] += gv * xv;
          dw_size[size((e * n + i) * k + j)] += std::abs(gv * xv);
        }
    begin = list[size(e)];
  }
  const Tensor gpu_a = on_gpu(a), gpu_b = on_gpu(b), gpu_gy = on_gpu(gy);
  const Tensor out = poisoned({rows, n}, dtype), dout = poisoned({rows, k}, dtype);
  grouped_gemm({gpu_a, gpu_b, ends, out, true});
  expect_product(out, y, y_size);
  grouped_gemm({gpu_gy, gpu_b, ends, dout});
  expect_product(dout, dx, dx_size);
  for (const DType to : {dtype, DType::f32}) {
    const Tensor sums = poisoned({groups, n, k}, to);
    grouped_wgrad({gpu_gy, gpu_a, ends, sums, 0.0f, alignment});
    expect_product(sums, dw, dw_size);
    const Tensor old = random.normal({groups, n, k}, to), more = on_gpu(old);
    grouped_wgrad({gpu_gy, gpu_a, ends, more, 1.0f, alignment});
    auto added = values(old), added_size = dw_size;
    for (std::size_t i = 0; i < added.size(); ++i) {
      added_size[i] += std::abs(added[i]);
      added[i] += dw[i];
    }
    expect_product(more, added, added_size);
  }
}

TEST(CudaExperts, GroupedProductsMatchTheDefinition) {
  std::uint32_t seed = 1;
  // Rows of 16 bytes go to tensor cores; others, and f32, do not.
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const auto& [n, k] : {std::pair{24, 40}, {264, 136}, {33, 21}, {128, 64}})
      for (const std::vector<std::int32_t>& list : std::vector<std::vector<std::int32_t>>{
               {32, 32, 96, 160}, {0, 0, 0, 500}, {1, 138, 139, 450}, {0, 0, 0, 0}, {500, 500, 500, 500}})
        check_products(dtype, 500, n, k, list, 1, ++seed);
}

// Many rows: the persistent kernels, of which that of wgrad wants groups of multiples of 16.
TEST(CudaExperts, GroupedProductsOfManyRows) {
  std::uint32_t seed = 50;
  for (const auto& [n, k] : {std::pair{264, 136}, {256, 64}, {40, 520}})
    for (const std::vector<std::int32_t>& list : std::vector<std::vector<std::int32_t>>{
             {528, 528, 1040, 1488}, {0, 16, 16, 1500 / 16 * 16}, {0, 0, 0, 0}, {208, 400, 608, 1008}})
      check_products(DType::bf16, 1500, n, k, list, 16, ++seed);
  check_products(DType::bf16, 1500, 264, 136, {529, 530, 1041, 1487}, 1, ++seed);
  // Blocks in pairs: 2,048 rows a group. Of the last pair of tiles 16 to 208 rows are there.
  for (const std::int32_t rows : {2064, 2128, 2192, 2256})
    check_products(DType::bf16, 2256, 40, 72, {rows}, 16, ++seed);
  std::vector<std::int32_t> many;
  for (int e = 0; e < 70; ++e) many.push_back(16 * (e + 1 - (e % 3 == 0 ? 1 : 0)));
  check_products(DType::bf16, 1200, 64, 72, many, 16, ++seed);
}

// Equal input gives equal bits.
TEST(CudaExperts, GroupedProductsRepeat) {
  Generator random(3);
  const Tensor a = on_gpu(random.normal({2048, 512}, DType::bf16)),
               b = on_gpu(random.normal({4, 768, 512}, DType::bf16));
  const Tensor ends = on_gpu(ends_of({512, 1024, 1040, 2048}));
  const Tensor first = poisoned({2048, 768}, DType::bf16), second = poisoned({2048, 768}, DType::bf16);
  grouped_gemm({a, b, ends, first, true});
  grouped_gemm({a, b, ends, second, true});
  EXPECT_TRUE(same_bits(on_cpu(first), on_cpu(second)));
}

TEST(CudaExperts, RoundedGroupsMatchCpu) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const ElementFormat element : {ElementFormat::e4m3, ElementFormat::e5m2})
      for (const bool power_of_two : {false, true})
        for (const std::int64_t width : {7, 64, 200}) {
          Generator random(9);
          const Tensor x = random.normal({300, width}, dtype, 3.0), ends = ends_of({16, 16, 200, 288});
          const Tensor out = Tensor::empty(x.shape(), dtype), gpu = poisoned(x.shape(), dtype);
          round_groups({x, ends, out, element, power_of_two});
          round_groups({on_gpu(x), on_gpu(ends), gpu, element, power_of_two});
          EXPECT_TRUE(same_bits(on_cpu(gpu), out)) << width;
        }
}

}  // namespace
}  // namespace quench::testing
