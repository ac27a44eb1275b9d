#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>

#include <tuple>

#include "distributed/communication_error.h"
#include "tests/distributed/ranks.h"

namespace quench::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class Group : public ::testing::TestWithParam<int> {};

TEST_P(Group, EveryCollectiveGivesWhatItsNameSays) {
  Ranks ranks(GetParam());
  ranks.start_all("collectives");
  ranks.expect_success();
}

TEST_P(Group, SumsAreExactAndTheSameEverywhere) {
  Ranks ranks(GetParam());
  ranks.start_all("exact_sums");
  ranks.expect_success();
}

TEST(MixedGpus, AreRefusedByNameOnEveryRank) {
  Ranks equal(2);
  equal.start_all("gpus", {"90", "90"});
  equal.expect_success();
  Ranks mixed(2);
  mixed.start_all("gpus", {"90", "80"});
  for (const ChildResult& result : mixed.wait()) {
    EXPECT_EQ(result.status, 1);
    for (const char* part :
         {"rank 0 has GPU of rank 0 (9.0)", "rank 1 has GPU of rank 1 (8.0)", "QUENCH_CUDA_CAPABILITY=8.0"})
      EXPECT_THAT(result.output, HasSubstr(part));
  }
}

TEST_P(Group, ManyOperationsAndTwoGroupsRunAtOnce) {
  Ranks ranks(GetParam());
  ranks.start_all("many_at_once");
  ranks.expect_success();
}

TEST_P(Group, PartsOfSequencesHaveTheGradientsOfWholeOnes) {
  for (const std::string model :
       {R"("model_type": "qwen3", "hidden_size": 24, "intermediate_size": 37, "num_attention_heads": 4,
           "num_key_value_heads": 2, "head_dim": 6)",
        R"("model_type": "gemma2", "hidden_size": 16, "intermediate_size": 20, "num_attention_heads": 4,
           "num_key_value_heads": 1, "head_dim": 6, "sliding_window": 5, "attn_logit_softcapping": 2)",
        R"("model_type": "gpt_oss", "hidden_size": 16, "intermediate_size": 20, "num_attention_heads": 4,
           "num_key_value_heads": 1, "head_dim": 6, "sliding_window": 5, "num_local_experts": 4,
           "num_experts_per_tok": 2)"}) {
    SCOPED_TRACE(model);
    Ranks ranks(GetParam());
    ranks.start_all("context", {model, "2e-6"});
    ranks.expect_success();
  }
}

// Every recipe that has codes, in both types, on uneven rows.
TEST_P(Group, GatheredCodesAreThoseOfTheWholeWeight) {
  for (const std::string recipe : {"float8_tensorwise", "float8_rowwise", "float8_rowwise_with_gw_hp"})
    for (const std::string dtype : {"f32", "bf16"}) {
      SCOPED_TRACE(recipe + " " + dtype);
      Ranks ranks(GetParam());
      ranks.start_all("codes", {recipe, dtype, "small"});
      ranks.expect_success();
    }
}

TEST_P(Group, PassesOverGatheredCodesAreThoseOverValues) {
  for (const std::string recipe : {"float8_tensorwise", "float8_rowwise", "float8_rowwise_with_gw_hp"}) {
    SCOPED_TRACE(recipe);
    Ranks ranks(GetParam());
    ranks.start_all("passes", {recipe});
    ranks.expect_success();
  }
}

TEST_P(Group, GatheredCodesOfLargeWeightsAreThoseOfTheWhole) {
  for (const std::string recipe : {"float8_tensorwise", "float8_rowwise"}) {
    SCOPED_TRACE(recipe);
    Ranks ranks(GetParam());
    ranks.start_all("codes", {recipe, "bf16", "large"});
    ranks.expect_success();
  }
}

// Chunks that are small travel together, those of each width: what is values of the dtype, f32 scales, codes.
TEST_P(Group, BasesInFewBitsAreThoseOfOneProcess) {
  for (const auto& [form, dtype, operations] : {std::tuple("nf4", "bf16", "2"),
                                                {"float8", "bf16", "3"},
                                                {"float8", "f32", "2"},
                                                {"i8", "bf16", "3"},
                                                {"i4", "bf16", "3"},
                                                {"f4_e2m1", "f32", "2"}}) {
    SCOPED_TRACE(fmt::format("{} {}", form, dtype));
    Ranks ranks(GetParam());
    ranks.start_all("base", {form, dtype, operations});
    ranks.expect_success();
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, Group, ::testing::Values(2, 3, 4));

// Where threads of all ranks share a core, none polls for the slice of time that another needs.
TEST(GroupOnOneCore, WaitsWithoutPolling) {
  cpu_set_t all, one;
  ASSERT_EQ(::sched_getaffinity(0, sizeof all, &all), 0);
  CPU_ZERO(&one);
  for (int core = 0; core < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++core)
    if (CPU_ISSET(core, &all)) CPU_SET(core, &one);
  const auto used = [] {
    rusage usage{};
    ::getrusage(RUSAGE_CHILDREN, &usage);
    return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           1e-6 * static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
  };
  const double before = used();
  Ranks ranks(2);
  ASSERT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
  ranks.start_all("passes", {"float8_tensorwise"});
  ::sched_setaffinity(0, sizeof all, &all);
  ranks.expect_success();
  // Half a second; seven seconds when Gloo's loop polls for locks.
  EXPECT_LT(used() - before, 3);
}

TEST(GroupOfSomeRanks, CommunicatesAlone) {
  Ranks ranks(4);
  ranks.start_all("halves");
  ranks.expect_success();
}

TEST(GroupFault, DifferentOperationsAreNamedOnBothSides) {
  Ranks ranks(3);
  ranks.start_all("mismatch", {"op"});
  for (const ChildResult& result : ranks.wait()) {
    EXPECT_EQ(result.status, 1);
    EXPECT_THAT(result.output, HasSubstr("the ranks do different things"));
    EXPECT_THAT(result.output, HasSubstr("all_reduce #1 of 'gradients' (sum, 4 f32)"));
    EXPECT_THAT(result.output, HasSubstr("broadcast #1 of 'weights' (4 f32)"));
  }
}

TEST(GroupFault, DifferentSizesAreNamed) {
  Ranks ranks(2);
  ranks.start_all("mismatch", {"count"});
  const std::vector<ChildResult> results = ranks.wait();
  EXPECT_EQ(results[0].status, 1);
  EXPECT_THAT(results[0].output, HasSubstr("rank 1 is at all_reduce #1 of 'gradients' (sum, 5 f32)"));
}

TEST(GroupFault, ARankThatEndsFailsTheOthersAtOnce) {
  Ranks ranks(3);
  ranks.start_all("dies");
  const std::vector<ChildResult> results = ranks.wait();
  EXPECT_EQ(results[1].status, 7);
  for (const int rank : {0, 2}) {
    const ChildResult& result = results[static_cast<std::size_t>(rank)];
    EXPECT_EQ(result.status, 1) << result.output;
    EXPECT_THAT(result.output, HasSubstr("all_reduce #2 of 'second' (sum, 1000 f32) in group 'all'"));
  }
}

TEST(GroupFault, ARankThatHangsIsNamedInTime) {
  const TempDir folder;
  ::setenv("QUENCH_TIMEOUT", "3", 1);
  ::setenv("TORCHELASTIC_ERROR_FILE", (folder / "error.json").c_str(), 1);
  Ranks ranks(3);
  ranks.start_all("hangs");
  ::unsetenv("QUENCH_TIMEOUT");
  ::unsetenv("TORCHELASTIC_ERROR_FILE");
  const auto begin = std::chrono::steady_clock::now();
  for (const int rank : {0, 2}) {
    const ChildResult result = ranks[rank].wait();
    EXPECT_EQ(result.status, 1);
    EXPECT_THAT(result.output, HasSubstr("all_reduce #2 of 'norms' (sum, 4 f32) in group 'all'"));
    EXPECT_THAT(result.output, HasSubstr(fmt::format("rank 1 (process {} on ", ranks[1].id())));
    EXPECT_THAT(result.output,
                HasSubstr("has not come to it: its last operation there was all_reduce #1 of 'first' (sum, 4 f32)"));
    EXPECT_THAT(read_file(folder / fmt::format("collectives-all-{}.json", rank)), HasSubstr("\"label\": \"norms\""));
    // The other may see its end before it has itself waited long enough for the hanging one.
    if (rank == 0) {
      EXPECT_THAT(result.output, HasSubstr("waiting for rank 1: nothing within 3 s"));
    }
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
  // The one that hangs has said what it did last as well.
  EXPECT_THAT(read_file(folder / "collectives-all-1.json"), HasSubstr("\"label\": \"first\""));
  ranks[1].kill(SIGKILL);
  EXPECT_THAT(ranks[1].wait().status, 137);
}

TEST(GroupFault, ARankThatDoesNotEvenAnswerIsNamed) {
  ::setenv("QUENCH_TIMEOUT", "2", 1);
  Ranks ranks(3);
  ranks.start_all("stops");
  ::unsetenv("QUENCH_TIMEOUT");
  const ChildResult result = ranks[0].wait();
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.output, HasSubstr("does not answer at all: it is stopped, or its machine is gone"));
  ranks[1].kill(SIGKILL);
}

TEST(GroupFaultSlow, AHangingRankEndsItself) {
  ::setenv("QUENCH_TIMEOUT", "2", 1);
  Ranks ranks(2);
  ranks.start_all("hangs");
  ::unsetenv("QUENCH_TIMEOUT");
  EXPECT_EQ(ranks[0].wait().status, 1);
  const ChildResult hanging = ranks[1].wait();
  EXPECT_EQ(hanging.status, distributed::kTimeoutStatus);
  EXPECT_THAT(hanging.output, HasSubstr("rank 1 hangs: it has not ended within 30 s of the end of the others"));
}

TEST(GroupFaultSlow, WithoutEndHangingProcessTheErrorReachesTheCaller) {
  ::setenv("QUENCH_TIMEOUT", "2", 1);
  ::setenv("QUENCH_TEST_KEEP_PROCESS", "1", 1);
  Ranks ranks(2);
  ranks.start_all("hangs", {"45"});  // the watchdog ends processes after 30 s
  ::unsetenv("QUENCH_TIMEOUT");
  ::unsetenv("QUENCH_TEST_KEEP_PROCESS");
  EXPECT_EQ(ranks[0].wait().status, 1);
  const ChildResult hanging = ranks[1].wait();
  EXPECT_EQ(hanging.status, 1) << hanging.output;
  EXPECT_THAT(hanging.output, AllOf(HasSubstr("error: "), HasSubstr("all_reduce #2 of 'norms' (sum, 4 f32)")));
  EXPECT_THAT(hanging.output, Not(HasSubstr("it has not ended within 30 s")));
}

// Whatever the operation and the moment, the others end soon and say in which group.
class DyingRank : public ::testing::TestWithParam<std::tuple<const char*, const char*>> {};

TEST_P(DyingRank, EndsTheOthers) {
  const auto& [operation, moment] = GetParam();
  Ranks ranks(3);
  const auto begin = std::chrono::steady_clock::now();
  ranks.start_all("dies_at", {operation, moment});
  const std::vector<ChildResult> results = ranks.wait();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(15));
  EXPECT_EQ(results[1].status, 7);
  for (const std::size_t rank : {0U, 2U}) {
    EXPECT_EQ(results[rank].status, 1) << results[rank].output;
    EXPECT_THAT(results[rank].output, HasSubstr("in group 'all' on rank"));
  }
}

INSTANTIATE_TEST_SUITE_P(AtEachMoment, DyingRank,
                         ::testing::Combine(::testing::Values("all_reduce", "all_gather", "reduce_scatter",
                                                              "all_to_all", "broadcast"),
                                            ::testing::Values("before", "inside", "behind")));

// A rank that throws where the others wait for it, and lives: its error is the one that all name, and no rank waits
// for the time limit.
TEST(GroupFault, ARankThatFailsInAGatherEndsTheOthersAtOnce) {
  for (const int victim : {0, 1, 2}) {
    Ranks ranks(3);
    const auto begin = std::chrono::steady_clock::now();
    ranks.start_all("fails_to_give", {std::to_string(victim)});
    const std::vector<ChildResult> results = ranks.wait();
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
    for (std::size_t rank = 0; rank < results.size(); ++rank) {
      EXPECT_EQ(results[rank].status, 1) << results[rank].output;
      EXPECT_THAT(results[rank].output, HasSubstr("expected a contiguous one")) << rank;
      const bool own = static_cast<int>(rank) == victim;
      EXPECT_THAT(results[rank].output, HasSubstr(own ? "error: all_gather of 'second' in group 'all': the tensor is"
                                                      : fmt::format("rank {} cannot gather second: ", victim)));
    }
  }
}

TEST(GroupFault, ARankKilledInAnOperationIsTheRootCauseAndARestartGoesThrough) {
  for (const std::string operation : {"all_gather", "reduce_scatter"}) {
    const std::string driver = "exec '" + group_driver_path() + "' ";
    Child launcher({program_path(), "run", "--nproc-per-node", "3", "--max-restarts", "1", "--restart-backoff", "0",
                    "--", "/bin/sh", "-c",
                    "[ $TORCHELASTIC_RESTART_COUNT = 1 ] && " + driver + "collectives; " + driver + "dies_at " +
                        operation + " killed"},
                   {});
    const auto begin = std::chrono::steady_clock::now();
    const ChildResult result = launcher.wait();
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
    EXPECT_EQ(result.status, 0) << result.output;
    const std::size_t cause = result.output.find("Root cause");
    ASSERT_NE(cause, std::string::npos) << result.output;
    EXPECT_EQ(result.output.find("Root cause", cause + 1), std::string::npos) << result.output;
    EXPECT_THAT(result.output.substr(cause), HasSubstr("rank      : 1 (local_rank: 1, node: 0)"));
    EXPECT_THAT(result.output.substr(cause), HasSubstr("exitcode  : 137"));
  }
}

TEST(GroupFault, DifferentConfigsArePrinted) {
  Ranks ranks(2);
  ranks.start_all("different_configs");
  for (const ChildResult& result : ranks.wait()) {
    EXPECT_EQ(result.status, 1);
    EXPECT_THAT(result.output, HasSubstr("rank 1 has another config than rank 0:\n  - lr = 1e-4\n  + lr = 2e-4"));
  }
}

TEST(GroupStart, ALateRankIsWaitedFor) {
  Ranks ranks(2);
  ranks.start(1, {group_driver_path(), "late"});
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  EXPECT_THAT(ranks[0].output(), ::testing::Not(HasSubstr("joined")));
  ranks.start(0, {group_driver_path(), "late"});
  ranks.expect_success();
}

TEST(GroupStart, AMissingRankIsNamed) {
  Ranks ranks(3);
  ::setenv("QUENCH_INIT_TIMEOUT", "1", 1);
  ranks.start(0, {group_driver_path(), "late"});
  ranks.start(2, {group_driver_path(), "late"});
  ::unsetenv("QUENCH_INIT_TIMEOUT");
  for (const ChildResult& result : ranks.wait()) {
    EXPECT_EQ(result.status, 1);
    EXPECT_THAT(result.output, HasSubstr("1 of 3 ranks did not come within 1 s: rank 1"));
  }
}

// Without a launcher the ranks tell each other.
TEST(GroupStart, ARankThatDiesBeforeAllHaveMetEndsTheOthersSoon) {
  Ranks ranks(3);
  for (const int rank : {0, 1}) ranks.start(rank, {group_driver_path(), "late"});  // rank 2 is still to come
  distributed::Store store({"127.0.0.1", ranks.port()}, distributed::store_secret(kTestToken, kTestJob),
                           std::chrono::seconds(5));
  for (const int rank : {0, 1})
    ASSERT_TRUE(store.wait(fmt::format("run/0/exchange/0/{}", rank), std::chrono::seconds(20)).has_value());
  const pid_t killed = ranks[1].id();
  ranks[1].kill(SIGKILL);
  const auto begin = std::chrono::steady_clock::now();
  const ChildResult result = ranks[0].wait();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.output, HasSubstr(fmt::format("rank 1 (process {} on ", killed)));
  EXPECT_THAT(result.output, HasSubstr("has ended"));
}

// The launcher says which rank's process has ended; that of a rank that has come ends with an alarm.
TEST(GroupStart, ARankWhoseProcessHasEndedIsNotWaitedFor) {
  Ranks ranks(3);
  for (const int rank : {0, 1}) ranks.start(rank, {group_driver_path(), "late"});
  distributed::Store store({"127.0.0.1", ranks.port()}, distributed::store_secret(kTestToken, kTestJob),
                           std::chrono::seconds(5));
  store.set(distributed::ended_rank_key(0), "2");
  const auto begin = std::chrono::steady_clock::now();
  for (const ChildResult& result : ranks.wait()) {
    EXPECT_EQ(result.status, 1);
    EXPECT_THAT(result.output, HasSubstr("rank 2 has ended with status 0 before all ranks had met"));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(15));
}

// A script of one launch may train several times; its ranks end at different times.
TEST(GroupStart, RanksMeetAgainInTheSameLaunch) {
  Ranks ranks(2);
  const std::string late = "'" + group_driver_path() + "' late";
  for (int rank = 0; rank < 2; ++rank)
    ranks.start(rank, {"/bin/sh", "-c", late + " && sleep 0." + std::to_string(rank) + " && " + late + " && " + late});
  ranks.expect_success();
}

TEST(GroupStart, TheSameRankTwiceIsRefused) {
  Ranks ranks(2);
  ranks.start(0, {group_driver_path(), "late"});
  ASSERT_TRUE([&] {
    distributed::Store store({"127.0.0.1", ranks.port()}, distributed::store_secret(kTestToken, kTestJob),
                             std::chrono::seconds(5));
    return store.wait("run/0/rank/0", std::chrono::seconds(20)).has_value();
  }());
  ranks.start(0, {group_driver_path(), "late"});
  const ChildResult second = ranks[1].wait();
  EXPECT_EQ(second.status, 1);
  EXPECT_THAT(second.output, HasSubstr("rank 0 exists twice: process"));
}

}  // namespace
}  // namespace quench::testing
