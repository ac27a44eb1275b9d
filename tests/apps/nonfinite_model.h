#pragma once
// A model folder with a weight that is not finite.

#include <filesystem>
#include <string>

#include "core/safetensors/safetensors.h"
#include "tests/testing.h"

namespace quench::testing {

// A copy of the folder `from`, with files of its own, whose first norm's first weight is `value`.
inline void make_nonfinite_model(const std::filesystem::path& from, const std::filesystem::path& to, float value) {
  std::filesystem::remove_all(to);
  std::filesystem::copy(from, to, std::filesystem::copy_options::recursive);
  const std::string name = "model.layers.0.input_layernorm.weight";
  const SafetensorsReader reader(from / "model.safetensors");
  const SafetensorsEntry& entry = reader.at(name);
  std::vector<float> values(static_cast<std::size_t>(entry.shape.numel()));
  reader.read(entry, std::as_writable_bytes(std::span(values)));
  const std::string before(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
  values[0] = value;
  std::string bytes = read_file(from / "model.safetensors");
  bytes.replace(bytes.find(before), before.size(),
                std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)));
  write_file(to / "model.safetensors", bytes);
}

}  // namespace quench::testing
