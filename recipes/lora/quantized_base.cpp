#include "recipes/lora/quantized_base.h"

#include <algorithm>
#include <string>
#include <utility>

#include "core/ops/packed_linear.h"
#include "core/ops/quantize/nf4.h"
#include "core/ops/quantize/quantize.h"
#include "core/system/key_error.h"
#include "nn/modules/linear.h"

namespace quench::recipes {

struct QuantizedBase::Matrix {
  using Decode = std::function<Tensor(const std::vector<Tensor>& parts)>;
  // Without values in between; null: of decoded values.
  using Amax = std::function<Tensor(const std::vector<Tensor>& parts, Granularity granularity)>;
  using Cast = std::function<QuantTensor(const std::vector<Tensor>& parts, const Tensor& scale, Granularity granularity,
                                         Orientation orientation)>;
  std::string form;
  std::vector<std::unique_ptr<nn::Parameter>> parts;
  Decode decode;
  Amax amax = {};
  Cast cast = {};

  // e4m3 codes of the values; the scales are made once.
  [[nodiscard]] QuantTensor codes(const std::vector<Tensor>& gathered, const autograd::WeightFormat& format,
                                  Orientation orientation) {
    if (format.granularity == Granularity::row) orientation = Orientation::natural;
    const auto known = std::ranges::find(scales_, format, &std::pair<autograd::WeightFormat, Tensor>::first);
    const Tensor scale = known == scales_.end() ? make_scale(gathered, format) : known->second;
    if (cast) return cast(gathered, scale, format.granularity, orientation);
    const Tensor values = [&] {
      const MemoryScope scope(MemoryCategory::workspace);
      return decode(gathered);
    }();
    return cast_float8(values, scale, format.element, format.granularity, orientation);
  }

  // `rows`: all rows of the part; local ones are kept.
  void add(const nn::Parameter& weight, std::string_view name, const Tensor& rows) {
    nn::ParameterOptions options{.dtype = rows.dtype(), .device = weight.variable.value().device(), .trainable = false};
    options.sharding = weight.sharding;
    auto part = std::make_unique<nn::Parameter>();
    if (weight.sharding.is_whole()) {
      part->global_shape = rows.shape();
      part->shard = {0, rows.size(0)};
      part->variable = nn::Variable(rows.to(options.device));
    } else {
      *part = nn::make_parameter(rows.shape(), options);
      Tensor own = part->variable.value();
      if (own.numel() > 0 && !options.device.is_meta())
        own.copy_from(rows.narrow(0, part->shard.row_begin, part->shard.rows));
    }
    part->name = fmt::format("{}.{}", weight.name, name);
    part->in_checkpoints = false;
    parts.push_back(std::move(part));
  }

 private:
  Tensor make_scale(const std::vector<Tensor>& gathered, const autograd::WeightFormat& format) {
    const Tensor most = amax ? amax(gathered, format.granularity) : quench::amax(decode(gathered), format.granularity);
    const MemoryScope scope(MemoryCategory::parameters);
    return scales_.emplace_back(format, float8_scale(most, format.element, format.power_of_two_scale)).second;
  }

  std::vector<std::pair<autograd::WeightFormat, Tensor>> scales_;
};

// Freed when unused.
class QuantizedBase::Values final : public autograd::WeightStorage {
 public:
  explicit Values(std::shared_ptr<Matrix> matrix) : matrix_(std::move(matrix)) {}
  [[nodiscard]] Tensor acquire() override {
    if (!values_.defined()) {
      const MemoryScope scope(MemoryCategory::workspace);
      values_ = matrix_->decode(gathered().values);
    }
    ++uses_;
    return values_;
  }
  // Codes in the memory category of the caller; the payload has no other owner.
  [[nodiscard]] QuantTensor acquire_quantized(const autograd::WeightFormat& form, Orientation wanted) override {
    if (form.element != ElementFormat::e4m3) return {};
    const Parts parts = gathered();
    QuantTensor codes = matrix_->codes(parts.values, form, wanted);
    ++uses_;
    return codes;
  }
  void release() noexcept override {
    if (--uses_ == 0) values_ = Tensor();
  }

 private:
  // All rows of the matrix's parts.
  struct Parts {
    std::vector<autograd::Weight::Acquired> uses;
    std::vector<Tensor> values;
    explicit Parts(const Matrix& matrix) {
      for (const auto& part : matrix.parts) values.push_back(uses.emplace_back(part->weight().acquire()).value());
    }
  };

  [[nodiscard]] Parts gathered() const {
    const MemoryScope scope(MemoryCategory::workspace);
    return Parts(*matrix_);
  }

  std::shared_ptr<Matrix> matrix_;
  int uses_ = 0;  // open uses of values and codes
  Tensor values_;
};

namespace {

// One row per weight row, if bytes divide evenly.
Tensor by_rows(const Tensor& flat, std::int64_t rows, bool divides) {
  return divides ? flat.view({rows, flat.numel() / rows}) : flat;
}

}  // namespace

void QuantizedBase::put(nn::Parameter& weight, DType dtype, std::shared_ptr<Matrix> matrix) {
  const Device device = weight.variable.value().device();
  weight.whole = autograd::Weight(weight.global_shape, dtype, device, std::make_shared<Values>(matrix), nullptr);
  weight.padded = Tensor();
  weight.variable = nn::Variable(Tensor::empty({0}, dtype, device));
  weight.mark_changed();
  matrices_[&weight] = std::move(matrix);
}

std::string QuantizedBase::form_of(const nn::Parameter& weight) const {
  const auto found = matrices_.find(&weight);
  return found == matrices_.end() ? std::string() : found->second->form;
}

void QuantizedBase::keep(nn::Parameter& weight, const PackedMatrix& codes, DType dtype) {
  QUENCH_CHECK(codes.codes().shape() == weight.global_shape, "{}: a packed weight of shape {}, expected {}",
               weight.name, codes.codes().shape().to_string(), weight.global_shape.to_string());
  const MemoryScope scope(MemoryCategory::parameters);
  auto matrix = std::make_shared<Matrix>();
  matrix->form = fmt::format("{} {}", to_string(codes.codes().dtype()),
                             codes.group_size() < codes.columns() ? fmt::format("g{}", codes.group_size()) : "row");
  matrix->add(weight, "codes", codes.codes());
  matrix->add(weight, "scales", codes.scales());
  if (codes.offsets().defined()) matrix->add(weight, "offsets", codes.offsets());
  matrix->decode = [group = codes.group_size(), dtype](const std::vector<Tensor>& parts) {
    const PackedMatrix packed(group, parts[0], parts[1], parts.size() > 2 ? parts[2] : Tensor());
    Tensor out = Tensor::empty(parts[0].shape(), dtype, parts[0].device());
    unpack({packed, out});
    return out;
  };
  put(weight, dtype, std::move(matrix));
}

void QuantizedBase::store(nn::Module& root, BaseForm form, const Gather& gather) {
  for (nn::Parameter* weight : quantizable_weights(root))
    if (!holds(*weight)) store(*weight, form, gather);
}

void QuantizedBase::store(nn::Parameter& weight, BaseForm form, const Gather& gather) {
  if (form == BaseForm::dense || form == BaseForm::stored) return;
  const Shape shape = weight.global_shape;
  const DType dtype = weight.variable.value().dtype();
  const Device device = weight.variable.value().device();
  QUENCH_CHECK(!weight.variable.requires_grad() && !weight.whole.defined(),
               "store_base: {} is trained, or kept elsewhere already", weight.name);
  const bool rows_fit = shape[1] % Nf4::kBlockSize == 0, shared = !weight.sharding.is_whole();
  QUENCH_CHECK_KEY(ErrorCode::bad_config, "lora.base", form != BaseForm::nf4 || rows_fit || !shared,
                   "nf4: the rows of {} have {} elements, no multiple of {}, and cannot be sharded over "
                   "processes; choose float8",
                   weight.name, shape[1], Nf4::kBlockSize);
  QUENCH_CHECK_KEY(ErrorCode::bad_config, "lora.base", form != BaseForm::nf4 || shape.numel() % Nf4::kBlockSize == 0,
                   "nf4: the {} elements of {} are no multiple of {}", shape.numel(), weight.name, Nf4::kBlockSize);
  const MemoryScope scope(MemoryCategory::parameters);
  Tensor values = weight.variable.value();
  if (shared) values = device.is_meta() ? Tensor::empty(shape, dtype, device) : gather(weight);
  auto matrix = std::make_shared<Matrix>();
  matrix->form = form == BaseForm::nf4 ? "nf4" : "float8";
  if (form == BaseForm::nf4) {
    const Nf4Tensor codes = quantize_nf4(values);
    matrix->add(weight, "codes", by_rows(codes.codes, shape[0], rows_fit));
    matrix->add(weight, "scales", by_rows(codes.scales, shape[0], rows_fit));
    // Second-level factors are replicated on all ranks.
    const auto stored = [shape, factors = codes.factors, mean = codes.mean](const std::vector<Tensor>& parts) {
      return Nf4Tensor{shape, parts[0].view({parts[0].numel()}), parts[1].view({parts[1].numel()}), factors, mean};
    };
    matrix->decode = [stored, dtype](const std::vector<Tensor>& parts) {
      const Nf4Tensor x = stored(parts);
      Tensor out = Tensor::empty(x.shape, dtype, x.codes.device());
      dequantize_nf4({x, out});
      return out;
    };
    matrix->amax = [stored](const std::vector<Tensor>& parts, Granularity granularity) {
      return nf4_amax(stored(parts), granularity);
    };
    matrix->cast = [stored](const std::vector<Tensor>& parts, const Tensor& scale, Granularity granularity,
                            Orientation orientation) {
      return cast_nf4_float8(stored(parts), scale, granularity, orientation);
    };
  } else {
    const QuantTensor codes = quantize_float8(values, {.granularity = Granularity::row, .power_of_two_scale = true});
    matrix->add(weight, "codes", codes.payload());
    matrix->add(weight, "scales", codes.scales());
    matrix->decode = [shape, dtype, format = codes.format()](const std::vector<Tensor>& parts) {
      return dequantize(QuantTensor(format, shape, dtype, parts[0], parts[1]), dtype);
    };
  }
  put(weight, dtype, std::move(matrix));
}

std::vector<nn::Parameter*> QuantizedBase::parts(const nn::Parameter& weight) const {
  std::vector<nn::Parameter*> all;
  if (const auto found = matrices_.find(&weight); found != matrices_.end())
    for (const auto& part : found->second->parts) all.push_back(part.get());
  return all;
}

Tensor QuantizedBase::values(const nn::Parameter& weight, const Gather& gather) const {
  const Matrix& matrix = *matrices_.at(&weight);
  std::vector<Tensor> parts;
  for (const auto& part : matrix.parts) parts.push_back(gather(*part));
  return matrix.decode(parts);
}

std::int64_t QuantizedBase::bytes_of_use(const nn::Parameter& weight, bool float8) const {
  const auto found = matrices_.find(&weight);
  if (found == matrices_.end()) return 0;
  const Matrix& matrix = *found->second;
  std::int64_t bytes = 0;
  for (const auto& part : matrix.parts)
    bytes += part->global_shape.numel() * bit_width(part->variable.value().dtype()) / 8;
  const std::int64_t count = weight.global_shape.numel(),
                     values = count * static_cast<std::int64_t>(byte_size(weight.variable.value().dtype()));
  if (!float8) return bytes + values;
  return bytes + (matrix.cast ? 0 : 2 * values) + count;
}

std::vector<nn::Parameter*> quantizable_weights(nn::Module& root) {
  std::vector<nn::Parameter*> weights;
  root.visit([&](const std::string& name, nn::Module& module) {
    if (auto* linear = dynamic_cast<nn::Linear*>(&module); linear != nullptr && name != nn::kHeadName)
      weights.push_back(&linear->weight());
  });
  return weights;
}

void make_dense(nn::Module& root) {
  const MemoryScope scope(MemoryCategory::parameters);
  for (nn::Parameter* parameter : root.parameters()) {
    // Shards without rows have no values.
    if (!parameter->whole.defined() || parameter->padded.defined() || parameter->variable.value().numel() > 0) continue;
    parameter->variable = nn::Variable(parameter->whole.acquire().value().clone());
    parameter->whole = autograd::Weight();
    parameter->mark_changed();
  }
}

}  // namespace quench::recipes
