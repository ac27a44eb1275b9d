// What layers are said to keep for the backward pass: against what is known of each, and in sum against the memory
// plan of the whole model.

#include "train/plan/saved_inputs.h"

#include <gmock/gmock.h>

#include <map>

#include "core/memory/allocator.h"
#include "tests/train/run/trainer_fixture.h"
#include "train/step/meta_batch.h"
#include "train/step/train_step.h"

namespace quench {
namespace {

using recipes::SavedInput;
using ::testing::HasSubstr;
using testing::TinyRun;
using Form = SavedInput::Form;

constexpr std::int64_t kTokens = 2 * 32, kLayers = 2, kWidth = 32, kInner = 48;

RunConfig config_of(const TinyRun& tiny, const std::string& recipe, const std::string& level,
                    const std::vector<std::string>& more = {}) {
  std::vector<std::string> overrides{"--training.dtype=bf16", "--data.seq_len=32", "--recipe.name=" + recipe,
                                     "--training.activation_checkpoint=" + level};
  overrides.insert(overrides.end(), more.begin(), more.end());
  return tiny.config("run", overrides);
}

// By last component of the layer's name.
std::map<std::string, recipes::LayerConversion> measured(const RunConfig& config) {
  std::vector<recipes::LayerConversion> rows = build_model(ResolvedConfig(config), kMeta, Device{}).conversion;
  measure_saved_inputs(rows, ResolvedConfig(config), Device{});
  std::map<std::string, recipes::LayerConversion> result;
  for (const recipes::LayerConversion& row : rows) {
    const auto [at, fresh] = result.emplace(row.name.substr(row.name.rfind('.') + 1), row);
    if (fresh) continue;
    EXPECT_EQ(at->second.kept->bytes, row.kept->bytes) << "layers are alike: " << row.name;
  }
  return result;
}

// Rounded to what the allocator hands out.
std::int64_t allocated(std::int64_t bytes) {
  const std::int64_t before = Allocator::of(kMeta).stats().current;
  const Tensor tensor = Tensor::empty({bytes}, DType::u8, kMeta);
  return Allocator::of(kMeta).stats().current - before;
}

void expect_kept(const recipes::LayerConversion& row, Form form, std::int64_t bytes, Form high_precision_form,
                 std::int64_t high_precision_bytes) {
  SCOPED_TRACE(row.name);
  ASSERT_TRUE(row.kept.has_value());
  EXPECT_EQ(static_cast<int>(row.kept->form), static_cast<int>(form));
  EXPECT_EQ(row.kept->bytes, bytes);
  EXPECT_EQ(static_cast<int>(row.kept_in_high_precision.form), static_cast<int>(high_precision_form));
  EXPECT_EQ(row.kept_in_high_precision.bytes, high_precision_bytes);
}

TEST(SavedInputs, CodesScalesOrTheInputByRecipeAndLevel) {
  const TinyRun tiny;
  const std::int64_t one_scale = allocated(4), wide = allocated(2 * kTokens * kWidth),
                     inner = allocated(2 * kTokens * kInner), wide_codes = allocated(kTokens * kWidth),
                     inner_codes = allocated(kTokens * kInner), wide_scales = allocated(4 * kWidth),
                     inner_scales = allocated(4 * kInner);
  {
    SCOPED_TRACE("tensorwise, everything kept");
    const auto rows = measured(config_of(tiny, "float8_tensorwise", "none"));
    ASSERT_EQ(rows.size(), 4u);
    for (const std::string name : {"qkv_proj", "gate_up_proj"})
      expect_kept(rows.at(name), Form::codes, wide_codes + one_scale, Form::input, wide);
    expect_kept(rows.at("down_proj"), Form::codes, inner_codes + one_scale, Form::input, inner);
    expect_kept(rows.at("o_proj"), Form::saved_by_producer, one_scale, Form::saved_by_producer, 0);
  }
  {
    SCOPED_TRACE("rowwise, everything kept: a scale for each column of x");
    const auto rows = measured(config_of(tiny, "float8_rowwise", "none"));
    expect_kept(rows.at("qkv_proj"), Form::codes, wide_codes + wide_scales, Form::input, wide);
    expect_kept(rows.at("down_proj"), Form::codes, inner_codes + inner_scales, Form::input, inner);
  }
  {
    SCOPED_TRACE("weight gradients in high precision need x");
    const auto rows = measured(config_of(tiny, "float8_rowwise_with_gw_hp", "none"));
    expect_kept(rows.at("qkv_proj"), Form::input, wide, Form::input, wide);
    expect_kept(rows.at("o_proj"), Form::saved_by_producer, 0, Form::saved_by_producer, 0);
  }
  {
    SCOPED_TRACE("selective");
    const auto rows = measured(config_of(tiny, "float8_tensorwise", "selective"));
    for (const std::string name : {"qkv_proj", "gate_up_proj", "down_proj"})
      expect_kept(rows.at(name), Form::recomputed, one_scale, Form::recomputed, 0);
  }
  {
    SCOPED_TRACE("full");
    const auto rows = measured(config_of(tiny, "float8_rowwise", "full"));
    for (const auto& [name, row] : rows) expect_kept(row, Form::layer_recomputed, 0, Form::layer_recomputed, 0);
  }
}

// Bytes that a whole forward pass leaves for its backward pass.
std::int64_t kept_by_model(const RunConfig& config) {
  const ModelSetup setup = build_model(ResolvedConfig(config), kMeta, Device{});
  const Batch batch = meta_batch(config.training.micro_batch_size, config.data.seq_len);
  nn::ForwardContext context = batch_context(*setup.model, batch);
  context.recompute = recompute_level(config.training.activation_checkpoint);
  const auto in_use = [] { return Allocator::of(kMeta).stats().current; };
  std::int64_t with_tape = 0;
  {
    autograd::Tape tape(context.recompute);
    autograd::Variable loss;
    {
      const autograd::TapeScope scope(tape);
      loss = setup.model->loss(batch.input_ids.view({kTokens}), batch.labels.view({kTokens}), context, 1.0f,
                               loss_options(config, setup.config.vocab_size, Device{}));
    }
    with_tape = in_use();
  }
  return with_tape - in_use();  // without what belongs to weights
}

TEST(SavedInputs, TheDifferenceIsThatOfTheMemoryPlan) {
  const TinyRun tiny;
  for (const std::string recipe : {"float8_tensorwise", "float8_rowwise", "float8_rowwise_with_gw_hp"})
    for (const std::string level : {"none", "selective", "full"})
      for (const std::string keep : {"true", "false"}) {
        SCOPED_TRACE(recipe + " " + level + " " + keep);
        const RunConfig config = config_of(tiny, recipe, level, {"--recipe.keep_weights=" + keep});
        std::int64_t difference = 0;
        for (const auto& [name, row] : measured(config))
          difference += kLayers * (row.kept_in_high_precision.bytes - row.kept->bytes);
        EXPECT_EQ(difference, kept_by_model(config_of(tiny, "bf16", level)) - kept_by_model(config));
      }
}

TEST(SavedInputs, TheStartOfARunPrintsThem) {
  const TinyRun tiny;
  const RunConfig config = config_of(tiny, "float8_tensorwise", "none");
  std::vector<recipes::LayerConversion> rows = build_model(ResolvedConfig(config), kMeta, Device{}).conversion;
  measure_saved_inputs(rows, ResolvedConfig(config), Device{});
  const std::string report = recipes::conversion_report(rows);
  EXPECT_THAT(report, HasSubstr("float8_tensorwise  keeps 3.1 KiB (8-bit codes), 6.0 KiB in high precision\n"));
  EXPECT_THAT(report, HasSubstr("(scales; its producer keeps the input), 0 B in high precision\n"));
  EXPECT_THAT(report, HasSubstr("these layers keep "));
  rows = build_model(ResolvedConfig(config_of(tiny, "bf16", "none")), kMeta, Device{}).conversion;
  measure_saved_inputs(rows, ResolvedConfig(config_of(tiny, "bf16", "none")), Device{});
  EXPECT_FALSE(rows[0].kept.has_value());
  EXPECT_THAT(recipes::conversion_report(rows), ::testing::Not(HasSubstr("keep")));
}

}  // namespace
}  // namespace quench
