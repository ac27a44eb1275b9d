#pragma once
// Tiny preference runs.

#include "tests/train/run/trainer_fixture.h"

namespace quench::testing {

// Answers as token shards; a run of TinyRun's model over them.
class PreferenceRun : public TinyRun {
 public:
  PreferenceRun() {
    write("pairs.bin", 0);
    write("held_out.bin", 100);
    // Labels: any documents with a mark.
  }

  // Answers below 32 are preferred.
  void write(const std::string& name, std::uint32_t seed) const {
    ShardWriter writer(data_ / name, {.vocab_size = 64, .eos_id = 0, .target_mask = true});
    std::uint32_t state = seed + 1;
    const auto draw = [&](std::uint32_t count) {
      state = state * 1664525u + 1013904223u;
      return static_cast<std::int32_t>((state >> 16) % count);
    };
    for (int pair = 0; pair < 24; ++pair) {
      std::vector<std::int32_t> prompt;
      for (int i = 0; i < 2 + pair % 3; ++i) prompt.push_back(1 + draw(63));
      for (const bool chosen : {true, false}) {
        std::vector<std::int32_t> tokens = prompt;
        std::vector<std::uint8_t> targets(prompt.size(), 0);
        targets.front() = chosen ? 1 : 0;
        for (int i = 0; i < 2 + draw(3); ++i) {
          tokens.push_back((chosen ? 1 : 32) + draw(31));
          targets.push_back(1);
        }
        writer.append(tokens, targets);
        writer.end_document();
      }
    }
    writer.finish();
  }

  [[nodiscard]] std::filesystem::path data(const std::string& name) const { return data_ / name; }

  [[nodiscard]] RunConfig preference_config(const std::string& name, const std::string& loss,
                                            const std::vector<std::string>& more = {}) const {
    std::vector<std::string> all{"--preference.loss=" + loss, R"(--data.train=[")" + data("pairs.bin").string() + "\"]",
                                 "--training.steps=8", "--checkpoint.interval=4"};
    all.insert(all.end(), more.begin(), more.end());
    return config(name, all);
  }

 private:
  TempDir data_;
};

inline constexpr const char* kPreferenceLosses[] = {"dpo", "ipo", "simpo", "orpo", "kto"};

}  // namespace quench::testing
