// GPTQ codes compared with those of TorchAO for the same weight and inputs (tests/reference/make_gptq.py).

#include "core/json/json.h"
#include "export/methods/gptq.h"
#include "tests/export/export_testing.h"
#include "tests/reference_numbers.h"

namespace quench {
namespace {

using testing::mixed;

constexpr std::int64_t kRows = 16, kColumns = 256, kInputs = 300;

float small(std::int64_t i) {
  return static_cast<float>(mixed(static_cast<std::uint32_t>(i)) >> 28) - 8;
}

Tensor weight() {
  const Tensor w = Tensor::empty({kRows, kColumns}, DType::f32);
  for (std::int64_t i = 0; i < w.numel(); ++i)
    w.data<float>()[i] = (static_cast<float>(mixed(static_cast<std::uint32_t>(i + 1)) >> 16) - 32768) / 0x1p20f;
  return w;
}

InputStatistics inputs() {
  const Tensor x = Tensor::empty({kInputs, kColumns}, DType::f32);
  for (std::int64_t r = 0; r < kInputs; ++r)
    for (std::int64_t c = 0; c < kColumns; ++c)
      x.data<float>()[r * kColumns + c] =
          static_cast<float>(1 + c % 4) * (small(100'000 + r * kColumns + c) + 2 * small(900'000 + r));
  InputStatistics statistics(kColumns, true);
  statistics.add(x, "layer");
  return statistics;
}

std::vector<std::uint8_t> bytes_of(const Json& reference, const char* scheme, const char* what) {
  const std::string& hex = reference.at(scheme).at(what).as_string();
  std::vector<std::uint8_t> bytes;
  for (std::size_t i = 0; i < hex.size(); i += 2)
    bytes.push_back(static_cast<std::uint8_t>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  return bytes;
}

// TorchAO rounds once more at the end, where a zero may lose its sign.
int without_negative_zero(int code, int bits) {
  return bits == 4 && code == 8 ? 0 : code;
}

// TorchAO's factor of the inverse is f32, ours f64, and sums are in another order: some values cross a rounding
// boundary.
TEST(GptqGolden, CodesMatchTorchAo) {
  const Json reference = Json::parse_file(testing::source_dir() / "tests/reference/gptq.json");
  const InputStatistics statistics = inputs();
  for (const auto& [name, key, bits] : {std::tuple{"int8_weight_only", "int8", 8}, {"nvfp4_weight_only", "nvfp4", 4}}) {
    SCOPED_TRACE(name);
    const QuantizedWeight ours =
        gptq(weight(), find_scheme(name)->weights, "w", {}, statistics, {.activation_order = false});
    const std::vector<std::uint8_t> codes = bytes_of(reference, key, "codes"),
                                    scales = bytes_of(reference, key, "scales");
    ASSERT_EQ(codes.size(), ours.codes.nbytes());
    ASSERT_EQ(scales.size(), ours.scales.nbytes());
    const auto* own = static_cast<const std::uint8_t*>(ours.codes.raw_data());
    std::size_t different = 0;
    for (std::size_t i = 0; i < codes.size(); ++i)
      for (int shift = 0; shift < 8; shift += bits)
        different += without_negative_zero(codes[i] >> shift & ((1 << bits) - 1), bits) !=
                     without_negative_zero(own[i] >> shift & ((1 << bits) - 1), bits);
    EXPECT_LE(different, 20u) << "of " << kRows * kColumns;
    EXPECT_EQ(std::memcmp(scales.data(), ours.scales.raw_data(), scales.size()), 0);
  }
}

}  // namespace
}  // namespace quench
