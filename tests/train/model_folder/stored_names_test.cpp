// Folders as they are met: names of the base model, scales of a KV cache, an index that lists too much, NVFP4 without
// scales of inputs, ModelOpt's names. The logits are those of Transformers, or of the same weights under other names.

#include <gmock/gmock.h>

#include "core/safetensors/safetensors_folder.h"
#include "export/formats/compressed_tensors/writer.h"
#include "export/methods/rtn.h"
#include "tests/train/metrics/captured_log.h"
#include "tests/train/model_folder/golden_model.h"

namespace quench {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using testing::GoldenModel;
using ::testing::HasSubstr;
using testing::TempDir;

struct NamedTensor {
  std::string name;
  DType dtype;
  Shape shape;
  std::vector<std::byte> bytes;

  // One number in f32.
  static NamedTensor scale(std::string name, float value) {
    const auto bytes = std::as_bytes(std::span(&value, 1));
    return {std::move(name), DType::f32, {1}, {bytes.begin(), bytes.end()}};
  }
  [[nodiscard]] float number() const {
    float value = 0;
    std::memcpy(&value, bytes.data(), sizeof value);
    return value;
  }
};

std::vector<NamedTensor> tensors_of(const fs::path& folder) {
  const SafetensorsFolder files(folder);
  std::vector<NamedTensor> tensors;
  for (const std::string& name : files.names()) {
    const auto found = files.at(name);
    tensors.push_back({name, *found.entry->dtype, found.entry->shape, std::vector<std::byte>(found.entry->nbytes())});
    found.read(tensors.back().bytes);
  }
  return tensors;
}

void write_tensors(const fs::path& folder, const std::vector<NamedTensor>& tensors) {
  std::vector<SafetensorsItem> items;
  for (const NamedTensor& t : tensors) items.push_back({t.name, t.dtype, t.shape, t.bytes});
  write_safetensors_folder(folder, items);
}

std::string without(const std::string& name, std::string_view prefix) {
  return name.starts_with(prefix) ? name.substr(prefix.size()) : name;
}

// A golden model in a folder of its own.
class StoredNames : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::copy(testing::golden_dir() / "models/llama", folder_.path(), fs::copy_options::recursive);
  }
  [[nodiscard]] double logits_error() const { return GoldenModel(folder_.path().string(), Device{}).logits_error(); }

  TempDir folder_;
};

TEST_F(StoredNames, OfTheBaseModelAreRead) {
  const std::vector<NamedTensor> published = tensors_of(folder_.path());
  for (const std::string prefix : {"", "language_model."}) {
    std::vector<NamedTensor> tensors = published;
    for (NamedTensor& t : tensors)
      if (t.name.starts_with("model.")) t.name = prefix + without(t.name, "model.");
    write_tensors(folder_.path(), tensors);
    EXPECT_LT(logits_error(), 1e-5) << prefix;
  }
}

TEST_F(StoredNames, ScalesOfAQuantizedCacheAreIgnoredWithOneWarning) {
  std::vector<NamedTensor> tensors = tensors_of(folder_.path());
  for (const char* part : {"k_scale", "v_scale", "q_scale", "prob_scale", "kv_scale", "k_proj.k_scale",
                           "k_proj.output_scale", "v_proj.output_scale"})
    tensors.push_back(NamedTensor::scale(std::string("model.layers.0.self_attn.") + part, 0.5f));
  write_tensors(folder_.path(), tensors);
  const testing::CapturedLog log;
  EXPECT_LT(logits_error(), 1e-5);
  EXPECT_THAT(log.text(), HasSubstr("scales of a quantized KV cache, as model.layers.0.self_attn."));
  EXPECT_EQ(log.lines(), 1u);
  tensors.push_back(NamedTensor::scale("model.layers.0.mlp.up_proj.k_scale", 0.5f));
  write_tensors(folder_.path(), tensors);
  EXPECT_THROW((void)logits_error(), Error) << "not of attention";
}

TEST(StoredIndex, ListsATensorThatTheModelDoesNotNeed) {
  const TempDir folder;
  fs::copy(testing::golden_dir() / "models/mixtral", folder.path(), fs::copy_options::recursive);
  Json index = Json::parse_file(folder / std::string(kModelIndexName));
  Json files = index.at("weight_map");
  files.set("mtp.fc.weight", files.as_object().front().second);
  index.set("weight_map", files);
  testing::write_file(folder / std::string(kModelIndexName), index.dump());
  const testing::CapturedLog log;
  EXPECT_LT(GoldenModel(folder.path().string(), Device{}).logits_error(), 1e-5);
  EXPECT_THAT(log.text(), HasSubstr("\"mtp.fc.weight\""));
}

// The golden model in a scheme of static inputs.
class StaticInputs : public StoredNames {
 protected:
  void SetUp() override {
    StoredNames::SetUp();
    golden_.emplace(folder_.path().string(), Device{});
  }

  // `scale`: of a layer's inputs, stored if it has a value.
  void write(const std::string& scheme, const std::function<std::optional<float>(const std::string&)>& scale) {
    std::vector<ModelTensor> tensors = model_tensors(golden_->model, DType::f32);
    for (ModelTensor& t : tensors) {
      if (t.layer.empty() || t.name == "lm_head.weight") continue;
      t.scheme = find_scheme(scheme);
      const auto quantized = std::make_shared<QuantizedWeight>(rtn(t.value(), t.scheme->weights, t.name));
      if (const auto value = scale(t.layer))
        quantized->input_scale = Tensor::from_values<float>({1}, std::array{*value});
      t.quantized = quantized;
    }
    Json config = nn::to_hf_json(golden_->model.config(), DType::f32);
    config.set("quantization_config", write_compressed_tensors(tensors, folder_.path(), 1 << 30));
    testing::write_file(folder_ / "config.json", config.dump());
  }

  // Logits of the batch's first sequence alone, or with all sequences, packed.
  [[nodiscard]] std::vector<float> logits(bool alone) {
    nn::CausalLm model(read_model_config(folder_.path()), {.dtype = DType::f32});
    load_weights(model, folder_.path(), true);
    const autograd::NoGrad no_grad;
    const std::int64_t sequences = alone ? 1 : golden_->batch, length = golden_->length;
    std::vector<SequenceRange> rows;
    for (std::int64_t b = 0; b < sequences; ++b) rows.push_back({b * length, length, b * length, length});
    const Tensor ids = golden_->ids.narrow(0, 0, sequences * length);
    const Tensor logits = model.logits(model.hidden(ids, model.make_context(rows, sequences * length)));
    return {logits.data<float>(), logits.data<float>() + length * logits.size(1)};
  }

  [[nodiscard]] static double distance(const std::vector<float>& a, const std::vector<float>& b) {
    return testing::relative_l2(std::span<const float>(a), std::span<const float>(b));
  }

  std::optional<GoldenModel> golden_;
};

TEST_F(StaticInputs, OfNvfp4WithoutTheirScaleAreNotQuantizedWhichIsSaid) {
  write("nvfp4_weight_only", [](const std::string&) { return std::nullopt; });
  const std::vector<float> weights_only = logits(false);
  write("nvfp4", [](const std::string&) { return std::nullopt; });
  const testing::CapturedLog log;
  EXPECT_EQ(logits(false), weights_only);
  EXPECT_EQ(logits(true), weights_only) << "other rows of the call count";
  EXPECT_THAT(log.text(), AllOf(HasSubstr(".input_global_scale is missing, and that of "),
                                HasSubstr("the inputs of these layers are not quantized")));
  EXPECT_EQ(log.lines(), 1u);
  write("nvfp4", [](const std::string&) { return 0.125f / (6 * 448); });
  EXPECT_NE(logits(false), weights_only);
  EXPECT_EQ(logits(false), logits(true));
}

TEST_F(StaticInputs, OfOneMatrixHaveTheLargestScaleWhichIsSaid) {
  write("float8_static", [](const std::string&) { return 0.01f; });
  const std::vector<float> one_scale = logits(false);
  write("float8_static", [](const std::string& layer) { return layer.ends_with("k_proj") ? 0.01f : 0.0001f; });
  const testing::CapturedLog log;
  EXPECT_NE(logits(false), one_scale) << "o_proj and down_proj";
  EXPECT_THAT(log.text(), HasSubstr("q_proj.weight and others read the same inputs under different scales"));
  write("float8_static", [](const std::string& layer) {
    const bool smaller = layer.ends_with("q_proj") || layer.ends_with("v_proj") || layer.ends_with("up_proj");
    return smaller ? 0.0001f : 0.01f;
  });
  EXPECT_EQ(logits(false), one_scale);
}

// The same weights under ModelOpt's names, described by hf_quant_config.json next to a plain config.json.
TEST_F(StaticInputs, OfModelOptAreThoseOfCompressedTensorsUnderItsNames) {
  const auto describe = [&](const std::string& algorithm) {
    testing::write_file(folder_ / "hf_quant_config.json",
                        R"({"producer": {"name": "modelopt", "version": "0.33.0"}, "quantization": {"quant_algo": ")" +
                            algorithm + R"(", "kv_cache_quant_algo": null, "exclude_modules": ["lm_head"]}})");
    Json config = Json::parse_file(folder_ / "config.json");
    config.erase("quantization_config");
    testing::write_file(folder_ / "config.json", config.dump());
  };
  write("float8_static", [](const std::string&) { return 0.01f; });
  const std::vector<float> float8 = logits(false);
  describe("FP8");
  EXPECT_EQ(logits(false), float8);

  write("nvfp4", [](const std::string&) { return 0x1p-12f; });
  const std::vector<float> nvfp4 = logits(false);
  describe("NVFP4");
  std::vector<NamedTensor> tensors = tensors_of(folder_.path());
  for (NamedTensor& t : tensors) {
    const auto renamed = [&](std::string_view from, std::string_view to, bool inverse) {
      if (!t.name.ends_with(from)) return false;
      t.name = t.name.substr(0, t.name.size() - from.size()) + std::string(to);
      if (inverse) t = NamedTensor::scale(t.name, 1.0f / t.number());
      return true;
    };
    (void)(renamed("weight_packed", "weight", false) || renamed("weight_global_scale", "weight_scale_2", true) ||
           renamed("input_global_scale", "input_scale", true));
  }
  write_tensors(folder_.path(), tensors);
  EXPECT_LT(distance(logits(false), nvfp4), 1e-3);
  std::erase_if(tensors, [](const NamedTensor& t) { return t.name.ends_with("input_scale"); });
  write_tensors(folder_.path(), tensors);
  {
    const testing::CapturedLog log;
    EXPECT_GT(distance(logits(false), nvfp4), 1e-3);
    EXPECT_THAT(log.text(), HasSubstr(".input_scale is missing, and that of "));
  }
  describe("W4A8_AWQ");
  try {
    (void)logits(false);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("quant_algo \"W4A8_AWQ\""), HasSubstr("known: FP8, ")));
  }
}

}  // namespace
}  // namespace quench
