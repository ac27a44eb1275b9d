#pragma once
// A decoder layer in f64, by the formulas alone: what the layers of nn/ are held against.

#include <gtest/gtest.h>

#include <cmath>
#include <span>
#include <string>
#include <vector>

#include "core/number/random.h"
#include "nn/attention/layer_rotations.h"
#include "nn/modules/forward_context.h"
#include "nn/modules/module.h"

namespace quench::nn::reference {

using Matrix = std::vector<std::vector<double>>;

// A small model, with the members of the JSON object `more`.
inline ModelConfig small_config(const std::string& more = "{}") {
  Json json = Json::parse(R"({"model_type": "llama", "vocab_size": 40, "hidden_size": 24, "intermediate_size": 20,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8})");
  const Json members = Json::parse(more);
  for (const auto& [key, value] : members.as_object()) json.set(key, value);
  return parse_model_config(json, "config.json");
}

inline Tensor numbers(const Shape& shape, std::uint64_t stream, float scale = 1.0f) {
  const Tensor t = Tensor::empty(shape, DType::f32);
  for (std::int64_t i = 0; i < t.numel(); ++i)
    t.data<float>()[i] = scale * random_normal({11, stream, 0}, static_cast<std::uint64_t>(i));
  return t;
}

// Random values for every parameter of a layer, norm weights around 1, and names.
inline void fill(Module& layer) {
  layer.assign_names("layer.");
  std::uint64_t stream = 100;
  for (Parameter* p : layer.parameters()) {
    const Tensor value = p->variable.value();
    const float scale = 1 / std::sqrt(static_cast<float>(value.size(-1)));
    Tensor(value).copy_from(numbers(value.shape(), stream++, scale));
    if (p->initializer == Initializer::ones)
      for (std::int64_t i = 0; i < value.numel(); ++i) value.data<float>()[i] += 1;
  }
}

inline Matrix rows_of(const Tensor& t) {
  Matrix rows(static_cast<std::size_t>(t.size(0)));
  const std::int64_t width = t.numel() / t.size(0);
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const float* from = t.data<float>() + static_cast<std::int64_t>(r) * width;
    rows[r].assign(from, from + width);
  }
  return rows;
}

// The rows of a parameter that carry this name in a checkpoint; empty where there are none.
inline Matrix piece(Module& layer, const std::string& name) {
  for (const Parameter* p : layer.parameters())
    for (const ParameterPiece& part : p->pieces)
      if (part.hf_name == "layer." + name)
        return rows_of(p->variable.value().narrow(0, part.row_begin, part.rows).clone());
  return {};
}

inline Matrix product(const Matrix& x, const Matrix& weight, const Matrix& bias = {}) {
  Matrix y;
  for (const auto& row : x) {
    auto& out = y.emplace_back();
    for (std::size_t n = 0; n < weight.size(); ++n) {
      double sum = bias.empty() ? 0 : bias[n][0];
      for (std::size_t k = 0; k < row.size(); ++k) sum += row[k] * weight[n][k];
      out.push_back(sum);
    }
  }
  return y;
}

inline Matrix sum(Matrix a, const Matrix& b) {
  for (std::size_t r = 0; r < a.size(); ++r)
    for (std::size_t c = 0; c < a[r].size(); ++c) a[r][c] += b[r][c];
  return a;
}

inline Matrix normed(Matrix x, const Matrix& weight, double eps) {
  for (auto& row : x) {
    double square = 0;
    for (const double value : row) square += value * value;
    const double factor = 1 / std::sqrt(square / static_cast<double>(row.size()) + eps);
    for (std::size_t c = 0; c < row.size(); ++c) row[c] *= factor * weight[c][0];
  }
  return x;
}

inline Matrix mlp(Module& layer, const Matrix& x, const std::string& prefix) {
  const Matrix gate = product(x, piece(layer, prefix + "gate_proj.weight"), piece(layer, prefix + "gate_proj.bias"));
  Matrix inner = product(x, piece(layer, prefix + "up_proj.weight"), piece(layer, prefix + "up_proj.bias"));
  for (std::size_t r = 0; r < inner.size(); ++r)
    for (std::size_t c = 0; c < inner[r].size(); ++c) inner[r][c] *= gate[r][c] / (1 + std::exp(-gate[r][c]));
  return product(inner, piece(layer, prefix + "down_proj.weight"), piece(layer, prefix + "down_proj.bias"));
}

// Rotates the heads of a row by the token's position: halves of a head are the two coordinates.
inline void rotate(std::vector<double>& row, std::int64_t heads, std::int64_t head_dim, double theta,
                   std::int64_t position) {
  for (std::int64_t head = 0; head < heads; ++head)
    for (std::int64_t i = 0; i < head_dim / 2; ++i) {
      const double angle =
          static_cast<double>(position) * std::pow(theta, -2 * static_cast<double>(i) / static_cast<double>(head_dim));
      double& a = row[static_cast<std::size_t>(head * head_dim + i)];
      double& b = row[static_cast<std::size_t>(head * head_dim + head_dim / 2 + i)];
      const double x = a, y = b;
      a = x * std::cos(angle) - y * std::sin(angle);
      b = y * std::cos(angle) + x * std::sin(angle);
    }
}

inline void norm_heads(std::vector<double>& row, std::int64_t head_dim, const Matrix& weight, double eps) {
  for (std::size_t begin = 0; begin < row.size(); begin += static_cast<std::size_t>(head_dim)) {
    const auto at = row.begin() + static_cast<std::ptrdiff_t>(begin);
    const Matrix head = normed({{at, at + head_dim}}, weight, eps);
    std::copy(head[0].begin(), head[0].end(), at);
  }
}

// Causal self-attention of one sequence whose tokens have the positions 0, 1, ...
inline Matrix attention(Module& layer, const ModelConfig& c, const Matrix& x, const std::string& prefix) {
  Matrix q = product(x, piece(layer, prefix + "q_proj.weight"), piece(layer, prefix + "q_proj.bias"));
  Matrix k = product(x, piece(layer, prefix + "k_proj.weight"), piece(layer, prefix + "k_proj.bias"));
  const Matrix v = product(x, piece(layer, prefix + "v_proj.weight"), piece(layer, prefix + "v_proj.bias"));
  const std::int64_t tokens = static_cast<std::int64_t>(x.size()), d = c.head_dim;
  for (std::int64_t t = 0; t < tokens; ++t) {
    auto &query = q[static_cast<std::size_t>(t)], &key = k[static_cast<std::size_t>(t)];
    if (c.block(0).attention.qk_norm == QkNorm::weighted) {
      norm_heads(query, d, piece(layer, prefix + "q_norm.weight"), c.rms_norm_eps);
      norm_heads(key, d, piece(layer, prefix + "k_norm.weight"), c.rms_norm_eps);
    }
    rotate(query, c.num_attention_heads, d, c.rope.theta, t);
    rotate(key, c.num_key_value_heads, d, c.rope.theta, t);
  }
  Matrix mixed(x.size(), std::vector<double>(static_cast<std::size_t>(c.num_attention_heads * d)));
  for (std::int64_t t = 0; t < tokens; ++t)
    for (std::int64_t head = 0; head < c.num_attention_heads; ++head) {
      const std::int64_t shared = head / (c.num_attention_heads / c.num_key_value_heads);
      const std::int64_t first = c.sliding_window > 0 ? std::max<std::int64_t>(0, t - c.sliding_window + 1) : 0;
      const auto at = [&](const Matrix& m, std::int64_t token, std::int64_t of, std::int64_t i) {
        return m[static_cast<std::size_t>(token)][static_cast<std::size_t>(of * d + i)];
      };
      std::vector<double> weights;
      double all = 0;
      for (std::int64_t s = first; s <= t; ++s) {
        double score = 0;
        for (std::int64_t i = 0; i < d; ++i) score += at(q, t, head, i) * at(k, s, shared, i);
        all += weights.emplace_back(std::exp(score / std::sqrt(static_cast<double>(d))));
      }
      for (std::int64_t s = first; s <= t; ++s)
        for (std::int64_t i = 0; i < d; ++i)
          mixed[static_cast<std::size_t>(t)][static_cast<std::size_t>(head * d + i)] +=
              weights[static_cast<std::size_t>(s - first)] / all * at(v, s, shared, i);
    }
  return product(mixed, piece(layer, prefix + "o_proj.weight"), piece(layer, prefix + "o_proj.bias"));
}

inline void expect_near(const Tensor& ours, const Matrix& exact, double tolerance) {
  ASSERT_EQ(ours.size(0), static_cast<std::int64_t>(exact.size()));
  ASSERT_EQ(ours.size(1), static_cast<std::int64_t>(exact[0].size()));
  double error = 0, norm = 0;
  for (std::size_t r = 0; r < exact.size(); ++r)
    for (std::size_t c = 0; c < exact[r].size(); ++c) {
      const double got = ours.data<float>()[static_cast<std::int64_t>(r) * ours.size(1) + static_cast<std::int64_t>(c)];
      error += (got - exact[r][c]) * (got - exact[r][c]);
      norm += exact[r][c] * exact[r][c];
    }
  EXPECT_GT(norm, 0);
  EXPECT_LT(std::sqrt(error / norm), tolerance);
}

// A pass over sequences of these lengths, in sequence.
inline ForwardContext make_context(const ModelConfig& config, const std::vector<std::int64_t>& lengths) {
  ForwardContext context;
  std::vector<std::int32_t> positions;
  std::int64_t begin = 0;
  for (const std::int64_t length : lengths) {
    context.sequences.push_back({begin, length, begin, length});
    for (std::int64_t t = 0; t < length; ++t) positions.push_back(static_cast<std::int32_t>(t));
    begin += length;
  }
  context.positions = Tensor::from_values<std::int32_t>({begin}, positions);
  context.rotations = LayerRotations(config).rows(std::vector<SequenceRange>{{0, begin, 0, begin}}, Device{}).tables;
  context.rotation_rows = context.positions;
  return context;
}

}  // namespace quench::nn::reference
