#include "distributed/environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "core/system/check.h"
#include "tests/testing.h"

namespace quench::distributed {
namespace {

using Variables = std::map<std::string, std::string>;
using ::testing::HasSubstr;

Environment read(const Variables& variables) {
  return read_environment([&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

std::string error_of(const Variables& variables) {
  try {
    read(variables);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::bad_config);
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return {};
}

const Variables kTorchrun = {{"RANK", "3"},
                             {"WORLD_SIZE", "4"},
                             {"LOCAL_RANK", "1"},
                             {"LOCAL_WORLD_SIZE", "2"},
                             {"MASTER_ADDR", "n0"},
                             {"MASTER_PORT", "29500"},
                             {"TORCHELASTIC_RUN_ID", "job"},
                             {"TORCHELASTIC_RESTART_COUNT", "2"}};
const Variables kSlurm = {{"SLURM_PROCID", "2"},
                          {"SLURM_NTASKS", "3"},
                          {"SLURM_LOCALID", "0"},
                          {"SLURM_NODEID", "1"},
                          {"SLURM_STEP_ID", "0"},
                          {"SLURM_JOB_ID", "77"},
                          {"SLURM_STEP_TASKS_PER_NODE", "2,1"},
                          {"SLURM_JOB_NODELIST", "n[07-09,12]"}};
const Variables kOpenMpi = {{"OMPI_COMM_WORLD_RANK", "1"},
                            {"OMPI_COMM_WORLD_SIZE", "2"},
                            {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                            {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                            {"PMIX_NAMESPACE", "123"}};

Variables with(Variables variables, const Variables& more) {
  for (const auto& [name, value] : more) variables[name] = value;
  return variables;
}

TEST(Environment, NothingMeansAlone) {
  const Environment alone = read({});
  EXPECT_FALSE(alone.is_distributed());
  EXPECT_EQ(alone.launcher, "");
}

TEST(Environment, OfTorchrunAndOurOwnLauncher) {
  const Environment environment = read(kTorchrun);
  EXPECT_EQ(environment.rank, 3);
  EXPECT_EQ(environment.world_size, 4);
  EXPECT_EQ(environment.local_rank, 1);
  EXPECT_EQ(environment.local_world_size, 2);
  EXPECT_EQ(environment.master_host, "n0");
  EXPECT_EQ(environment.master_port, 29500);
  EXPECT_EQ(environment.restart, 2);
  EXPECT_EQ(environment.job, "job");
  EXPECT_TRUE(environment.by_agent);
  EXPECT_FALSE(read(with(kTorchrun, {{"TORCHELASTIC_RUN_ID", ""}})).by_agent);
  EXPECT_FALSE(read(kSlurm).by_agent);
}

// torchrun's agent serves its own store at MASTER_PORT, and its counts of restarts may differ between nodes.
TEST(Environment, TorchrunsAgentKeepsItsPort) {
  const Variables agent = with(kTorchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "True"}});
  const int port = read(agent).master_port;
  EXPECT_GE(port, 20000);
  EXPECT_LE(port, 30000);
  EXPECT_EQ(read(agent).master_host, "n0");
  EXPECT_EQ(read(with(agent, {{"RANK", "0"}, {"TORCHELASTIC_RESTART_COUNT", "0"}})).master_port, port);
  EXPECT_NE(read(with(agent, {{"TORCHELASTIC_RUN_ID", "other"}})).master_port, port);
  EXPECT_NE(read(with(agent, {{"MASTER_PORT", "29501"}})).master_port, port);
  for (int own = 20000; own < 30000; ++own)
    ASSERT_NE(read(with(agent, {{"MASTER_PORT", std::to_string(own)}})).master_port, own);
  EXPECT_EQ(read(with(agent, {{"QUENCH_STORE", "n0:1"}})).master_port, 29500);
  EXPECT_EQ(read(with(kTorchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "False"}})).master_port, 29500);
  EXPECT_THAT(error_of(with(agent, {{"MASTER_PORT", "70000"}})), HasSubstr("MASTER_PORT is '70000'"));
}

TEST(Environment, OfSlurm) {
  const Environment environment = read(kSlurm);
  EXPECT_EQ(environment.rank, 2);
  EXPECT_EQ(environment.world_size, 3);
  EXPECT_EQ(environment.local_rank, 0);
  EXPECT_EQ(environment.local_world_size, 1);
  EXPECT_EQ(environment.master_host, "n07");
  EXPECT_GE(environment.master_port, 20000);
  EXPECT_LT(environment.master_port, 30000);
  Variables first = kSlurm;
  first["SLURM_PROCID"] = "0";
  first["SLURM_NODEID"] = "0";
  EXPECT_EQ(read(first).local_world_size, 2);
  EXPECT_EQ(read(first).master_port, environment.master_port) << "all ranks of a job derive the same port";
  // The batch script itself is no task of the job, and neither is a shell that has an allocation.
  Variables script = kSlurm;
  script.erase("SLURM_STEP_ID");
  EXPECT_FALSE(read(script).is_distributed());
}

// The interactive step of salloc is one task of an allocation of eight; a step may also have fewer than its job.
TEST(Environment, OfAStepOfSlurm) {
  const Variables interactive = {{"SLURM_NTASKS", "8"},           {"SLURM_STEP_NUM_TASKS", "1"},
                                 {"SLURM_PROCID", "0"},           {"SLURM_LOCALID", "0"},
                                 {"SLURM_STEP_ID", "4294967290"}, {"SLURM_JOB_ID", "77"},
                                 {"SLURM_NODEID", "0"},           {"SLURM_STEP_TASKS_PER_NODE", "1"},
                                 {"SLURM_NNODES", "2"},           {"SLURM_JOB_NODELIST", "n[07-08]"}};
  EXPECT_FALSE(read(interactive).is_distributed());
  EXPECT_EQ(read(with(kSlurm, {{"SLURM_NTASKS", "8"}, {"SLURM_STEP_NUM_TASKS", "3"}})).world_size, 3);
  EXPECT_THAT(error_of(with(kSlurm, {{"SLURM_STEP_NUM_TASKS", "2"}})),
              HasSubstr("SLURM_PROCID=2 is outside SLURM_STEP_NUM_TASKS=2"));
  EXPECT_THAT(error_of(with(kSlurm, {{"SLURM_STEP_NUM_TASKS", "x"}})), HasSubstr("SLURM_STEP_NUM_TASKS is 'x'"));
}

TEST(Environment, OfOpenMpi) {
  const Environment environment = read(kOpenMpi);
  EXPECT_EQ(environment.rank, 1);
  EXPECT_EQ(environment.world_size, 2);
  EXPECT_EQ(environment.master_host, "127.0.0.1") << "all ranks are on this machine";
  EXPECT_THAT(error_of(with(kOpenMpi, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "0"}})),
              HasSubstr("set MASTER_ADDR to the name of rank 0's machine"));
  // mpirun's daemons are tasks of Slurm: those counts are not the ranks'.
  EXPECT_EQ(read(with(kSlurm, kOpenMpi)).rank, 1);
}

TEST(Environment, OfAnAgentInATaskOfSlurm) {
  EXPECT_EQ(read(with(kSlurm, kTorchrun)).rank, 3);
}

TEST(Environment, ContradictionsAreErrors) {
  const Variables by_hand = {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "0"}};
  EXPECT_THAT(error_of(with(kSlurm, by_hand)),
              HasSubstr("RANK=0 and WORLD_SIZE=2, but SLURM_PROCID=2 and SLURM_NTASKS=3"));
  EXPECT_THAT(error_of({{"RANK", "0"}}), HasSubstr("has RANK but not WORLD_SIZE"));
  EXPECT_THAT(error_of({{"WORLD_SIZE", "2"}}), HasSubstr("has WORLD_SIZE but not RANK"));
  EXPECT_THAT(error_of(with(kTorchrun, {{"RANK", "4"}})), HasSubstr("RANK=4 is outside WORLD_SIZE=4"));
  EXPECT_THAT(error_of(with(kTorchrun, {{"RANK", "two"}})), HasSubstr("RANK is 'two', expected a number"));
  EXPECT_THAT(error_of(with(kTorchrun, {{"LOCAL_RANK", "2"}})), HasSubstr("LOCAL_RANK=2 of 2 ranks on this machine"));
  EXPECT_THAT(error_of(with(kTorchrun, {{"MASTER_ADDR", ""}})), HasSubstr("set MASTER_ADDR"));
  EXPECT_THAT(error_of(with(kTorchrun, {{"MASTER_PORT", "70000"}})), HasSubstr("MASTER_PORT is '70000'"));
}

TEST(Environment, TheTokenMayStandInAFile) {
  const quench::testing::TempDir folder;
  quench::testing::write_file(folder / "token", "secret\n");
  EXPECT_EQ(read(with(kTorchrun, {{"QUENCH_RDZV_TOKEN_FILE", (folder / "token").string()}})).token, "secret");
  EXPECT_EQ(read(with(kTorchrun, {{"QUENCH_RDZV_TOKEN", "direct"}})).token, "direct");
}

TEST(Slurm, CompressedLists) {
  EXPECT_EQ(first_host("n1"), "n1");
  EXPECT_EQ(first_host("n1,n2"), "n1");
  EXPECT_EQ(first_host("n[03-05,9],m1"), "n03");
  EXPECT_EQ(first_host("a1,n[1-2]"), "a1");
  EXPECT_EQ(first_host("rack[1-2]-gpu,x"), "rack1-gpu");
  EXPECT_EQ(first_host(""), "");
  for (const auto& [node, count] : {std::pair{0, 2}, {2, 2}, {3, 1}, {4, 8}, {5, 0}})
    EXPECT_EQ(count_of_node("2(x3),1,8", node), count) << node;
}

}  // namespace
}  // namespace quench::distributed
