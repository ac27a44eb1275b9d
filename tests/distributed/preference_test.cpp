// Preference training by several processes.

#include "tests/distributed/sharded_training.h"

namespace quench {
namespace {

using testing::ShardedTraining;

class ShardedPreference : public ShardedTraining {
 protected:
  void SetUp() override {
    ShardedTraining::SetUp();
    std::string records;
    for (int i = 0; i < 60; ++i) {
      const std::string sum = std::to_string(i % 7 + i % 11);
      records += fmt::format("{{\"prompt\": \"{}+{}=\", \"chosen\": \"{}\", \"rejected\": \"{}9\"}}\n", i % 7, i % 11,
                             sum, sum);
    }
    testing::write_file(folder_ / "pairs.jsonl", records);
  }
  static std::vector<std::string> with(const std::vector<std::string>& options, const std::vector<std::string>& more) {
    std::vector<std::string> all = options;
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  [[nodiscard]] std::vector<std::string> options(const std::string& loss) const {
    return {"--preference.loss=" + loss, R"(--data.train=[")" + (folder_ / "pairs.jsonl").string() + "\"]",
            "--data.seq_len=40", "--training.global_batch_size=6"};
  }
};

TEST_F(ShardedPreference, TwoProcessesTrainAsOne) {
  const std::vector<std::vector<std::string>> ways = {options("dpo"), options("ipo"), options("simpo"), options("orpo"),
                                                      with(options("dpo"), {"--lora.rank=4"})};
  for (std::size_t i = 0; i < ways.size(); ++i) {
    const std::string one = fmt::format("one{}", i), two = fmt::format("two{}", i);
    SCOPED_TRACE(ways[i].front());
    train(1, one, ways[i]);
    train(2, two, ways[i]);
    expect_near_run(two, one, 1e-5);
  }
}

TEST_F(ShardedPreference, EveryLossResumesBitForBit) {
  for (const char* loss : {"dpo", "ipo", "simpo", "orpo", "kto"}) {
    SCOPED_TRACE(loss);
    const std::string whole = std::string(loss) + "-whole", rest = std::string(loss) + "-rest";
    train(2, whole, options(loss));
    train(2, rest,
          with(options(loss), {"--checkpoint.resume=" + (folder_ / whole / "checkpoints" / "step-4").string(),
                               "--data.cache=" + (folder_ / whole / "cache").string()}));
    const auto got = records(rest), wanted = records(whole);
    ASSERT_EQ(got.size(), 4u);
    for (const auto& [step, record] : got)
      EXPECT_EQ(record.at("loss").dump(), wanted.at(step).at("loss").dump()) << "step " << step;
  }
}

}  // namespace
}  // namespace quench
