// Tables of every module are filled, kernels run, and errors of the library arrive as quench::Error.
#include <quench/train.h>

#include <cstdio>
#include <string>

namespace {

int faults = 0;

void expect(bool holds, const char* text) {
  if (holds) return;
  std::fprintf(stderr, "not true: %s\n", text);
  ++faults;
}

template <class Body>
void expect_error(quench::ErrorCode code, const char* part, Body&& body) {
  try {
    body();
  } catch (const quench::Error& error) {
    expect(error.code() == code, error.what());
    expect(std::string_view(error.what()).find(part) != std::string_view::npos, error.what());
    return;
  }
  expect(false, part);
}

}  // namespace

int main() {
  using namespace quench;
  expect(recipes::recipe_table().size() > 15, "recipes are registered");
  expect(nn::optimizer_table().size() > 5, "optimizers are registered");
  expect(export_formats().size() > 3, "export formats are registered");
  expect(kernel_count(DeviceType::cpu) > 50, "kernels are registered");
  const Tensor a = Tensor::from_values<float>({2, 2}, std::vector<float>{1, 2, 3, 4}),
               c = Tensor::zeros({2, 2}, DType::f32);
  gemm({.a = a, .b = a, .c = c});
  expect(c.data<float>()[0] == 7 && c.data<float>()[3] == 22, "a a");
  expect_error(ErrorCode::invalid_argument, "f32[2, 2]", [&] {
    gemm({.a = a, .b = a, .c = Tensor::zeros({2, 3}, DType::f32)});
  });
  expect_error(ErrorCode::bad_config, "float8_rowwise", [] { (void)recipes::find_recipe("float8_rowwisee"); });
  expect_error(ErrorCode::not_found, "no/such/folder", [] { (void)read_model_config("no/such/folder"); });
  const std::string minor_release =
      std::to_string(QUENCH_VERSION_MAJOR) + "." + std::to_string(QUENCH_VERSION_MINOR) + ".";
  expect(std::string(QUENCH_VERSION).starts_with(minor_release), "version of the headers");
  return faults == 0 ? 0 : 1;
}
