// Unknown keys that are no misspellings of ours by letters: suggestions by words.

#include <gmock/gmock.h>

#include "config_testing.h"

namespace quench {
namespace {

using testing::issues;

// Misspelled names of other programs, and the words of ours in another order or written out, in any section.
TEST(KeyWords, WordsOfAKeyLeadToItFromAnySection) {
  const std::pair<std::string, std::string> cases[] = {
      {"training.lerning_rate", "optimizer.lr"},
      {"optimizer.learning_rat", "optimizer.lr"},
      {"data.max_sequence_length", "data.seq_len"},
      {"data.sequence_length", "data.seq_len"},
      {"training.number_epochs", "training.epochs"},
      {"training.gradient_acumulation_steps", "training.global_batch_size"},
      {"lora.target_module", "lora.targets"},
      {"training.patience_early_stopping", "evaluation.early_stopping.patience"},
  };
  for (const auto& [theirs, ours] : cases) {
    const auto list = issues("{}", {"--" + theirs + "=1"});
    ASSERT_FALSE(list.empty()) << theirs;
    EXPECT_EQ(list[0].key, theirs);
    EXPECT_EQ(list[0].suggestion, ours) << theirs;
  }
  for (const char* other : {"training.banana", "foo.bar", "data.x_y_z"})
    EXPECT_EQ(issues("{}", {"--" + std::string(other) + "=1"})[0].suggestion, "") << other;
}

}  // namespace
}  // namespace quench
