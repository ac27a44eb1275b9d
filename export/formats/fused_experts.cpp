#include "export/formats/fused_experts.h"

#include <algorithm>
#include <array>
#include <map>

#include "core/memory/storage.h"
#include "core/system/check.h"

namespace quench {
namespace {

using Names = nn::ExpertsConfig::Names;

constexpr std::string_view kExperts = ".experts.", kRouter = "gate.weight";

// Suffix after kExperts, and concatenated matrices.
struct Fusion {
  std::string_view name;
  std::array<std::string_view Names::*, 2> parts;
  std::int64_t count;
};
constexpr std::array kFusions = {Fusion{"gate_up_proj", {&Names::gate, &Names::up}, 2},
                                 Fusion{"down_proj", {&Names::down, nullptr}, 1}};

const Fusion* fusion_of(std::string_view name) {
  for (const Fusion& fusion : kFusions)
    if (name.ends_with(fusion.name) && name.substr(0, name.size() - fusion.name.size()).ends_with(kExperts))
      return &fusion;
  return nullptr;
}

// to[j,i] = from[i,j], i < rows, j < columns; strides in elements.
template <class T>
void transpose(const T* from, std::int64_t from_stride, std::int64_t rows, std::int64_t columns, T* to,
               std::int64_t to_stride) {
  constexpr std::int64_t kTile = 32;
#pragma omp parallel for schedule(static) if (rows * columns > 65536)
  for (std::int64_t first = 0; first < columns; first += kTile)
    for (std::int64_t i0 = 0; i0 < rows; i0 += kTile)
      for (std::int64_t j = first; j < std::min(first + kTile, columns); ++j)
        for (std::int64_t i = i0; i < std::min(i0 + kTile, rows); ++i)
          to[j * to_stride + i] = from[i * from_stride + j];
}

// Elements of `size` bytes, at from + offset and to + offset.
void transpose_bytes(std::size_t size, const Tensor& from, std::int64_t from_offset, std::int64_t from_stride,
                     std::int64_t rows, std::int64_t columns, const Tensor& to, std::int64_t to_offset,
                     std::int64_t to_stride) {
  const auto of = [&]<class T>(T) {
    transpose(static_cast<const T*>(from.raw_data()) + from_offset, from_stride, rows, columns,
              static_cast<T*>(to.raw_data()) + to_offset, to_stride);
  };
  if (size == sizeof(std::uint16_t)) return of(std::uint16_t{});
  QUENCH_CHECK(size == sizeof(std::uint32_t), "fused experts: elements of {} bytes", size);
  of(std::uint32_t{});
}

// One expert's matrix.
struct Place {
  std::string fused;
  std::int64_t expert = 0;
  std::int64_t part = 0, parts = 1;
};

class SplitExperts final : public StoredWeights {
 public:
  SplitExperts(std::unique_ptr<StoredWeights> weights, const nn::ExpertsConfig& experts)
      : weights_(std::move(weights)), columns_(experts.fused_storage ? 2 : 1) {
    for (const std::string& name : weights_->names()) {
      const Fusion* fusion = fusion_of(name);
      const Shape shape = weights_->find(name)->shape;
      if (fusion == nullptr || shape.rank() != 3 || shape[columns_] % fusion->count != 0) {
        names_.push_back(name);
        continue;
      }
      // Paths of MLP and layer in "model.layers.0.mlp.experts.down_proj".
      const std::string part_path = name.substr(0, name.size() - fusion->name.size() - kExperts.size() + 1);
      const std::string layer = part_path.substr(0, part_path.rfind('.', part_path.size() - 2) + 1);
      for (std::int64_t expert = 0; expert < shape[0]; ++expert)
        for (std::int64_t part = 0; part < fusion->count; ++part) {
          const std::string single = fmt::format("{}{}.{}.{}.weight", layer, experts.names.experts, expert,
                                                 experts.names.*fusion->parts[static_cast<std::size_t>(part)]);
          places_[single] = {name, expert, part, fusion->count};
          names_.push_back(single);
        }
      renamed_[fmt::format("{}{}.weight", layer, experts.names.router)] = part_path + std::string(kRouter);
    }
    rename_routers();
  }

  [[nodiscard]] bool splits() const { return !places_.empty(); }
  [[nodiscard]] std::unique_ptr<StoredWeights> release() { return std::move(weights_); }

  [[nodiscard]] std::vector<std::string> names() const override { return names_; }
  [[nodiscard]] std::vector<std::string> left_out() const override { return weights_->left_out(); }

  [[nodiscard]] std::optional<StoredTensor> find(std::string_view name) const override {
    const auto place = places_.find(name);
    if (place == places_.end()) return weights_->find(stored_name(name));
    std::optional<StoredTensor> stored = weights_->find(place->second.fused);
    stored->shape = {stored->shape[columns_] / place->second.parts, stored->shape[3 - columns_]};
    return stored;
  }

  void read(std::string_view name, const Tensor& out, std::int64_t first_row) const override {
    const auto found = places_.find(name);
    if (found == places_.end()) return weights_->read(stored_name(name), out, first_row);
    const Place& place = found->second;
    const Tensor matrix = expert_of(place);
    if (columns_ == 1) {
      const std::int64_t row = place.part * (matrix.size(1) / place.parts) + first_row;
      return Tensor(out).copy_from(matrix.select(0, 0).narrow(0, row, out.size(0)));
    }
    const std::int64_t in = matrix.size(1), stride = matrix.size(2);
    transpose_bytes(static_cast<std::size_t>(byte_size(matrix.dtype())), matrix,
                    place.part * (stride / place.parts) + first_row, stride, in, out.size(0), out, 0, in);
  }

  [[nodiscard]] PackedMatrix read_packed(std::string_view name) const override {
    return weights_->read_packed(stored_name(name));
  }
  [[nodiscard]] std::optional<OperandScheme> inputs(std::string_view name) const override {
    return places_.contains(name) ? std::nullopt : weights_->inputs(stored_name(name));
  }
  [[nodiscard]] IntDivision input_division() const override { return weights_->input_division(); }
  [[nodiscard]] std::optional<float> input_scale(std::string_view name) const override {
    return places_.contains(name) ? std::nullopt : weights_->input_scale(stored_name(name));
  }

 private:
  // With fused experts Transformers 5 has one router name, except for Llama 4.
  void rename_routers() {
    std::erase_if(renamed_, [&](const auto& names) { return !weights_->find(names.second); });
    for (const auto& [name, stored] : renamed_) std::ranges::replace(names_, stored, name);
  }
  [[nodiscard]] std::string_view stored_name(std::string_view name) const {
    const auto renamed = renamed_.find(name);
    return renamed == renamed_.end() ? name : std::string_view(renamed->second);
  }

  // [1,...]; cached, since gate and up share a tensor.
  [[nodiscard]] Tensor expert_of(const Place& place) const {
    if (place.fused != last_name_ || place.expert != last_expert_) {
      const MemoryScope scope(MemoryCategory::workspace);
      const StoredTensor stored = *weights_->find(place.fused);
      last_ = Tensor::empty({1, stored.shape[1], stored.shape[2]}, *stored.dtype);
      weights_->read(place.fused, last_, place.expert);
      last_name_ = place.fused;
      last_expert_ = place.expert;
    }
    return last_;
  }

  std::unique_ptr<StoredWeights> weights_;
  int columns_;  // output dimension, gate first
  std::vector<std::string> names_;
  std::map<std::string, Place, std::less<>> places_;
  std::map<std::string, std::string, std::less<>> renamed_;  // stored names
  mutable std::string last_name_;
  mutable std::int64_t last_expert_ = -1;
  mutable Tensor last_;
};

// Expert 0 first.
ModelTensor fused(const std::vector<ModelTensor>& pieces) {
  const nn::Parameter& parameter = *pieces.front().parameter;
  const std::int64_t experts = parameter.experts, in = parameter.global_shape[1];
  const std::int64_t columns = parameter.global_shape[0] / experts;
  ModelTensor result = pieces.front();
  constexpr std::string_view kSuffix = ".weight";
  result.name = parameter.name.substr(0, parameter.name.size() - kSuffix.size());
  result.layer.clear();
  result.piece = nullptr;
  result.shape = {experts, in, columns};
  result.value = [pieces, shape = result.shape, dtype = result.dtype] {
    const MemoryScope scope(MemoryCategory::workspace);
    const Tensor out = Tensor::empty(shape, dtype);
    const std::int64_t wide = shape[2];
    std::int64_t column = 0;  // over experts
    for (const ModelTensor& piece : pieces) {
      const Tensor rows = piece.value();
      transpose_bytes(static_cast<std::size_t>(byte_size(dtype)), rows, 0, shape[1], rows.size(0), shape[1], out,
                      column / wide * shape[1] * wide + column % wide, wide);
      column += rows.size(0);
    }
    return out;
  };
  return result;
}

}  // namespace

std::unique_ptr<StoredWeights> split_experts(std::unique_ptr<StoredWeights> weights, const nn::ExpertsConfig& experts) {
  if (experts.count == 0) return weights;
  auto split = std::make_unique<SplitExperts>(std::move(weights), experts);
  if (!split->splits()) return split->release();
  return split;
}

std::vector<ModelTensor> fuse_experts(const std::vector<ModelTensor>& tensors, const nn::ModelConfig& config) {
  if (!config.experts.fused_storage) return tensors;
  std::vector<ModelTensor> result;
  for (std::size_t i = 0; i < tensors.size();) {
    std::vector<ModelTensor> pieces{tensors[i]};
    for (++i; i < tensors.size() && tensors[i].parameter == pieces.front().parameter; ++i) pieces.push_back(tensors[i]);
    const bool dense = std::ranges::all_of(pieces, [](const ModelTensor& t) { return t.quantized == nullptr; });
    if (pieces.front().parameter->experts > 0 && dense)
      result.push_back(fused(pieces));
    else
      std::ranges::move(pieces, std::back_inserter(result));
  }
  return result;
}

}  // namespace quench
