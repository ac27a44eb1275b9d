#include "core/self_test/verdict_cache.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "core/self_test/cases.h"
#include "tests/testing.h"

namespace quench::testing {
namespace {

namespace fs = std::filesystem;

SelfTestReport some_report() {
  SelfTestReport report;
  for (const self_test::Case& row : self_test::cases())
    report.families.push_back({std::string(row.name), FamilyStatus::passed, ""});
  report.families[1] = {report.families[1].name, FamilyStatus::failed, "relative error 0.5"};
  report.families[2].status = FamilyStatus::not_used;
  return report;
}

Json some_key(const char* name) {
  return Json(Json::Object{{"device", name}, {"capability", 90}});
}

TEST(VerdictCache, ReturnsTheReportOfAKey) {
  const TempDir folder;
  const fs::path cache = folder.path() / "a" / "quench";
  EXPECT_FALSE(read_verdict(cache, some_key("one")));
  EXPECT_TRUE(write_verdict(cache, some_key("one"), some_report()));
  const auto read = read_verdict(cache, some_key("one"));
  ASSERT_TRUE(read);
  EXPECT_EQ(read->families, some_report().families);
  EXPECT_FALSE(read_verdict(cache, some_key("two")));
}

TEST(VerdictCache, IgnoresDamagedFiles) {
  const TempDir folder;
  ASSERT_TRUE(write_verdict(folder.path(), some_key("one"), some_report()));
  const fs::path file = fs::directory_iterator(folder.path())->path();
  for (const char* text : {"", "{", "{}", R"({"key": 1, "report": {"families": []}})",
                           R"({"key": {"device": "one", "capability": 90}, "report": {"families": []}})",
                           R"({"key": {"device": "one", "capability": 90}, "report": {"families": [{"name": 3}]}})"}) {
    std::ofstream(file) << text;
    EXPECT_FALSE(read_verdict(folder.path(), some_key("one"))) << text;
  }
  EXPECT_TRUE(write_verdict(folder.path(), some_key("one"), some_report()));
  EXPECT_TRUE(read_verdict(folder.path(), some_key("one")));
}

// Another user could have written a verdict there.
TEST(VerdictCache, IgnoresFilesThatOthersCanWrite) {
  const TempDir parent;
  const fs::path folder = parent / "quench";
  ASSERT_TRUE(write_verdict(folder, some_key("one"), some_report()));
  const fs::path file = fs::directory_iterator(folder)->path();
  ASSERT_TRUE(read_verdict(folder, some_key("one")));
  for (const fs::path& path : {file, folder}) {
    for (const fs::perms writable : {fs::perms::group_write, fs::perms::others_write}) {
      fs::permissions(path, writable, fs::perm_options::add);
      EXPECT_FALSE(read_verdict(folder, some_key("one"))) << path;
      fs::permissions(path, writable, fs::perm_options::remove);
    }
  }
  EXPECT_TRUE(read_verdict(folder, some_key("one")));
  if (::geteuid() != 0) return;  // only root can give files away
  for (const fs::path& path : {file, folder}) {
    ASSERT_EQ(::chown(path.c_str(), 65534, static_cast<gid_t>(-1)), 0);
    EXPECT_FALSE(read_verdict(folder, some_key("one"))) << path;
    ASSERT_EQ(::chown(path.c_str(), 0, static_cast<gid_t>(-1)), 0);
  }
}

// A list of other families, as from another version under the same key.
TEST(VerdictCache, IgnoresReportsOfOtherFamilies) {
  const TempDir folder;
  SelfTestReport report = some_report();
  report.families.pop_back();
  ASSERT_TRUE(write_verdict(folder.path(), some_key("one"), report));
  EXPECT_FALSE(read_verdict(folder.path(), some_key("one")));
}

TEST(VerdictCache, DoesNotFailWithoutAFolder) {
  const TempDir folder;
  std::ofstream(folder.path() / "file") << "x";
  EXPECT_FALSE(write_verdict(folder.path() / "file" / "quench", some_key("one"), some_report()));
  EXPECT_FALSE(read_verdict(folder.path() / "file" / "quench", some_key("one")));
  EXPECT_FALSE(write_verdict({}, some_key("one"), some_report()));
  EXPECT_FALSE(read_verdict({}, some_key("one")));
}

// Sets a variable until the end of the scope.
class SetVariable {
 public:
  SetVariable(const char* name, const char* value) : name_(name) {
    if (const char* before = std::getenv(name)) before_ = before;
    ::setenv(name, value, 1);
  }
  ~SetVariable() { before_ ? ::setenv(name_, before_->c_str(), 1) : ::unsetenv(name_); }
  SetVariable(const SetVariable&) = delete;
  SetVariable& operator=(const SetVariable&) = delete;

 private:
  const char* name_;
  std::optional<std::string> before_;
};

TEST(VerdictCache, IsInTheUsersCacheFolder) {
  const SetVariable home("HOME", "/home/someone");
  {
    const SetVariable xdg("XDG_CACHE_HOME", "/var/cache/someone");
    EXPECT_EQ(verdict_folder(), "/var/cache/someone/quench");
  }
  const SetVariable xdg("XDG_CACHE_HOME", "");
  EXPECT_EQ(verdict_folder(), "/home/someone/.cache/quench");
}

}  // namespace
}  // namespace quench::testing
