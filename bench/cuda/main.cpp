// GPU kernel benchmarks: attention and GEMMs in TFLOP/s, memory-bound kernels as a share of the device-to-device copy
// rate of the same process.
//   quench_cuda_bench [attention] [casts] [experts] [fused] [gemm8] [generation] [kv_cache] [low_rank] [optimizer]
//   default: all

#include <cstdio>
#include <string_view>

#include "bench/cuda/measure.h"

int main(int argc, char** argv) {
  struct Part {
    std::string_view name;
    void (*run)();
  };
  constexpr Part kParts[] = {
      {"attention", quench::bench::measure_attention},   {"fused", quench::bench::measure_fused_kernels},
      {"casts", quench::bench::measure_casts},           {"experts", quench::bench::measure_experts},
      {"gemm8", quench::bench::measure_float8_products}, {"generation", quench::bench::measure_generation},
      {"kv_cache", quench::bench::measure_kv_caches},    {"low_rank", quench::bench::measure_low_rank},
      {"optimizer", quench::bench::measure_optimizer}};
  try {
    for (int i = 1; i < argc; ++i) {
      bool known = false;
      for (const Part& part : kParts) known = known || part.name == argv[i];
      QUENCH_CHECK_AS(
          quench::ErrorCode::bad_config, known,
          "'{}' is none of attention, casts, experts, fused, gemm8, generation, kv_cache, low_rank, optimizer",
          argv[i]);
    }
    for (const Part& part : kParts) {
      bool wanted = argc == 1;
      for (int i = 1; i < argc; ++i) wanted = wanted || part.name == argv[i];
      if (wanted) part.run();
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
  return 0;
}
