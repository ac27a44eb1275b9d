#pragma once
// Attention calls on the GPU against the CPU's kernel on the same operands.

#include "core/cuda/cudnn/attention_layout.h"
#include "core/device/call_counter.h"
#include "core/ops/attention.h"
#include "tests/cuda/cuda_testing.h"

namespace quench::testing {

// How many calls an implementation has served since this was made.
class Calls {
 public:
  explicit Calls(std::string_view name) : name_(name), before_(call_count(name)) {}
  [[nodiscard]] std::int64_t count() const { return call_count(name_) - before_; }

 private:
  std::string_view name_;
  std::int64_t before_;
};

// How the operands lie in memory.
enum class Views {
  plain,      // each contiguous
  fused,      // views of one [N, (heads + 2 kv_heads) * D], as the model has them; as many queries as keys
  unaligned,  // off every 16-byte boundary, with gaps between the rows
};

using Lengths = std::vector<std::pair<std::int64_t, std::int64_t>>;  // queries and keys of each sequence

struct AttentionProblem {
  std::int64_t heads = 4, kv_heads = 4, dim = 64;
  DType dtype = DType::bf16;
  bool causal = true;
  std::int64_t window = 0;
  float soft_cap = 0;
  bool sinks = false;
  Views views = Views::plain;
  Lengths lengths;
  std::int64_t gap = 0;  // rows in no sequence, before each and at the end
};

struct AttentionTensors {
  Tensor q, k, v, dout, out, lse, dq, dk, dv;
  Tensor sinks{}, dsinks{};
  Tensor fused, fused_gradient;
};

class AttentionRun {
 public:
  AttentionRun(Generator& random, const AttentionProblem& problem) : p_(problem) {
    for (const auto& [queries, keys] : p_.lengths) {
      nq_ += p_.gap;
      nk_ += p_.gap;
      sequences_.push_back({nq_, queries, nk_, keys});
      nq_ += queries;
      nk_ += keys;
    }
    nq_ += p_.gap;
    nk_ += p_.gap;
    scale_ = 1.0f / std::sqrt(static_cast<float>(p_.dim));
    cpu_.dout = random.normal({nq_, p_.heads, p_.dim}, p_.dtype);
    if (p_.views == Views::fused) {
      EXPECT_EQ(nq_, nk_);
      cpu_.fused = random.normal({nq_, width()}, p_.dtype);
      split(cpu_.fused, cpu_.q, cpu_.k, cpu_.v);
    } else {
      const std::int64_t step = p_.views == Views::plain ? 0 : 1;
      const auto operand = [&](const Shape& shape, std::int64_t gap) {
        return step == 0 ? random.normal(shape, p_.dtype) : random.normal_view(shape, p_.dtype, gap);
      };
      cpu_.q = operand({nq_, p_.heads, p_.dim}, 5);
      cpu_.k = operand({nk_, p_.kv_heads, p_.dim}, 3);
      cpu_.v = operand({nk_, p_.kv_heads, p_.dim}, 7);
    }
    if (p_.sinks) cpu_.sinks = random.normal({p_.heads}, DType::f32);
    add_results(cpu_);
    AttentionTensors host = cpu_;
    add_results(host);
    gpu_ = {.q = on_gpu(host.q), .k = on_gpu(host.k), .v = on_gpu(host.v), .dout = on_gpu(host.dout)};
    if (p_.views == Views::fused) {
      gpu_.fused = on_gpu(host.fused);
      gpu_.fused_gradient = on_gpu(host.fused_gradient);
      split(gpu_.fused, gpu_.q, gpu_.k, gpu_.v);
      split(gpu_.fused_gradient, gpu_.dq, gpu_.dk, gpu_.dv);
    } else {
      gpu_.dq = on_gpu(host.dq);
      gpu_.dk = on_gpu(host.dk);
      gpu_.dv = on_gpu(host.dv);
    }
    gpu_.out = on_gpu(host.out);
    gpu_.lse = on_gpu(host.lse);
    if (p_.sinks) {
      gpu_.sinks = on_gpu(host.sinks);
      gpu_.dsinks = on_gpu(host.dsinks);
    }
  }

  void forward(const AttentionTensors& t, bool lse = true) const {
    attention({.q = t.q,
               .k = t.k,
               .v = t.v,
               .out = t.out,
               .lse = lse ? t.lse : Tensor(),
               .sequences = sequences_,
               .causal = p_.causal,
               .window = p_.window,
               .scale = scale_,
               .soft_cap = p_.soft_cap,
               .sinks = t.sinks});
  }
  void backward(const AttentionTensors& t) const {
    attention_backward({.dout = t.dout,
                        .q = t.q,
                        .k = t.k,
                        .v = t.v,
                        .out = t.out,
                        .lse = t.lse,
                        .dq = t.dq,
                        .dk = t.dk,
                        .dv = t.dv,
                        .sequences = sequences_,
                        .causal = p_.causal,
                        .window = p_.window,
                        .scale = scale_,
                        .soft_cap = p_.soft_cap,
                        .sinks = t.sinks,
                        .dsinks = t.dsinks});
  }

  // Both passes on both devices.
  void check() const {
    SCOPED_TRACE(describe());
    forward(cpu_);
    forward(gpu_);
    check_result("out", gpu_.out, cpu_.out);
    check_lse();
    backward(cpu_);
    backward(gpu_);
    check_result("dq", gpu_.dq, cpu_.dq);
    check_result("dk", gpu_.dk, cpu_.dk);
    check_result("dv", gpu_.dv, cpu_.dv);
    if (p_.sinks) check_result("dsinks", gpu_.dsinks, cpu_.dsinks);
  }
  void check_without_lse() const {
    SCOPED_TRACE(describe());
    forward(cpu_, false);
    forward(gpu_, false);
    check_result("out", gpu_.out, cpu_.out);
  }

  // Errors against the size of the result: in norm, and of each element.
  void check_result(std::string_view name, const Tensor& actual, const Tensor& expected) const {
    const bool bf16 = p_.dtype == DType::bf16;
    const std::vector<double> got = values(on_cpu(actual)), want = values(expected);
    ASSERT_EQ(got.size(), want.size());
    double difference = 0, size = 0;
    for (std::size_t i = 0; i < want.size(); ++i) {
      difference += (got[i] - want[i]) * (got[i] - want[i]);
      size += want[i] * want[i];
    }
    // A gradient that is exactly 0, as that of the keys of a single token, is rounding noise of products near 1. Where
    // every query sees one key, all of dq and dk are: the difference of two equal sums over D products, each off by
    // 2^-24 sqrt(D) of their size, sqrt(D), times the scale 1 / sqrt(D) and a key or query of at most 4.5. The
    // gradient of a key is the sum of such numbers over the query heads that share it.
    const auto terms = static_cast<double>(p_.dim * (p_.heads / p_.kv_heads));
    const double noise = p_.window == 1 ? 4.5 * 0x1p-24 * std::sqrt(terms) : 1e-6;
    const auto count = static_cast<double>(want.size());
    EXPECT_LE(std::sqrt(difference), (bf16 ? 1e-2 : 3e-6) * std::sqrt(size) + noise * std::sqrt(count)) << name;
    if (want.empty()) return;
    const double rms = std::sqrt(size / count);
    EXPECT_TRUE(close(on_cpu(actual), want, bf16 ? 0x1.0p-6 : 1e-5, (bf16 ? 8e-2 : 3e-5) * rms + noise)) << name;
  }

  void check_lse() const {
    const auto layout = cuda::attention_layout(gpu_.q, gpu_.k, sequences_, p_.causal);
    const cuda::LseLayout at = cuda::lse_layout(layout, gpu_.q, sequences_);
    const Tensor got = on_cpu(gpu_.lse);
    for (const SequenceRange& s : sequences_)
      for (std::int64_t head = 0; head < p_.heads; ++head)
        for (std::int64_t i = 0; i < s.q_length; ++i) {
          const float a = got.data<float>()[s.q_begin * at.sequence + head * at.head + i * at.row];
          const float e = cpu_.lse.data<float>()[head * nq_ + s.q_begin + i];
          if (a == e) continue;  // minus infinity too
          ASSERT_NEAR(a, e, 2e-4) << "lse of head " << head << ", query " << s.q_begin + i;
        }
  }

  [[nodiscard]] std::string describe() const {
    std::string text =
        fmt::format("{} heads {}({}) dim {} causal {} window {} views {} gap {}:", to_string(p_.dtype), p_.heads,
                    p_.kv_heads, p_.dim, p_.causal, p_.window, static_cast<int>(p_.views), p_.gap);
    for (const auto& [queries, keys] : p_.lengths) text += fmt::format(" {}x{}", queries, keys);
    return text;
  }

  [[nodiscard]] const AttentionTensors& cpu() const { return cpu_; }
  [[nodiscard]] const AttentionTensors& gpu() const { return gpu_; }

 private:
  [[nodiscard]] std::int64_t width() const { return (p_.heads + 2 * p_.kv_heads) * p_.dim; }

  void split(const Tensor& fused, Tensor& q, Tensor& k, Tensor& v) const {
    const auto part = [&](std::int64_t first, std::int64_t count) {
      return fused.strided({nq_, count, p_.dim}, {width(), p_.dim, 1}, first * p_.dim);
    };
    q = part(0, p_.heads);
    k = part(p_.heads, p_.kv_heads);
    v = part(p_.heads + p_.kv_heads, p_.kv_heads);
  }

  // Results full of NaN, with the strides of the operands.
  void add_results(AttentionTensors& t) const {
    const auto poisoned = [](const Tensor& result) {
      testing::fill(result, std::nan(""));
      return result;
    };
    const bool unaligned = p_.views == Views::unaligned;
    const auto like = [&](const Shape& shape, std::int64_t gap) {
      return poisoned(unaligned ? Generator::empty_view(shape, p_.dtype, gap) : Tensor::empty(shape, p_.dtype));
    };
    t.out = poisoned(Tensor::empty({nq_, p_.heads, p_.dim}, p_.dtype));
    t.lse = poisoned(Tensor::empty({p_.heads, nq_}, DType::f32));
    if (p_.sinks) t.dsinks = poisoned(Tensor::empty({p_.heads}, DType::f32));
    if (p_.views == Views::fused) {
      t.fused_gradient = poisoned(Tensor::empty({nq_, width()}, p_.dtype));
      split(t.fused_gradient, t.dq, t.dk, t.dv);
    } else {
      t.dq = like({nq_, p_.heads, p_.dim}, 3);
      t.dk = like({nk_, p_.kv_heads, p_.dim}, 1);
      t.dv = like({nk_, p_.kv_heads, p_.dim}, 9);
    }
  }

  AttentionProblem p_;
  std::vector<SequenceRange> sequences_;
  std::int64_t nq_ = 0, nk_ = 0;
  float scale_ = 1;
  AttentionTensors cpu_, gpu_;
};

}  // namespace quench::testing
