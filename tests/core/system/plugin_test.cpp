#include "core/system/plugin.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <exception>
#include <stdexcept>

#include "tests/plugins/shade.h"
#include "tests/testing.h"

namespace quench {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::plugin_path;
using testing::Shade;

using Shades = ChoiceTable<Shade>;

Shades make_shades() {
  return {"shade", {{"black", 0}, {"white", 100}}};
}

void expect_refused(const std::filesystem::path& path, ErrorCode code, const ::testing::Matcher<std::string>& message) {
  try {
    (void)load_plugin(path);
    ADD_FAILURE() << path << " was loaded";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code);
    EXPECT_THAT(std::string(error.what()), AllOf(HasSubstr(path.filename().string()), message));
  }
}

// One process for each test: a plug-in is loaded once.
TEST(Plugin, RegistersBeforeAndAfterATablesFirstUse) {
  const Shades shades = make_shades();
  const Shade* white = shades.find("white");
  EXPECT_EQ(shades.find("grey"), nullptr);
  const std::size_t registered = detail::registered_entries();
  const LoadedPlugin plugin = load_plugin(plugin_path("shade"));
  EXPECT_EQ(plugin.name, "shade");
  EXPECT_EQ(plugin.version, "1.5");
  EXPECT_TRUE(plugin.path.is_absolute());
  EXPECT_EQ(detail::registered_entries(), registered + 1);
  EXPECT_EQ(shades.require("grey").lightness, 50);
  EXPECT_THAT(shades.names(), ElementsAre("black", "white", "grey"));
  EXPECT_EQ(shades.find("white"), white);
  // The same file again: no effect.
  (void)load_plugin(plugin_path("shade"));
  EXPECT_EQ(loaded_plugins().size(), 1u);
  EXPECT_EQ(shades.size(), 3u);
}

TEST(Plugin, BeforeATablesFirstUseItsEntriesAreTaken) {
  (void)load_plugin(plugin_path("shade"));
  EXPECT_THAT(make_shades().names(), ElementsAre("black", "white", "grey"));
}

TEST(Plugin, RefusesANameThatATableHas) {
  const Shades shades = make_shades();
  expect_refused(plugin_path("taken_shade"), ErrorCode::bad_config,
                 HasSubstr("the name 'black' stands for more than one shade; give the added shade another name"));
  EXPECT_EQ(shades.require("black").lightness, 0);
  EXPECT_TRUE(loaded_plugins().empty());
}

TEST(Plugin, ANameTakenBeforeTheTablesFirstUseIsRefusedByTheUse) {
  (void)load_plugin(plugin_path("taken_shade"));
  try {
    (void)make_shades();
    FAIL() << "a name stands for two entries";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::bad_config);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("libtaken_shade.so"), HasSubstr("'black'")));
  }
}

TEST(Plugin, RefusesAnotherPluginOfTheSameName) {
  (void)load_plugin(plugin_path("shade"));
  expect_refused(plugin_path("namesake"), ErrorCode::bad_config,
                 AllOf(HasSubstr("plug-in 'shade'"), HasSubstr("is loaded already, from"), HasSubstr("libshade.so")));
}

TEST(Plugin, ErrorsOfAnEntrysFunctionReachTheCaller) {
  const Shades shades = make_shades();
  expect_refused(plugin_path("failing_entry"), ErrorCode::not_found,
                 AllOf(HasSubstr("plug-in 'failing_entry' of"), HasSubstr(": shades.txt does not exist")));
  expect_refused(plugin_path("failing_type"), ErrorCode::failed,
                 AllOf(HasSubstr("plug-in 'failing_type' of"), HasSubstr(": shade 101")));
  EXPECT_TRUE(loaded_plugins().empty());
  // In the program itself, they are thrown at once.
  EXPECT_THROW(Registered<Shade>([]() -> Shade { throw std::out_of_range("shade 102"); }), std::out_of_range);
  EXPECT_THROW(Registered<Shade>({.name = "white", .lightness = 1}), Error);
  const Registered<Shade> made([] { return Shade{.name = "pale", .lightness = 90}; });
  EXPECT_EQ(shades.require("pale").lightness, 90);
}

TEST(PluginDeathTest, AnotherExceptionOfStaticInitializationEndsTheProcessWithTheFile) {
  const std::terminate_handler before = std::get_terminate();
  EXPECT_EXIT((void)load_plugin(plugin_path("throwing_constructor")), ::testing::KilledBySignal(SIGABRT),
              ::testing::AllOf(::testing::ContainsRegex("plug-in .*/libthrowing_constructor.so: its static "
                                                        "initialization ends the process: no light.x1b.2J;"),
                               ::testing::Not(::testing::HasSubstr("\x1b"))));
  (void)load_plugin(plugin_path("shade"));
  EXPECT_EQ(std::get_terminate(), before);
}

TEST(Plugin, RefusesFilesThatAreNoPluginOfThisRelease) {
  const testing::TempDir temp;
  expect_refused(temp / "missing.so", ErrorCode::not_found, HasSubstr("does not exist"));
  expect_refused(plugin_path("old_release"), ErrorCode::unsupported,
                 AllOf(HasSubstr("was built for release 0.1.3"), HasSubstr("this is " QUENCH_VERSION),
                       HasSubstr("build it anew")));
  expect_refused(plugin_path("unresolved"), ErrorCode::unsupported,
                 AllOf(HasSubstr("cannot be loaded"), HasSubstr("function_of_no_release")));
  expect_refused(testing::fake_library_path(), ErrorCode::unsupported, HasSubstr("is no plug-in"));
  testing::write_file(temp / "text.so", "quench plug-in of release ");
  expect_refused(temp / "text.so", ErrorCode::unsupported, HasSubstr("QUENCH_PLUGIN"));
  testing::write_file(temp / "marked.so", "quench plug-in of release " QUENCH_VERSION ";");
  expect_refused(temp / "marked.so", ErrorCode::unsupported, HasSubstr("cannot be loaded"));
}

}  // namespace
}  // namespace quench
