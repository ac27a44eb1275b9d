// Runs from stored targets: equality with the teacher, order of data, resumption, kills, and what is refused.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/safetensors/safetensors.h"
#include "data/formats/content_hash.h"
#include "tests/train/run/same_tensors.h"
#include "tests/train/run/trainer_fixture.h"
#include "train/config/presets.h"
#include "train/objectives/distillation/distill_section.h"
#include "train/objectives/distillation/run/target_setup.h"

namespace quench {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::TinyRun;
using Options = std::vector<std::string>;

// Without fake quantization: a code that a rounding turns changes later losses by more than any tolerance.
const Options kStudent{"--recipe.name=bf16", "--distill.ratio=0.75", "--training.steps=4",
                       "--lr_schedule.decay_steps=4"};

class StoredTargetsRun : public ::testing::Test {
 protected:
  [[nodiscard]] Options stored(const Options& more = {}, const std::string& folder = "targets") const {
    Options all = kStudent;
    all.push_back("--distill.targets=" + tiny_.folder(folder).string());
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  // Targets of the config "made" with these options, before its targets exist.
  MakeTargetsReport make(const Options& options, const MakeTargetsOptions& how = {}) const {
    Options all = options;
    const std::string prefix = "--distill.targets=";
    std::string folder;
    std::erase_if(all, [&](const std::string& option) {
      if (!option.starts_with(prefix)) return false;
      folder = option.substr(prefix.size());
      return true;
    });
    std::erase_if(all, [](const std::string& option) {
      return option.starts_with("--distill.top_k") || option.starts_with("--distill.targets_dtype");
    });
    RunConfig config = tiny_.config("made", all);
    distill_section(config)->targets = folder;
    for (const std::string& option : options) {
      if (option.starts_with("--distill.top_k=")) distill_section(config)->top_k = std::stoll(option.substr(16));
      if (option == "--distill.targets_dtype=f32") distill_section(config)->targets_dtype = DType::f32;
    }
    return make_targets(config, Device{}, distributed::Ranks::single(), how);
  }
  std::vector<double> train(const std::string& name, const Options& options) const {
    (void)tiny_.run(tiny_.config(name, options));
    std::vector<double> losses;
    for (const std::string& line : tiny_.losses(name)) losses.push_back(std::stod(line.substr(line.find(':') + 1)));
    return losses;
  }
  [[nodiscard]] std::string refused(const Options& options) const {
    try {
      (void)tiny_.run(tiny_.config("refused", options));
    } catch (const Error& error) {
      return error.what();
    }
    return "not refused";
  }
  [[nodiscard]] std::vector<std::filesystem::path> shards() const {
    std::vector<std::filesystem::path> files;
    for (const auto& entry : std::filesystem::directory_iterator(tiny_.folder("targets")))
      if (entry.path().extension() == ".safetensors") files.push_back(entry.path());
    std::ranges::sort(files);
    return files;
  }
  // Shards that do not name what they belong to.
  void remove_names() const {
    for (const std::filesystem::path& file : shards()) {
      std::vector<std::vector<std::byte>> bytes;
      std::vector<SafetensorsItem> items;
      const SafetensorsReader reader(file);
      for (const SafetensorsEntry& entry : reader.header().entries) {
        reader.read(entry, bytes.emplace_back(entry.nbytes()));
        items.push_back({.name = entry.name, .dtype = *entry.dtype, .shape = entry.shape, .data = bytes.back()});
      }
      write_safetensors(file, items, {{"format", "quench_targets"}});
    }
  }
  TinyRun tiny_;
};

TEST_F(StoredTargetsRun, AllTokensTrainAsTheTeacherDoes) {
  int number = 0;
  for (const Options& way : std::vector<Options>{{},
                                                 {"--distill.loss=reverse_kl", "--distill.temperature=2"},
                                                 {"--distill.loss=jensen_shannon", "--distill.beta=0.3"},
                                                 {"--data.multipack=true", "--training.micro_batch_size=1"},
                                                 {"--lora.rank=4", "--training.loss_chunk_size=7"},
                                                 {"--recipe.name=qat_int4_weight_only", "--recipe.group_size=16",
                                                  "--training.steps=1", "--lr_schedule.decay_steps=1"}}) {
    SCOPED_TRACE(::testing::PrintToString(way));
    Options online = kStudent;
    online.insert(online.end(), way.begin(), way.end());
    const std::string folder = fmt::format("targets{}", number);
    Options options = stored(way, folder);
    options.insert(options.end(), {"--distill.top_k=64", "--distill.targets_dtype=f32"});
    (void)make(options);
    const std::vector<double> losses = train(fmt::format("stored{}", number), options),
                              wanted = train(fmt::format("online{}", number), online);
    ++number;
    ASSERT_EQ(losses.size(), wanted.size());
    for (std::size_t i = 0; i < losses.size(); ++i)
      EXPECT_NEAR(losses[i], wanted[i], (i == 0 ? 1e-6 : 1e-5) * wanted[i]) << "step " << i + 1;
  }
}

TEST_F(StoredTargetsRun, OrderMicroBatchesAndResumptionChangeNothing) {
  const Options options = stored({"--distill.top_k=5", "--checkpoint.interval=2"});
  const MakeTargetsReport report = make(options);
  EXPECT_EQ(report.rows, 16u);
  EXPECT_GT(report.targets, 0u);
  (void)train("whole", options);
  Options half = options;
  half.push_back("--training.steps=2");
  (void)train("rest", half);
  (void)train("rest", options);
  EXPECT_EQ(tiny_.losses("rest"), tiny_.losses("whole"));
  testing::expect_same_tensors(tiny_.checkpoint("rest", 4), tiny_.checkpoint("whole", 4));
  Options single = options;
  single.push_back("--training.micro_batch_size=1");
  const std::vector<double> one = train("single", single), two = train("two", options);
  for (std::size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(one[i], two[i], 1e-5 * two[i]);
}

TEST_F(StoredTargetsRun, AnUnfinishedFolderGoesOn) {
  const Options options = stored({"--distill.top_k=5"});
  int calls = 0;
  const MakeTargetsReport stopped =
      make(options, {.max_shard_targets = 40, .watch_stop = [&] { return [&] { return ++calls == 3 ? 15 : 0; }; }});
  EXPECT_EQ(stopped.stop_signal, 15);
  EXPECT_THAT(refused(options), AllOf(HasSubstr("6 of the 16 sequences"), HasSubstr("quench distill-targets")));
  const MakeTargetsReport rest = make(options, {.max_shard_targets = 40});
  EXPECT_EQ(rest.kept, 6u);
  EXPECT_EQ(rest.rows, 16u);
  EXPECT_EQ(make(options).targets, 0u);
  const std::vector<double> losses = train("stopped", options);
  const Options at_once = stored({"--distill.top_k=5"}, "at_once");
  EXPECT_EQ(make(at_once).targets, stopped.targets + rest.targets);
  EXPECT_EQ(train("at_once_run", at_once), losses);
  // More steps read more sequences.
  Options longer = options;
  longer.push_back("--training.steps=6");
  EXPECT_THAT(refused(longer), HasSubstr("16 of the 24 sequences"));
  EXPECT_EQ(make(longer).kept, 16u);
  EXPECT_EQ(train("longer", longer).size(), 6u);
}

// A removed shard is computed again, next to the others.
TEST_F(StoredTargetsRun, AGapBetweenShardsIsFilledAndNothingElseReplaced) {
  const Options options = stored({"--distill.top_k=5"});
  (void)make(options, {.max_shard_targets = 40});
  const std::vector<std::filesystem::path> before = shards();
  ASSERT_GT(before.size(), 3u);
  std::vector<std::string> kept;
  for (const auto& file : before) kept.push_back(testing::read_file(file));
  std::filesystem::remove(before.front());
  Options longer = options;
  longer.push_back("--training.steps=6");
  const MakeTargetsReport report = make(longer, {.max_shard_targets = 40});
  EXPECT_EQ(report.rows, 24u);
  EXPECT_LT(report.kept, 16u);
  for (std::size_t i = 1; i < before.size(); ++i) EXPECT_EQ(testing::read_file(before[i]), kept[i]) << before[i];
  EXPECT_EQ(make(longer).targets, 0u);
  EXPECT_EQ(train("longer", longer).size(), 6u);
}

TEST_F(StoredTargetsRun, RefusesTargetsOfAnotherTeacher) {
  const Options options = stored({"--distill.top_k=5"});
  (void)make(options);
  Options other = options;
  other.push_back("--training.seed=43");  // other initial weights
  EXPECT_THAT(refused(other), AllOf(HasSubstr("distill.teacher"), HasSubstr("has weights of hash"),
                                    HasSubstr("name a new folder in distill.targets")));
}

// Rows of two teachers agree in all but their values.
TEST_F(StoredTargetsRun, AShardOfAnotherTeacherIsNamed) {
  const Options options = stored({"--distill.top_k=5"});
  (void)make(options, {.max_shard_targets = 200});
  const std::vector<std::filesystem::path> own = shards();
  ASSERT_GT(own.size(), 1u);
  const std::filesystem::path folder = tiny_.folder("targets");
  const std::string bytes = testing::read_file(own[1]);
  Options other = stored({"--distill.top_k=5", "--training.seed=43"}, "others");
  (void)make(other, {.max_shard_targets = 200});
  const auto expect_named = [&](const std::filesystem::path& shard) {
    EXPECT_THAT(refused(options), AllOf(HasSubstr(shard.filename().string()), HasSubstr("its targets are not those"),
                                        HasSubstr("quench distill-targets")));
    std::filesystem::remove_all(tiny_.folder("refused"));
  };
  // Copied in over one of its own, and next to them.
  std::filesystem::copy_file(tiny_.folder("others") / own[1].filename(), own[1],
                             std::filesystem::copy_options::overwrite_existing);
  expect_named(own[1]);
  testing::write_file(own[1], bytes);
  std::filesystem::copy_file(tiny_.folder("others") / own[0].filename(), folder / "targets-001-00000.safetensors");
  expect_named("targets-001-00000.safetensors");
  std::filesystem::remove(folder / "targets-001-00000.safetensors");
  EXPECT_EQ(train("own", options).size(), 4u);
  // Without targets.json, this teacher's record is not made of the other's shards.
  std::filesystem::remove(tiny_.folder("others") / std::string(kTargetsFile));
  try {
    (void)make(stored({"--distill.top_k=5"}, "others"));
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr("targets-000-00000.safetensors"), HasSubstr("its targets are not those")));
  }
  // Nor of shards that name no teacher.
  remove_names();
  expect_named(own[0]);
}

// A longer context changes nothing that a teacher computes.
TEST_F(StoredTargetsRun, KeysThatChangeNoLogitsAreFree) {
  const Options options = stored({"--distill.top_k=5"});
  (void)make(options);
  Options longer = options;
  longer.push_back("--model.max_position_embeddings=96");
  EXPECT_EQ(train("longer", longer).size(), 4u);
  Options other = options;
  other.push_back("--model.rope_theta=500");
  EXPECT_THAT(refused(other), HasSubstr("has weights of hash"));
}

TEST_F(StoredTargetsRun, RefusesTurnedBits) {
  for (const std::string dtype : {"f16", "f32"}) {
    const Options options = stored({"--distill.top_k=5", "--distill.targets_dtype=" + dtype}, "targets");
    (void)make(options);
    const std::filesystem::path file = shards().front();
    std::string bytes = testing::read_file(file);
    std::uint64_t begin = 0;
    {
      const SafetensorsReader reader(file);
      std::uint64_t stored_bytes = 0;
      for (const SafetensorsEntry& entry : reader.header().entries) stored_bytes += entry.nbytes();
      begin = bytes.size() - stored_bytes;
      ASSERT_EQ(reader.at("log_probs").dtype, dtype == "f16" ? DType::f16 : DType::f32);
    }
    const std::string intact = bytes;
    int accepted = 0;
    for (std::uint64_t at = begin; at < bytes.size(); at += (bytes.size() - begin) / 7) {
      bytes = intact;
      bytes[at] = static_cast<char>(bytes[at] ^ 1);
      testing::write_file(file, bytes);
      const std::string answer = refused(options);
      accepted += answer == "not refused" ? 1 : 0;
      std::filesystem::remove_all(tiny_.folder("refused"));
    }
    EXPECT_EQ(accepted, 0);
    std::filesystem::remove_all(tiny_.folder("targets"));
  }
}

TEST_F(StoredTargetsRun, RefusesTargetsOfSomethingElse) {
  const Options options = stored({"--distill.top_k=5"});
  EXPECT_THAT(refused(options), AllOf(HasSubstr("distill.targets"), HasSubstr("quench distill-targets")));
  (void)make(options);
  const auto with = [&](const Options& more) {
    Options all = options;
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  EXPECT_THAT(refused(with({"--data.seq_len=20"})), AllOf(HasSubstr("data.seq_len"), HasSubstr("24")));
  EXPECT_THAT(refused(with({"--data.multipack=true"})), HasSubstr("data.multipack"));
  EXPECT_THAT(refused(with({"--data.tokenizer=bytes", "--model.vocab_size=300"})), HasSubstr("data.tokenizer"));
  EXPECT_THAT(refused(with({"--model.vocab_size=72"})), HasSubstr("model.vocab_size"));
  EXPECT_THAT(refused(with({"--distill.temperature=2"})), HasSubstr("distill.temperature"));
  EXPECT_THAT(refused(with({"--distill.top_k=6"})), HasSubstr("distill.top_k"));
  EXPECT_THAT(refused({"--distill.ratio=0.75", "--distill.top_k=6"}), HasSubstr("without distill.targets"));
  EXPECT_THROW((void)make(with({"--training.seed=43"})), Error);  // another teacher
  const std::string bytes = testing::read_file(shards().front());
  testing::write_file(shards().front(), bytes.substr(0, bytes.size() - 3));
  EXPECT_THAT(refused(options),
              AllOf(HasSubstr("targets-000-00000.safetensors"), HasSubstr("`quench distill-targets` computes")));
  testing::write_file(shards().front(), bytes);
  const std::filesystem::path record = shards().front().parent_path() / kTargetsFile;
  const std::string json = testing::read_file(record);
  testing::write_file(record, json.substr(0, json.size() / 2));
  EXPECT_THAT(refused(options), AllOf(HasSubstr("targets.json"), HasSubstr("run `quench distill-targets` again")));
  testing::write_file(record, json);
  EXPECT_THAT(refused(with({"--distill.targets=" + record.string()})),
              AllOf(HasSubstr("distill.targets"), HasSubstr("is a file; name a folder")));
  // Other tokens under the same name.
  ShardWriter writer(tiny_.folder("train.bin"), {.vocab_size = 64, .eos_id = 0});
  for (int document = 0; document < 300; ++document) {
    writer.append(std::vector<std::int32_t>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 0});
    writer.end_document();
  }
  writer.finish();
  EXPECT_THAT(refused(options), AllOf(HasSubstr("data.train"), HasSubstr("other data")));
}

}  // namespace
}  // namespace quench
