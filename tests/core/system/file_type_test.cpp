// Git LFS pointers among files whose bytes may be anything. Other kinds: tests of safetensors headers.

#include "core/system/file_type.h"

#include <gmock/gmock.h>

#include "core/system/check.h"

namespace quench {
namespace {

using ::testing::HasSubstr;

TEST(FileType, GitLfsPointersAreRefused) {
  try {
    refuse_lfs_pointer("a.txt", "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::corrupt);
    EXPECT_THAT(error.what(), HasSubstr("a.txt: this is a Git LFS pointer"));
  }
  // A key of an extension stands between the two lines.
  EXPECT_THROW(refuse_lfs_pointer("a", "version https://git-lfs.github.com/spec/v1\next-0-a sha256:00\noid sha256:4d"),
               Error);
}

TEST(FileType, TextThatBeginsLikeAPointerIsText) {
  for (const std::string& text :
       {std::string("version https://git-lfs is a program for large files"),
        std::string(
            "version https://git-lfs.github.com/spec/v1 is the first line of a pointer.\nIts oid sha256: a hash."),
        std::string("version https://git-lfs.github.com/spec/v1\n"),
        "version https://git-lfs.github.com/spec/v1\n" + std::string(200, 'x') + "\noid sha256:4d7a", std::string()})
    EXPECT_NO_THROW(refuse_lfs_pointer("a.txt", text)) << text;
}

}  // namespace
}  // namespace quench
