#include "core/ops/mla_heads.h"

#include <cmath>

#include "tests/core/ops/op_testing.h"

namespace quench {
namespace {

using namespace testing;

constexpr MlaHeadsShape kShape{.heads = 3, .plain = 5, .rotary = 4, .value = 6, .interleaved = true};
constexpr std::int64_t kTokens = 7, kPositions = 11;

struct Operands {
  Tensor q, kv, key, cos, sin, positions;
};

Operands operands(const MlaHeadsShape& s, DType dtype) {
  Generator random(5);
  Operands o{random.normal({kTokens, s.heads * s.width()}, dtype),
             random.normal({kTokens, s.heads * (s.plain + s.value)}, dtype),
             random.normal({kTokens, s.rotary}, dtype),
             Tensor::empty({kPositions, s.rotary / 2}, DType::f32),
             Tensor::empty({kPositions, s.rotary / 2}, DType::f32),
             random.integers(kTokens, kPositions)};
  for (std::int64_t i = 0; i < o.cos.numel(); ++i) {
    const auto angle = 0.3f * static_cast<float>(i);
    o.cos.data<float>()[i] = std::cos(angle);
    o.sin.data<float>()[i] = std::sin(angle);
  }
  return o;
}

Tensor filled(const Shape& shape, DType dtype) {
  const Tensor t = Tensor::empty(shape, dtype);
  fill(t, 77.0);
  return t;
}

Tensor heads_of(const Operands& o, const MlaHeadsShape& s) {
  const Tensor out = filled({kTokens, 3 * s.heads * s.width()}, o.q.dtype());
  mla_heads({o.q, o.kv, o.key, o.cos, o.sin, o.positions, out, s});
  return out;
}

// The definition, element by element.
double expected(const Operands& o, const MlaHeadsShape& s, std::int64_t token, std::int64_t part, std::int64_t head,
                std::int64_t column) {
  const std::vector<double> q = values(o.q), kv = values(o.kv), key = values(o.key), cos = values(o.cos),
                            sin = values(o.sin), positions = values(o.positions);
  const auto at = [](const std::vector<double>& all, std::int64_t i) { return all[static_cast<std::size_t>(i)]; };
  const std::int64_t of_kv = (token * s.heads + head) * (s.plain + s.value);
  if (part == 2) return column < s.value ? at(kv, of_kv + s.plain + column) : 0.0;
  const std::int64_t query = (token * s.heads + head) * s.width();
  if (column < s.plain) return part == 0 ? at(q, query + column) : at(kv, of_kv + column);
  const std::int64_t half = s.rotary / 2, i = (column - s.plain) % half;
  const bool first = column - s.plain < half;
  const auto x = [&](std::int64_t j) { return part == 0 ? at(q, query + s.plain + j) : at(key, token * s.rotary + j); };
  const double a = x(s.interleaved ? 2 * i : i), b = x(s.interleaved ? 2 * i + 1 : i + half);
  const std::int64_t entry = static_cast<std::int64_t>(at(positions, token)) * half + i;
  return first ? a * at(cos, entry) - b * at(sin, entry) : b * at(cos, entry) + a * at(sin, entry);
}

TEST(MlaHeads, AreWhatTheDefinitionSays) {
  for (const bool interleaved : {true, false})
    for (const DType dtype : {DType::f32, DType::bf16}) {
      MlaHeadsShape s = kShape;
      s.interleaved = interleaved;
      const Operands o = operands(s, dtype);
      const std::vector<double> got = values(heads_of(o, s));
      std::size_t i = 0;
      for (std::int64_t token = 0; token < kTokens; ++token)
        for (std::int64_t part = 0; part < 3; ++part)
          for (std::int64_t head = 0; head < s.heads; ++head)
            for (std::int64_t column = 0; column < s.width(); ++column, ++i) {
              const double wanted = expected(o, s, token, part, head, column);
              ASSERT_NEAR(got[i], wanted, (dtype == DType::f32 ? 1e-6 : 8e-3) * (1 + std::abs(wanted)))
                  << "token " << token << ", part " << part << ", head " << head << ", column " << column;
            }
    }
}

// The op is linear in its inputs: <dout, f(x)> = <f'(dout), x>.
TEST(MlaHeads, BackwardIsTheTranspose) {
  for (const bool interleaved : {true, false}) {
    MlaHeadsShape s = kShape;
    s.interleaved = interleaved;
    const Operands o = operands(s, DType::f32);
    const Tensor out = heads_of(o, s);
    Generator random(9);
    const Tensor dout = random.normal(out.shape(), DType::f32);
    const Tensor dq = filled(o.q.shape(), DType::f32), dkv = filled(o.kv.shape(), DType::f32),
                 dkey = filled(o.key.shape(), DType::f32);
    mla_heads_backward({dout, o.cos, o.sin, o.positions, dq, dkv, dkey, s});
    const auto dot = [](const Tensor& a, const Tensor& b) {
      const std::vector<double> x = values(a), y = values(b);
      double sum = 0;
      for (std::size_t i = 0; i < x.size(); ++i) sum += x[i] * y[i];
      return sum;
    };
    EXPECT_NEAR(dot(dout, out), dot(dq, o.q) + dot(dkv, o.kv) + dot(dkey, o.key), 1e-4);
    // Each operand by itself.
    for (const int which : {0, 1, 2}) {
      Operands one = o;
      Tensor* const all[] = {&one.q, &one.kv, &one.key};
      for (int other = 0; other < 3; ++other)
        if (other != which) *all[other] = Tensor::zeros(all[other]->shape(), DType::f32);
      const Tensor& gradient = which == 0 ? dq : which == 1 ? dkv : dkey;
      EXPECT_NEAR(dot(dout, heads_of(one, s)), dot(gradient, *all[which]), 1e-4) << which;
    }
  }
}

TEST(MlaHeads, WrongOperandsAreRefused) {
  const Operands o = operands(kShape, DType::f32);
  const auto with = [&](const MlaHeadsShape& s) {
    mla_heads({o.q, o.kv, o.key, o.cos, o.sin, o.positions,
               Tensor::empty({kTokens, 3 * s.heads * s.width()}, DType::f32), s});
  };
  EXPECT_NO_THROW(with(kShape));
  MlaHeadsShape s = kShape;
  s.value = 10;  // wider than a key
  EXPECT_THROW(with(s), Error);
  s = kShape;
  s.rotary = 3;
  EXPECT_THROW(with(s), Error);
  s = kShape;
  s.heads = 2;
  EXPECT_THROW(with(s), Error);
}

}  // namespace
}  // namespace quench
