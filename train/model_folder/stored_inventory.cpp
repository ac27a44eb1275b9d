#include "train/model_folder/stored_inventory.h"

#include <algorithm>
#include <set>

#include "core/system/log_once.h"
#include "export/formats/cache_scales.h"
#include "export/table/open_stored_weights.h"
#include "nn/modules/slice_map.h"
#include "train/model_folder/stored_mtp.h"

namespace quench {
namespace {

namespace fs = std::filesystem;

// Rows of a parameter in a piece, and shape of the Hugging Face tensor.
Shape piece_shape(const nn::Parameter& parameter, const nn::ParameterPiece& piece) {
  Shape shape = nn::whole_shape(parameter);
  shape[0] = piece.rows * parameter.slice.row_parts();
  return shape;
}

// Scalar head of reward models (LlamaForSequenceClassification).
constexpr std::string_view kScore = "score.weight";

bool ignorable(const std::string& name, const nn::ModelConfig& config) {
  if (name.ends_with("rotary_emb.inv_freq")) return true;
  if (const std::string_view part = mtp_part(name, config); !part.empty())
    return config.mtp.layers == 0 || part == kMtpEmbedding || part == kMtpHead;
  if (name == kScore) return true;
  return name == "lm_head.weight" && config.tie_word_embeddings;
}

}  // namespace

bool is_vocabulary(const nn::ParameterPiece& piece) {
  return piece.hf_name == "model.embed_tokens.weight" || piece.hf_name == "lm_head.weight";
}

void check_inventory(nn::CausalLm& model, const StoredWeights& weights, const fs::path& folder, bool may_grow,
                     const std::function<bool(const nn::Parameter&)>& is_new) {
  std::vector<std::string> faults;
  std::set<std::string> wanted;
  if (!model.is_whole()) {  // the folder is that of all layers
    nn::CausalLm whole(model.config(), {.dtype = model.options().dtype, .device = Device{DeviceType::meta}});
    return check_inventory(whole, weights, folder, may_grow, is_new);
  }
  for (const nn::Parameter* parameter : model.parameters()) {
    if (parameter->adapter || parameter->scales || is_new(*parameter)) continue;
    for (const nn::ParameterPiece& piece : parameter->pieces) {
      wanted.insert(piece.hf_name);
      const auto found = weights.find(piece.hf_name);
      if (!found) {
        faults.push_back(fmt::format("{} is missing", piece.hf_name));
        continue;
      }
      Shape expected = piece_shape(*parameter, piece);
      if (may_grow && is_vocabulary(piece) && found->shape.rank() == 2 && found->shape[0] < expected[0])
        expected[0] = found->shape[0];
      if (!(found->shape == expected))
        faults.push_back(
            fmt::format("{} has shape {}, expected {}", piece.hf_name, found->shape.to_string(), expected.to_string()));
      if (!found->packed && found->dtype != DType::f32 && found->dtype != DType::bf16 && found->dtype != DType::f16)
        faults.push_back(
            fmt::format("{} has dtype {}; F32, BF16 and F16 can be loaded", piece.hf_name, found->dtype_name));
    }
  }
  std::string cache_scale;
  for (const std::string& name : weights.names()) {
    if (wanted.contains(name) || ignorable(name, model.config())) continue;
    if (is_cache_scale(name))
      cache_scale = name;
    else
      faults.push_back(fmt::format("{} is not a parameter of this architecture", name));
  }
  if (!cache_scale.empty())
    QUENCH_LOG_WARN_ONCE(
        "{}: scales of a quantized KV cache, as {}, are ignored: keys and values stay in the model's dtype",
        folder.string(), cache_scale);
  if (faults.empty()) return;
  constexpr std::size_t kShown = 20;
  std::string message = fmt::format("the weights in {} do not fit {} ({} faults):", folder.string(),
                                    stored_config_file(folder).string(), faults.size());
  for (std::size_t i = 0; i < std::min(faults.size(), kShown); ++i) message += "\n  " + faults[i];
  if (faults.size() > kShown) message += fmt::format("\n  and {} more", faults.size() - kShown);
  QUENCH_FAIL(ErrorCode::corrupt, "{}", message);
}

}  // namespace quench
