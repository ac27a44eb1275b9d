#include "export/formats/fused_experts.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "core/memory/storage.h"
#include "core/system/check.h"

namespace quench {
namespace {

using Names = nn::ExpertsSpec::Names;

constexpr std::string_view kExperts = ".experts.", kRouter = "gate.weight";

// Suffix after kExperts, and concatenated matrices.
struct Fusion {
  std::string_view name;
  std::array<std::string_view Names::*, 2> parts;
  std::int64_t count;
};
constexpr std::array kFusions = {Fusion{"gate_up_proj", {&Names::gate, &Names::up}, 2},
                                 Fusion{"down_proj", {&Names::down, nullptr}, 1}};

constexpr std::string_view kWeight = ".weight", kBias = ".bias", kFusedBias = "_bias";

const Fusion* fusion_of(std::string_view name) {
  for (const Fusion& fusion : kFusions)
    if (name.ends_with(fusion.name) && name.substr(0, name.size() - fusion.name.size()).ends_with(kExperts))
      return &fusion;
  return nullptr;
}

// Elements at steps and strides from `data`.
template <class T>
struct Grid {
  T* data;
  std::int64_t stride, step = 1;
};

// to[j,i] = from[i,j], i < rows, j < columns.
template <class T>
void transpose(Grid<const T> from, std::int64_t rows, std::int64_t columns, Grid<T> to) {
  constexpr std::int64_t kTile = 32;
#pragma omp parallel for schedule(static) if (rows * columns > 65536)
  for (std::int64_t first = 0; first < columns; first += kTile)
    for (std::int64_t i0 = 0; i0 < rows; i0 += kTile)
      for (std::int64_t j = first; j < std::min(first + kTile, columns); ++j)
        for (std::int64_t i = i0; i < std::min(i0 + kTile, rows); ++i)
          to.data[j * to.stride + i * to.step] = from.data[i * from.stride + j * from.step];
}

// First element, stride of rows and step of columns, in elements.
struct Lattice {
  std::int64_t offset, stride, step = 1;
};

// Elements of `size` bytes.
void transpose_bytes(std::size_t size, const Tensor& from, const Lattice& at, std::int64_t rows, std::int64_t columns,
                     const Tensor& to, const Lattice& target) {
  const auto of = [&]<class T>(T) {
    transpose<T>({static_cast<const T*>(from.raw_data()) + at.offset, at.stride, at.step}, rows, columns,
                 {static_cast<T*>(to.raw_data()) + target.offset, target.stride, target.step});
  };
  if (size == sizeof(std::uint16_t)) return of(std::uint16_t{});
  QUENCH_CHECK(size == sizeof(std::uint32_t), "fused experts: elements of {} bytes", size);
  of(std::uint32_t{});
}

// One expert's matrix or bias.
struct Place {
  std::string fused;
  std::int64_t expert = 0;
  std::int64_t part = 0;
  OutputOrder order;
};

class SplitExperts final : public StoredWeights {
 public:
  SplitExperts(std::unique_ptr<StoredWeights> weights, const nn::ExpertsSpec& experts)
      : weights_(std::move(weights)), columns_(experts.fused_storage ? 2 : 1) {
    for (const std::string& stored : weights_->names()) {
      const bool bias = experts.bias && stored.ends_with(kFusedBias);
      const std::string name = bias ? stored.substr(0, stored.size() - kFusedBias.size()) : stored;
      const Fusion* fusion = fusion_of(name);
      const Shape shape = weights_->find(stored)->shape;
      const int outputs = bias ? 1 : columns_;
      if (fusion == nullptr || shape.rank() != (bias ? 2 : 3) || shape[outputs] % fusion->count != 0) {
        names_.push_back(stored);
        continue;
      }
      const OutputOrder order{fusion->count, shape[outputs] / fusion->count,
                              experts.interleaved_storage && fusion->count > 1};
      // Paths of MLP and layer in "model.layers.0.mlp.experts.down_proj".
      const std::string part_path = name.substr(0, name.size() - fusion->name.size() - kExperts.size() + 1);
      const std::string layer = part_path.substr(0, part_path.rfind('.', part_path.size() - 2) + 1);
      for (std::int64_t expert = 0; expert < shape[0]; ++expert)
        for (std::int64_t part = 0; part < fusion->count; ++part) {
          const std::string single =
              fmt::format("{}{}.{}.{}{}", layer, experts.names.experts, expert,
                          experts.names.*fusion->parts[static_cast<std::size_t>(part)], bias ? kBias : kWeight);
          places_[single] = {stored, expert, part, order};
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
    const std::int64_t rows = place->second.order.rows;
    stored->shape = stored->shape.rank() == 2 ? Shape{rows} : Shape{rows, stored->shape[3 - columns_]};
    return stored;
  }

  void read(std::string_view name, const Tensor& out, std::int64_t first_row) const override {
    const auto found = places_.find(name);
    if (found == places_.end()) return weights_->read(stored_name(name), out, first_row);
    const Place& place = found->second;
    const Tensor matrix = expert_of(place);
    const std::int64_t first = place.order.at(place.part, first_row), step = place.order.step();
    // [1,rows,in]: whole rows; a bias: rows of one element.
    const bool by_rows = matrix.rank() == 3 && columns_ == 1;
    if (by_rows && step == 1) return Tensor(out).copy_from(matrix.select(0, 0).narrow(0, first, out.size(0)));
    QUENCH_CHECK(!by_rows, "fused experts: interleaved rows");
    const std::int64_t in = matrix.rank() == 3 ? matrix.size(1) : 1, stride = matrix.size(-1);
    transpose_bytes(static_cast<std::size_t>(byte_size(matrix.dtype())), matrix, {first, stride, step}, in, out.size(0),
                    out, {0, in});
  }

  [[nodiscard]] PackedMatrix read_packed(std::string_view name) const override {
    return weights_->read_packed(stored_name(name));
  }
  [[nodiscard]] std::optional<OperandScheme> inputs(std::string_view name) const override {
    return places_.contains(name) ? std::nullopt : weights_->inputs(stored_name(name));
  }
  [[nodiscard]] InputArithmetic input_arithmetic() const override { return weights_->input_arithmetic(); }
  [[nodiscard]] std::optional<float> input_scale(std::string_view name) const override {
    return places_.contains(name) ? std::nullopt : weights_->input_scale(stored_name(name));
  }
  [[nodiscard]] Tensor block_scales(std::string_view name, std::int64_t expert) const override {
    const auto found = places_.find(name);
    if (found == places_.end()) return weights_->block_scales(stored_name(name), expert);
    const Place& place = found->second;
    const Tensor all = weights_->block_scales(place.fused, place.expert);
    if (!all.defined()) return {};
    const MemoryScope scope(MemoryCategory::workspace);
    const Tensor rows = Tensor::empty({place.order.rows, all.size(1)}, all.dtype());
    for (std::int64_t row = 0; row < rows.size(0); ++row)
      rows.narrow(0, row, 1).copy_from(all.narrow(0, place.order.at(place.part, row), 1));
    return rows;
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

  // [1,...] of a matrix or bias; cached, since gate and up share a tensor.
  [[nodiscard]] Tensor expert_of(const Place& place) const {
    if (place.fused != last_name_ || place.expert != last_expert_) {
      const MemoryScope scope(MemoryCategory::workspace);
      const StoredTensor stored = *weights_->find(place.fused);
      Shape shape = stored.shape;
      shape[0] = 1;
      last_ = Tensor::empty(shape, *stored.dtype);
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

}  // namespace

std::string fused_name(const nn::Parameter& parameter) {
  return parameter.name.substr(0, parameter.name.rfind('.'));
}

ModelTensor fused_experts(const std::vector<ModelTensor>& pieces, bool interleaved) {
  const nn::Parameter& parameter = *pieces.front().parameter;
  const bool bias = parameter.global_shape.rank() == 1;
  const std::int64_t experts = parameter.experts, in = bias ? 1 : parameter.global_shape[1];
  const std::int64_t columns = parameter.global_shape[0] / experts;
  ModelTensor result = pieces.front();
  result.name = fused_name(parameter) + std::string(bias ? kFusedBias : "");
  result.layer.clear();
  result.piece = nullptr;
  result.shape = bias ? Shape{experts, columns} : Shape{experts, in, columns};
  result.value = [pieces, interleaved, experts, in, columns, shape = result.shape, dtype = result.dtype] {
    const MemoryScope scope(MemoryCategory::workspace);
    const Tensor out = Tensor::empty(shape, dtype);
    const auto parts = static_cast<std::int64_t>(pieces.size()) / experts;
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      const Tensor rows = pieces[i].value();
      const OutputOrder order{parts, rows.size(0), interleaved && parts > 1};
      const auto expert = static_cast<std::int64_t>(i) / parts, part = static_cast<std::int64_t>(i) % parts;
      transpose_bytes(static_cast<std::size_t>(byte_size(dtype)), rows, {0, in}, rows.size(0), in, out,
                      {expert * in * columns + order.at(part, 0), columns, order.step()});
    }
    return out;
  };
  return result;
}

std::unique_ptr<StoredWeights> split_experts(std::unique_ptr<StoredWeights> weights, const nn::ExpertsSpec& experts) {
  if (experts.count == 0) return weights;
  auto split = std::make_unique<SplitExperts>(std::move(weights), experts);
  if (!split->splits()) return split->release();
  return split;
}

std::vector<ModelTensor> fuse_experts(const std::vector<ModelTensor>& tensors, const nn::ModelConfig& config) {
  if (!config.experts.fused_storage) return tensors;
  const auto module_of = [](const ModelTensor& t) { return t.parameter->name.substr(0, t.parameter->name.rfind('.')); };
  std::set<std::string> quantized;
  for (const ModelTensor& t : tensors)
    if (t.quantized != nullptr) quantized.insert(module_of(t));
  std::vector<ModelTensor> result;
  for (std::size_t i = 0; i < tensors.size();) {
    std::vector<ModelTensor> pieces{tensors[i]};
    for (++i; i < tensors.size() && tensors[i].parameter == pieces.front().parameter; ++i) pieces.push_back(tensors[i]);
    const bool dense = !quantized.contains(module_of(pieces.front()));
    if (pieces.front().parameter->experts > 0 && dense)
      result.push_back(fused_experts(pieces, config.experts.interleaved_storage));
    else
      std::ranges::move(pieces, std::back_inserter(result));
  }
  return result;
}

}  // namespace quench
