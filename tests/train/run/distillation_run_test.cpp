// Runs with a teacher: what is refused, and exact resumption.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "tests/train/run/same_tensors.h"
#include "tests/train/run/trainer_fixture.h"
#include "train/model_folder/model_folder.h"
#include "train/session/model_setup.h"

namespace quench {
namespace {

using ::testing::HasSubstr;
using testing::TinyRun;
using Options = std::vector<std::string>;

Options and_more(Options options, const Options& more) {
  options.insert(options.end(), more.begin(), more.end());
  return options;
}

const Options kQad{"--recipe.name=qat_int4_weight_only", "--recipe.group_size=16", "--distill.ratio=0.75"};

// A model folder of the run's architecture, or with the given changes.
std::string save_teacher(const TinyRun& tiny, const std::string& name, const Options& changes = {},
                         std::uint64_t seed = 9) {
  const RunConfig config = tiny.config(name, changes);
  ModelSetup setup = build_model(ResolvedConfig(config), Device{});
  setup.model->initialize(seed);
  const std::filesystem::path folder = tiny.folder(name + "-model");
  save_model_folder(*setup.model, {.folder = folder}, {.dtype = DType::f32});
  return folder.string();
}

TEST(DistillationRun, ResumesBitForBit) {
  const TinyRun tiny;
  const std::string teacher = save_teacher(tiny, "teacher", {"--model.num_hidden_layers=1"});
  int number = 0;
  for (const Options& way : std::vector<Options>{
           {},
           {"--distill.loss=reverse_kl", "--distill.temperature=2", "--distill.teacher_weights=float8"},
           {"--distill.loss=jensen_shannon", "--distill.beta=0.3", "--distill.teacher=" + teacher},
           {"--distill.hidden.weight=0.5"},
           {"--distill.hidden.weight=2", "--distill.hidden.loss=cosine", "--distill.hidden.layers=[1]",
            "--distill.teacher=" + teacher, "--training.activation_checkpoint=full"},
           {"--lora.rank=4", "--distill.hidden.weight=0.5", "--distill.hidden.loss=normalized_mse"},
           {"--lora.rank=4"},
           {"--lora.rank=4", "--lora.base=nf4", "--recipe.name=bf16", "--recipe.group_size=null"},
       }) {
    SCOPED_TRACE(::testing::PrintToString(way));
    const std::string whole = fmt::format("whole{}", number), rest = fmt::format("rest{}", number);
    ++number;
    const Options options =
        and_more(and_more(kQad, way), {"--training.steps=4", "--checkpoint.interval=2", "--lr_schedule.decay_steps=4"});
    (void)tiny.run(tiny.config(whole, options));
    (void)tiny.run(tiny.config(rest, and_more(options, {"--training.steps=2"})));
    (void)tiny.run(tiny.config(rest, options));
    EXPECT_EQ(tiny.losses(rest), tiny.losses(whole));
    testing::expect_same_tensors(tiny.checkpoint(rest, 4), tiny.checkpoint(whole, 4));
  }
}

// A teacher in host memory teaches as a resident one.
TEST(DistillationRun, ATeacherInHostMemoryGivesTheSameBits) {
  const TinyRun tiny;
  const std::string teacher = save_teacher(tiny, "teacher", {"--model.num_hidden_layers=3"});
  int number = 0;
  for (const Options& way : std::vector<Options>{{},
                                                 {"--distill.teacher=" + teacher},
                                                 {"--distill.teacher_weights=float8", "--distill.hidden.weight=0.5"},
                                                 {"--lora.rank=4", "--distill.teacher=" + teacher}}) {
    SCOPED_TRACE(::testing::PrintToString(way));
    const std::string resident = fmt::format("resident{}", number), offloaded = fmt::format("offloaded{}", number);
    ++number;
    const Options options = and_more(and_more(kQad, way), {"--training.steps=4", "--lr_schedule.decay_steps=4"});
    (void)tiny.run(tiny.config(resident, options));
    (void)tiny.run(tiny.config(offloaded, and_more(options, {"--distill.offload=true"})));
    EXPECT_EQ(tiny.losses(offloaded), tiny.losses(resident));
    testing::expect_same_tensors(tiny.checkpoint(offloaded, 4), tiny.checkpoint(resident, 4));
  }
}

TEST(DistillationRun, MetricsAreRecorded) {
  const TinyRun tiny;
  (void)tiny.run(tiny.config("run", and_more(kQad, {"--training.steps=3"})));
  std::istringstream lines(testing::read_file(tiny.folder("run") / "metrics" / "metrics.jsonl"));
  int steps = 0;
  for (std::string line; std::getline(lines, line); ++steps) {
    const Json values = Json::parse(line).at("objective");
    const double loss = Json::parse(line).at("loss").as_double();
    EXPECT_GT(values.at("divergence").as_double(), 0);
    EXPECT_NEAR(loss, 0.75 * values.at("divergence").as_double() + 0.25 * values.at("cross_entropy").as_double(), 1e-5);
  }
  EXPECT_EQ(steps, 3);
}

TEST(DistillationRun, ALossOnHiddenStatesDrawsThemTowardsTheTeachers) {
  const TinyRun tiny;
  const std::string teacher = save_teacher(tiny, "deep", {"--model.num_hidden_layers=3"});
  std::map<double, double> last;  // distance after the steps, by weight
  for (const double weight : {1e-6, 100.0}) {
    const std::string name = fmt::format("run{}", weight);
    (void)tiny.run(tiny.config(name, {"--distill.teacher=" + teacher, fmt::format("--distill.hidden.weight={}", weight),
                                      "--distill.ratio=0.75", "--training.steps=12", "--lr_schedule.name=constant"}));
    std::istringstream lines(testing::read_file(tiny.folder(name) / "metrics" / "metrics.jsonl"));
    for (std::string line; std::getline(lines, line);) {
      const Json record = Json::parse(line), values = record.at("objective");
      const double hidden = last[weight] = values.at("hidden_states").as_double();
      EXPECT_GT(hidden, 0);
      const double whole =
          0.75 * values.at("divergence").as_double() + 0.25 * values.at("cross_entropy").as_double() + weight * hidden;
      EXPECT_NEAR(record.at("loss").as_double(), whole, 1e-5 * whole);
    }
  }
  EXPECT_LT(last.at(100.0), 0.5 * last.at(1e-6));
}

// Before the first update copies equal their base; afterwards the teacher still has the base's head.
TEST(DistillationRun, TheBaseTeacherKeepsItsHeadNextToTrainedCopies) {
  const TinyRun tiny;
  const Options untied{"--model.tie_word_embeddings=false",
                       "--lora.rank=4",
                       "--lora.modules_to_save=[\"lm_head\"]",
                       "--recipe.name=bf16",
                       "--distill.ratio=0.5",
                       "--training.steps=3",
                       "--lr_schedule.name=constant"};
  (void)tiny.run(tiny.config("run", untied));
  std::istringstream lines(testing::read_file(tiny.folder("run") / "metrics" / "metrics.jsonl"));
  std::vector<double> divergences;
  for (std::string line; std::getline(lines, line);)
    divergences.push_back(Json::parse(line).at("objective").at("divergence").as_double());
  ASSERT_EQ(divergences.size(), 3u);
  EXPECT_NEAR(divergences[0], 0, 1e-6);
  EXPECT_GT(divergences[2], 1e-5);
}

TEST(DistillationRun, RefusesWhatCannotTeach) {
  const TinyRun tiny;
  const auto refused = [&](const Options& options) -> std::string {
    try {
      (void)tiny.run(tiny.config("refused", and_more({"--training.steps=1"}, options)));
    } catch (const Error& error) {
      return error.what();
    }
    return "not refused";
  };
  EXPECT_THAT(refused({"--distill.ratio=1"}), HasSubstr("distill.teacher"));
  EXPECT_THAT(refused({"--distill.ratio=1"}), HasSubstr("the student equals this teacher"));
  EXPECT_THAT(refused(and_more(kQad, {"--distill.teacher=base"})), HasSubstr("and the run has none"));
  EXPECT_THAT(refused(and_more(kQad, {"--distill.teacher=/nowhere"})), HasSubstr("/nowhere"));
  EXPECT_THAT(refused(and_more(kQad, {"--distill.beta=0.1"})), HasSubstr("jensen_shannon"));
  EXPECT_THAT(refused(and_more(kQad, {"--distill.teacher_weights=stored"})), HasSubstr("quantized folder"));
  EXPECT_THAT(refused(and_more(kQad, {"--lora.rank=4", "--distill.teacher_weights=nf4"})),
              HasSubstr("no second model"));
  EXPECT_THAT(refused(and_more(kQad, {"--lora.rank=4", "--distill.offload=true"})),
              ::testing::AllOf(HasSubstr("distill.offload"), HasSubstr("no second model")));
  EXPECT_THAT(refused(and_more(kQad, {"--distill.hidden.layers=[0]"})), HasSubstr("without distill.hidden.weight"));
  const auto hidden = [&](const Options& more) {
    return refused(and_more(and_more(kQad, {"--distill.hidden.weight=1"}), more));
  };
  EXPECT_THAT(hidden({"--distill.hidden.layers=[0,2]"}),
              ::testing::AllOf(HasSubstr("distill.hidden.layers"), HasSubstr("layer 2"), HasSubstr("0 to 1")));
  EXPECT_THAT(hidden({"--distill.hidden.layers=[1,1]"}), HasSubstr("layer 1 twice"));
  EXPECT_THAT(hidden({"--distill.hidden.teacher_layers=[0]"}),
              ::testing::AllOf(HasSubstr("distill.hidden.teacher_layers"), HasSubstr("1 layers of the teacher for 2")));
  EXPECT_THAT(hidden({"--distill.hidden.teacher_layers=[0,7]"}),
              ::testing::AllOf(HasSubstr("distill.hidden.teacher_layers"), HasSubstr("layer 7")));
  EXPECT_THAT(hidden({"--distill.targets=" + tiny.folder("targets").string()}), HasSubstr("no hidden states"));
  const std::string wide = save_teacher(tiny, "wide", {"--model.hidden_size=64"});
  EXPECT_THAT(hidden({"--distill.teacher=" + wide}),
              ::testing::AllOf(HasSubstr("distill.teacher"), HasSubstr("64"), HasSubstr("32")));
  const std::string other = save_teacher(tiny, "other", {"--model.vocab_size=72"});
  EXPECT_THAT(refused(and_more(kQad, {"--distill.teacher=" + other})),
              ::testing::AllOf(HasSubstr("distill.teacher"), HasSubstr("72"), HasSubstr("64")));
  EXPECT_THAT(refused(and_more(kQad, {"--distill.teacher=" + other, "--distill.teacher_weights=stored"})),
              HasSubstr("not quantized"));
}

}  // namespace
}  // namespace quench
