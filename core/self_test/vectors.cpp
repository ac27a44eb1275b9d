// Stored vectors: tests/reference/make_self_test.py.

#include "core/self_test/cases.h"

namespace quench::self_test {
namespace {

struct Stored {
  std::string_view name;
  std::vector<Digest> digests;
};

const std::vector<Stored>& stored_vectors() {
  static const std::vector<Stored> table{
      {"gemm", {{264.392707, 31.0097656}, {258.570781, -85.4882812}, {260.372504, 62.4746094}}},
      {"few_row_gemm", {{41.2388302, -9.03515625}, {94.0002662, 16.3808594}}},
      {"sm90_grouped_gemm", {{437.2154, 336.152344}, {438.594765, 4.12695312}, {444.448504, 13.6992188}}},
      {"sm90_grouped_float8", {{437.472944, 16.1796875}, {431.349325, 179.458984}}},
      {"sm90_block_float8", {{945.440851, 19.1699219}, {946.267678, -410.679688}}},
      {"cublaslt_float8", {{259.432612, 73.1660156}, {259.432612, 73.1660156}}},
      {"sm90_low_rank_gemm", {{671.719489, -73.1875}}},
      {"sm90_symmetric_gemm", {{667.576184, 82.9765625}}},
      {"cudnn_attention",
       {{26.8189728, 16.6050086},
        {6.2742094, 4.37801456},
        {6.17757333, -1.21835152},
        {27.6254851, -0.0214422216},
        {20.2273531, 2.58105596},
        {4.93833835, 0.664522116},
        {4.75857904, -2.19033166},
        {20.5144206, 2.06629997}}},
      {"decode_attention", {{1.52394238, 0.287124587}}},
      {"cluster_cross_entropy",
       {{18.6469063, 0.944586521}, {1.73203953, 1.63092172}, {19.8002036, 1.66035349}, {1.7320587, -1.49869154}}},
      {"rms_norm", {{50.1056354, -9.3948941}, {49.9683281, -12.5422447}, {48.9442031, 13.3811268}}},
      {"rope", {{27.5503756, -0.375}, {27.5503756, -8.99609375}}},
      {"swiglu", {{9.79951965, 0.809092033}, {14.1670284, -6.16527964}}},
      {"embedding", {{17.4324589, -3.171875}, {17.2291541, -5.90625}}},
      {"adamw", {{29.1892798, 17.5193829}, {15.4987399, 0.778125}, {0.0123998626, 0.00243164063}}},
      {"quantize", {{34.9298404, -12.53125}, {34.9298404, -12.53125}, {35.9075461, -14.3554688}}},
  };
  return table;
}

}  // namespace

std::span<const Digest> stored_digests(std::string_view name) {
  for (const Stored& stored : stored_vectors())
    if (stored.name == name) return stored.digests;
  return {};
}

}  // namespace quench::self_test
