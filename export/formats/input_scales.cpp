#include "export/formats/input_scales.h"

#include "core/system/log_once.h"
#include "export/formats/safetensors_rows.h"

namespace quench {

float read_input_scale(const SafetensorsFolder& folder, const SafetensorsFolder::Location& stored) {
  const SafetensorsEntry& entry = *stored.entry;
  const DType dtype = entry.dtype.value_or(DType::u8);
  QUENCH_CHECK_AS(ErrorCode::corrupt,
                  entry.shape.numel() == 1 && (dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16),
                  "{}: {} is {}{}, expected one number in F32, BF16 or F16", folder.path().string(), entry.name,
                  entry.dtype_name, entry.shape.to_string());
  const Tensor value = read_entry(folder, stored, entry.shape, dtype);
  float number = 0;
  dispatch<float, bfloat16, float16>(dtype, "input scale", [&]<class T>() { number = float(*value.data<T>()); });
  return number;
}

void warn_of_unquantized_inputs(const SafetensorsFolder& folder, std::string_view part,
                                const std::vector<std::string>& layers) {
  if (layers.empty()) return;
  QUENCH_LOG_WARN_ONCE("{}: {}{} is missing{}: the inputs of {} are not quantized", folder.path().string(),
                       layers.front(), part,
                       layers.size() > 1 ? fmt::format(", and that of {} other layers", layers.size() - 1) : "",
                       layers.size() > 1 ? "these layers" : "this layer");
}

}  // namespace quench
