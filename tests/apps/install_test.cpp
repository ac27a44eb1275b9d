// `cmake --install` and CPack.

#include <gmock/gmock.h>

#include "tests/apps/program.h"

namespace quench {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using testing::read_file;
using testing::TempDir;

// Runs a command of the shell in the folder; its output goes to out.txt there.
int shell(const TempDir& folder, const std::string& command) {
  return std::system(("cd '" + folder.path().string() + "' && { " + command + "; } > out.txt 2>&1").c_str());
}

std::string build_folder() {
  return std::filesystem::path(testing::program_path()).parent_path().string();
}

// True if the build has the module for Parquet and Arrow files.
bool has_arrow_module() {
  return std::filesystem::exists(build_folder() + "/libquench_arrow.so");
}

TEST(Install, ProgramRunsWithoutTheSourceTreeAndShellsFindTheirScripts) {
  const TempDir folder;
  ASSERT_EQ(shell(folder, "cmake --install '" + build_folder() + "' --prefix \"$PWD/there\""), 0)
      << read_file(folder / "out.txt");
  for (const char* file : {"share/doc/quench/README.md", "share/doc/quench/copyright",
                           "share/doc/quench/docs/reference/config.md", "share/bash-completion/completions/quench",
                           "share/zsh/site-functions/_quench", "share/fish/vendor_completions.d/quench.fish"}) {
    EXPECT_FALSE(read_file(folder / "there" / file).empty()) << file;
  }
  const std::string links = (testing::source_dir() / "tests/docs/check_links.py").string();
  EXPECT_EQ(shell(folder, "python3 '" + links + "' $(find there/share/doc/quench -name '*.md')"), 0)
      << read_file(folder / "out.txt");
  testing::write_file(folder / "text.txt", std::string(2000, 'a') + "b\n");
  EXPECT_EQ(shell(folder,
                  "there/bin/quench train shakespeare_char --data.train=text.txt --data.validation=text.txt "
                  "--training.steps=2 --lr_schedule.warmup_steps=1 --evaluation.steps=1 --run.folder=run"),
            0)
      << read_file(folder / "out.txt");
  EXPECT_TRUE(std::filesystem::exists(folder / "run/checkpoints/step-2/manifest.json"));
  if (!has_arrow_module()) return;
  const std::string table = (testing::source_dir() / "tests/data/files/tables/questions.parquet").string();
  EXPECT_EQ(shell(folder, "env -u QUENCH_ARROW_LIBRARY there/bin/quench tokenize --tokenizer bytes --input '" + table +
                              "' --output shards"),
            0)
      << read_file(folder / "out.txt");
}

TEST(InstallSlow, DebianPackageDependsOnTheLibrariesThatItUses) {
  const TempDir folder;
  // The packages' xz would take most of the test's time.
  ASSERT_EQ(shell(folder, "cpack -G DEB -D CPACK_DEBIAN_COMPRESSION_TYPE=zstd -B \"$PWD\" --config '" + build_folder() +
                              "/CPackConfig.cmake'"),
            0)
      << read_file(folder / "out.txt");
  ASSERT_EQ(shell(folder, "dpkg-deb --field quench_*.deb && dpkg-deb --contents quench_*.deb"), 0);
  const std::string package = read_file(folder / "out.txt");
  for (const char* line :
       {"Package: quench\n", "Section: science\n", "Maintainer: Quench authors", "libgomp1", "libsentencepiece",
        "libpcre2-8", "./usr/bin/quench\n", "./usr/share/doc/quench/copyright\n",
        "./usr/share/doc/quench/licences/libcli11-dev\n", "./usr/share/doc/quench/examples/mlp/mlp.cpp\n",
        "./usr/share/zsh/vendor-completions/_quench\n"}) {
    EXPECT_THAT(package, HasSubstr(line));
  }
#if defined(__x86_64__)  // GEMMs
  EXPECT_THAT(package, HasSubstr("libdnnl"));
#endif
  EXPECT_THAT(package, Not(HasSubstr("./usr/include/")));
  ASSERT_EQ(shell(folder, "dpkg-deb --field libquench-dev_*.deb && dpkg-deb --contents libquench-dev_*.deb"), 0);
  const std::string development = read_file(folder / "out.txt");
  for (const char* line : {"Package: libquench-dev\n", "libfmt-dev", "./usr/include/quench/train.h\n",
                           "./usr/lib/libquench_core.a\n", "./usr/lib/cmake/Quench/QuenchConfig.cmake\n",
                           "./usr/lib/pkgconfig/quench.pc\n", "./usr/share/doc/libquench-dev/copyright\n"}) {
    EXPECT_THAT(development, HasSubstr(line));
  }
  EXPECT_THAT(development, Not(HasSubstr("./usr/bin/quench")));
  if (!has_arrow_module()) return;
  for (const char* file : {"./usr/lib/quench/libquench_arrow.so\n", "./usr/lib/quench/libarrow.so.",
                           "./usr/lib/quench/libparquet.so.", "./usr/share/doc/quench/arrow/NOTICE.txt\n"})
    EXPECT_THAT(package, HasSubstr(file));
}

}  // namespace
}  // namespace quench
