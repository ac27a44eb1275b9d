// Hints about paths that do not exist.

#include "core/system/missing_path.h"

#include <gmock/gmock.h>

#include "tests/testing.h"

namespace quench {
namespace {

namespace fs = std::filesystem;

TEST(MissingPath, TheNearestNameInTheFolderIsSuggested) {
  const testing::TempDir folder;
  fs::create_directories(folder / "data");
  testing::write_file(folder / "data/chats.jsonl", "");
  const std::string chats = (folder / "data/chats.jsonl").string();
  EXPECT_EQ(nearest_path(folder / "data/chat.jsonl"), chats);
  EXPECT_EQ(nearest_path(folder / "dta/chats.jsonl"), chats) << "a folder of another name";
  EXPECT_EQ(nearest_path(folder / "dta/chat.jsonl"), "") << "two names differ";
  EXPECT_EQ(nearest_path(folder / "data/unlike.txt"), "");
  EXPECT_EQ(nearest_path(folder / "data/chats.jsonl"), "") << "it exists";
  EXPECT_EQ(nearest_path(folder / "data/*.json"), "");
  EXPECT_EQ(missing_path_text(folder / "data/chat.jsonl"), "; did you mean " + chats + "?");
}

TEST(MissingPath, ARelativePathNamesTheWorkingDirectory) {
  EXPECT_EQ(working_directory_text("no-such-file.txt"), " in the working directory " + fs::current_path().string());
  EXPECT_EQ(working_directory_text("/no-such-file.txt"), "");
  EXPECT_EQ(missing_path_text("/no-such-folder/no-such-file.txt"), "");
}

}  // namespace
}  // namespace quench
