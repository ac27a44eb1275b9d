#pragma once
// Fixture of training on a mesh next to one process, on rows that documents of 3 to 25 tokens share.

#include <filesystem>
#include <string>
#include <vector>

#include "tests/distributed/sharded_training.h"

namespace quench::testing {

class MeshTraining : public ShardedTraining {
 protected:
  using Options = std::vector<std::string>;

  void SetUp() override {
    ShardedTraining::SetUp();
    std::string documents;
    for (int i = 0; i < 400; ++i)
      documents += fmt::format("{{\"text\": \"{}\"}}\n",
                               std::string(static_cast<std::size_t>(2 + i * 7 % 23), static_cast<char>('a' + i % 26)));
    write_file(folder_ / "documents.jsonl", documents);
  }
  [[nodiscard]] std::string documents() const {
    return "--data.train=[\"" + (folder_ / "documents.jsonl").string() + "\"]";
  }
  static Options with(Options options, const Options& more) {
    options.insert(options.end(), more.begin(), more.end());
    return options;
  }
  // One process, and `ranks` on a mesh.
  void expect_same_training(const std::string& name, int ranks, const Options& mesh, const Options& options = {}) {
    if (!std::filesystem::exists(folder_ / name)) train(1, name, options);
    std::string own = fmt::format("{}-{}", name, ranks);
    for (const std::string& option : mesh) own += "-" + option.substr(option.rfind('.') + 1);
    train(ranks, own, with(options, mesh));
    expect_same_run(own, name);
  }
};

}  // namespace quench::testing
