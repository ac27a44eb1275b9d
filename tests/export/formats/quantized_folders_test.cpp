// Folders that GPTQ, AWQ and bitsandbytes wrote: values equal to their definitions (tests/reference/
// make_quantized_folders.py), faults named with tensor or key.

#include "core/safetensors/safetensors.h"
#include "tests/export/export_testing.h"

namespace quench {
namespace {

using namespace testing;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

const std::string kStoredLayer = "model.layers.0.mlp.up_proj", kStoredName = kStoredLayer + ".weight";

std::vector<std::byte> bytes_of_hex(const std::string& hex) {
  std::vector<std::byte> bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2)
    bytes.push_back(static_cast<std::byte>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  return bytes;
}

Shape stored_shape(const Json& sizes) {
  std::vector<std::int64_t> shape;
  for (const Json& size : sizes.as_array()) shape.push_back(size.as_int());
  return Shape(shape);
}

struct StoredPart {
  DType dtype;
  Shape shape;
  std::vector<std::byte> bytes;
};

// A folder with one layer, which tests may damage before it is written.
struct StoredLayer {
  Json config;
  std::map<std::string, StoredPart> parts;

  explicit StoredLayer(const Json& one) : config(one.at("config")) {
    const std::map<std::string, DType> dtypes = {{"I32", DType::i32}, {"U8", DType::u8},     {"I8", DType::i8},
                                                 {"F16", DType::f16}, {"BF16", DType::bf16}, {"F32", DType::f32}};
    for (const Json& tensor : one.at("tensors").as_array())
      parts[tensor.at("name").as_string()] = {dtypes.at(tensor.at("dtype").as_string()),
                                              stored_shape(tensor.at("shape")),
                                              bytes_of_hex(tensor.at("bytes").as_string())};
  }

  StoredPart& part(const std::string& ending) { return parts.at(kStoredLayer + ending); }

  [[nodiscard]] std::unique_ptr<StoredWeights> open(const TempDir& folder) const {
    std::vector<SafetensorsItem> items;
    for (const auto& [name, tensor] : parts) items.push_back({name, tensor.dtype, tensor.shape, tensor.bytes});
    write_safetensors(folder / "model.safetensors", items);
    return open_stored_weights(folder.path(), config_of(config));
  }

  // Message of opening the folder or reading its layer, of this code.
  [[nodiscard]] std::string refusal(ErrorCode code = ErrorCode::corrupt) const {
    const TempDir folder;
    try {
      (void)values_of(*open(folder));
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      return error.what();
    }
    return "";
  }

  static Tensor values_of(const StoredWeights& weights) {
    const StoredTensor stored = weights.find(kStoredName).value();
    if (stored.packed) return unpacked(weights.read_packed(kStoredName));
    const Tensor values = Tensor::empty(stored.shape, stored.dtype.value());
    weights.read(kStoredName, values);
    if (values.dtype() == DType::f32) return values;
    Tensor wide = Tensor::empty(values.shape(), DType::f32);
    dispatch<bfloat16, float16>(values.dtype(), "values", [&]<class T>() {
      for (std::int64_t i = 0; i < values.numel(); ++i) wide.data<float>()[i] = float(values.data<T>()[i]);
    });
    return wide;
  }
};

const Json& reference() {
  static const Json cases = Json::parse_file(source_dir() / "tests/reference/quantized_folders.json");
  return cases;
}

// First case of the method whose config has this value.
StoredLayer stored_layer(const std::string& method, const std::string& key, const Json& value) {
  for (const Json& one : reference().as_array()) {
    const Json* found = one.at("config").find(key);
    if (one.at("config").at("quant_method").as_string() == method && found != nullptr && *found == value)
      return StoredLayer(one);
  }
  throw std::runtime_error("no such case");
}

StoredLayer gptq_layer() {
  return stored_layer("gptq", "sym", false);
}

TEST(QuantizedFolders, ValuesAreThoseOfTheDefinitions) {
  int count = 0;
  for (const Json& one : reference().as_array()) {
    SCOPED_TRACE(one.at("config").dump());
    const TempDir folder;
    const auto weights = StoredLayer(one).open(folder);
    EXPECT_THAT(weights->names(), ElementsAre(kStoredName));
    const StoredTensor stored = weights->find(kStoredName).value();
    EXPECT_EQ(stored.packed, one.at("packed").as_bool());
    EXPECT_EQ(stored.shape, stored_shape(one.at("shape")));
    EXPECT_FALSE(weights->inputs(kStoredName).has_value());
    const Tensor values = StoredLayer::values_of(*weights);
    const std::vector<std::byte> expected = bytes_of_hex(one.at("values").as_string());
    ASSERT_EQ(values.nbytes(), expected.size());
    for (std::int64_t i = 0; i < values.numel(); ++i) {
      float value = 0;
      std::memcpy(&value, expected.data() + 4 * i, sizeof value);
      ASSERT_EQ(values.data<float>()[i], value) << i;
    }
    ++count;
  }
  EXPECT_EQ(count, 17);
}

TEST(QuantizedFolders, DenseOnesAreReadByRows) {
  for (const auto& [method, key] : {std::pair{"gptq", "desc_act"}, {"bitsandbytes", "load_in_4bit"}}) {
    SCOPED_TRACE(method);
    const TempDir folder;
    const auto weights = stored_layer(method, key, true).open(folder);
    const StoredTensor stored = weights->find(kStoredName).value();
    const Tensor whole = Tensor::empty(stored.shape, *stored.dtype), rows = Tensor::empty(stored.shape, *stored.dtype);
    weights->read(kStoredName, whole);
    for (std::int64_t row = 0; row < stored.shape[0]; row += 3) {
      const std::int64_t count = std::min<std::int64_t>(3, stored.shape[0] - row);
      weights->read(kStoredName, rows.narrow(0, row, count), row);
    }
    EXPECT_TRUE(equal_bytes(whole, rows));
  }
}

TEST(QuantizedFolders, FourBitsOfBitsandbytesCountAsDense) {
  const TempDir folder;
  (void)stored_layer("bitsandbytes", "load_in_4bit", true).open(folder);
  const auto config_with = [](const StoredLayer& layer) { return config_of(layer.config); };
  EXPECT_FALSE(is_quantized(folder.path(), config_with(stored_layer("bitsandbytes", "load_in_4bit", true))));
  EXPECT_TRUE(is_quantized(folder.path(), config_with(stored_layer("bitsandbytes", "load_in_8bit", true))));
  EXPECT_TRUE(is_quantized(folder.path(), config_with(gptq_layer())));
}

// AutoGPTQ gave every layer a bias.
TEST(QuantizedFolders, BiasesOfZerosAreFoundButNotListed) {
  StoredLayer layer = gptq_layer();
  layer.parts[kStoredLayer + ".bias"] = {DType::f16, {8}, std::vector<std::byte>(16)};
  const TempDir folder;
  const auto weights = layer.open(folder);
  EXPECT_THAT(weights->names(), ElementsAre(kStoredName));
  EXPECT_TRUE(weights->find(kStoredLayer + ".bias").has_value());
  layer.part(".bias").bytes[3] = std::byte{0x3C};
  const TempDir other;
  EXPECT_THAT(layer.open(other)->names(), Contains(kStoredLayer + ".bias"));
}

TEST(QuantizedFolders, OtherFormsAreRefusedByKey) {
  const std::pair<const char*, const char*> gptq[] = {
      {R"({"bits": 5})", "quantization_config.bits is 5; GPTQ of 2, 3, 4 and 8 bits"},
      {R"({"bits": "4"})", "bits is \"4\", expected an integer"},
      {R"({"group_size": 0})", "group_size is 0; expected a positive number, or -1"},
      {R"({"checkpoint_format": "marlin"})", "checkpoint_format is 'marlin'; gptq and gptq_v2"},
      {R"({"is_marlin_format": true})", "checkpoint_format is 'marlin'"},
      {R"({"pack_dtype": "int16"})", "pack_dtype is 'int16'; int32"}};
  const std::pair<const char*, const char*> awq[] = {
      {R"({"bits": 8})", "quantization_config.bits is 8; AWQ of 4 bits"},
      {R"({"version": "gemv_fast"})", "version is 'gemv_fast'; gemm and gemv"},
      {R"({"group_size": null})", "group_size is null, expected an integer"}};
  const auto expect = [](StoredLayer layer, const char* members, const char* text) {
    SCOPED_TRACE(members);
    const Json changes = Json::parse(members);
    for (const auto& [key, value] : changes.as_object()) layer.config.set(key, value);
    EXPECT_THAT(layer.refusal(ErrorCode::unsupported), AllOf(HasSubstr("config.json"), HasSubstr(text)));
  };
  for (const auto& [members, text] : gptq) expect(gptq_layer(), members, text);
  for (const auto& [members, text] : awq) expect(stored_layer("awq", "version", "gemm"), members, text);
  expect(stored_layer("bitsandbytes", "load_in_8bit", true), R"({"load_in_8bit": false})",
         "sets neither of load_in_4bit");
}

TEST(QuantizedFolders, FaultsOfGptqAreNamed) {
  for (const char* missing : {".qzeros", ".scales"}) {
    StoredLayer layer = gptq_layer();
    layer.parts.erase(kStoredLayer + missing);
    EXPECT_THAT(layer.refusal(), HasSubstr(kStoredLayer + missing + " is missing"));
  }
  StoredLayer ordered = stored_layer("gptq", "desc_act", true);
  ordered.part(".g_idx").bytes[8] = std::byte{4};
  EXPECT_THAT(ordered.refusal(), HasSubstr("up_proj.g_idx holds group 4, expected 0 to 3"));
  ordered.parts.erase(kStoredLayer + ".g_idx");
  EXPECT_THAT(ordered.refusal(), HasSubstr("up_proj.g_idx is missing, which desc_act needs"));
  StoredLayer other_bits = gptq_layer();
  other_bits.config.set("bits", 8);
  EXPECT_THAT(other_bits.refusal(), HasSubstr("qweight has shape [8, 8], expected [16, 8] for 64 inputs of 8 bits"));
  StoredLayer other_groups = gptq_layer();
  other_groups.config.set("group_size", 16);
  EXPECT_THAT(other_groups.refusal(),
              HasSubstr("scales has shape [2, 8], expected [4, 8] for 64 inputs in groups of 16"));
  StoredLayer words = gptq_layer();
  words.part(".qweight").dtype = DType::f32;
  EXPECT_THAT(words.refusal(), HasSubstr("up_proj.qweight is F32[8, 8], expected I32 of rank 2"));
  StoredLayer twice = gptq_layer();
  twice.parts[kStoredName] = {DType::f32, {1, 1}, std::vector<std::byte>(4)};
  EXPECT_THAT(twice.refusal(), HasSubstr("up_proj.weight is stored next to"));
  for (StoredLayer layer : {gptq_layer(), stored_layer("gptq", "desc_act", true)}) {  // packed, dense
    layer.part(".scales").bytes[1] = std::byte{0x7C};                                 // infinity
    layer.part(".scales").bytes[0] = std::byte{0};
    EXPECT_THAT(layer.refusal(), AllOf(HasSubstr("up_proj"), HasSubstr("not finite")));
  }
}

TEST(QuantizedFolders, FaultsOfAwqAreNamed) {
  StoredLayer layer = stored_layer("awq", "version", "gemm");
  layer.config.set("group_size", 48);
  EXPECT_THAT(layer.refusal(), HasSubstr("up_proj: group_size 48 does not divide its 64 inputs"));
  layer.config.set("group_size", 16);
  EXPECT_THAT(layer.refusal(), HasSubstr("qzeros has shape [2, 2], expected [4, 2]"));
  layer.parts.erase(kStoredLayer + ".qzeros");
  EXPECT_THAT(layer.refusal(), HasSubstr("up_proj.qzeros is missing"));
  StoredLayer rows = stored_layer("awq", "version", "gemv");
  rows.part(".qzeros") = {DType::i32, {8, 0}, {}};
  EXPECT_THAT(rows.refusal(), HasSubstr("up_proj.qzeros has shape [8, 0], expected words of 2 groups for 8 rows"));
}

TEST(QuantizedFolders, FaultsOfBitsandbytesAreNamed) {
  const auto four = [] { return stored_layer("bitsandbytes", "load_in_4bit", true); };
  const std::string state = ".weight.quant_state.bitsandbytes__nf4";
  const auto with_state = [&](const std::string& text) {
    StoredLayer layer = four();
    StoredPart& part = layer.part(state);
    part.bytes.assign(reinterpret_cast<const std::byte*>(text.data()),
                      reinterpret_cast<const std::byte*>(text.data() + text.size()));
    part.shape = {static_cast<std::int64_t>(text.size())};
    return layer;
  };
  const std::string good = R"("quant_type": "nf4", "blocksize": 64, "dtype": "bfloat16", )";
  EXPECT_THAT(with_state("{" + good + R"("shape": [8, 128]})").refusal(),
              HasSubstr("up_proj.weight has 256 bytes, expected 512 for shape [8, 128] of 4 bits"));
  EXPECT_THAT(with_state("{" + good + R"("shape": [0, 64]})").refusal(), HasSubstr("shape is [0,64], expected two"));
  EXPECT_THAT(with_state("{" + good + R"("shape": [4294967296, 4294967296]})").refusal(), HasSubstr("expected two"));
  EXPECT_THAT(with_state(R"({"quant_type": "nf4", "blocksize": 0, "dtype": "bfloat16", "shape": [8, 64]})").refusal(),
              HasSubstr("blocksize is 0, expected a positive integer"));
  EXPECT_THAT(with_state(R"({"quant_type": "int4"})").refusal(ErrorCode::unsupported),
              HasSubstr("quant_type is 'int4'; nf4 and fp4 are read"));
  EXPECT_THAT(with_state("{").refusal(), HasSubstr("bitsandbytes__nf4"));
  for (const char* missing : {".weight.absmax", ".weight.quant_map"}) {
    StoredLayer layer = four();
    layer.parts.erase(kStoredLayer + missing);
    EXPECT_THAT(layer.refusal(), HasSubstr(kStoredLayer + missing + " is missing"));
  }
  StoredLayer stateless = four();
  stateless.parts.erase(kStoredLayer + state);
  EXPECT_THAT(stateless.refusal(), AllOf(HasSubstr("up_proj.weight"), HasSubstr("quant_state.bitsandbytes__nf4")));
  StoredLayer infinite = four();
  infinite.part(".weight.absmax").bytes[3] = std::byte{0x7F};
  infinite.part(".weight.absmax").bytes[2] = std::byte{0x80};
  EXPECT_THAT(infinite.refusal(), HasSubstr("up_proj.weight.absmax holds a value that is not finite"));

  const auto eight = [] { return stored_layer("bitsandbytes", "load_in_8bit", true); };
  StoredLayer turing = eight();
  turing.part(".weight_format").bytes[0] = std::byte{2};
  EXPECT_THAT(turing.refusal(ErrorCode::unsupported), HasSubstr("weight_format: weights in the layout of a GPU"));
  StoredLayer short_scales = eight();
  short_scales.part(".SCB").shape = {4};
  short_scales.part(".SCB").bytes.resize(16);
  EXPECT_THAT(short_scales.refusal(), HasSubstr("up_proj.SCB is F32[4], expected F32[8]"));
  StoredLayer unscaled = eight();
  unscaled.parts.erase(kStoredLayer + ".SCB");
  EXPECT_THAT(unscaled.refusal(), HasSubstr("up_proj.weight is I8, without row scales (.SCB)"));
}

}  // namespace
}  // namespace quench
