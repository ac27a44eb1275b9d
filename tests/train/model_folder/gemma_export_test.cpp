// Gemma's folders of compressed-tensors and TorchAO: norms as they are (their offset is the family's), the table of a
// tied head in high precision and once, logits of the dequantized model. Transformers reads them with the same logits
// (tests/interop/check_exports.py).

#include "core/ops/packed_linear.h"
#include "core/safetensors/safetensors_folder.h"
#include "export/methods/rtn.h"
#include "export/table/format.h"
#include "export/table/open_stored_weights.h"
#include "tests/core/ops/op_testing.h"
#include "tests/train/model_folder/golden_model.h"

namespace quench {
namespace {

using testing::GoldenModel;

struct GemmaExport {
  const char *model, *format, *scheme;
  double most;  // relative distance of the logits from those in high precision
};

class GemmaFolder : public ::testing::TestWithParam<GemmaExport> {
 protected:
  [[nodiscard]] static std::string golden() {
    return (testing::reference_dir() / "models" / GetParam().model).string();
  }
  static void write(GoldenModel& from, const std::filesystem::path& folder) {
    const Scheme* scheme = find_scheme(GetParam().scheme);
    (void)save_model_folder(from.model, {folder},
                            {.dtype = DType::f32,
                             .small_files = {.model = from.folder},
                             .format = export_formats().find(GetParam().format),
                             .quantization = QuantizationRules{.scheme = scheme}});
    std::filesystem::copy(from.folder / "reference.safetensors", folder / "reference.safetensors");
  }
  [[nodiscard]] static Tensor logits(const GoldenModel& golden, nn::CausalLm& model) {
    const autograd::NoGrad no_grad;
    return model.logits(model.hidden(golden.ids, golden.context()));
  }
};

TEST_P(GemmaFolder, NormsAndTheTableStayAsTheyAre) {
  GoldenModel model(golden(), Device{});
  const testing::TempDir temp;
  write(model, temp / "m");
  const Json config = Json::parse_file(temp / "m" / "config.json");
  const auto stored = open_stored_weights(temp / "m", config);
  EXPECT_FALSE(stored->find("lm_head.weight")) << "tied";
  EXPECT_TRUE(read_model_config(temp / "m").tie_word_embeddings);
  std::size_t plain = 0, packed = 0;
  for (const nn::Parameter* p : model.model.parameters())
    for (const nn::ParameterPiece& piece : p->pieces) {
      const auto found = stored->find(piece.hf_name);
      ASSERT_TRUE(found) << piece.hf_name;
      if (found->packed) {
        EXPECT_TRUE(piece.hf_name.ends_with("_proj.weight")) << piece.hf_name;
        ++packed;
        continue;
      }
      const Tensor rows = p->variable.value().narrow(0, piece.row_begin, piece.rows);
      const Tensor read = Tensor::empty(rows.shape(), DType::f32);
      stored->read(piece.hf_name, read);
      EXPECT_TRUE(testing::same_bits(read, rows)) << piece.hf_name;
      ++plain;
    }
  EXPECT_GE(packed, 6 * 4u) << "layers whose inputs the groups divide";
  EXPECT_GE(plain, 4 * 4u + 2) << "norms and table";
  const Json* ignored = config.at("quantization_config").find("ignore");
  if (ignored == nullptr) return;  // list in compressed-tensors alone
  EXPECT_NE(std::ranges::find(ignored->as_array(), Json("lm_head")), ignored->as_array().end());
}

TEST_P(GemmaFolder, LogitsAreThoseOfTheDequantizedModel) {
  GoldenModel model(golden(), Device{});
  const testing::TempDir temp;
  write(model, temp / "m");
  const GoldenModel read((temp / "m").string(), Device{});
  const Scheme& scheme = *find_scheme(GetParam().scheme);
  for (nn::Parameter* p : model.model.parameters())
    for (const nn::ParameterPiece& piece : p->pieces) {
      if (!piece.hf_name.ends_with("_proj.weight")) continue;
      const Tensor rows = p->variable.value().narrow(0, piece.row_begin, piece.rows).clone();
      if (!shape_problem(scheme.weights, rows.size(0), rows.size(1)).empty()) continue;
      unpack({pack(rtn(rows, scheme.weights, piece.hf_name), piece.hf_name),
              p->variable.value().narrow(0, piece.row_begin, piece.rows)});
      p->mark_changed();
    }
  const Tensor expected = logits(model, model.model);
  EXPECT_TRUE(testing::same_bits(logits(model, const_cast<nn::CausalLm&>(read.model)), expected));
  EXPECT_GT(read.logits_error(), 0);
  EXPECT_LT(read.logits_error(), GetParam().most);
  nn::CausalLm kept(read_model_config(temp / "m"), {});
  load_weights(kept, temp / "m", true);
  const Tensor of_packed = logits(model, kept);
  const auto values = [](const Tensor& t) {
    return std::span<const float>(t.data<float>(), static_cast<std::size_t>(t.numel()));
  };
  EXPECT_LT(testing::relative_l2(values(of_packed), values(expected)), 1e-5) << "computed from the codes";
}

INSTANTIATE_TEST_SUITE_P(All, GemmaFolder,
                         ::testing::Values(GemmaExport{"gemma2", "compressed-tensors", "int8_weight_only", 0.05},
                                           GemmaExport{"gemma2", "torchao", "int8_weight_only", 0.05},
                                           GemmaExport{"gemma3", "compressed-tensors", "int8_weight_only", 0.05},
                                           GemmaExport{"gemma3", "torchao", "int8_weight_only", 0.05},
                                           GemmaExport{"gemma3", "compressed-tensors", "int4_weight_only_g32", 0.5},
                                           GemmaExport{"gemma3", "torchao", "int4_weight_only_g32", 0.5},
                                           GemmaExport{"gemma3", "compressed-tensors", "float8_weight_only", 0.2},
                                           GemmaExport{"gemma3", "torchao", "float8_weight_only", 0.2}),
                         [](const auto& p) {
                           std::string name = fmt::format("{}_{}_{}", p.param.model, p.param.format, p.param.scheme);
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace quench
