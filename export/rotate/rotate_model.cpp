#include "export/rotate/rotate_model.h"

#include <algorithm>
#include <map>
#include <vector>

#include "core/system/check.h"
#include "export/ptq/fuse_scales.h"
#include "export/rotate/orthogonal.h"

namespace quench {
namespace {

constexpr std::uint64_t kSeed = 42;

// Relation of a decoder layer's parameter to the residual stream.
enum class Role {
  reads,        // rows are of its width, after the norm
  writes,       // weight [.., in] by whose rows the stream has its elements
  writes_bias,  // added to its outputs
  inner,
};

// By the end of the name.
constexpr std::pair<std::string_view, Role> kRoles[] = {{".qkv_proj.weight", Role::reads},
                                                        {".q_proj.weight", Role::reads},
                                                        {".q_a_proj.weight", Role::reads},
                                                        {".kv_a_proj_with_mqa.weight", Role::reads},
                                                        {".gate_up_proj.weight", Role::reads},
                                                        {".gate.weight", Role::reads},
                                                        {".o_proj.weight", Role::writes},
                                                        {".down_proj.weight", Role::writes},
                                                        {".o_proj.bias", Role::writes_bias},
                                                        {".down_proj.bias", Role::writes_bias},
                                                        {".qkv_proj.bias", Role::inner},
                                                        {".q_a_proj.bias", Role::inner},
                                                        {".kv_a_proj_with_mqa.bias", Role::inner},
                                                        {".gate_up_proj.bias", Role::inner},
                                                        {".gate.bias", Role::inner},
                                                        {".gate.choice_bias", Role::inner},
                                                        {".q_norm.weight", Role::inner},
                                                        {".k_norm.weight", Role::inner},
                                                        {".q_a_layernorm.weight", Role::inner},
                                                        {".kv_a_layernorm.weight", Role::inner},
                                                        {".q_b_proj.weight", Role::inner},
                                                        {".kv_b_proj.weight", Role::inner},
                                                        {".sinks", Role::inner}};

std::string shared_gate_of(const nn::BlockSpec& block) {
  const auto& experts = block.feed_forward.experts;
  return experts && experts->shared_gate ? fmt::format(".{}.weight", experts->names.shared_gate) : "";
}

Role role_of(const std::string& name, const nn::BlockSpec& block) {
  if (const std::string gate = shared_gate_of(block); !gate.empty() && name.ends_with(gate)) return Role::reads;
  for (const auto& [end, role] : kRoles)
    if (name.ends_with(end)) return role;
  QUENCH_FAIL(ErrorCode::unsupported, "the model cannot be rotated: there is no rule for {}", name);
}

// Rows times Q, each [matrix.size()] long.
void rotate_rows(const OrthogonalMatrix& matrix, float* values, std::int64_t rows, const float* factors) {
  const std::int64_t size = matrix.size();
#pragma omp parallel
  {
    std::vector<double> row(static_cast<std::size_t>(size)), scratch;
#pragma omp for schedule(static)
    for (std::int64_t r = 0; r < rows; ++r) {
      float* here = values + r * size;
      for (std::int64_t c = 0; c < size; ++c)
        row[static_cast<std::size_t>(c)] =
            factors != nullptr ? static_cast<double>(here[c]) * static_cast<double>(factors[c]) : here[c];
      matrix.apply(row.data(), scratch);
      for (std::int64_t c = 0; c < size; ++c) here[c] = static_cast<float>(row[static_cast<std::size_t>(c)]);
    }
  }
}

// Columns of matrix.size() rows times Q; `stride`: from one row to the next, at least `columns`.
void rotate_columns(const OrthogonalMatrix& matrix, float* values, std::int64_t columns, std::int64_t stride) {
  const std::int64_t size = matrix.size();
#pragma omp parallel
  {
    std::vector<double> column(static_cast<std::size_t>(size)), scratch;
#pragma omp for schedule(static)
    for (std::int64_t c = 0; c < columns; ++c) {
      for (std::int64_t r = 0; r < size; ++r) column[static_cast<std::size_t>(r)] = values[r * stride + c];
      matrix.apply(column.data(), scratch);
      for (std::int64_t r = 0; r < size; ++r)
        values[r * stride + c] = static_cast<float>(column[static_cast<std::size_t>(r)]);
    }
  }
}

class Rotator {
 public:
  explicit Rotator(nn::CausalLm& model)
      : model_(model), stream_(model.config().hidden_size, {kSeed, hash64("stream"), 0}) {
    for (nn::Parameter* parameter : model.parameters()) parameters_[parameter->name] = parameter;
    for (const nn::BlockSpec& block : model.config().blocks)  // before any change
      for_each_of(block, [&](nn::Parameter& parameter) { (void)role_of(parameter.name, block); });
    for (const auto& [name, parameter] : parameters_)
      QUENCH_CHECK_AS(ErrorCode::unsupported, name.starts_with("model.") || name == kHead,
                      "the model cannot be rotated: there is no rule for {}", name);
  }

  ModelRotation run() {
    ModelRotation done{.hadamard = stream_.is_hadamard()};
    if (model_.config().tie_word_embeddings) {
      model_.untie_head();
      nn::Parameter& head = *model_.parameters().back();
      QUENCH_CHECK(head.name == kHead, "rotate_model: the last parameter is {}", head.name);
      parameters_[head.name] = &head;
      done.head_bytes = head.variable.value().nbytes();
    }
    rotate_stream_rows(*parameters_.at("model.embed_tokens.weight"), {});
    for (const nn::BlockSpec& block : model_.config().blocks) {
      rotate_block(block);
      rotate_values(block);
    }
    rotate_stream_rows(*parameters_.at(std::string(kHead)), taken_norm("model.norm", model_.config().stream.norm.form));
    return done;
  }

 private:
  static constexpr std::string_view kHead = "lm_head.weight";

  // Without the norms of the stream.
  template <class Body>
  void for_each_of(const nn::BlockSpec& block, const Body& body) {
    const std::string prefix = prefix_of(block);
    const std::string norms[] = {fmt::format("{}{}.weight", prefix, block.attention.norm.name),
                                 fmt::format("{}{}.weight", prefix, block.feed_forward.norm.name)};
    for (auto at = parameters_.lower_bound(prefix); at != parameters_.end() && at->first.starts_with(prefix); ++at)
      if (at->first != norms[0] && at->first != norms[1]) body(*at->second);
  }
  static std::string prefix_of(const nn::BlockSpec& block) { return fmt::format("model.layers.{}.", block.layer); }

  // Factors of a norm, which becomes 1.
  Tensor taken_norm(const std::string& path, const RmsNormForm& form) {
    nn::Parameter& norm = *parameters_.at(path + ".weight");
    const Tensor factors = values_of(norm), ones = factors.clone();
    for (std::int64_t c = 0; c < factors.numel(); ++c) {
      factors.data<float>()[c] += form.weight_offset;
      ones.data<float>()[c] = 1.0f - form.weight_offset;
    }
    set_values(norm, ones);
    return factors;
  }

  void rotate_stream_rows(nn::Parameter& parameter, const Tensor& factors) {
    const Tensor values = values_of(parameter);
    rotate_rows(stream_, values.data<float>(), values.numel() / stream_.size(),
                factors.defined() ? factors.data<float>() : nullptr);
    set_values(parameter, values);
  }

  void rotate_block(const nn::BlockSpec& block) {
    const std::string prefix = prefix_of(block), attention = prefix + "self_attn.";
    const Tensor before_attention =
                     taken_norm(prefix + std::string(block.attention.norm.name), block.attention.norm.form),
                 before_feed_forward =
                     taken_norm(prefix + std::string(block.feed_forward.norm.name), block.feed_forward.norm.form);
    for_each_of(block, [&](nn::Parameter& parameter) {
      switch (role_of(parameter.name, block)) {
        case Role::reads:
          return rotate_stream_rows(parameter,
                                    parameter.name.starts_with(attention) ? before_attention : before_feed_forward);
        case Role::writes: {  // experts: one after the other
          const Tensor values = values_of(parameter);
          const std::int64_t columns = values.size(1), size = stream_.size();
          for (std::int64_t row = 0; row < values.size(0); row += size)
            rotate_columns(stream_, values.data<float>() + row * columns, columns, columns);
          return set_values(parameter, values);
        }
        case Role::writes_bias: return rotate_stream_rows(parameter, {});
        case Role::inner: return;
      }
    });
  }

  // R2: rows of the value projection and columns of the output projection, by head.
  void rotate_values(const nn::BlockSpec& block) {
    const nn::AttentionSpec& attention = block.attention;
    const std::string path = prefix_of(block) + "self_attn.";
    const std::int64_t size = attention.value_dim;
    const OrthogonalMatrix matrix(size, {kSeed, hash64("values"), static_cast<std::uint64_t>(block.layer)});
    std::vector<std::int64_t> rows;  // first of each head
    if (attention.mla)
      for (std::int64_t head = 0; head < attention.heads; ++head)
        rows.push_back(head * (attention.mla->nope_dim + size) + attention.mla->nope_dim);
    else
      for (std::int64_t head = 0; head < attention.kv_heads; ++head)
        rows.push_back(attention.query_width() + attention.kv_width() + head * size);
    const std::string projection = path + (attention.mla ? "kv_b_proj" : "qkv_proj");
    for (const char* part : {".weight", ".bias"}) {
      const auto found = parameters_.find(projection + part);
      if (found == parameters_.end()) continue;
      const Tensor values = values_of(*found->second);
      const std::int64_t columns = values.numel() / values.size(0);
      for (const std::int64_t row : rows)
        rotate_columns(matrix, values.data<float>() + row * columns, columns, columns);
      set_values(*found->second, values);
    }
    nn::Parameter& output = *parameters_.at(path + "o_proj.weight");
    const Tensor values = values_of(output);
    rotate_rows(matrix, values.data<float>(), values.numel() / size, nullptr);
    set_values(output, values);
  }

  nn::CausalLm& model_;
  OrthogonalMatrix stream_;
  std::map<std::string, nn::Parameter*, std::less<>> parameters_;
};

}  // namespace

std::string rotation_problem(const nn::ModelConfig& config) {
  for (const nn::BlockSpec& block : config.blocks) {
    for (const auto& post : {block.attention.post_norm, block.feed_forward.post_norm})
      if (post)
        return fmt::format(
            "norm {} of layer {} multiplies what a sublayer adds to the residual stream, channel by "
            "channel, which no rotation of the stream passes",
            post->name, block.layer);
    if (block.attention.norm.name.empty() || block.feed_forward.norm.name.empty())
      return fmt::format("layer {} reads the residual stream without a norm", block.layer);
  }
  return config.mtp.layers > 0 ? "its MTP layers read the output of the final norm" : "";
}

ModelRotation rotate_model(nn::CausalLm& model) {
  const std::string problem = rotation_problem(model.config());
  QUENCH_CHECK_AS(ErrorCode::unsupported, problem.empty(), "a model of family {} cannot be rotated: {}",
                  model.config().model_type, problem);
  const MemoryScope scope(MemoryCategory::workspace);
  return Rotator(model).run();
}

}  // namespace quench
