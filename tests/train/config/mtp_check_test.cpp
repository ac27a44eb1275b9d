// training.mtp_loss_weight and the model that a run names.

#include <gmock/gmock.h>

#include "config_testing.h"
#include "tests/testing.h"

namespace quench {
namespace {

using testing::complaint;
using ::testing::HasSubstr;

TEST(MtpCheck, TheModelMustHaveSuchLayers) {
  const std::string weight = "--training.mtp_loss_weight=0.3", deepseek = "--model.preset=tiny-deepseek",
                    one = "--model.num_nextn_predict_layers=1";
  EXPECT_EQ(complaint({weight, deepseek, one}), "");
  EXPECT_EQ(complaint({"--training.mtp_loss_weight=0", deepseek, one}), "");
  EXPECT_THAT(complaint({weight}),
              HasSubstr("training.mtp_loss_weight: LlamaForCausalLM has no layers of multi-token prediction "
                        "(DeepseekV3ForCausalLM has); remove the key"));
  EXPECT_THAT(complaint({weight, deepseek}),
              HasSubstr("training.mtp_loss_weight: the model has no layers of multi-token prediction; set "
                        "model.num_nextn_predict_layers to their number, such as 1"));
  EXPECT_THAT(complaint({"--training.mtp_loss_weight=-0.1", deepseek, one}), HasSubstr("training.mtp_loss_weight"));
  EXPECT_THAT(complaint({weight, deepseek, "--model.num_nextn_predict_layers=-1"}),
              HasSubstr("model.num_nextn_predict_layers"));
}

TEST(MtpCheck, OtherObjectivesAndAdaptersAreRefused) {
  const std::string weight = "--training.mtp_loss_weight=0.3", deepseek = "--model.preset=tiny-deepseek",
                    one = "--model.num_nextn_predict_layers=1";
  EXPECT_THAT(complaint({weight, deepseek, one, "--lora.rank=4"}),
              HasSubstr("training.mtp_loss_weight: multi-token prediction is trained with the next-token cross-entropy "
                        "in full training, not with section lora; remove one of the two"));
  EXPECT_THAT(complaint({weight, deepseek, one, "--distill.teacher=initial"}), HasSubstr("not with section distill"));
  EXPECT_THAT(complaint({weight, deepseek, one, "--preference.loss=dpo"}), HasSubstr("not with section preference"));
}

TEST(MtpCheck, DepthMustEqualTheStoredModels) {
  const std::string text = R"({"model": {"path": ")" +
                           (testing::source_dir() / "tests/reference/models/deepseek_v3_mtp").string() +
                           R"("}, "data": {"train": "a.bin", "seq_len": 32}, "training": {"steps": 10}})";
  const auto refused = [&](const std::vector<std::string>& overrides) {
    return testing::has_issue(testing::issues(text, overrides, {}), "model.num_nextn_predict_layers");
  };
  const std::string weight = "--training.mtp_loss_weight=0.3";
  EXPECT_FALSE(refused({weight}));
  EXPECT_TRUE(refused({weight, "--model.num_nextn_predict_layers=1"}));
  EXPECT_TRUE(refused({"--model.num_nextn_predict_layers=0"}));
  EXPECT_TRUE(refused({weight, "--data.seq_len=2"}));
  EXPECT_FALSE(refused({weight, "--model.num_nextn_predict_layers=1", "--model.init=random"}));
}

}  // namespace
}  // namespace quench
