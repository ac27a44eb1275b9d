#include "export/formats/mxfp4_experts/reader.h"

#include <algorithm>
#include <array>
#include <atomic>

#include "core/number/e8m0.h"
#include "core/number/float4.h"
#include "core/number/float_types.h"
#include "export/formats/safetensors_weights.h"

namespace quench {
namespace {

constexpr std::string_view kBlocks = kMxfp4Blocks, kScales = kMxfp4Scales;
constexpr std::int64_t kBlockBytes = 16, kBlockSize = 2 * kBlockBytes;

class Mxfp4Experts final : public SafetensorsWeights {
 public:
  explicit Mxfp4Experts(const std::filesystem::path& folder) : SafetensorsWeights(folder) {}

  [[nodiscard]] std::vector<std::string> names() const override {
    std::vector<std::string> names;
    for (const std::string& name : files().names()) {
      if (name.ends_with(kBlocks))
        names.push_back(name.substr(0, name.size() - kBlocks.size()));
      else if (!name.ends_with(kScales) || !has_blocks(name.substr(0, name.size() - kScales.size())))
        names.push_back(name);
    }
    return names;
  }

  [[nodiscard]] std::optional<StoredTensor> find(std::string_view name) const override {
    if (has_blocks(name)) {
      const Shape blocks = part(name, kBlocks)->entry->shape;
      if (blocks.rank() != 4) return StoredTensor{blocks, false, "MXFP4", DType::bf16};
      return StoredTensor{{blocks[0], blocks[2] * kBlockSize, blocks[1]}, false, "MXFP4", DType::bf16};
    }
    return SafetensorsWeights::find(name);
  }

  // Experts from `first` on, or rows of a dense tensor.
  void read(std::string_view name, const Tensor& out, std::int64_t first) const override {
    if (!has_blocks(name)) return read_rows(files().at(name), out, first);
    const Location codes = checked(name, kBlocks, 4);
    const Shape shape = codes.entry->shape;
    QUENCH_CHECK_AS(ErrorCode::corrupt, shape[3] == kBlockBytes, "{} has shape {}; expected blocks of {} bytes",
                    named(codes.entry->name), shape.to_string(), kBlockBytes);
    const Location exponents = checked(name, kScales, 3);
    const Shape expected{shape[0], shape[1], shape[2]};
    QUENCH_CHECK_AS(ErrorCode::corrupt, exponents.entry->shape == expected, "{} has shape {}, expected {}",
                    named(exponents.entry->name), exponents.entry->shape.to_string(), expected.to_string());
    const std::int64_t experts = out.size(0), rows = shape[1], groups = shape[2];
    QUENCH_CHECK(out.dtype() == DType::bf16 && out.size(1) == groups * kBlockSize && out.size(2) == rows,
                 "{} read as {}", named(name), out.describe());
    const MemoryScope scope(MemoryCategory::workspace);
    const Tensor blocks = Tensor::empty({experts, rows, groups, kBlockBytes}, DType::u8),
                 scales = Tensor::empty({experts, rows, groups}, DType::u8);
    read_rows(codes, blocks, first);
    read_rows(exponents, scales, first);
    for (std::int64_t e = 0; e < experts; ++e)
      QUENCH_CHECK_AS(ErrorCode::corrupt, decode(blocks.select(0, e), scales.select(0, e), out.select(0, e)),
                      "{}: a scale of expert {} is NaN", named(exponents.entry->name), first + e);
  }

  [[nodiscard]] Tensor block_scales(std::string_view name, std::int64_t expert) const override {
    if (!has_blocks(name)) return {};
    const Location stored = checked(name, kScales, 3);
    const MemoryScope scope(MemoryCategory::workspace);
    const Tensor scales = Tensor::empty({1, stored.entry->shape[1], stored.entry->shape[2]}, DType::u8);
    read_rows(stored, scales, expert);
    return scales.select(0, 0);
  }

 private:
  [[nodiscard]] bool has_blocks(std::string_view name) const { return part(name, kBlocks).has_value(); }

  [[nodiscard]] Location checked(std::string_view name, std::string_view suffix, int rank) const {
    const Location found = required(name, suffix);
    QUENCH_CHECK_AS(ErrorCode::corrupt, found.entry->shape.rank() == rank && found.entry->dtype == DType::u8,
                    "{} is {}{}, expected U8 of rank {}", named(found.entry->name), found.entry->dtype_name,
                    found.entry->shape.to_string(), rank);
    return found;
  }

  // One expert: blocks [out, groups, 16], scales [out, groups], values [32 * groups, out]. False for a NaN scale.
  [[nodiscard]] static bool decode(const Tensor& blocks, const Tensor& scales, const Tensor& values) {
    const std::int64_t rows = values.size(1), groups = blocks.size(1);
    const auto* codes = blocks.data<std::uint8_t>();
    const auto* exponents = scales.data<std::uint8_t>();
    auto* out = values.data<bfloat16>();
    std::array<float, 16> table{};
    for (std::size_t code = 0; code < table.size(); ++code) table[code] = E2m1::decode(static_cast<std::uint8_t>(code));
    std::atomic<bool> finite = true;
    // Rows in tiles: a tile of a column of `values` is a cache line.
    constexpr std::int64_t kRowTile = 32;
#pragma omp parallel for schedule(static)
    for (std::int64_t first = 0; first < rows; first += kRowTile)
      for (std::int64_t g = 0; g < groups; ++g)
        for (std::int64_t row = first; row < std::min(first + kRowTile, rows); ++row) {
          const std::uint8_t exponent = exponents[row * groups + g];
          if (exponent == kE8m0Nan) finite = false;
          const float scale = decode_e8m0(exponent);
          const std::uint8_t* block = codes + (row * groups + g) * kBlockBytes;
          bfloat16* column = out + g * kBlockSize * rows + row;
          for (std::int64_t i = 0; i < kBlockBytes; ++i) {
            column[2 * i * rows] = bfloat16(table[block[i] & 0xF] * scale);
            column[(2 * i + 1) * rows] = bfloat16(table[block[i] >> 4] * scale);
          }
        }
    return finite;
  }
};

}  // namespace

std::unique_ptr<StoredWeights> open_mxfp4_experts(const std::filesystem::path& folder, const Json&) {
  return std::make_unique<Mxfp4Experts>(folder);
}

}  // namespace quench
