#include "train/model_folder/model_folder.h"

#include <algorithm>
#include <map>
#include <set>

#include "core/ops/elementwise.h"
#include "core/ops/packed_linear.h"
#include "core/ops/weights/host_transfer.h"
#include "core/safetensors/safetensors_folder.h"
#include "core/system/file.h"
#include "core/system/log_once.h"
#include "core/system/output_folder.h"
#include "core/system/temporary.h"
#include "export/formats/fused_experts.h"
#include "export/formats/gguf/reader.h"
#include "export/formats/stored_weights.h"
#include "export/formats/text_model.h"
#include "export/kv_cache/kv_cache_scales.h"
#include "export/ptq/quantize_inputs.h"
#include "export/table/open_stored_weights.h"
#include "export/table/table_proposal.h"
#include "export/table/tied_head.h"
#include "nn/modules/initialize.h"
#include "nn/modules/linear.h"
#include "nn/modules/slice_map.h"
#include "recipes/lora/quantized_base.h"
#include "recipes/packed_linear.h"
#include "train/metrics/progress_line.h"
#include "train/model_folder/carried_files.h"
#include "train/model_folder/model_card.h"
#include "train/model_folder/stored_inventory.h"
#include "train/model_folder/stored_mtp.h"

namespace quench {
namespace {

namespace fs = std::filesystem;

// Stored rows of a piece, fewer than its own with new tokens alone.
std::int64_t stored_rows(const StoredWeights& weights, const nn::ParameterPiece& piece) {
  return std::min(piece.rows, weights.find(piece.hf_name)->shape[0]);
}

void copy_values(const Tensor& raw, Tensor destination) {
  if (raw.dtype() == destination.dtype()) return destination.copy_from(raw);
  if (destination.device().is_cpu()) return cast({raw, destination});
  const Tensor converted = Tensor::empty(destination.shape(), destination.dtype());
  cast({raw, converted});
  destination.copy_from(converted);
}

// Rows of a stored tensor from `first_row` on, through the host, with dtype conversion.
void load_piece(const StoredWeights& weights, const std::string& name, Tensor destination, std::int64_t first_row) {
  const MemoryScope scope(MemoryCategory::workspace);
  const StoredTensor stored = *weights.find(name);
  if (stored.packed) {
    const PackedMatrix packed = weights.read_packed(name).narrow_rows(first_row, destination.size(0));
    const Tensor values = Tensor::empty(destination.shape(), destination.dtype());
    unpack({packed, values});
    return destination.copy_from(values);
  }
  write_by_rows(destination, *stored.dtype,
                [&](const Tensor& rows, std::int64_t first) { weights.read(name, rows, first_row + first); });
}

// [1, columns] f32: the mean of all stored rows, in f64 and in their order.
Tensor mean_row(const StoredWeights& weights, const std::string& name) {
  const MemoryScope scope(MemoryCategory::workspace);
  const StoredTensor stored = *weights.find(name);
  const std::int64_t rows = stored.shape[0], columns = stored.shape[1];
  const std::int64_t block = stored.packed ? rows : std::min<std::int64_t>(rows, 4096);
  std::vector<double> sums(static_cast<std::size_t>(columns));
  for (std::int64_t begin = 0; begin < rows; begin += block) {
    const Tensor values = Tensor::empty({std::min(block, rows - begin), columns}, DType::f32);
    load_piece(weights, name, values, begin);
    const float* data = values.data<float>();
#pragma omp parallel for schedule(static) if (columns > 64)
    for (std::int64_t c = 0; c < columns; ++c)
      for (std::int64_t row = 0; row < values.size(0); ++row)
        sums[static_cast<std::size_t>(c)] += static_cast<double>(data[row * columns + c]);
  }
  Tensor mean = Tensor::empty({1, columns}, DType::f32);
  for (std::int64_t c = 0; c < columns; ++c)
    mean.data<float>()[c] = static_cast<float>(sums[static_cast<std::size_t>(c)] / static_cast<double>(rows));
  return mean;
}

// Pieces with the same packed format and inputs; else undefined.
PackedMatrix packed_weight(const nn::Parameter& parameter, const StoredWeights& weights) {
  std::vector<PackedMatrix> parts;
  for (const nn::ParameterPiece& piece : parameter.pieces) {
    if (!weights.find(piece.hf_name)->packed ||
        weights.inputs(piece.hf_name) != weights.inputs(parameter.pieces[0].hf_name))
      return {};
    parts.push_back(weights.read_packed(piece.hf_name));
    if (!parts.back().same_form(parts[0])) return {};
  }
  const MemoryScope scope(MemoryCategory::parameters);
  return concatenate_rows(parts);
}

// True for a parameter that needs no values.
class PackedLoader {
 public:
  PackedLoader(nn::CausalLm& model, const StoredWeights& weights) : weights_(weights), options_(model.options()) {
    model.visit([&](const std::string&, nn::Module& module) {
      if (auto* linear = dynamic_cast<nn::Linear*>(&module)) layers_[&linear->weight()] = linear;
    });
  }

  bool load(const nn::Parameter& parameter) const {
    const auto layer = layers_.find(&parameter);
    if (layer == layers_.end()) return false;
    const PackedMatrix packed = packed_weight(parameter, weights_);
    if (!packed.defined()) {
      warn_of_other_inputs(parameter);
      return false;
    }
    const auto inputs = weights_.inputs(parameter.pieces[0].hf_name);
    recipes::use_packed_weight(
        *layer->second, packed.to(options_.device), options_.dtype,
        inputs ? input_rounding(*inputs, parameter.name, input_scale(parameter), weights_.input_arithmetic())
               : recipes::InputRounding());
    return true;
  }

 private:
  // Pieces share their inputs: under the largest scale, as in vLLM.
  std::optional<float> input_scale(const nn::Parameter& parameter) const {
    std::optional<float> largest = weights_.input_scale(parameter.pieces[0].hf_name);
    bool equal = true;
    for (const nn::ParameterPiece& piece : parameter.pieces) {
      const auto scale = weights_.input_scale(piece.hf_name);
      equal = equal && scale == largest;
      largest = std::max(largest, scale);
    }
    if (!equal)
      QUENCH_LOG_WARN_ONCE("{} and others read the same inputs under different scales: the largest is used",
                           parameter.pieces[0].hf_name);
    return largest;
  }

  // Warns of a weight that is not packed because its pieces differ in form.
  void warn_of_other_inputs(const nn::Parameter& parameter) const {
    for (const nn::ParameterPiece& piece : parameter.pieces)
      if (weights_.find(piece.hf_name)->packed && weights_.inputs(piece.hf_name))
        return QUENCH_LOG_WARN_ONCE("{}: its inputs are not quantized: weights with the same inputs have another form",
                                    piece.hf_name);
  }

  const StoredWeights& weights_;
  const nn::ParameterOptions& options_;
  std::map<const nn::Parameter*, nn::Linear*> layers_;
};

}  // namespace

void load_tensor(const SafetensorsReader& reader, const SafetensorsEntry& entry, Tensor destination,
                 std::int64_t first_row) {
  const MemoryScope scope(MemoryCategory::workspace);
  const std::uint64_t row_bytes = entry.nbytes() / static_cast<std::uint64_t>(entry.shape[0]);
  write_by_rows(destination, *entry.dtype, [&](const Tensor& rows, std::int64_t first) {
    reader.read(entry, {static_cast<std::byte*>(rows.raw_data()), rows.nbytes()},
                static_cast<std::uint64_t>(first_row + first) * row_bytes);
  });
}

nn::ModelConfig read_model_config(const ModelSource& source) {
  Json config = source.config();
  untie_other_head(source.path(), config);
  // for the weight reader
  Json architecture = config;
  architecture.erase(kQuantizationConfig);
  nn::ModelConfig model = nn::parse_model_config(architecture, source.config_file().string());
  model.source = std::move(config);
  return model;
}

nn::ModelConfig read_model_config(const fs::path& folder) {
  return read_model_config(ModelSource::open(folder));
}

namespace {

// `take`: true if the parameter needs no values.
void load(nn::CausalLm& model, const fs::path& folder,
          const std::function<std::function<bool(nn::Parameter&)>(const StoredWeights&)>& make_take,
          const std::optional<NewRows>& new_rows, const nn::ParameterFilled& filled = {},
          std::optional<std::uint64_t> seed = std::nullopt) {
  const nn::ModelConfig config = read_model_config(folder);
  const std::unique_ptr<StoredWeights> weights =
      split_experts(open_stored_weights(folder, config.source), config.experts);
  const bool has_mtp = holds_mtp(*weights, model.config());
  const bool makes_mtp = seed && model.config().mtp.layers > 0 && !has_mtp;
  const auto is_new = [&](const nn::Parameter& parameter) {
    if (parameter.added) return !weights->find(parameter.name).has_value();
    return makes_mtp && !mtp_part(parameter.name, model.config()).empty();
  };
  check_inventory(model, *weights, folder, new_rows.has_value(), is_new);
  if (has_mtp && model.config().mtp.layers == 0)
    QUENCH_LOG_INFO(
        "{}: left out: multi-token prediction (num_nextn_predict_layers {}), which training.mtp_loss_weight trains "
        "(without lora), and quench merge-lora and quench export in format hf keep",
        folder.string(), model.config().mtp.declared);
  if (makes_mtp)
    QUENCH_LOG_INFO("{} holds no weights of multi-token prediction: random ones for num_nextn_predict_layers {}",
                    folder.string(), model.config().mtp.layers);
  if (const auto names = weights->left_out(); !names.empty())
    QUENCH_LOG_INFO("{}: the text model is loaded, left out: {}", folder.string(), summary_of(names));
  ProgressLine progress("loading " + folder.string());
  const std::function<bool(nn::Parameter&)> take = make_take(*weights);
  std::uint64_t loaded = 0, total = 0;
  const auto bytes = [&](const nn::Parameter& parameter) {
    return static_cast<std::uint64_t>(parameter.numel() * byte_size(model.options().dtype));
  };
  std::vector<nn::Parameter*> stored;
  for (nn::Parameter* parameter : model.parameters()) {
    total += bytes(*parameter);
    if (parameter->adapter || parameter->scales) continue;
    if (!is_new(*parameter)) {
      stored.push_back(parameter);
      continue;
    }
    materialize(*parameter);
    nn::initialize_parameter(*parameter, seed.value_or(0));
    if (filled) filled(*parameter);
  }
  for (std::size_t i = 0; i < stored.size(); ++i) {
    nn::Parameter* const parameter = stored[i];
    // The disk works on the next parameter during the conversion, copy and hash of this one.
    if (i + 1 < stored.size() && !model.options().device.is_meta())
      for (const nn::ParameterPiece& piece : stored[i + 1]->pieces) weights->prefetch(piece.hf_name);
    progress.update(loaded, total);
    loaded += bytes(*parameter);
    parameter->mark_changed();
    const bool grows = std::ranges::any_of(parameter->pieces, [&](const nn::ParameterPiece& piece) {
      return is_vocabulary(piece) && stored_rows(*weights, piece) < piece.rows;
    });
    if (!grows && take(*parameter)) continue;
    materialize(*parameter);
    if (model.options().device.is_meta()) continue;
    if (grows && new_rows->normal) nn::initialize_parameter(*parameter, new_rows->seed);
    const Tensor value = parameter->variable.value();
    for (const nn::ParameterPiece& piece : parameter->pieces) {
      const std::int64_t shard_begin = parameter->shard.row_begin;
      const std::int64_t begin = std::max(piece.row_begin, shard_begin);
      const std::int64_t shard_end = shard_begin + parameter->shard.rows;
      const std::int64_t stored_end = piece.row_begin + stored_rows(*weights, piece);
      const std::int64_t end = std::min(stored_end, shard_end);
      const std::int64_t first_row = nn::first_row_of(*parameter, piece) + begin - piece.row_begin;
      if (begin < end && parameter->slice.column_parts() > 1)
        nn::fill_columns(*parameter, value.narrow(0, begin - shard_begin, end - begin),
                         [&](const Tensor& whole, std::int64_t row) {
                           load_piece(*weights, piece.hf_name, whole, first_row + row);
                         });
      else if (begin < end)
        load_piece(*weights, piece.hf_name, value.narrow(0, begin - shard_begin, end - begin), first_row);
      const std::int64_t first = std::max(stored_end, shard_begin),
                         last = std::min(piece.row_begin + piece.rows, shard_end);
      if (grows && !new_rows->normal && first < last) {
        const Tensor mean = mean_row(*weights, piece.hf_name);
        for (std::int64_t row = first; row < last; ++row) copy_values(mean, value.narrow(0, row - shard_begin, 1));
      }
    }
    if (filled) filled(*parameter);
  }
}

}  // namespace

void load_weights(nn::CausalLm& model, const fs::path& folder, bool keep_packed, const nn::ParameterFilled& filled,
                  const std::optional<NewRows>& new_rows, std::optional<std::uint64_t> seed) {
  const auto make_take = [&](const StoredWeights& weights) {
    const auto packed = std::make_shared<PackedLoader>(model, weights);
    const bool keep = keep_packed && !model.options().device.is_meta();
    return [packed, keep](nn::Parameter& parameter) { return keep && packed->load(parameter); };
  };
  load(model, folder, make_take, new_rows, filled, seed);
}

void load_base(nn::CausalLm& model, const fs::path& folder, const CodesKeeper& keep,
               const std::optional<NewRows>& new_rows) {
  const std::vector<nn::Parameter*> weights_of_layers = recipes::quantizable_weights(model);
  const std::set<const nn::Parameter*> linear(weights_of_layers.begin(), weights_of_layers.end());
  const auto make_take = [&](const StoredWeights& weights) {
    return [&](nn::Parameter& parameter) {
      if (!linear.contains(&parameter)) return false;
      const PackedMatrix packed = packed_weight(parameter, weights);
      if (packed.defined()) keep(parameter, packed);
      return packed.defined();
    };
  };
  load(model, folder, make_take, new_rows);
}

ModelFolderReport save_model_folder(nn::CausalLm& model, const ExportTarget& target,
                                    const ModelFolderOptions& options) {
  require_export_target(target);
  const ExportFormat& format = options.format != nullptr ? *options.format : export_formats().front();
  require_file_format(target, format.name, format.weights_file);
  check_format_and_rules(format, options.quantization ? &*options.quantization : nullptr, options.kv_cache.has_value());
  if (options.kv_cache) require_kv_scales(model.config());
  if (options.quantization) require_readable_table(format, *options.quantization, model.config());
  if (format.require_model != nullptr)
    format.require_model(options.config != nullptr ? *options.config : model.config());
  const fs::path folder = resolved_path(target.folder);
  remove_stale_temporaries(folder.parent_path(), folder.filename().string());
  StagingFolder staging(folder);
  const fs::path& temporary = staging.path();
  std::vector<ModelTensor> tensors = model_tensors(model, options.dtype, options.whole);
  const bool leaves_out_mtp = model.config().mtp.layers > 0 && !format.mtp;
  if (leaves_out_mtp) {
    leave_out_mtp(tensors, model.config());
    QUENCH_LOG_INFO(
        "export: left out: multi-token prediction (num_nextn_predict_layers {}), which format {} does not store",
        model.config().mtp.layers, format.name);
  }
  nn::ModelConfig config = options.config != nullptr ? *options.config : model.config();
  config.mtp.layers = leaves_out_mtp ? 0 : model.config().mtp.layers;
  if (format.fold != nullptr) format.fold(tensors, config);
  std::optional<QuantizationRules> rules = options.quantization;
  if (rules) apply_format(format, *rules, tensors, config);
  ModelFolderReport report;
  const bool measured = options.card && options.card->perplexity;
  if (measured) report.perplexity = options.card->perplexity(model);
  if (rules) {
    ProgressLine progress("quantizing");
    const auto tell = [&](std::uint64_t done, std::uint64_t all) { progress.update(done, all); };
    report.layers = quantize_model(model, tensors, *rules, tell, measured);
  }
  std::optional<StoredKvCache> cache;
  if (options.kv_cache) {
    const auto& [scheme, data] = *options.kv_cache;
    QUENCH_CHECK(data != nullptr || scheme.scales->dynamic, "save_model_folder: a KV cache without calibration data");
    cache = {scheme, calibrate_kv_cache(
                         model, scheme,
                         data != nullptr ? std::span(data->sequences) : std::span<const std::vector<std::int32_t>>())};
    model.set_kv_cache(cache->elements);
  }
  if (measured && (rules || cache)) {
    report.perplexity_before = report.perplexity;
    report.perplexity = options.card->perplexity(model);
  }
  Json json = nn::to_hf_json(config, options.dtype);
  json.erase(kQuantizationConfig);  // the source model's
  json.erase(kAutoMap);
  write_small_files(json, options.small_files, temporary);
  if (options.small_files.tokenizer != nullptr) name_special_tokens(*options.small_files.tokenizer, temporary);
  const Json quantization = format.write({format.fused_experts ? fuse_experts(tensors, config) : tensors, config,
                                          temporary, static_cast<std::uint64_t>(options.max_shard_bytes),
                                          rules ? rules->scheme : nullptr, cache ? &*cache : nullptr});
  if (const Tokenizer* tokenizer = options.small_files.tokenizer;
      tokenizer != nullptr && tokenizer->vocab_size() > config.vocab_size)
    QUENCH_LOG_WARN(
        "{}: the tokenizer has {} tokens, the model's embedding {} rows: tokens from id {} on cannot be used; name the "
        "model's own tokenizer with --tokenizer, or train the rows that are missing (model.add_tokens)",
        target.folder.string(), tokenizer->vocab_size(), config.vocab_size, config.vocab_size);
  if (!quantization.is_null()) {
    json.set(kQuantizationConfig, quantization);
    write_file_atomically(temporary / "config.json", json.dump(2) + "\n");
  }
  const StoredBytes stored = stored_bytes(temporary);
  report.file_bytes = stored.files;
  if (rules) propose_table(format, *rules, config, options.dtype, stored.files);
  for (LayerReport& layer : report.layers)
    if (const auto found = stored.layers.find(layer.layer); found != stored.layers.end()) layer.bytes = found->second;
  if (options.accept && !options.accept(temporary, report)) return report;
  if (options.card)
    write_file_atomically(temporary / kModelCardName, to_markdown({.title = model_name(folder),
                                                                   .source = options.card->source,
                                                                   .training = options.card->training,
                                                                   .config = config,
                                                                   .format = format,
                                                                   .dtype = options.dtype,
                                                                   .quantization = rules ? &*rules : nullptr,
                                                                   .rotated = options.card->rotated,
                                                                   .kv_cache = cache ? cache->scheme.describe() : "",
                                                                   .layers = report.layers,
                                                                   .perplexity_data = options.card->perplexity_data,
                                                                   .perplexity_before = report.perplexity_before,
                                                                   .perplexity = report.perplexity,
                                                                   .weight_bytes = report.file_bytes}));
  publish_export(staging, target);
  return report;
}

}  // namespace quench
