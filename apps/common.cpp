#include "apps/common.h"

#include <omp.h>

#include <cstdio>

#include "train/hf/model_folder.h"

namespace quench {

LoadedModel load_model(const std::filesystem::path& folder, const std::string& device, const std::string& dtype,
                       bool trainable) {
  LoadedModel loaded{read_model_config(folder), nullptr};
  nn::ParameterOptions options;
  options.device = parse_device(device);
  if (dtype == "auto") {
    options.dtype = loaded.config.dtype == DType::f16 ? DType::f32 : loaded.config.dtype;
  } else {
    const auto parsed = dtype_from_string(dtype);
    QUENCH_CHECK_AS(ErrorCode::bad_config, parsed == DType::f32 || parsed == DType::bf16,
                    "--dtype '{}' is not supported; use auto, f32 or bf16", dtype);
    options.dtype = *parsed;
  }
  options.grad_dtype = DType::f32;
  options.trainable = trainable;
  loaded.model = std::make_unique<nn::CausalLm>(loaded.config, options);
  load_weights(*loaded.model, folder);
  return loaded;
}

std::unique_ptr<Tokenizer> load_model_tokenizer(const std::filesystem::path& model, const std::string& tokenizer) {
  return load_tokenizer(tokenizer.empty() ? model : std::filesystem::path(tokenizer));
}

void set_threads(int threads) {
  if (threads > 0) omp_set_num_threads(threads);
}

void print_json(const Json& json) {
  std::printf("%s\n", json.dump(2).c_str());
}

}  // namespace quench
