// The script that mirrors a run to Weights & Biases, with a stand-in for the package.

#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/testing.h"

namespace quench {
namespace {

TEST(WandbMirror, LineSeparatorsOfUnicodeEndNoRecord) {
  const testing::TempDir folder;
  testing::write_file(folder / "wandb.py", R"(
import json, pathlib
class Run:
    dir = "offline/files"
    rows = []
    def define_metric(self, *names, **settings): pass
    def log(self, values): self.rows.append(values)
    def finish(self): pathlib.Path("rows.json").write_text(json.dumps(self.rows))
def init(**settings): return Run()
def Html(text): return text
)");
  std::filesystem::create_directories(folder / "run/metrics");
  testing::write_file(folder / "run/metrics/metrics.jsonl", "{\"step\": 1, \"loss\": 2}\n{\"step\": 2, \"loss\": 1}\n");
  // U+2028, U+2029, U+0085 in UTF-8; the last record is not complete.
  testing::write_file(folder / "run/metrics/samples.jsonl",
                      "{\"step\": 1, \"prompt\": \"a\xe2\x80\xa8"
                      "b\xe2\x80\xa9\", \"text\": \"c\xc2\x85"
                      "d\"}\n{\"step\"");
  const std::string command = "cd '" + folder.path().string() + "' && PYTHONPATH=. python3 '" +
                              (testing::source_dir() / "scripts/wandb_mirror.py").string() +
                              "' run --offline > out.txt 2>&1";
  EXPECT_EQ(std::system(command.c_str()), 0) << testing::read_file(folder / "out.txt");
  EXPECT_EQ(testing::read_file(folder / "out.txt").substr(0, 9), "3 records");
}

}  // namespace
}  // namespace quench
