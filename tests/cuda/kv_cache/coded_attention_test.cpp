// Quantized KV caches on the GPU against the CPU's kernels.

#include "core/ops/kv_cache/coded_attention.h"

#include "core/device/call_counter.h"
#include "core/ops/kv_cache/cached_attention.h"
#include "core/ops/kv_cache/hadamard.h"
#include "core/ops/rope.h"
#include "tests/core/ops/kv_cache/cache_cases.h"
#include "tests/core/ops/rope_tables.h"
#include "tests/cuda/cuda_testing.h"

namespace quench::testing {
namespace {

using Lengths = std::vector<std::pair<std::int64_t, std::int64_t>>;

Tensor position_of(std::int64_t row) {
  const std::array<std::int32_t, 1> values{static_cast<std::int32_t>(row)};
  return Tensor::from_values<std::int32_t>({1}, values);
}

void expect_cpu(const CodedProblem& p) {
  SCOPED_TRACE(fmt::format("q {} cache {} scales {} window {} first {}x{}", p.q.describe(), p.cache.cache.describe(),
                           p.cache.scales.describe(), p.window, p.sequences[0].q_length, p.sequences[0].k_length));
  const Tensor expected = Tensor::empty(p.q.shape(), p.q.dtype());
  coded_attention(p.args(expected));
  CodedProblem gpu = p;
  gpu.q = on_gpu(p.q);
  gpu.cache.cache = on_gpu(p.cache.cache);
  gpu.cache.scales = on_gpu(p.cache.scales);
  gpu.sinks = on_gpu(p.sinks);
  const Tensor out = Tensor::empty(p.q.shape(), p.q.dtype(), kGpu);
  coded_attention(gpu.args(out));
  EXPECT_TRUE(close(on_cpu(out), values(expected), 2 * rounding(p.q.dtype()), p.q.dtype() == DType::f32 ? 1e-5 : 1e-2));
}

TEST(CudaCacheCodes, HaveTheBitsOfTheCpu) {
  Generator random(1);
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const DType codes : kCacheCodes)
      for (const bool shared : {true, false})
        for (const std::int64_t dim : {20, 64, 128, 256}) {
          const Tensor some = random.normal({37, 4 * dim}, dtype);
          set_element(some, 5, std::nan(""));
          CodedCache cpu(50, 4, dim, codes, shared);
          if (shared) fill(cpu.scales, 0.02);
          const Tensor rows = Tensor::empty({37}, DType::i32);
          for (std::int64_t i = 0; i < 37; ++i) rows.data<std::int32_t>()[i] = static_cast<std::int32_t>(i * 3 % 53);
          const Tensor cache = on_gpu(cpu.cache), scales = on_gpu(cpu.scales);
          append_codes({.values = some, .positions = rows, .cache = cpu.cache, .scales = cpu.scales});
          append_codes({.values = on_gpu(some), .positions = on_gpu(rows), .cache = cache, .scales = scales});
          EXPECT_TRUE(same_bits(on_cpu(cache), cpu.cache)) << to_string(codes) << " " << dim;
          const auto wanted = values(cpu.scales);
          EXPECT_TRUE(close(on_cpu(scales), wanted, 0, 0));
          const Tensor expected = Tensor::empty(cpu.cache.shape(), dtype),
                       out = Tensor::empty(cpu.cache.shape(), dtype, kGpu);
          decode_codes({.cache = cpu.cache, .scales = cpu.scales, .out = expected});
          decode_codes({.cache = cache, .scales = scales, .out = out});
          EXPECT_TRUE(close(on_cpu(out), values(expected), 0, 0));
        }
}

TEST(CudaHadamard, HasTheBitsOfTheCpu) {
  Generator random(7);
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const std::int64_t dim : {1, 3, 20, 64, 80, 96, 128, 192, 256, 512, 576}) {
      const Tensor rows = random.normal({19, 7 * dim}, dtype), gpu = on_gpu(rows);
      const auto heads = [dim = dim](const Tensor& x) { return x.strided({19, 5, dim}, {7 * dim, dim, 1}, dim); };
      hadamard({heads(rows)});
      hadamard({heads(gpu)});
      EXPECT_TRUE(same_bits(on_cpu(gpu), rows)) << to_string(dtype) << " " << dim;
    }
}

TEST(CudaCodedAttention, DecodesLongAndRaggedCaches) {
  Generator random(2);
  for (const DType codes : kCacheCodes)
    for (const bool shared : {true, false})
      for (const auto& [dim, group] :
           {std::pair<std::int64_t, std::int64_t>{64, 1}, {64, 8}, {80, 4}, {128, 2}, {128, 4}, {256, 1}, {256, 8}}) {
        const std::int64_t before = call_count("attention.decode");
        for (const Lengths& lengths :
             {Lengths{{1, 2500}}, Lengths{{1, 1}}, Lengths{{2, 63}}, Lengths{{3, 1031}, {1, 7}, {0, 30}, {8, 640}}})
          expect_cpu(make_coded(random, lengths, 8, 8 / group, dim, DType::bf16, codes, shared, 1));
        EXPECT_EQ(call_count("attention.decode") - before, 4);
      }
}

TEST(CudaCodedAttention, PromptsAndOtherTypesReadDecodedRows) {
  Generator random(3);
  for (const DType codes : kCacheCodes)
    for (const bool shared : {true, false}) {
      expect_cpu(make_coded(random, {{100, 300}, {20, 20}}, 8, 2, 64, DType::bf16, codes, shared));
      expect_cpu(make_coded(random, {{40, 90}}, 4, 2, 64, DType::f32, codes, shared));
      expect_cpu(make_coded(random, {{1, 900}, {1, 30}}, 4, 2, 64, DType::f32, codes, shared));
      expect_cpu(make_coded(random, {{1, 70}}, 4, 2, 20, DType::bf16, codes, shared));
    }
}

TEST(CudaCodedAttention, KeepsWindowsSoftCapsAndSinks) {
  Generator random(4);
  for (const DType codes : kCacheCodes)
    for (const std::int64_t window : {0, 1, 64, 1000, 1500})
      for (const Lengths& lengths : {Lengths{{1, 4000}}, Lengths{{3, 1031}}, Lengths{{40, 300}}}) {
        CodedProblem p = make_coded(random, lengths, 8, 2, 128, DType::bf16, codes, false);
        p.window = window;
        expect_cpu(p);
        p.soft_cap = 2.0f;
        p.sinks = random.normal({8}, DType::f32);
        expect_cpu(p);
      }
}

// A decode step in one kernel against its parts: RoPE, Hadamard transform, append, attention.
TEST(CudaCodedAttention, FusedDecodingHasTheBitsOfItsParts) {
  constexpr std::int64_t kHeads = 8, kCapacity = 3000, kFirst = 7;
  Generator random(5);
  for (const DType codes : kCacheCodes)
    for (const bool shared : {true, false})
      for (const auto& [dim, kv_heads] : {std::pair<std::int64_t, std::int64_t>{64, 2}, {128, 8}, {80, 4}, {256, 1}})
        for (const std::int64_t window : {0, 90})
          for (const std::int64_t keys : {1, 70, 1024, 2900})
            for (const auto& [rotates, transforms] :
                 {std::pair{true, false}, {false, false}, {true, true}, {false, true}}) {
              const std::int64_t width = (kHeads + 2 * kv_heads) * dim;
              const Tables tables(kCapacity, dim / 2);
              const Tensor cos = on_gpu(tables.cos), sin = on_gpu(tables.sin);
              const CodedCache start(random.normal({kCapacity, 2 * kv_heads * dim}, DType::bf16), 2 * kv_heads, codes,
                                     shared);
              const Tensor cache = on_gpu(start.cache), scales = on_gpu(start.scales), parts = cache.clone(),
                           part_scales = scales.clone();
              const Tensor qkv = on_gpu(random.normal({1, width}, DType::bf16)), turned = qkv.clone();
              const Tensor position = on_gpu(position_of(kFirst + keys - 1));
              const Tensor out = Tensor::empty({1, kHeads * dim}, DType::bf16, kGpu),
                           expected = Tensor::empty_like(out);
              const SequenceRange range{0, 1, kFirst, keys};
              const auto heads = [&, head_dim = dim](std::int64_t count) {
                return turned.strided({1, count, head_dim}, {width, head_dim, 1}, 0);
              };
              if (rotates) rope({.x = heads(kHeads + kv_heads), .cos = cos, .sin = sin, .positions = position});
              if (transforms) hadamard({heads(kHeads + kv_heads)});
              append_codes({.values = turned.narrow(1, kHeads * dim, 2 * kv_heads * dim),
                            .positions = position,
                            .cache = parts,
                            .scales = part_scales});
              coded_attention({.q = heads(kHeads),
                               .cache = parts,
                               .scales = part_scales,
                               .out = expected.view({1, kHeads, dim}),
                               .sequences = std::span(&range, 1),
                               .window = window,
                               .scale = 0.125f});
              cached_attention({.qkv = qkv,
                                .cos = rotates ? cos : Tensor(),
                                .sin = rotates ? sin : Tensor(),
                                .positions = position,
                                .cache = cache,
                                .scales = scales,
                                .out = out,
                                .heads = kHeads,
                                .kv_heads = kv_heads,
                                .sequences = std::span(&range, 1),
                                .window = window,
                                .scale = 0.125f,
                                .hadamard = transforms});
              EXPECT_TRUE(same_bits(on_cpu(cache), on_cpu(parts)));
              EXPECT_TRUE(same_bits(on_cpu(scales), on_cpu(part_scales)));
              EXPECT_TRUE(same_bits(on_cpu(out), on_cpu(expected)))
                  << to_string(codes) << (shared ? " shared" : "") << " D " << dim << ", " << kv_heads << " kv heads, "
                  << keys << " keys, window " << window;
            }
}

// Under a bound that a captured pass has.
TEST(CudaCodedAttention, TheLengthMayBeKnownToTheDeviceAlone) {
  Generator random(6);
  for (const DType dtype : {DType::bf16, DType::f32})
    for (const DType codes : kCacheCodes) {
      const CodedProblem p = make_coded(random, {{1, 2000}}, 8, 2, 64, dtype, codes, false);
      for (const std::int64_t keys : {1, 33, 1025, 2000}) {
        CodedProblem known = p;
        known.sequences[0].k_length = keys;
        const Tensor expected = Tensor::empty(p.q.shape(), dtype), out = Tensor::empty(p.q.shape(), dtype, kGpu);
        coded_attention(known.args(expected));
        CodedAttentionArgs args = p.args(out);
        args.q = on_gpu(p.q);
        args.cache = on_gpu(p.cache.cache);
        args.scales = on_gpu(p.cache.scales);
        args.last_key = on_gpu(position_of(keys - 1));
        coded_attention(args);
        EXPECT_TRUE(close(on_cpu(out), values(expected), 2 * rounding(dtype), dtype == DType::f32 ? 1e-5 : 1e-2))
            << keys;
      }
    }
}

}  // namespace
}  // namespace quench::testing
