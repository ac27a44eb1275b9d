// Tokenizers that cannot be written or read: nothing is left over, and no verb waits.

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <cstdlib>

#include "tests/apps/program.h"

namespace quench {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using testing::read_file;
using testing::write_file;

class TokenizerFault : public ::testing::Test {
 protected:
  void SetUp() override { write_file(folder_ / "corpus.txt", "the cat sees a small house and the river\n"); }

  // A command of the shell in the test's folder; its exit status.
  int shell(const std::string& command) {
    const int status = std::system(("cd '" + folder_.path().string() + "' && " + command).c_str());
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

  testing::TempDir folder_;
};

TEST_F(TokenizerFault, ATokenizerThatDoesNotFitTheDiskLeavesNoFolder) {
  const std::string faulty = "LD_PRELOAD='" + testing::fault_shim_path() + "' QUENCH_FAULT='do=ENOSPC;ops=write;" +
                             "sticky;path=tokenizer.json' '" + testing::program_path() + "' ";
  EXPECT_EQ(shell(faulty + "tokenize train --input corpus.txt --vocab-size 270 --output new/tokenizer 2> errors.txt"),
            1);
  EXPECT_THAT(read_file(folder_ / "errors.txt"), HasSubstr("No space left on device"));
  EXPECT_FALSE(fs::exists(folder_ / "new"));
  // A folder of the user's stays, and so does what is in it.
  fs::create_directory(folder_ / "kept");
  write_file(folder_ / "kept/notes.txt", "mine");
  EXPECT_EQ(shell(faulty + "tokenize train --input corpus.txt --vocab-size 270 --output kept 2> errors.txt"), 1);
  EXPECT_EQ(read_file(folder_ / "kept/notes.txt"), "mine");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_ / "kept"), fs::directory_iterator()), 1);
}

TEST_F(TokenizerFault, PipesInThePlaceOfFilesHangNoVerb) {
  for (const char* name : {"tokenizer.model", "tokenizer.json", "model.gguf"}) {
    const fs::path folder = folder_ / ("with " + std::string(name));
    fs::create_directory(folder);
    ASSERT_EQ(::mkfifo((folder / name).c_str(), 0644), 0);
    for (const std::string& place : {folder.string(), (folder / name).string()}) {
      EXPECT_EQ(shell("timeout 20 '" + testing::program_path() + "' tokenize --tokenizer '" + place +
                      "' --input corpus.txt --output shards 2> errors.txt"),
                1)
          << place;
      EXPECT_THAT(read_file(folder_ / "errors.txt"), HasSubstr("error: " + folder.string()));
    }
  }
}

}  // namespace
}  // namespace quench
