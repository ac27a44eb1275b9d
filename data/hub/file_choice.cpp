#include "data/hub/file_choice.h"

#include <fnmatch.h>

#include <algorithm>
#include <array>
#include <set>
#include <string_view>

#include "core/system/check.h"

namespace quench::hub {
namespace {

bool fits(const std::string& pattern, const std::string& path) {
  const std::string whole = pattern.ends_with('/') ? pattern + "*" : pattern;
  return fnmatch(whole.c_str(), path.c_str(), 0) == 0;
}

bool fits_any(const std::vector<std::string>& patterns, const std::string& path) {
  return std::ranges::any_of(patterns, [&](const std::string& pattern) { return fits(pattern, path); });
}

// Weights of other programs, which safetensors in the repository's root replace.
struct OtherWeights {
  std::string_view format;
  std::array<std::string_view, 4> patterns;  // empty: none
};

constexpr OtherWeights kOtherWeights[] = {
    {"PyTorch", {"*.bin", "*.bin.index.json", "*.pth", "*.pt"}},
    {"TensorFlow and Keras", {"*.h5", "*.tflite", "*.ckpt*", "*saved_model*"}},
    {"JAX", {"*.msgpack", "*.msgpack.index.json", "", ""}},
    {"ONNX", {"*.onnx", "*.onnx_data*", "onnx/*", ""}},
    {"other programs", {"*.ot", "*.mlmodel", "coreml/*", "openvino/*"}},
    {"the model's authors", {"consolidated*.safetensors", "original/*", "", ""}},
    {"llama.cpp", {"*.gguf", "", "", ""}},
};

bool fits_weights(const OtherWeights& weights, const std::string& path) {
  return std::ranges::any_of(
      weights.patterns, [&](std::string_view pattern) { return !pattern.empty() && fits(std::string(pattern), path); });
}

bool is_main_weights(const std::string& path) {
  return path.find('/') == std::string::npos && path.ends_with(".safetensors") && !path.starts_with("consolidated");
}

// Without the number of a part: model-00001-of-00003.gguf is of one model.
std::string gguf_model(const std::string& path) {
  const std::size_t of = path.rfind("-of-");
  return of == std::string::npos || of < 6 ? path : path.substr(0, of - 6);
}

void require_one_gguf(const std::vector<HubFile>& files, const HubName& name) {
  std::set<std::string> models;
  std::string shown;
  for (const HubFile& file : files) {
    const bool weights = file.path.ends_with(".gguf") && file.path.find("mmproj") == std::string::npos;
    if (!weights || !models.insert(gguf_model(file.path)).second) continue;
    shown +=
        fmt::format("{}{} ({:.1f} GB)", shown.empty() ? "" : ", ", file.path, static_cast<double>(file.size) * 1e-9);
  }
  QUENCH_CHECK_AS(ErrorCode::bad_config, models.size() <= 1,
                  "{} has {} GGUF models: {}; choose with --include, for example --include '*Q4_K_M*'", name.text(),
                  models.size(), shown);
}

}  // namespace

FileChoice choose_files(const std::vector<HubFile>& files, const HubName& name, const FilePatterns& patterns) {
  FileChoice choice;
  const bool automatic = patterns.include.empty() && name.type == RepoType::model;
  const bool has_safetensors =
      std::ranges::any_of(files, [](const HubFile& file) { return is_main_weights(file.path); });
  for (const HubFile& file : files) {
    if (!patterns.include.empty() && !fits_any(patterns.include, file.path)) continue;
    if (fits_any(patterns.exclude, file.path)) continue;
    const auto* const other = std::ranges::find_if(
        kOtherWeights, [&](const OtherWeights& weights) { return fits_weights(weights, file.path); });
    if (!automatic || !has_safetensors || other == std::end(kOtherWeights)) {
      choice.files.push_back(file);
      continue;
    }
    auto left = std::ranges::find(choice.left_out, other->format, [](const auto& item) { return item.first; });
    if (left == choice.left_out.end()) left = choice.left_out.insert(left, {std::string(other->format), {}});
    left->second.push_back(file);
  }
  QUENCH_CHECK_AS(ErrorCode::bad_config, !choice.files.empty(), "{}: none of its {} files {}", name.text(),
                  files.size(), files.empty() ? "exists: the repository is empty" : "matches --include and --exclude");
  if (automatic) require_one_gguf(choice.files, name);
  return choice;
}

}  // namespace quench::hub
