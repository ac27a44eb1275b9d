// One rank of the test of groups of GPUs:
//   quench run --nproc-per-node gpu -- nccl_driver [dies | hangs]
// Ends with status 0 when every operation gave what it should, gathered codes are those of the whole weights, and
// sequences in parts, models in slices and models in stages have the loss and gradients of whole ones, else with 1 and
// a message. Rank 0 prints what 256 MiB take. "dies": rank 1 ends with status 7 in the middle of an all-gather, and the
// others must end with 1 within 10 s. "hangs": rank 1 never comes to an operation, and the others must name it and end
// with 75 after 10 s.

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <functional>
#include <string>
#include <thread>

#include "core/system/log.h"
#include "distributed/world.h"
#include "tests/distributed/context_pass.h"
#include "tests/distributed/gathered_codes.h"
#include "tests/distributed/pipeline/pipeline_pass.h"
#include "tests/distributed/tensor_pass.h"

namespace quench::distributed {
namespace {

// Small whole numbers: sums are exact in every dtype.
float value_of(int rank, std::int64_t i) {
  return static_cast<float>((i * 7 + rank * 3) % 16);
}

template <class T>
Tensor tensor_of(Device device, std::int64_t count, int rank) {
  const Tensor tensor = Tensor::empty({count}, dtype_of<T>);
  for (std::int64_t i = 0; i < count; ++i) tensor.data<T>()[i] = static_cast<T>(value_of(rank, i));
  return tensor.to(device);
}

template <class T>
void expect(const Tensor& tensor, const std::function<float(std::int64_t)>& expected, const char* what) {
  const Tensor host = tensor.to(Device{});
  backend(tensor.device().type).synchronize(current_stream(tensor.device()));
  for (std::int64_t i = 0; i < host.numel(); ++i)
    QUENCH_CHECK_AS(ErrorCode::failed,
                    static_cast<float>(host.data<T>()[i]) == static_cast<float>(static_cast<T>(expected(i))),
                    "{}, {} {}: element {} is {} instead of {}", what, host.numel(), to_string(host.dtype()), i,
                    static_cast<float>(host.data<T>()[i]), expected(i));
}

template <class T>
void collectives(World& world, std::int64_t count) {
  ProcessGroup& group = world.all();
  const int rank = world.rank(), size = world.size();
  const Device device = world.device();
  const auto sum = [&](std::int64_t i) {
    float result = 0;
    for (int r = 0; r < size; ++r) result += value_of(r, i);
    return result;
  };
  const Tensor all = tensor_of<T>(device, count, rank);
  group.all_reduce(all, ReduceOp::sum, "values").wait();
  expect<T>(all, sum, "all_reduce");
  const Tensor whole = tensor_of<T>(device, count * size, rank), part = Tensor::empty({count}, dtype_of<T>, device);
  group.reduce_scatter(whole, part, ReduceOp::sum, "values").wait();
  expect<T>(
      part, [&](std::int64_t i) { return sum(i + rank * count); }, "reduce_scatter");
  const Tensor local = tensor_of<T>(device, count, rank), gathered = Tensor::empty({count * size}, dtype_of<T>, device);
  group.all_gather(local, gathered, "values").wait();
  expect<T>(
      gathered, [&](std::int64_t i) { return value_of(static_cast<int>(i / count), i % count); }, "all_gather");
  const Tensor parts = tensor_of<T>(device, count * size, rank);
  group.all_to_all(parts, gathered, "values").wait();
  expect<T>(
      gathered, [&](std::int64_t i) { return value_of(static_cast<int>(i / count), rank * count + i % count); },
      "all_to_all");
  group.broadcast(local, size - 1, "values").wait();
  expect<T>(
      local, [&](std::int64_t i) { return value_of(size - 1, i); }, "broadcast");
  // Operations that start as one.
  std::vector<Tensor> sums;
  std::vector<Work> works;
  for (int i = 0; i < 5; ++i) sums.push_back(tensor_of<T>(device, count + i, rank));
  {
    const CollectiveBatch batch(group);
    for (const Tensor& tensor : sums) works.push_back(group.all_reduce(tensor, ReduceOp::sum, "values"));
  }
  for (Work& work : works) work.wait();
  for (const Tensor& tensor : sums) expect<T>(tensor, sum, "all_reduce in a batch");
  group.barrier("values");
}

// Seconds of one operation, the fastest of several.
double seconds_of(World& world, const std::function<Work()>& operation) {
  double best = 1e9;
  for (int i = 0; i < 10; ++i) {
    world.all().barrier("time");
    const auto begin = std::chrono::steady_clock::now();
    operation().wait();
    backend(world.device().type).synchronize(current_stream(world.device()));
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  return best;
}

void speeds(World& world) {
  constexpr std::int64_t kBytes = std::int64_t{256} << 20;
  const std::int64_t count = kBytes / 2 / world.size();
  const Tensor local = Tensor::zeros({count}, DType::bf16, world.device());
  const Tensor whole = Tensor::zeros({count * world.size()}, DType::bf16, world.device());
  const auto print = [&](const char* name, double seconds) {
    if (world.rank() == 0)
      std::printf("%-15s 256 MiB of bf16 over %d ranks: %.3f ms, %.1f GB/s\n", name, world.size(), seconds * 1e3,
                  static_cast<double>(kBytes) / seconds / 1e9);
  };
  print("all_gather", seconds_of(world, [&] { return world.all().all_gather(local, whole, "speed"); }));
  print("reduce_scatter",
        seconds_of(world, [&] { return world.all().reduce_scatter(whole, local, ReduceOp::sum, "speed"); }));
  print("all_reduce", seconds_of(world, [&] { return world.all().all_reduce(whole, ReduceOp::sum, "speed"); }));
}

// Several all-gathers of 1 GiB are under way when rank 1 ends, or stays away.
void fail_on_purpose(World& world, bool hangs) {
  const std::int64_t count = (std::int64_t{512} << 20) / world.size();
  const Tensor local = Tensor::zeros({count}, DType::bf16, world.device());
  const Tensor whole = Tensor::zeros({count * world.size()}, DType::bf16, world.device());
  world.all().all_gather(local, whole, "before").wait();
  backend(world.device().type).synchronize(current_stream(world.device()));
  if (world.rank() == 1 && hangs) std::this_thread::sleep_for(std::chrono::seconds(120));
  for (int i = 0; i < 8; ++i) {
    world.all().all_gather(local, whole, "weights").wait();
    if (world.rank() == 1 && i == 4) ::_exit(7);
  }
  world.all().barrier("last");
}

// The part of the test that begins, from rank 0.
void begin(const World& world, const char* part) {
  if (world.rank() == 0) std::fprintf(stderr, "%s\n", part);
}

int run(const std::string& fault) {
  const Environment environment = read_environment();
  init_logging(environment.rank);
  try {
    const Device device{DeviceType::cuda, static_cast<std::int8_t>(environment.local_rank)};
    GroupOptions options;
    options.timeout = std::chrono::seconds(fault.empty() ? 60 : 10);
    options.end_hanging_process = true;
    const std::shared_ptr<World> world = World::join(environment, device, options);
    if (!fault.empty()) fail_on_purpose(*world, fault == "hangs");
    begin(*world, "operations");
    for (const std::int64_t count : {1, 1001, 1'000'003}) {
      collectives<float>(*world, count);
      collectives<bfloat16>(*world, count);
      collectives<std::int64_t>(*world, count);
    }
    const Ranks ranks = make_ranks(world, {.shard = world->size()});
    begin(*world, "gathered codes");
    for (const char* recipe : {"float8_tensorwise", "float8_rowwise", "float8_rowwise_with_gw_hp"})
      for (const DType dtype : {DType::f32, DType::bf16})
        for (const char* sizes : {R"("hidden_size": 64, "intermediate_size": 144, "num_attention_heads": 4)",
                                  R"("hidden_size": 2048, "intermediate_size": 4112, "num_attention_heads": 16)"})
          testing::GatheredCodes{recipe, dtype, sizes}.check(ranks, device);
    begin(*world, "sequences in parts");
    // Attention of cuDNN and the program's own kernels, windows, sinks and soft caps.
    for (const char* model :
         {R"("model_type": "qwen3", "hidden_size": 256, "intermediate_size": 512, "num_attention_heads": 8,
             "num_key_value_heads": 2, "head_dim": 64)",
          R"("model_type": "gemma2", "hidden_size": 128, "intermediate_size": 256, "num_attention_heads": 4,
             "num_key_value_heads": 1, "head_dim": 64, "sliding_window": 70, "attn_logit_softcapping": 2)",
          R"("model_type": "gpt_oss", "hidden_size": 128, "intermediate_size": 128, "num_attention_heads": 4,
             "num_key_value_heads": 1, "head_dim": 64, "sliding_window": 70, "num_local_experts": 4,
             "num_experts_per_tok": 2)"}) {
      testing::ContextPass{.model = model, .length = 768, .tolerance = 1e-4}.check(ranks, device);
      testing::ContextPass{.model = model, .dtype = DType::bf16, .length = 768, .tolerance = 0.05}.check(ranks, device);
    }
    begin(*world, "models in slices");
    // Attention of cuDNN and the program's own kernels, tied and untied heads, soft caps.
    for (const char* model :
         {R"("model_type": "qwen3", "hidden_size": 256, "intermediate_size": 512, "num_attention_heads": 16,
             "num_key_value_heads": 8, "head_dim": 64)",
          R"("model_type": "gemma2", "hidden_size": 128, "intermediate_size": 256, "num_attention_heads": 16,
             "num_key_value_heads": 8, "head_dim": 64, "sliding_window": 70, "attn_logit_softcapping": 2,
             "final_logit_softcapping": 3)",
          R"("model_type": "qwen2", "hidden_size": 512, "intermediate_size": 256, "num_attention_heads": 8,
             "num_key_value_heads": 8, "tie_word_embeddings": true)"})
      for (const int vocabulary : {240, 1024})
        for (const autograd::Recompute recompute : {autograd::Recompute::none, autograd::Recompute::selective}) {
          testing::TensorPass pass{
              .model = model, .length = 769, .tolerance = 1e-4, .vocabulary = vocabulary, .recompute = recompute};
          pass.check(ranks, device);
          pass.dtype = DType::bf16;
          pass.tolerance = 0.05;
          pass.check(ranks, device);
        }
    begin(*world, "models in stages");  // tied and untied heads, chunks, one micro-batch
    testing::check_pipeline_passes(
        world, ranks, device,
        {{.model = R"("model_type": "qwen3", "hidden_size": 256, "intermediate_size": 512, "num_attention_heads": 4,
             "num_key_value_heads": 2, "head_dim": 64)",
          .length = 769,
          .tolerance = 1e-4},
         {.model = R"("model_type": "llama", "hidden_size": 256, "intermediate_size": 512, "num_attention_heads": 4,
             "num_key_value_heads": 4, "tie_word_embeddings": true)",
          .length = 769,
          .tolerance = 1e-4}});
    begin(*world, "speeds");
    speeds(*world);
    std::printf("rank %d of %d: all right\n", world->rank(), world->size());
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return dynamic_cast<const CollectiveTimeout*>(&error) != nullptr ? kTimeoutStatus : 1;
  }
}

}  // namespace
}  // namespace quench::distributed

int main(int count, char** arguments) {
  return quench::distributed::run(count > 1 ? arguments[1] : "");
}
