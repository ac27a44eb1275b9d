#include "core/device/shared_library.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "core/system/check.h"
#include "tests/testing.h"

namespace quench {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::TempDir;

// A folder of libraries of one product, found by no dynamic linker.
class SharedLibraryTest : public ::testing::Test {
 protected:
  void install(const std::string& file) { fs::copy_file(testing::fake_library_path(), folder_ / file); }
  [[nodiscard]] SharedLibraryName name(int major) const {
    return {.product = "Fake",
            .file = "libquench_fake_product.so",
            .major = major,
            .package = "the Fake 13 libraries",
            .folders = {folder_.path().string()}};
  }
  // Message of the failed opening.
  [[nodiscard]] std::string failure(int major) const {
    try {
      const SharedLibrary opened(name(major));
      return "opened " + opened.path();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::unsupported);
      return error.what();
    }
  }

  TempDir folder_;
};

TEST_F(SharedLibraryTest, OpensTheMajorVersion) {
  install("libquench_fake_product.so.12");
  install("libquench_fake_product.so.13");
  const SharedLibrary library(name(13));
  int (*answer)() = nullptr;
  library.bind(answer, "fake_answer");
  EXPECT_EQ(answer(), 42);
  EXPECT_EQ(library.path(), folder_ / "libquench_fake_product.so.13");
}

TEST_F(SharedLibraryTest, NamesWhatIsMissingAndWhatToInstall) {
  EXPECT_THAT(failure(13),
              AllOf(HasSubstr("Fake was not found (libquench_fake_product.so.13: cannot open shared object file"),
                    HasSubstr("install the Fake 13 libraries, or add the folder that holds "
                              "libquench_fake_product.so.13 to LD_LIBRARY_PATH"),
                    Not(HasSubstr("\n"))));
}

TEST_F(SharedLibraryTest, NamesAnOlderMajorVersionThatIsInstalled) {
  install("libquench_fake_product.so.12");
  EXPECT_EQ(failure(13), "Fake: found " + (folder_ / "libquench_fake_product.so.12").string() +
                             " of major version 12, this program needs 13 (libquench_fake_product.so.13); install the "
                             "Fake 13 libraries, or add the folder that holds libquench_fake_product.so.13 to "
                             "LD_LIBRARY_PATH");
}

TEST_F(SharedLibraryTest, NamesANewerMajorVersionThatIsInstalled) {
  install("libquench_fake_product.so.13");
  EXPECT_THAT(failure(12), HasSubstr("libquench_fake_product.so.13 of major version 13, this program needs 12 "));
  EXPECT_THAT(failure(2), HasSubstr("Fake was not found"));  // too far away to be searched
}

// Without a version in its name, a library may be of any.
TEST_F(SharedLibraryTest, OpensNoFileWithoutAVersion) {
  install("libquench_fake_product.so");
  EXPECT_THAT(failure(13), HasSubstr("Fake was not found"));
}

TEST_F(SharedLibraryTest, SaysWhyAFileDoesNotLoad) {
  testing::write_file(folder_ / "libquench_fake_product.so.13", "no library");
  EXPECT_THAT(failure(13), AllOf(HasSubstr((folder_ / "libquench_fake_product.so.13").string()),
                                 Not(HasSubstr("cannot open shared object file"))));
}

TEST_F(SharedLibraryTest, NamesAMissingFunction) {
  install("libquench_fake_product.so.13");
  const SharedLibrary library(name(13));
  try {
    (void)library.symbol("fake_question");
    FAIL() << "a function that is not there was found";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
    EXPECT_EQ(error.what(), "Fake (" + (folder_ / "libquench_fake_product.so.13").string() +
                                ") has no function fake_question: it is not of this program's version; install the "
                                "Fake 13 libraries");
  }
}

TEST_F(SharedLibraryTest, OpensAChosenFile) {
  install("chosen.so");
  EXPECT_EQ(SharedLibrary(name(13), (folder_ / "chosen.so").string()).path(), folder_ / "chosen.so");
  EXPECT_THROW(SharedLibrary(name(13), (folder_ / "absent.so").string()), Error);
}

}  // namespace
}  // namespace quench
