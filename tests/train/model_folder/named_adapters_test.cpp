// Adapter folders that share one model.

#include "train/model_folder/named_adapters.h"

#include "nn/modules/adapter_rows.h"
#include "tests/train/model_folder/peft_golden.h"

namespace quench {
namespace {

using testing::adapter_folder;
using testing::dora_folder;
using ::testing::HasSubstr;
using testing::saved_folder;

class NamedAdapters : public testing::PeftGolden {
 protected:
  // logits_error() with this adapter for every row.
  [[nodiscard]] double error_with(std::int32_t adapter) const {
    const std::vector<std::int32_t> rows(static_cast<std::size_t>(batch_ * length_), adapter);
    const nn::AdapterRowsScope scope(Tensor::from_values<std::int32_t>({batch_ * length_}, rows));
    return logits_error();
  }
  std::string refusal(const std::filesystem::path& folder) {
    const std::vector<NamedAdapter> adapters{{"good", adapter_folder()}, {"poet", folder}};
    try {
      attach_named_adapters(model_, adapters);
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  }
};

TEST_F(NamedAdapters, RowsOfAnAdapterHaveItsLogits) {
  const double base = logits_error();
  attach_named_adapters(model_, std::vector<NamedAdapter>{{"first", adapter_folder()}, {"second", adapter_folder()}});
  EXPECT_GT(base, 1e-3);
  EXPECT_EQ(logits_error(), base) << "without a choice of adapters";
  EXPECT_NEAR(error_with(-1), base, 1e-5);
  EXPECT_LT(error_with(0), 1e-5);
  EXPECT_LT(error_with(1), 1e-5);
  EXPECT_NEAR(logits_error(), base, 1e-5) << "the choice ends with its scope";
}

TEST_F(NamedAdapters, UpdatesOfOtherKindsAreRefusedByNameFileAndKey) {
  const double base = logits_error();
  EXPECT_THAT(refusal(dora_folder()),
              HasSubstr("adapter poet: " + (dora_folder() / "adapter_config.json").string() + ": use_dora: "));
  EXPECT_THAT(refusal(saved_folder()), HasSubstr("adapter_config.json: modules_to_save: "));
  EXPECT_THAT(refusal("/nothing/here"), HasSubstr("/nothing/here"));
  EXPECT_EQ(logits_error(), base);
  EXPECT_EQ(error_with(0), base) << "no layer has a bank";
}

}  // namespace
}  // namespace quench
