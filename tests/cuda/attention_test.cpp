#include "core/device/determinism.h"
#include "tests/cuda/attention_problem.h"

namespace quench::testing {
namespace {

#if defined(QUENCH_HAVE_CUDNN)
constexpr std::int64_t kCudnn = 1;
#else
constexpr std::int64_t kCudnn = 0;
#endif

class Deterministic {
 public:
  Deterministic() { set_deterministic(true); }
  ~Deterministic() { set_deterministic(false); }
};

TEST(CudaAttention, TiledHeadDimensions) {
  Generator random(1);
  const Calls tiled("attention.tiled"), backward("attention_backward.tiled");
  std::int64_t calls = 0;
  for (const Views views : {Views::plain, Views::unaligned})
    for (const bool causal : {true, false})
      for (const std::int64_t dim : {1, 20, 64, 80, 128, 130, 256}) {
        AttentionRun(random, {.heads = 2,
                              .kv_heads = 1,
                              .dim = dim,
                              .dtype = DType::f32,
                              .causal = causal,
                              .views = views,
                              .lengths = {{70, 70}}})
            .check();
        ++calls;
      }
  EXPECT_EQ(tiled.count(), calls);
  EXPECT_EQ(backward.count(), calls);
}

TEST(CudaAttention, TiledLengthsAroundTheTiles) {
  Generator random(2);
  for (const bool causal : {true, false})
    for (const std::int64_t length : {1, 2, 31, 32, 33, 63, 64, 65, 127, 128, 129, 200})
      AttentionRun(random, {.heads = 2,
                            .kv_heads = 2,
                            .dim = 32,
                            .dtype = DType::f32,
                            .causal = causal,
                            .views = Views::fused,
                            .lengths = {{length, length}}})
          .check();
}

TEST(CudaAttention, TiledRandomShapes) {
  Generator random(3);
  for (int i = 0; i < 40; ++i) {
    AttentionProblem p{.kv_heads = random.between(1, 3),
                       .dim = random.between(1, 140),
                       .dtype = random.coin() ? DType::f32 : DType::bf16,
                       .causal = random.coin(),
                       .views = Views::unaligned,
                       .gap = random.below(3)};
    p.heads = p.kv_heads * random.between(1, 4);
    for (std::int64_t s = random.between(1, 4); s > 0; --s) {
      const std::int64_t queries = random.between(0, 150);
      p.lengths.emplace_back(queries, random.coin() ? queries : random.between(0, 150));
    }
    AttentionRun(random, p).check();
  }
}

TEST(CudaAttention, MoreSequencesThanOneLaunchTakes) {
  Generator random(4);
  AttentionProblem p{.heads = 2, .kv_heads = 1, .dim = 16, .dtype = DType::f32, .gap = 1};
  for (int i = 0; i < 150; ++i) {
    const std::int64_t n = random.between(0, 9);
    p.lengths.emplace_back(n, n);
  }
  AttentionRun(random, p).check();
  AttentionRun(random, p).check_without_lse();
}

// cuDNN compiles a plan for each shape and pass, a few tenths of a second each: combinations are chosen, not crossed.
struct CudnnCase {
  std::int64_t dim, group;
  bool causal;
};

TEST(CudaAttention, UniformSequencesOnCudnn) {
  Generator random(5);
  for (const auto& [dim, group, causal] : std::vector<CudnnCase>{
           {64, 1, true}, {64, 4, true}, {80, 8, true}, {128, 4, true}, {128, 8, false}, {256, 1, true}}) {
    const Calls forward("attention.cudnn"), backward("attention_backward.cudnn");
    AttentionRun(random, {.heads = 8,
                          .kv_heads = 8 / group,
                          .dim = dim,
                          .causal = causal,
                          .views = Views::fused,
                          .lengths = {{256, 256}, {256, 256}}})
        .check();
    EXPECT_EQ(forward.count(), kCudnn) << dim;
    EXPECT_EQ(backward.count(), kCudnn) << dim;
  }
}

TEST(CudaAttention, UniformSequencesAfterOtherRows) {
  Generator random(6);
  // Rows of no sequence around them, 8 so that every address stays aligned.
  AttentionRun(random, {.heads = 4, .kv_heads = 2, .views = Views::fused, .lengths = {{128, 128}}, .gap = 8}).check();
}

TEST(CudaAttention, PackedDocumentsOnCudnn) {
  Generator random(7);
  for (const auto& [dim, group, causal] : std::vector<CudnnCase>{
           {64, 4, true}, {80, 1, true}, {128, 8, true}, {128, 1, false}, {64, 8, false}, {256, 4, true}})
    for (const std::int64_t gap : {0, 3}) {
      const Calls forward("attention.cudnn"), backward("attention_backward.cudnn");
      AttentionProblem p{
          .heads = 8, .kv_heads = 8 / group, .dim = dim, .causal = causal, .views = Views::fused, .gap = gap};
      for (int s = 0; s < 4; ++s) {
        const std::int64_t n = random.between(1, 255);
        p.lengths.emplace_back(n, n);
      }
      p.lengths.emplace_back(200, 200);  // so that both gaps share their plans
      AttentionRun(random, p).check();
      EXPECT_EQ(forward.count(), kCudnn) << dim;
      EXPECT_EQ(backward.count(), kCudnn) << dim;
    }
}

// Lengths of whole steps of 1,024: two passes on dense operands in the backward pass, next to sequences of one pass.
TEST(CudaAttention, LastQueriesOfLongSequences) {
  Generator random(16);
  const Calls backward("attention_backward.cudnn");
  AttentionRun(random, {.heads = 4, .kv_heads = 2, .lengths = {{1024, 3072}, {72, 200}, {2048, 3072}}}).check();
  EXPECT_EQ(backward.count(), kCudnn);
}

TEST(CudaAttention, FewerQueriesThanKeys) {
  Generator random(8);
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const bool causal : {true, false}) {
      AttentionRun(random, {.heads = 4, .kv_heads = 2, .dtype = dtype, .causal = causal, .lengths = {{40, 300}}})
          .check();
      AttentionRun(random, {.heads = 4,
                            .kv_heads = 2,
                            .dim = 128,
                            .dtype = dtype,
                            .causal = causal,
                            .lengths = {{9, 77}, {100, 130}, {64, 64}},
                            .gap = 2})
          .check();
    }
}

TEST(CudaAttention, QueriesThatSeeNoKey) {
  Generator random(9);
  for (const DType dtype : {DType::f32, DType::bf16})
    AttentionRun(random, {.heads = 4, .kv_heads = 1, .dtype = dtype, .lengths = {{90, 20}, {5, 0}, {0, 7}, {30, 30}}})
        .check();
}

TEST(CudaAttention, ManyOddDocuments) {
  Generator random(10);
  AttentionProblem p{.heads = 4, .kv_heads = 1, .dim = 128, .views = Views::fused};
  for (int i = 0; i < 37; ++i) {
    const std::int64_t n = random.between(1, 40);
    p.lengths.emplace_back(n, n);
  }
  p.lengths.emplace_back(700, 700);
  AttentionRun(random, p).check();
}

TEST(CudaAttention, InferenceKeepsNoLse) {
  Generator random(11);
  for (const std::int64_t length : {256, 333}) {
    const AttentionRun run(
        random, {.heads = 8, .kv_heads = 2, .dim = 128, .views = Views::fused, .lengths = {{length, length}}});
    run.check_without_lse();
    for (const double x : values(on_cpu(run.gpu().lse))) ASSERT_TRUE(std::isnan(x));
  }
}

TEST(CudaAttention, NaNReachesTheQueriesThatSeeIt) {
  Generator random(14);
  for (const std::int64_t queries : {30, 5}) {  // tiled, and decoded
    AttentionRun run(random, {.heads = 1, .kv_heads = 1, .dim = 16, .dtype = DType::f32, .lengths = {{queries, 30}}});
    const std::int64_t key = 30 - queries + 3;
    Tensor k = run.cpu().k.clone();
    k.data<float>()[key * 16] = NAN;
    Tensor(run.gpu().k).copy_from(k);
    run.forward(run.gpu(), false);
    const Tensor out = on_cpu(run.gpu().out);
    for (std::int64_t i = 0; i < queries; ++i) EXPECT_EQ(std::isnan(out.data<float>()[i * 16]), i >= 3) << i;
  }
}

TEST(CudaAttention, LargeScoresDoNotOverflow) {
  Generator random(15);
  AttentionRun run(random, {.heads = 2, .kv_heads = 1, .dim = 16, .dtype = DType::f32, .lengths = {{100, 100}}});
  Tensor q = run.cpu().q;
  for (std::int64_t i = 0; i < q.numel(); ++i) q.data<float>()[i] *= 500;
  Tensor(run.gpu().q).copy_from(q);
  run.forward(run.cpu());
  run.forward(run.gpu());
  EXPECT_TRUE(close(on_cpu(run.gpu().out), values(run.cpu().out), 5e-3, 5e-3));
}

TEST(CudaAttention, SameBitsOnASecondRun) {
  Generator random(16);
  const Deterministic setting;
  const std::vector<AttentionProblem> problems = {
      {.heads = 4, .kv_heads = 2, .dtype = DType::f32, .lengths = {{300, 300}, {70, 90}}},
      {.heads = 8, .kv_heads = 2, .dim = 128, .views = Views::fused, .lengths = {{512, 512}, {512, 512}}},
      {.heads = 8, .kv_heads = 8, .dim = 64, .views = Views::fused, .lengths = {{512, 512}}},
      {.heads = 8, .kv_heads = 2, .dim = 128, .views = Views::fused, .lengths = {{301, 301}, {77, 77}, {500, 500}}}};
  for (const AttentionProblem& problem : problems) {
    const AttentionRun run(random, problem);
    SCOPED_TRACE(run.describe());
    run.check();
    const AttentionTensors& t = run.gpu();
    const std::vector<Tensor> results =
        problem.views == Views::fused ? std::vector{t.out, t.fused_gradient} : std::vector{t.out, t.dq, t.dk, t.dv};
    std::vector<Tensor> first;
    for (const Tensor& result : results) first.push_back(on_cpu(result));
    for (int repeat = 0; repeat < 3; ++repeat) {
      run.forward(t);
      run.backward(t);
      for (std::size_t i = 0; i < results.size(); ++i) EXPECT_TRUE(same_bits(on_cpu(results[i]), first[i])) << i;
    }
  }
}

TEST(CudaAttention, WhatCudnnDoesNotTakeIsCounted) {
  Generator random(17);
  const Calls refused("attention.cudnn_refused"), tiled("attention.tiled"), backward("attention_backward.tiled");
  AttentionRun(random,
               {.heads = 4, .kv_heads = 2, .dim = 64, .views = Views::unaligned, .lengths = {{128, 128}, {90, 90}}})
      .check();
  EXPECT_EQ(refused.count(), 2);
  EXPECT_EQ(tiled.count(), 1);
  EXPECT_EQ(backward.count(), 1);
}

TEST(CudaAttention, EmptyCalls) {
  Generator random(18);
  for (const DType dtype : {DType::f32, DType::bf16}) {
    AttentionRun(random, {.dtype = dtype, .lengths = {}, .gap = 5}).check();
    AttentionRun(random, {.dtype = dtype, .lengths = {{0, 0}}, .gap = 5}).check();
    AttentionRun(random, {.dtype = dtype, .lengths = {}, .gap = 5}).check_without_lse();
  }
}

// Uniform noise of variance 1, fast enough for real sizes.
Tensor noise(const Shape& shape, std::uint64_t seed) {
  Tensor t = Tensor::empty(shape, DType::bf16);
  bfloat16* to = t.data<bfloat16>();
#pragma omp parallel for
  for (std::int64_t i = 0; i < t.numel(); ++i) {
    std::uint64_t x = (static_cast<std::uint64_t>(i) + seed) * 0x9E3779B97F4A7C15ull;
    x = (x ^ (x >> 29)) * 0xBF58476D1CE4E5B9ull;
    to[i] = bfloat16((static_cast<float>(x >> 40) * 0x1.0p-24f - 0.5f) * 3.4641f);
  }
  return t;
}

bool all_finite(const Tensor& t) {
  const auto* bits = static_cast<const std::uint16_t*>(t.raw_data());
  std::int64_t bad = 0;
#pragma omp parallel for reduction(+ : bad)
  for (std::int64_t i = 0; i < t.numel(); ++i) bad += (bits[i] & 0x7F80) == 0x7F80;
  return bad == 0;
}

// A size of real training. The last queries of the last sequence on the CPU give their rows of out and dq, and the
// gradients of the last keys, which no other query sees.
TEST(CudaAttention, RealSizes) {
  constexpr std::int64_t kBatch = 2, kLength = 8192, kHeads = 32, kKvHeads = 8, kDim = 128, kRows = 8;
  constexpr std::int64_t kTokens = kBatch * kLength, kWidth = (kHeads + 2 * kKvHeads) * kDim;
  const auto part = [](const Tensor& fused, std::int64_t first, std::int64_t count) {
    return fused.strided({fused.size(0), count, kDim}, {kWidth, kDim, 1}, first * kDim);
  };
  const auto q_of = [&](const Tensor& t) { return part(t, 0, kHeads); };
  const auto k_of = [&](const Tensor& t) { return part(t, kHeads, kKvHeads); };
  const auto v_of = [&](const Tensor& t) { return part(t, kHeads + kKvHeads, kKvHeads); };
  const float scale = 1.0f / std::sqrt(static_cast<float>(kDim));

  const Tensor fused = noise({kTokens, kWidth}, 1), dout = noise({kTokens, kHeads, kDim}, 2);
  const Tensor gpu_fused = fused.to(kGpu), gpu_dout = dout.to(kGpu);
  const Tensor gpu_gradient = noise({kTokens, kWidth}, 3).to(kGpu);
  const Tensor out = Tensor::empty({kTokens, kHeads, kDim}, DType::bf16, kGpu);
  const Tensor lse = Tensor::empty({kHeads, kTokens}, DType::f32, kGpu);
  const std::vector<SequenceRange> sequences = {{0, kLength, 0, kLength}, {kLength, kLength, kLength, kLength}};
  attention({.q = q_of(gpu_fused),
             .k = k_of(gpu_fused),
             .v = v_of(gpu_fused),
             .out = out,
             .lse = lse,
             .sequences = sequences,
             .scale = scale});
  attention_backward({.dout = gpu_dout,
                      .q = q_of(gpu_fused),
                      .k = k_of(gpu_fused),
                      .v = v_of(gpu_fused),
                      .out = out,
                      .lse = lse,
                      .dq = q_of(gpu_gradient),
                      .dk = k_of(gpu_gradient),
                      .dv = v_of(gpu_gradient),
                      .sequences = sequences,
                      .scale = scale});
  const Tensor got_out = on_cpu(out), got = on_cpu(gpu_gradient);
  EXPECT_TRUE(all_finite(got_out));
  EXPECT_TRUE(all_finite(got));

  const Tensor keys = fused.narrow(0, kLength, kLength);
  const Tensor queries = q_of(fused).narrow(0, kTokens - kRows, kRows);
  const Tensor want_out = Tensor::empty({kRows, kHeads, kDim}, DType::bf16);
  const Tensor want_lse = Tensor::empty({kHeads, kRows}, DType::f32);
  const Tensor want_dq = Tensor::empty({kRows, kHeads, kDim}, DType::bf16);
  const Tensor want_dk = Tensor::empty({kLength, kKvHeads, kDim}, DType::bf16), want_dv = Tensor::empty_like(want_dk);
  const std::vector<SequenceRange> tail = {{0, kRows, 0, kLength}};
  attention({.q = queries,
             .k = k_of(keys),
             .v = v_of(keys),
             .out = want_out,
             .lse = want_lse,
             .sequences = tail,
             .scale = scale});
  attention_backward({.dout = dout.narrow(0, kTokens - kRows, kRows),
                      .q = queries,
                      .k = k_of(keys),
                      .v = v_of(keys),
                      .out = want_out,
                      .lse = want_lse,
                      .dq = want_dq,
                      .dk = want_dk,
                      .dv = want_dv,
                      .sequences = tail,
                      .scale = scale});
  const auto check = [&](std::string_view name, const Tensor& actual, const Tensor& expected) {
    const std::vector<double> want = values(expected);
    double size = 0;
    for (const double x : want) size += x * x;
    const double rms = std::sqrt(size / static_cast<double>(want.size()));
    EXPECT_GT(rms, 0) << name;
    EXPECT_TRUE(close(actual, want, 0x1.0p-6, 0.1 * rms)) << name;
  };
  const auto last = [&](const Tensor& t) { return t.narrow(0, t.size(0) - kRows, kRows); };
  check("out", last(got_out), want_out);
  check("dq", last(q_of(got)), want_dq);
  check("dk", last(k_of(got)), last(want_dk));
  check("dv", last(v_of(got)), last(want_dv));
}

}  // namespace
}  // namespace quench::testing
