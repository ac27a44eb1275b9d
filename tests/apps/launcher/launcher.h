#pragma once
// quench run with small shell programs as workers.

#include <signal.h>

#include <chrono>
#include <thread>

#include "tests/apps/program.h"

namespace quench::testing {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;
using Seconds = std::chrono::duration<double>;

// Writes run.json, a run of two steps over text.txt next to it.
inline void write_tiny_run(const fs::path& folder) {
  write_file(folder / "text.txt", std::string(4000, 'x'));
  write_file(folder / "run.json", R"({"model": {"model_type": "llama", "vocab_size": 259, "hidden_size": 8,
      "intermediate_size": 12, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1,
      "max_position_embeddings": 64},
    "data": {"train": ["text.txt"], "tokenizer": "bytes", "seq_len": 16},
    "training": {"steps": 2, "micro_batch_size": 1}, "lr_schedule": {"warmup_steps": 0}})");
}

class Launcher : public ::testing::Test {
 protected:
  // quench run FLAGS -- /bin/sh -c SCRIPT
  static Words words(const Words& flags, const std::string& script) {
    Words result = {"run"};
    result.insert(result.end(), flags.begin(), flags.end());
    for (const char* word : {"--", "/bin/sh", "-c"}) result.emplace_back(word);
    result.push_back(script);
    return result;
  }
  Outcome run(const Words& flags, const std::string& script) {
    const auto begin = std::chrono::steady_clock::now();
    Outcome outcome = run_program(folder_.path(), words(flags, script));
    seconds_ = Seconds(std::chrono::steady_clock::now() - begin).count();
    return outcome;
  }
  pid_t start(const Words& flags, const std::string& script) {
    return start_program(folder_.path(), words(flags, script));
  }
  Outcome finish(pid_t launcher) { return finish_program(folder_.path(), launcher); }

  [[nodiscard]] bool wait_for_file(const std::string& name) const {
    for (int i = 0; i < 2000 && !fs::exists(folder_ / name); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return fs::exists(folder_ / name);
  }
  [[nodiscard]] pid_t pid_in(const std::string& name) const { return std::atoi(read_file(folder_ / name).c_str()); }
  // Gone, or a zombie.
  static bool has_ended(pid_t process) {
    const std::string stat = read_file(fmt_stat(process));
    return stat.empty() || stat.find(") Z") != std::string::npos;
  }
  static bool ends_within(pid_t process, double seconds) {
    for (int i = 0; i < static_cast<int>(seconds * 100) && !has_ended(process); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    return has_ended(process);
  }
  static std::string fmt_stat(pid_t process) { return "/proc/" + std::to_string(process) + "/stat"; }
  [[nodiscard]] fs::path only_file(const std::string& name) const {
    for (const auto& entry : fs::recursive_directory_iterator(folder_.path()))
      if (entry.path().string().ends_with(name)) return entry.path();
    return {};
  }

  TempDir folder_;
  double seconds_ = 0;
};

}  // namespace quench::testing
