#include "train/model_folder/model_folder.h"

#include <algorithm>
#include <map>
#include <set>

#include "core/ops/elementwise.h"
#include "core/safetensors/safetensors_folder.h"
#include "core/system/file.h"
#include "core/system/log.h"
#include "core/system/output_folder.h"
#include "core/system/temporary.h"
#include "train/metrics/progress_line.h"
#include "train/model_folder/carried_files.h"
#include "train/model_folder/hub_hint.h"

namespace quench {
namespace {

namespace fs = std::filesystem;

// The rows of a parameter that a piece covers, with the shape the Hugging Face tensor must have.
Shape piece_shape(const nn::Parameter& parameter, const nn::ParameterPiece& piece) {
  Shape shape = parameter.global_shape;
  shape[0] = piece.rows;
  return shape;
}

bool ignorable(const std::string& name, const nn::ModelConfig& config) {
  if (name.ends_with("rotary_emb.inv_freq")) return true;
  return name == "lm_head.weight" && config.tie_word_embeddings;
}

void check_inventory(nn::CausalLm& model, const SafetensorsFolder& weights, const fs::path& folder) {
  std::vector<std::string> faults;
  std::set<std::string> wanted;
  for (const nn::Parameter* parameter : model.parameters()) {
    if (parameter->adapter) continue;
    for (const nn::ParameterPiece& piece : parameter->pieces) {
      wanted.insert(piece.hf_name);
      const auto found = weights.find(piece.hf_name);
      if (!found) {
        faults.push_back(fmt::format("{} is missing", piece.hf_name));
        continue;
      }
      const SafetensorsEntry& entry = *found->entry;
      const Shape expected = piece_shape(*parameter, piece);
      if (!(entry.shape == expected))
        faults.push_back(fmt::format("{} has shape {}, config.json asks for {}", piece.hf_name, entry.shape.to_string(),
                                     expected.to_string()));
      if (entry.dtype != DType::f32 && entry.dtype != DType::bf16 && entry.dtype != DType::f16)
        faults.push_back(
            fmt::format("{} has dtype {}; F32, BF16 and F16 can be loaded", piece.hf_name, entry.dtype_name));
    }
  }
  for (const std::string& name : weights.names())
    if (!wanted.contains(name) && !ignorable(name, model.config()))
      faults.push_back(fmt::format("{} belongs to no parameter of this architecture", name));
  if (faults.empty()) return;
  constexpr std::size_t kShown = 20;
  std::string message =
      fmt::format("the weights in {} do not fit its config.json ({} faults):", folder.string(), faults.size());
  for (std::size_t i = 0; i < std::min(faults.size(), kShown); ++i) message += "\n  " + faults[i];
  if (faults.size() > kShown) message += fmt::format("\n  and {} more", faults.size() - kShown);
  QUENCH_FAIL(ErrorCode::corrupt, "{}", message);
}

// The rows of a piece as they are written.
std::vector<std::byte> stored_bytes(const nn::Parameter& parameter, const nn::ParameterPiece& piece,
                                    const ModelFolderOptions& options) {
  const MemoryScope scope(MemoryCategory::workspace);
  const Tensor whole = options.whole ? options.whole(parameter) : parameter.variable.value();
  Tensor rows = whole.narrow(0, piece.row_begin, piece.rows).to(Device{});
  std::vector<std::byte> bytes(static_cast<std::size_t>(rows.numel() * byte_size(options.dtype)));
  Tensor stored = Tensor::from_host(bytes.data(), rows.shape(), options.dtype);
  if (rows.dtype() == options.dtype)
    stored.copy_from(rows);
  else
    cast({rows, stored});
  return bytes;
}

}  // namespace

void load_tensor(const SafetensorsReader& reader, const SafetensorsEntry& entry, Tensor destination,
                 std::int64_t first_row) {
  const MemoryScope scope(MemoryCategory::workspace);
  const bool direct = destination.device().is_cpu() && destination.dtype() == *entry.dtype;
  const Tensor raw = direct ? destination : Tensor::empty(destination.shape(), *entry.dtype);
  const std::uint64_t row_bytes = entry.nbytes() / static_cast<std::uint64_t>(entry.shape[0]);
  reader.read(entry, {static_cast<std::byte*>(raw.raw_data()), raw.nbytes()},
              static_cast<std::uint64_t>(first_row) * row_bytes);
  if (direct) return;
  if (raw.dtype() == destination.dtype()) return destination.copy_from(raw);
  if (destination.device().is_cpu()) return cast({raw, destination});
  const Tensor converted = Tensor::empty(destination.shape(), destination.dtype());
  cast({raw, converted});
  destination.copy_from(converted);
}

nn::ModelConfig read_model_config(const fs::path& folder) {
  QUENCH_CHECK_AS(ErrorCode::not_found, fs::is_directory(folder), "model folder {} does not exist{}", folder.string(),
                  hub_hint(folder.string()));
  const fs::path file = folder / "config.json";
  QUENCH_CHECK_AS(ErrorCode::not_found, fs::exists(file), "{} has no config.json; is it a Hugging Face model folder?",
                  folder.string());
  Json::ParseOptions options;
  options.max_bytes = std::size_t{16} << 20;
  return nn::parse_model_config(Json::parse_file(file, options), file.string());
}

void load_weights(nn::CausalLm& model, const fs::path& folder) {
  const SafetensorsFolder weights(folder);
  check_inventory(model, weights, folder);
  ProgressLine progress("loading " + folder.string());
  std::uint64_t loaded = 0, total = 0;
  for (nn::Parameter* parameter : model.parameters()) total += parameter->variable.value().nbytes();
  for (nn::Parameter* parameter : model.parameters()) {
    const Tensor value = parameter->variable.value();
    if (value.device().is_meta() || parameter->adapter) continue;
    progress.update(loaded, total);
    loaded += value.nbytes();
    parameter->mark_changed();
    for (const nn::ParameterPiece& piece : parameter->pieces) {
      const auto found = weights.at(piece.hf_name);
      const std::int64_t shard_begin = parameter->shard.row_begin;
      const std::int64_t begin = std::max(piece.row_begin, shard_begin);
      const std::int64_t end = std::min(piece.row_begin + piece.rows, shard_begin + parameter->shard.rows);
      if (begin < end)
        load_tensor(*found.reader, *found.entry, value.narrow(0, begin - shard_begin, end - begin),
                    begin - piece.row_begin);
    }
  }
}

void save_model_folder(const nn::CausalLm& model, const ExportTarget& target, const ModelFolderOptions& options) {
  require_export_target(target);
  const fs::path folder = resolved_path(target.folder);
  remove_stale_temporaries(folder.parent_path(), folder.filename().string());
  StagingFolder staging(folder);
  const fs::path& temporary = staging.path();
  std::vector<SafetensorsItem> items;
  for (const nn::Parameter* parameter : const_cast<nn::CausalLm&>(model).parameters()) {
    if (parameter->adapter) continue;
    for (const nn::ParameterPiece& piece : parameter->pieces)
      items.push_back({.name = piece.hf_name,
                       .dtype = options.dtype,
                       .shape = piece_shape(*parameter, piece),
                       .produce = [parameter, piece, &options] { return stored_bytes(*parameter, piece, options); }});
  }
  write_safetensors_folder(temporary, std::move(items), static_cast<std::uint64_t>(options.max_shard_bytes));
  const nn::ModelConfig& config = options.config != nullptr ? *options.config : model.config();
  write_small_files(nn::to_hf_json(config, options.dtype), options.small_files, temporary);
  if (options.small_files.tokenizer != nullptr) name_special_tokens(*options.small_files.tokenizer, temporary);
  publish_export(staging, target);
}

}  // namespace quench
