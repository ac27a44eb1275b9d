// 2:4 sparse folders, written and read back.

#include "export/formats/compressed_tensors/sparse_24.h"

#include "core/ops/quantize/sparsity_2_4.h"
#include "core/safetensors/safetensors_folder.h"
#include "tests/export/export_testing.h"

namespace quench {
namespace {

using namespace testing;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

ModelTensor named_tensor(const std::string& name, const std::string& layer, const Tensor& w) {
  return {.name = name, .layer = layer, .shape = w.shape(), .dtype = w.dtype(), .value = [w] { return w; }};
}

TEST(Sparse24, ComesBackWithItsZeros) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const std::int64_t columns : {256, 12}) {
      const TempDir folder;
      const Tensor w = pruned_2_4(normal_weight({96, columns}, dtype), Sparsity24::magnitude),
                   tiles = pruned_2_4(normal_weight({8, columns}, dtype, 2), Sparsity24::transposable),
                   dense = normal_weight({8, columns}, dtype, 5);
      const Json config =
          config_of(write_sparse_24({named_tensor("a.weight", "a", w), named_tensor("b.weight", "b", tiles),
                                     named_tensor("lm_head.weight", "lm_head", dense)},
                                    folder.path(), 1 << 30));
      EXPECT_FALSE(is_quantized(folder.path(), config));
      const auto stored = open_stored_weights(folder.path(), config);
      EXPECT_THAT(stored->names(), ElementsAre("a.weight", "b.weight", "lm_head.weight"));
      for (const auto& [name, expected] :
           {std::pair{"a.weight", w}, std::pair{"b.weight", tiles}, std::pair{"lm_head.weight", dense}}) {
        ASSERT_EQ(stored->find(name)->shape, expected.shape());
        const Tensor all = Tensor::empty(expected.shape(), dtype), some = Tensor::empty({3, columns}, dtype);
        stored->read(name, all);
        EXPECT_TRUE(equal_bytes(all, expected)) << name;
        stored->read(name, some, 4);
        EXPECT_TRUE(equal_bytes(some, expected.narrow(0, 4, 3))) << name;
      }
    }
}

// The bytes of a small matrix, as the format's own writer makes them.
TEST(Sparse24, BitsStandInOrder) {
  const TempDir folder;
  const Tensor w = Tensor::from_values<float>({1, 8}, std::array{0.f, 3.f, 0.f, -4.f, 5.f, 0.f, 0.f, 0.f});
  (void)write_sparse_24({named_tensor("a.weight", "a", w)}, folder.path(), 1 << 30);
  const SafetensorsFolder files(folder.path());
  std::uint8_t mask = 0;
  files.at("a.bitmask").read({reinterpret_cast<std::byte*>(&mask), 1});
  EXPECT_EQ(mask, 0b00111010);  // in 5 0 0 0 the first zero is stored too
  float values[4];
  files.at("a.compressed").read({reinterpret_cast<std::byte*>(values), sizeof values});
  EXPECT_THAT(values, ElementsAre(3.f, -4.f, 5.f, 0.f));
  EXPECT_EQ(files.at("a.shape").entry->shape, Shape({2, 1}));
}

TEST(Sparse24, WhatIsNotSparseAndWhatIsDamagedIsNamed) {
  const TempDir folder;
  const auto message = [](const auto& body) -> std::string {
    try {
      body();
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  const Tensor dense = normal_weight({4, 16}, DType::f32);
  EXPECT_THAT(message([&] { (void)write_sparse_24({named_tensor("a.weight", "a", dense)}, folder.path(), 1 << 30); }),
              HasSubstr("no linear layer of the model is 2:4 sparse"));
  const Tensor w = pruned_2_4(dense, Sparsity24::magnitude);
  const Json config = config_of(write_sparse_24({named_tensor("a.weight", "a", w)}, folder.path(), 1 << 30));
  // All bits of the mask's first byte, which marked four of eight elements.
  std::string bytes = read_file(folder / "model.safetensors");
  const SafetensorsFolder files(folder.path());
  std::uint8_t first = 0;
  files.at("a.bitmask").read({reinterpret_cast<std::byte*>(&first), 1});
  std::string mask(8, '\0');
  files.at("a.bitmask").read({reinterpret_cast<std::byte*>(mask.data()), mask.size()});
  bytes[bytes.rfind(mask)] = static_cast<char>(0xFF);
  write_file(folder / "model.safetensors", bytes);
  const Tensor out = Tensor::empty({4, 16}, DType::f32);
  EXPECT_THAT(message([&] { open_stored_weights(folder.path(), config)->read("a.weight", out); }),
              HasSubstr("row 0 of a.bitmask marks 12 elements, expected 8 of 16"));
}

}  // namespace
}  // namespace quench
