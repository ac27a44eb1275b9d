// One rank of the tests of groups: group_driver SCENARIO OPTION...   Ends with status 0 when everything was as
// expected, else with 1 and a message.

#include <signal.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "core/number/random.h"
#include "core/system/log.h"
#include "distributed/equal_gpus.h"
#include "distributed/group_timeouts.h"
#include "distributed/world.h"
#include "tests/distributed/context_pass.h"
#include "tests/distributed/failing_gather.h"
#include "tests/distributed/gathered_base.h"
#include "tests/distributed/gathered_codes.h"
#include "tests/distributed/pipeline/pipeline_pass.h"
#include "tests/distributed/short_training.h"
#include "tests/distributed/tensor_pass.h"

namespace quench::distributed {
namespace {

using Options = std::vector<std::string>;

void expect(bool holds, const std::string& what) {
  QUENCH_CHECK_AS(ErrorCode::failed, holds, "{}", what);
}

// The value of element i of rank r's tensor: small whole numbers, so that sums are exact in every dtype.
float value_of(int rank, std::int64_t i) {
  return static_cast<float>((i * 7 + rank * 3) % 16);
}

template <class T>
Tensor tensor_of(int rank, std::int64_t count) {
  Tensor tensor = Tensor::empty({count}, dtype_of<T>);
  for (std::int64_t i = 0; i < count; ++i) tensor.data<T>()[i] = static_cast<T>(value_of(rank, i));
  return tensor;
}

template <class T>
void expect_values(const Tensor& tensor, const std::function<float(std::int64_t)>& expected, const std::string& what) {
  const T* values = tensor.data<T>();
  for (std::int64_t i = 0; i < tensor.numel(); ++i)
    if (values[i] != static_cast<T>(expected(i)))
      QUENCH_FAIL(ErrorCode::failed, "{}, element {} of {}: {} instead of {}", what, i, tensor.numel(),
                  static_cast<double>(values[i]), expected(i));
}

float reduced(int size, std::int64_t i, ReduceOp op) {
  float result = value_of(0, i);
  for (int rank = 1; rank < size; ++rank) {
    const float next = value_of(rank, i);
    result = op == ReduceOp::sum   ? result + next
             : op == ReduceOp::max ? std::max(result, next)
                                   : std::min(result, next);
  }
  return result;
}

template <class T>
void numbers(ProcessGroup& group, std::int64_t count) {
  const int rank = group.rank(), size = group.size();
  for (const ReduceOp op : {ReduceOp::sum, ReduceOp::max, ReduceOp::min}) {
    const Tensor all = tensor_of<T>(rank, count);
    group.all_reduce(all, op, "values").wait();
    expect_values<T>(
        all, [&](std::int64_t i) { return reduced(size, i, op); }, "all_reduce");
    const Tensor whole = tensor_of<T>(rank, count * size), part = Tensor::empty({count}, dtype_of<T>);
    group.reduce_scatter(whole, part, op, "values").wait();
    const auto expected = [&](std::int64_t i) { return reduced(size, i + rank * count, op); };
    expect_values<T>(part, expected, "reduce_scatter");
    group.reduce_scatter(whole, whole.narrow(0, rank * count, count), op, "values").wait();
    expect_values<T>(whole.narrow(0, rank * count, count), expected, "reduce_scatter in place");
  }
}

template <class T>
void moves(ProcessGroup& group, std::int64_t count) {
  const int rank = group.rank(), size = group.size();
  const Tensor local = tensor_of<T>(rank, count), whole = Tensor::empty({count * size}, dtype_of<T>);
  const auto of_all = [&](std::int64_t i) { return value_of(static_cast<int>(i / count), i % count); };
  group.all_gather(local, whole, "values").wait();
  expect_values<T>(whole, of_all, "all_gather");
  whole.narrow(0, rank * count, count).copy_from(local);
  group.all_gather(whole.narrow(0, rank * count, count), whole, "values").wait();
  expect_values<T>(whole, of_all, "all_gather in place");

  const Tensor parts = tensor_of<T>(rank, count * size), exchanged = Tensor::empty({count * size}, dtype_of<T>);
  group.all_to_all(parts, exchanged, "values").wait();
  expect_values<T>(
      exchanged, [&](std::int64_t i) { return value_of(static_cast<int>(i / count), rank * count + i % count); },
      "all_to_all");

  for (int root = 0; root < size; ++root) {
    const Tensor sent = tensor_of<T>(rank, count);
    group.broadcast(sent, root, "values").wait();
    expect_values<T>(
        sent, [&](std::int64_t i) { return value_of(root, i); }, "broadcast");
  }

  const int next = (rank + 1) % size, before = (rank + size - 1) % size;
  const Tensor received = Tensor::empty({count}, dtype_of<T>);
  const auto send = [&] { group.send(local, next, "values").wait(); };
  // One rank of a ring receives first.
  if (rank != 0) send();
  group.recv(received, before, "values").wait();
  if (rank == 0) send();
  expect_values<T>(
      received, [&](std::int64_t i) { return value_of(before, i); }, "send and recv");
}

// Rank i sends rank j (i + 2 j) elements.
void uneven_exchange(ProcessGroup& group) {
  const int rank = group.rank(), size = group.size();
  std::vector<std::int64_t> sent, received;
  std::int64_t input_count = 0, output_count = 0;
  for (int peer = 0; peer < size; ++peer) {
    input_count += sent.emplace_back(rank == 1 && peer == 0 ? 0 : rank + 2 * peer);
    output_count += received.emplace_back(peer == 1 && rank == 0 ? 0 : peer + 2 * rank);
  }
  const Tensor input = tensor_of<float>(rank, input_count), output = Tensor::empty({output_count}, DType::f32);
  group.all_to_all(input, output, sent, received, "tokens").wait();
  std::int64_t at = 0;
  for (int peer = 0; peer < size; ++peer) {
    std::int64_t from = 0;
    for (int j = 0; j < rank; ++j) from += peer == 1 && j == 0 ? 0 : peer + 2 * j;
    for (std::int64_t i = 0; i < received[static_cast<std::size_t>(peer)]; ++i)
      expect(output.data<float>()[at++] == value_of(peer, from + i), "all_to_all with counts");
  }
}

void collectives(World& world, const Options&) {
  ProcessGroup& group = world.all();
  // From nothing to several segments; odd, so that parts are unequal.
  for (const std::int64_t count : {0, 1, 5, 4099, 700'001}) {
    if (count > 0) numbers<float>(group, count);
    moves<float>(group, std::max<std::int64_t>(count, 1));
    if (count > 5000) continue;
    numbers<bfloat16>(group, count);
    numbers<double>(group, count);
    numbers<std::int64_t>(group, count);
    moves<bfloat16>(group, std::max<std::int64_t>(count, 1));
    moves<std::uint8_t>(group, std::max<std::int64_t>(count, 1));
  }
  uneven_exchange(group);
  group.barrier("the end");
}

// Sums of bf16 values that rounding after every addition would get wrong; equal bits on all ranks and at all places.
void exact_sums(World& world, const Options&) {
  const int size = world.size();
  const Tensor sums = Tensor::empty({1 << 15}, DType::bf16);
  for (std::int64_t i = 0; i < sums.numel(); ++i)
    sums.data<bfloat16>()[i] = bfloat16(world.rank() == 0 ? 256.0F : 1.0F);
  world.all().all_reduce(sums, ReduceOp::sum, "sums").wait();
  const bfloat16 expected(256.0F + static_cast<float>(size - 1));
  for (std::int64_t i = 0; i < sums.numel(); ++i)
    expect(sums.data<bfloat16>()[i].bits == expected.bits, "bf16 is summed in f32");
  // The same f32 values alone, in a small tensor and in a large one.
  const auto noise = [&](int rank) { return std::ldexp(1.0F + 0.1F * static_cast<float>(rank), rank * 3); };
  float alone = noise(0);
  for (int rank = 1; rank < size; ++rank) alone += noise(rank);
  for (const std::int64_t count : {1, 1000, 300'000}) {
    const Tensor tensor = Tensor::empty({count}, DType::f32);
    for (std::int64_t i = 0; i < count; ++i) tensor.data<float>()[i] = noise(world.rank());
    world.all().all_reduce(tensor, ReduceOp::sum, "noise").wait();
    expect_values<float>(
        tensor, [&](std::int64_t) { return alone; }, "sum");
  }
}

// Calls return at once, in any number, and two groups do not wait for each other.
void many_at_once(World& world, const Options&) {
  std::vector<int> backwards;
  for (int rank = world.size(); rank-- > 0;) backwards.push_back(rank);
  const std::unique_ptr<ProcessGroup> other = world.make_group("backwards", backwards);
  expect(other->rank() == world.size() - 1 - world.rank(), "ranks of a group are places in its list");
  std::vector<Tensor> tensors;
  std::vector<Work> works;
  for (int i = 0; i < 200; ++i) {
    tensors.push_back(Tensor::empty({64}, DType::f32));
    std::fill_n(tensors.back().data<float>(), 64, static_cast<float>(i));
    ProcessGroup& group = i % 2 == 0 ? world.all() : *other;
    works.push_back(group.all_reduce(tensors.back(), ReduceOp::sum, fmt::format("tensor {}", i)));
  }
  for (std::size_t i = works.size(); i-- > 0;) works[i].wait();
  for (std::size_t i = 0; i < works.size(); ++i)
    expect(tensors[i].data<float>()[63] == static_cast<float>(i) * static_cast<float>(world.size()), "many at once");
  expect(world.all().log().last_finished() == 100, "the log has counted");
}

// Compute capability of rank r's GPU: option r.
void gpus(World& world, const Options& options) {
  const int capability = std::stoi(options[static_cast<std::size_t>(world.rank())]);
  require_equal_gpus(world.all(), {fmt::format("GPU of rank {}", world.rank()), {capability, capability}});
}

// Groups of part of the ranks.
void halves(World& world, const Options&) {
  std::vector<int> mine;
  for (int rank = world.rank() % 2; rank < world.size(); rank += 2) mine.push_back(rank);
  const auto group = world.make_group(fmt::format("half {}", world.rank() % 2), mine);
  const Tensor tensor = Tensor::empty({1}, DType::i64);
  *tensor.data<std::int64_t>() = world.rank();
  group->all_reduce(tensor, ReduceOp::sum, "rank").wait();
  std::int64_t expected = 0;
  for (const int rank : mine) expected += rank;
  expect(*tensor.data<std::int64_t>() == expected, "sum over half of the ranks");
}

// Rank 1 calls something else.
void mismatch(World& world, const Options& options) {
  const Tensor tensor = Tensor::zeros({world.rank() == 1 && options[0] == "count" ? 5 : 4}, DType::f32);
  if (world.rank() == 1 && options[0] == "op")
    world.all().broadcast(tensor, 0, "weights").wait();
  else
    world.all().all_reduce(tensor, ReduceOp::sum, "gradients").wait();
}

// Rank 1 ends in the middle.
void dies(World& world, const Options&) {
  const Tensor tensor = Tensor::zeros({1000}, DType::f32);
  world.all().all_reduce(tensor, ReduceOp::sum, "first").wait();
  if (world.rank() == 1) ::_exit(7);
  world.all().all_reduce(tensor, ReduceOp::sum, "second").wait();
}

// Rank 1 comes after 60 s; or [SECONDS].
void hangs(World& world, const Options& options) {
  const Tensor tensor = Tensor::zeros({4}, DType::f32);
  world.all().all_reduce(tensor, ReduceOp::sum, "first").wait();
  if (world.rank() == 1)
    std::this_thread::sleep_for(std::chrono::seconds(options.empty() ? 60 : std::stoi(options[0])));
  world.all().all_reduce(tensor, ReduceOp::sum, "norms").wait();
}

// Rank 1 stops: it does not even answer.
void stops(World& world, const Options&) {
  const Tensor tensor = Tensor::zeros({4}, DType::f32);
  world.all().all_reduce(tensor, ReduceOp::sum, "first").wait();
  if (world.rank() == 1) std::raise(SIGSTOP);
  world.all().all_reduce(tensor, ReduceOp::sum, "norms").wait();
}

// Starts the operation of that name, with 4 MiB from each rank.
Work start_operation(ProcessGroup& group, const std::string& name) {
  constexpr std::int64_t kCount = std::int64_t{1} << 20;
  const Tensor local = Tensor::zeros({kCount}, DType::f32), whole = Tensor::zeros({kCount * group.size()}, DType::f32);
  const Tensor output = Tensor::zeros({kCount * group.size()}, DType::f32);
  if (name == "all_reduce") return group.all_reduce(local, ReduceOp::sum, "tensor");
  if (name == "all_gather") return group.all_gather(local, whole, "tensor");
  if (name == "reduce_scatter") return group.reduce_scatter(whole, local, ReduceOp::sum, "tensor");
  if (name == "all_to_all") return group.all_to_all(whole, output, "tensor");
  QUENCH_CHECK(name == "broadcast", "no operation {}", name);
  return group.broadcast(local, 1, "tensor");
}

// Rank 1 ends before, inside or after an operation.
void dies_at(World& world, const Options& options) {
  const auto end = [&](const char* moment) {
    if (world.rank() == 1 && options[1] == moment) ::_exit(7);
  };
  world.all().barrier("first");
  end("before");
  Work work = start_operation(world.all(), options[0]);
  std::this_thread::sleep_for(std::chrono::microseconds(500));
  if (world.rank() == 1 && options[1] == "killed") ::kill(::getpid(), SIGKILL);
  end("inside");
  work.wait();
  end("behind");
  world.all().barrier("last");
}

void different_configs(World& world, const Options&) {
  world.require_equal("config", fmt::format("steps = 10\nlr = {}\nseed = 1", world.rank() == 1 ? "2e-4" : "1e-4"));
}

// Weights of float8 layers travel as codes: RECIPE DTYPE SIZE.
void codes(const std::shared_ptr<World>& world, const Options& options) {
  const Ranks ranks = make_ranks(world, {.shard = world->size()});
  testing::GatheredCodes test{.recipe = options[0], .dtype = options[1] == "bf16" ? DType::bf16 : DType::f32};
  // Rows that no number of processes divides; or chunks that travel alone.
  test.sizes = options[2] == "large"
                   ? R"("hidden_size": 1024, "intermediate_size": 2049, "num_attention_heads": 8)"
                   : R"("hidden_size": 24, "intermediate_size": 37, "num_attention_heads": 3, "head_dim": 6)";
  test.check(ranks, {});
}

// What a base in few bits consists of travels in its place: FORM DTYPE OPERATIONS, with the number of collective
// operations for a layer.
void base(const std::shared_ptr<World>& world, const Options& options) {
  const Ranks ranks = make_ranks(world, {.shard = world->size()});
  testing::GatheredBase{
      .form = options[0], .dtype = options[1] == "bf16" ? DType::bf16 : DType::f32, .operations = std::stol(options[2])}
      .check(ranks, {});
}

void fails_to_give(const std::shared_ptr<World>& world, const Options& options) {
  testing::fail_in_gather(make_ranks(world, {.shard = world->size()}), std::stoi(options[0]));
}

// Parts of sequences have the loss and gradients of whole ones: MODEL TOLERANCE.
void context(const std::shared_ptr<World>& world, const Options& options) {
  const Ranks ranks = make_ranks(world, {.context = world->size()});
  testing::ContextPass{.model = options[0], .length = 12 * world->size(), .tolerance = std::stod(options[1])}.check(
      ranks, {});
}

// Slices of a model have its loss and gradients: MODEL TOLERANCE; in bf16 nearly.
void tensor(const std::shared_ptr<World>& world, const Options& options) {
  const Ranks ranks = make_ranks(world, {.tensor = world->size()});
  for (const autograd::Recompute recompute :
       {autograd::Recompute::none, autograd::Recompute::selective, autograd::Recompute::full}) {
    testing::TensorPass pass{.model = options[0], .tolerance = std::stod(options[1]), .recompute = recompute};
    pass.check(ranks, {});
    pass.dtype = DType::bf16;
    pass.tolerance = 0.05;
    pass.check(ranks, {});
  }
}

// However weights travel, and whatever a pass reads of them: the same bits.
void passes(const std::shared_ptr<World>& world, const Options& options) {
  const Ranks ranks = make_ranks(world, {.shard = world->size()});
  const recipes::Recipe& recipe = recipes::find_recipe(options[0]);
  for (const autograd::Recompute recompute :
       {autograd::Recompute::none, autograd::Recompute::selective, autograd::Recompute::full})
    for (const bool reshard : {true, false}) {
      const std::vector<float> codes = testing::losses(ranks, recipe, recompute, reshard, true),
                               values = testing::losses(ranks, recipe, recompute, reshard, false);
      expect(codes == values && codes.back() < codes.front() && std::isfinite(codes.back()),
             fmt::format("{}, recompute {}, reshard {}: losses {} and {}", options[0], static_cast<int>(recompute),
                         reshard, fmt::join(codes, " "), fmt::join(values, " ")));
    }
}

void late(World& world, const Options&) {
  world.all().barrier("start");
}

int run(int count, char** arguments) {
  const std::map<std::string, void (*)(World&, const Options&)> scenarios = {{"collectives", collectives},
                                                                             {"exact_sums", exact_sums},
                                                                             {"many_at_once", many_at_once},
                                                                             {"halves", halves},
                                                                             {"gpus", gpus},
                                                                             {"mismatch", mismatch},
                                                                             {"dies", dies},
                                                                             {"late", late},
                                                                             {"hangs", hangs},
                                                                             {"stops", stops},
                                                                             {"dies_at", dies_at},
                                                                             {"different_configs", different_configs}};
  const std::map<std::string, void (*)(const std::shared_ptr<World>&, const Options&)> of_ranks = {
      {"codes", codes},
      {"context", context},
      {"tensor", tensor},
      {"pipeline", testing::pipeline_passes},
      {"passes", passes},
      {"base", base},
      {"fails_to_give", fails_to_give}};
  const Environment environment = read_environment();
  init_logging(environment.rank);
  GroupOptions options = read_group_options();
  try {
    options.end_hanging_process = std::getenv("QUENCH_TEST_KEEP_PROCESS") == nullptr;
    const std::shared_ptr<World> world = World::join(environment, {}, options);
    std::printf("joined\n");
    std::fflush(stdout);
    const Options given(arguments + 2, arguments + count);
    if (const auto found = of_ranks.find(arguments[1]); found != of_ranks.end())
      found->second(world, given);
    else
      scenarios.at(arguments[1])(*world, given);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}

}  // namespace
}  // namespace quench::distributed

int main(int count, char** arguments) {
  return quench::distributed::run(count, arguments);
}
