#include "train/doctor/diagnosis.h"

#include <gmock/gmock.h>

#include <cstdlib>

namespace quench::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Diagnosis two_gpus() {
  Diagnosis diagnosis;
  diagnosis.libraries = {
      {"cuBLASLt", "13.1.0", "/home/someone/env/lib/libcublasLt.so.13", {}},
      {"cuDNN", "(not found)", {}, "/home/someone/my libs/libcudnn.so.9: cannot open shared object file"}};
  for (const std::int8_t index : {std::int8_t{0}, std::int8_t{1}})
    diagnosis.devices.push_back(
        {.device = {DeviceType::cuda, index},
         .name = "NVIDIA H100",
         .capability = {90, 80},
         .memory = std::int64_t{80} << 30,
         .recipes = {{"bf16", "native"}, {"mxfp8", "fallback"}},
         .self_test = {{{"sm90_grouped_gemm", FamilyStatus::passed, ""}, {"rope", FamilyStatus::not_used, ""}}, 1.25}});
  diagnosis.links = distributed::GpuLinks{{{false, true}, {false, false}}, {}};
  return diagnosis;
}

TEST(Diagnosis, NamesDevicesLibrariesRecipesAndLinks) {
  const std::string text = to_string(two_gpus());
  for (const char* part :
       {"cuda:1: NVIDIA H100, compute capability 9.0, kernels compiled for 8.0, 80.0 GiB", "native     bf16\n",
        "fallback   mxfp8\n", "1 families of kernels passed, 0 failed, 1 not used", "not for 1->0",
        "/home/someone/env/lib/libcublasLt.so.13", "cannot open shared object file", "gives the right sums"})
    EXPECT_THAT(text, HasSubstr(part));
  EXPECT_TRUE(two_gpus().healthy());
}

TEST(Diagnosis, NamesFailures) {
  Diagnosis diagnosis = two_gpus();
  diagnosis.devices[1].self_test.families[0] = {"sm90_grouped_gemm", FamilyStatus::failed, "relative error 1"};
  EXPECT_FALSE(diagnosis.healthy());
  EXPECT_THAT(to_string(diagnosis), HasSubstr("kernel family sm90_grouped_gemm gives wrong results"));
  diagnosis = two_gpus();
  diagnosis.links->nccl_problem = "ncclAllReduce: unhandled cuda error";
  EXPECT_FALSE(diagnosis.healthy());
  EXPECT_THAT(to_string(diagnosis), HasSubstr("ncclAllReduce: unhandled cuda error"));
  EXPECT_EQ(to_json(diagnosis).at("links").at("nccl_problem").as_string(), "ncclAllReduce: unhandled cuda error");
}

TEST(Diagnosis, WritesJsonWithoutPathsAndUsers) {
  const Json json = to_json(two_gpus());
  const std::string text = json.dump(2);
  EXPECT_THAT(text, Not(HasSubstr("someone")));
  EXPECT_THAT(text, Not(HasSubstr("/home")));
  EXPECT_THAT(text, Not(HasSubstr("env/lib")));
  EXPECT_EQ(json.at("libraries").as_array()[0].at("file").as_string(), "libcublasLt.so.13");
  EXPECT_EQ(json.at("devices").as_array()[0].at("recipes").at("mxfp8").as_string(), "fallback");
  EXPECT_TRUE(json.at("healthy").as_bool());
}

TEST(Diagnosis, ReplacesPathsAndTheUsersName) {
  const auto keep = [](const char* name) {
    const char* text = std::getenv(name);
    return text == nullptr ? std::string() : std::string(text);
  };
  const std::string home = keep("HOME"), user = keep("USER");
  ::setenv("HOME", "/home/Ada Lovelace", 1);
  ::setenv("USER", "ada", 1);
  EXPECT_EQ(without_paths("cannot open '/home/Ada Lovelace/a/libcudnn.so.9' (no file)"),
            "cannot open '<path>/libcudnn.so.9' (no file)");
  EXPECT_EQ(without_paths("/data/ada/x: denied"), "<path>: denied");
  EXPECT_EQ(without_paths("user ada, adapter of ada"), "user <user>, adapter of <user>");
  EXPECT_EQ(without_paths("relative error 0.5"), "relative error 0.5");
  home.empty() ? ::unsetenv("HOME") : ::setenv("HOME", home.c_str(), 1);
  user.empty() ? ::unsetenv("USER") : ::setenv("USER", user.c_str(), 1);
}

TEST(Diagnosis, ListsEveryRecipe) {
  const std::vector<RecipePath> paths = recipe_paths({});
  EXPECT_EQ(paths.front().recipe, "bf16");
  EXPECT_EQ(paths.front().path, "native");
  for (const RecipePath& entry : paths) {
    if (!entry.recipe.starts_with("float8") && entry.recipe != "mxfp8") continue;
    EXPECT_EQ(entry.path, "emulated") << entry.recipe;
  }
}

}  // namespace
}  // namespace quench::testing
