#include "train/model_folder/model_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "core/safetensors/safetensors.h"
#include "tests/testing.h"

namespace quench {
namespace {

using ::testing::HasSubstr;
using testing::TempDir;
using testing::write_file;

constexpr const char* kConfig = R"({"architectures": ["LlamaForCausalLM"], "vocab_size": 16, "hidden_size": 8,
  "intermediate_size": 12, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1,
  "tie_word_embeddings": false})";

nn::ModelConfig config() {
  return nn::parse_model_config(Json::parse(kConfig), "config.json");
}

std::string error_of(const std::function<void()>& body, ErrorCode code) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return {};
}

// A complete folder, and the items to write variations of it.
struct Folder {
  TempDir temp;
  nn::CausalLm model{config(), nn::ParameterOptions{}};
  std::vector<SafetensorsItem> items;

  Folder() {
    model.initialize(1);
    write_file(temp / "config.json", kConfig);
    for (const nn::Parameter* p : model.parameters())
      for (const nn::ParameterPiece& piece : p->pieces) {
        const Tensor rows = p->variable.value().narrow(0, piece.row_begin, piece.rows);
        items.push_back(
            {piece.hf_name, DType::f32, rows.shape(), {static_cast<const std::byte*>(rows.raw_data()), rows.nbytes()}});
      }
  }
  void write() { write_safetensors(temp / "model.safetensors", items); }
  SafetensorsItem& item(const std::string& name) {
    return *std::ranges::find_if(items, [&](const SafetensorsItem& i) { return i.name == name; });
  }
  void load() {
    nn::CausalLm fresh(read_model_config(temp.path()), nn::ParameterOptions{});
    load_weights(fresh, temp.path());
  }
};

TEST(ModelFolder, CompleteFolderLoads) {
  Folder f;
  f.write();
  EXPECT_NO_THROW(f.load());
}

TEST(ModelFolder, MissingExtraAndMisshapenTensorsAreAllNamedAtOnce) {
  Folder f;
  std::erase_if(f.items, [](const SafetensorsItem& i) { return i.name == "model.norm.weight"; });
  f.item("model.layers.0.self_attn.k_proj.weight").shape = {8, 4};
  std::vector<std::byte> extra(8);
  f.items.push_back({"model.layers.7.mlp.up_proj.weight", DType::f32, {2}, extra});
  f.write();
  const std::string message = error_of([&] { f.load(); }, ErrorCode::corrupt);
  EXPECT_THAT(message, HasSubstr("model.norm.weight is missing"));
  EXPECT_THAT(message, HasSubstr("model.layers.0.self_attn.k_proj.weight has shape [8, 4], expected [4, 8]"));
  EXPECT_THAT(message, HasSubstr("model.layers.7.mlp.up_proj.weight is not a parameter of this architecture"));
}

TEST(ModelFolder, WrongDtypeIsNamed) {
  Folder f;
  auto& norm = f.item("model.norm.weight");
  norm.dtype = DType::i32;
  f.write();
  EXPECT_THAT(error_of([&] { f.load(); }, ErrorCode::corrupt), HasSubstr("model.norm.weight has dtype I32"));
}

TEST(ModelFolder, RotaryBuffersOfOldCheckpointsAreIgnored) {
  Folder f;
  std::vector<std::byte> buffer(8);
  f.items.push_back({"model.layers.0.self_attn.rotary_emb.inv_freq", DType::f32, {2}, buffer});
  f.write();
  EXPECT_NO_THROW(f.load());
}

TEST(ModelFolder, WeightsAreConvertedToTheParametersDtype) {
  Folder f;
  f.write();
  nn::CausalLm half(read_model_config(f.temp.path()), nn::ParameterOptions{.dtype = DType::bf16});
  load_weights(half, f.temp.path());
  const auto exact = f.model.parameters(), rounded = half.parameters();
  for (std::size_t i = 0; i < exact.size(); ++i) {
    const float* x = exact[i]->variable.value().data<float>();
    const bfloat16* y = rounded[i]->variable.value().data<bfloat16>();
    for (std::int64_t j = 0; j < exact[i]->numel(); ++j) ASSERT_EQ(y[j].bits, bfloat16(x[j]).bits) << exact[i]->name;
  }
}

TEST(ModelFolder, MissingConfigAndMissingFolderSaySo) {
  const TempDir temp;
  EXPECT_THAT(error_of([&] { (void)read_model_config(temp.path()); }, ErrorCode::not_found),
              HasSubstr("no config.json"));
  EXPECT_THAT(error_of([&] { (void)read_model_config(temp / "absent"); }, ErrorCode::not_found),
              HasSubstr("does not exist"));
}

TEST(ModelFolder, SavingReplacesAModelButNothingElse) {
  Folder f;
  write_file(f.temp / "notes.txt", "mine");
  save_model_folder(f.model, {f.temp / "out"}, {.dtype = DType::f32});
  save_model_folder(f.model, {f.temp / "out"}, {.dtype = DType::bf16});  // replaces it
  EXPECT_EQ(read_model_config(f.temp / "out").dtype, DType::bf16);
  std::filesystem::create_directory(f.temp / "other");
  write_file(f.temp / "other" / "thesis.txt", "mine");
  EXPECT_THAT(error_of([&] { save_model_folder(f.model, {f.temp / "other"}, {}); }, ErrorCode::bad_config),
              HasSubstr("thesis.txt"));
  EXPECT_TRUE(std::filesystem::exists(f.temp / "other" / "thesis.txt"));
  for (const auto& entry : std::filesystem::directory_iterator(f.temp.path()))
    EXPECT_EQ(entry.path().string().find(".tmp-"), std::string::npos) << "left behind: " << entry.path();
}

}  // namespace
}  // namespace quench
