// Folders of GPTQ, AWQ and bitsandbytes: the quantization_config as JSON, a zero byte, then model.safetensors. No input
// crashes the readers, and values that they give are finite.

#include <unistd.h>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "core/ops/packed_linear.h"
#include "core/system/log.h"
#include "export/table/open_stored_weights.h"

namespace {

void check_finite(const quench::Tensor& values) {
  quench::dispatch<float, quench::bfloat16, quench::float16>(values.dtype(), "values", [&]<class T>() {
    for (std::int64_t i = 0; i < values.numel(); ++i)
      if (!std::isfinite(static_cast<float>(values.data<T>()[i]))) std::abort();
  });
}

void read(const quench::StoredWeights& weights, const std::string& name) {
  const auto stored = weights.find(name);
  if (!stored) std::abort();
  if (stored->packed) {
    const quench::PackedMatrix packed = weights.read_packed(name);
    if (packed.codes().shape() != stored->shape) std::abort();
    const quench::Tensor values = quench::Tensor::empty(stored->shape, quench::DType::f32);
    quench::unpack({packed, values});
  } else if (stored->dtype_name == "int32 words" || stored->dtype_name == "4-bit") {
    const quench::Tensor values = quench::Tensor::empty(stored->shape, *stored->dtype);
    weights.read(name, values);
    check_finite(values);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("quench-quantized-folders-" + std::to_string(getpid()));
  quench::set_log_level("off");
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::size_t end = input.find('\0');
  if (end == std::string_view::npos) return 0;
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "model.safetensors", std::ios::binary) << input.substr(end + 1);
  try {
    quench::Json config = quench::Json::object();
    config.set(quench::kQuantizationConfig, quench::Json::parse(input.substr(0, end), {.source = "fuzz"}));
    const auto weights = quench::open_stored_weights(folder, config);
    for (const std::string& name : weights->names()) read(*weights, name);
  } catch (const quench::Error&) {
  }
  std::filesystem::remove_all(folder);
  return 0;
}
