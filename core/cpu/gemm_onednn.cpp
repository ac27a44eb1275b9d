// GEMMs through oneDNN's matmul. Primitive creation generates code: each thread caches primitives; execution allocates
// nothing.

#include <omp.h>

#include <cstring>
#include <exception>
#include <oneapi/dnnl/dnnl.hpp>
#include <unordered_map>

#include "core/cpu/gemm_tiled.h"
#include "core/cpu/gemv.h"
#include "core/device/determinism.h"
#include "core/number/random.h"
#include "core/ops/elementwise.h"
#include "core/ops/gemm.h"

namespace quench {
namespace {

struct Key {
  std::int64_t m, n, k, a_stride, b_stride, c_stride;
  float alpha, beta;
  std::int32_t threads;
  DType dtype, c_dtype;
  bool transpose_a, transpose_b, bias;

  friend bool operator==(const Key&, const Key&) = default;
};

struct KeyHash {
  std::size_t operator()(const Key& key) const noexcept {
    std::uint64_t h = 0;
    for (const std::int64_t value : {key.m, key.n, key.k, key.a_stride, key.b_stride, key.c_stride})
      h = mix64(h + static_cast<std::uint64_t>(value));
    const auto flags = static_cast<std::uint64_t>(key.dtype) << 16 | static_cast<std::uint64_t>(key.c_dtype) << 8 |
                       std::uint64_t{key.transpose_a} << 2 | std::uint64_t{key.transpose_b} << 1 |
                       std::uint64_t{key.bias};
    return mix64(h +
                 (flags ^ std::uint64_t{std::bit_cast<std::uint32_t>(key.alpha)} << 32 ^
                  std::bit_cast<std::uint32_t>(key.beta)) +
                 static_cast<std::uint64_t>(key.threads) * 31);
  }
};

dnnl::memory::data_type data_type(DType dtype) {
  return dtype == DType::f32 ? dnnl::memory::data_type::f32 : dnnl::memory::data_type::bf16;
}

dnnl::engine& engine() {
  static dnnl::engine instance(dnnl::engine::kind::cpu, 0);
  return instance;
}

struct Entry {
  dnnl::primitive primitive;
  dnnl::memory a, b, c, bias, scratchpad;
  std::size_t scratchpad_bytes = 0;
};

Entry make_entry(const Key& key) {
  using dnnl::memory;
  const auto matrix = [](std::int64_t rows, std::int64_t columns, DType dtype, std::int64_t stride, bool transposed) {
    return memory::desc({rows, columns}, data_type(dtype),
                        transposed ? memory::dims{1, stride} : memory::dims{stride, 1});
  };
  const memory::desc a = matrix(key.m, key.k, key.dtype, key.a_stride, key.transpose_a);
  const memory::desc b = matrix(key.k, key.n, key.dtype, key.b_stride, key.transpose_b);
  const memory::desc c = matrix(key.m, key.n, key.c_dtype, key.c_stride, false);
  const memory::desc bias({1, key.n}, data_type(key.dtype), memory::dims{key.n, 1});

  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (key.alpha != 1.0f) attributes.set_output_scales(0, {key.alpha});
  dnnl::post_ops post;
  if (key.beta != 0.0f) post.append_sum(key.beta);
  // alpha would scale the primitive's own bias.
  if (key.bias) post.append_binary(dnnl::algorithm::binary_add, bias);
  attributes.set_post_ops(post);

  const dnnl::matmul::primitive_desc description(dnnl::matmul::desc(a, b, c), attributes, engine());
  Entry entry;
  entry.primitive = dnnl::matmul(description);
  entry.a = memory(a, engine(), nullptr);
  entry.b = memory(b, engine(), nullptr);
  entry.c = memory(c, engine(), nullptr);
  if (key.bias) entry.bias = memory(bias, engine(), nullptr);
  entry.scratchpad = memory(description.scratchpad_desc(), engine(), nullptr);
  entry.scratchpad_bytes = description.scratchpad_desc().get_size();
  return entry;
}

// Primitive cache of a thread.
class Runner {
 public:
  void run(const GemmArgs& args, const Key& key) {
    Entry& entry = find(key);
    entry.a.set_data_handle(args.a.raw_data());
    entry.b.set_data_handle(args.b.raw_data());
    entry.c.set_data_handle(args.c.raw_data());
    entry.scratchpad.set_data_handle(scratchpad(entry.scratchpad_bytes));
    dnnl_exec_arg_t arguments[5] = {{DNNL_ARG_SRC, entry.a.get()},
                                    {DNNL_ARG_WEIGHTS, entry.b.get()},
                                    {DNNL_ARG_DST, entry.c.get()},
                                    {DNNL_ARG_SCRATCHPAD, entry.scratchpad.get()},
                                    {}};
    int count = 4;
    if (key.bias) {
      entry.bias.set_data_handle(args.bias.raw_data());
      const int index = key.beta != 0.0f ? 1 : 0;
      arguments[count++] = {DNNL_ARG_ATTR_MULTIPLE_POST_OP(index) | DNNL_ARG_SRC_1, entry.bias.get()};
    }
    dnnl::error::wrap_c_api(dnnl_primitive_execute(entry.primitive.get(), stream_.get(), count, arguments),
                            "could not run the matmul primitive");
  }

 private:
  // Bounds generated code.
  static constexpr std::size_t kMaxEntries = 1024;

  Entry& find(const Key& key) {
    if (const auto it = entries_.find(key); it != entries_.end()) return it->second;
    if (entries_.size() >= kMaxEntries) entries_.clear();
    return entries_.emplace(key, make_entry(key)).first->second;
  }

  void* scratchpad(std::size_t bytes) {
    if (bytes == 0) return nullptr;
    if (!scratchpad_.defined() || scratchpad_.nbytes() < bytes) {
      const MemoryScope scope(MemoryCategory::workspace);
      scratchpad_ = Tensor();
      scratchpad_ = Tensor::empty({static_cast<std::int64_t>(bytes)}, DType::u8);
    }
    return scratchpad_.raw_data();
  }

  dnnl::stream stream_{engine()};
  std::unordered_map<Key, Entry, KeyHash> entries_;
  Tensor scratchpad_;
};

// f32 <-> bf16; strided rows.
void copy_converted(const Tensor& from, const Tensor& to) {
  if (from.is_contiguous() && to.is_contiguous()) return cast({from, to});
  for (std::int64_t i = 0; i < from.size(0); ++i) cast({from.select(0, i), to.select(0, i)});
}

// K = 0: C = beta * C + bias.
template <class C, class Bias>
void scale_and_bias(const GemmArgs& args) {
  const Bias* bias = args.bias.defined() ? args.bias.data<Bias>() : nullptr;
  for (std::int64_t i = 0; i < args.c.size(0); ++i) {
    C* row = args.c.data<C>() + i * args.c.stride(0);
    for (std::int64_t j = 0; j < args.c.size(1); ++j) {
      const float old = args.beta == 0.0f ? 0.0f : args.beta * static_cast<float>(row[j]);
      row[j] = C(old + (bias != nullptr ? static_cast<float>(bias[j]) : 0.0f));
    }
  }
}

void multiply_at_once(const GemmArgs& args) {
  // A single row's stride is arbitrary: normalized, so that views share primitives.
  const auto row_stride = [](const Tensor& t) { return t.size(0) == 1 ? t.size(1) : t.stride(0); };
  const Key key{.m = args.c.size(0),
                .n = args.c.size(1),
                .k = args.a.size(args.transpose_a ? 0 : 1),
                .a_stride = row_stride(args.a),
                .b_stride = row_stride(args.b),
                .c_stride = row_stride(args.c),
                .alpha = args.alpha,
                .beta = args.beta,
                .threads = omp_get_max_threads(),
                .dtype = args.a.dtype(),
                .c_dtype = args.c.dtype(),
                .transpose_a = args.transpose_a,
                .transpose_b = args.transpose_b,
                .bias = args.bias.defined()};
  thread_local Runner runner;
  try {
    runner.run(args, key);
  } catch (const dnnl::error& error) {
    QUENCH_FAIL(ErrorCode::failed, "gemm: oneDNN refused a {}, b {}, c {}: {}", args.a.describe(), args.b.describe(),
                args.c.describe(), error.what());
  }
}

class OneThread {
 public:
  OneThread() noexcept : threads_(omp_get_max_threads()) { omp_set_num_threads(1); }
  ~OneThread() { omp_set_num_threads(threads_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int threads_;
};

// Panels of C per thread; panel sizes depend on the shape alone.
void multiply_in_panels(const GemmArgs& args) {
  constexpr std::int64_t kLongest = 512, kShortest = 64, kMostPanels = 64, kPanelProducts = 1 << 22;
  const std::int64_t m = args.c.size(0), n = args.c.size(1), k = args.a.size(args.transpose_a ? 0 : 1);
  const std::int64_t wanted = std::min(m * n * k / kPanelProducts, kMostPanels);
  const auto pieces = [](std::int64_t length, std::int64_t piece) { return (length + piece - 1) / piece; };
  std::int64_t rows = kLongest, columns = kLongest;
  while (rows >= 2 * m && rows > kShortest) rows /= 2;
  while (columns >= 2 * n && columns > kShortest) columns /= 2;
  while (pieces(m, rows) * pieces(n, columns) < wanted && std::max(rows, columns) > kShortest)
    (rows > columns ? rows : columns) /= 2;
  const std::int64_t across = pieces(n, columns), count = pieces(m, rows) * across;
  std::exception_ptr failure;
#pragma omp parallel for schedule(dynamic, 1) if (count > 1)
  for (std::int64_t i = 0; i < count; ++i) {
    const OneThread scope;
    const std::int64_t row = i / across * rows, column = i % across * columns;
    const std::int64_t height = std::min(rows, m - row), width = std::min(columns, n - column);
    try {
      GemmArgs part = args;
      part.a = args.a.narrow(args.transpose_a ? 1 : 0, row, height);
      part.b = args.b.narrow(args.transpose_b ? 0 : 1, column, width);
      part.c = args.c.narrow(0, row, height).narrow(1, column, width);
      if (args.bias.defined()) part.bias = args.bias.narrow(0, column, width);
      multiply_at_once(part);
    } catch (...) {
#pragma omp critical(quench_gemm_failure)
      failure = std::current_exception();
    }
  }
  if (failure) std::rethrow_exception(failure);
}

// Without AVX-512, oneDNN's blocking, and so the bits, depend on the thread count.
void multiply(const GemmArgs& args) {
  if (cpu_supports_level(4)) return multiply_at_once(args);
  multiply_in_panels(args);
}

// Longest K of one call, by shape alone.
std::int64_t max_depth(const GemmArgs& args) {
  // A^T B with few columns: oneDNN splits long K by the thread count, changing the bits.
  if (args.transpose_a && args.c.size(1) <= 1024) return 1024;
  // Beyond it f32 loses 1/6 of its speed (dgrad of the head).
  return 8192;
}

void multiply_in_parts(const GemmArgs& args) {
  const std::int64_t k = args.a.size(args.transpose_a ? 0 : 1), longest = max_depth(args);
  const std::int64_t parts = (k + longest - 1) / longest, step = (k + parts - 1) / parts;
  const MemoryScope scope(MemoryCategory::workspace);
  GemmArgs part = args;
  part.bias = Tensor();
  if (args.c.dtype() != DType::f32) {
    part.c = Tensor::empty(args.c.shape(), DType::f32);
    if (args.beta != 0.0f) copy_converted(args.c, part.c);
  }
  for (std::int64_t begin = 0; begin < k; begin += step) {
    const std::int64_t depth = std::min(step, k - begin);
    part.a = args.a.narrow(args.transpose_a ? 0 : 1, begin, depth);
    part.b = args.b.narrow(args.transpose_b ? 1 : 0, begin, depth);
    if (begin + depth == k) part.bias = args.bias;
    multiply(part);
    part.beta = 1.0f;
  }
  if (args.c.dtype() != DType::f32) copy_converted(part.c, args.c);
}

Tensor widened(const Tensor& values) {
  Tensor wide = Tensor::empty(values.shape(), DType::f32);
  copy_converted(values, wide);
  return wide;
}

void gemm_kernel(const GemmArgs& args);

// oneDNN supports bf16 on AVX-512 only; elsewhere operands become f32 (exact), in panels that bound the copies.
void multiply_widened(const GemmArgs& args) {
  constexpr std::int64_t kPanelElements = 1 << 24;
  const MemoryScope scope(MemoryCategory::workspace);
  const std::int64_t m = args.c.size(0), n = args.c.size(1), k = args.a.size(args.transpose_a ? 0 : 1);
  const std::int64_t lines = std::max<std::int64_t>(kPanelElements / k, 64);
  const auto rows_of_a = [&](std::int64_t begin, std::int64_t count) {
    return widened(args.a.narrow(args.transpose_a ? 1 : 0, begin, count));
  };
  const Tensor bias = args.bias.defined() ? widened(args.bias) : Tensor();
  const Tensor all_of_a = m <= lines ? rows_of_a(0, m) : Tensor();
  GemmArgs part = args;
  for (std::int64_t column = 0; column < n; column += lines) {
    const std::int64_t columns = std::min(lines, n - column);
    part.b = widened(args.b.narrow(args.transpose_b ? 0 : 1, column, columns));
    if (bias.defined()) part.bias = bias.narrow(0, column, columns);
    for (std::int64_t row = 0; row < m; row += lines) {
      const std::int64_t rows = std::min(lines, m - row);
      part.a = all_of_a.defined() ? all_of_a : rows_of_a(row, rows);
      const Tensor c = args.c.narrow(0, row, rows).narrow(1, column, columns);
      part.c = c.dtype() == DType::f32 ? c : args.beta != 0.0f ? widened(c) : Tensor::empty(c.shape(), DType::f32);
      gemm_kernel(part);
      if (c.dtype() != DType::f32) copy_converted(part.c, c);
    }
  }
}

void gemm_kernel(const GemmArgs& args) {
  if (args.addend.defined()) {  // in-place accumulation
    GemmArgs in_place = args;
    in_place.addend = Tensor();
    if (args.beta != 0.0f) copy_rows({args.addend, args.c});
    return gemm_kernel(in_place);
  }
  const std::int64_t k = args.a.size(args.transpose_a ? 0 : 1);
  if (k == 0) {
    dispatch<float, bfloat16>(args.c.dtype(), "gemm", [&]<class C>() {
      dispatch<float, bfloat16>(args.a.dtype(), "gemm", [&]<class Bias>() { scale_and_bias<C, Bias>(args); });
    });
  } else if (batch_invariant() && args.transpose_b && !args.transpose_a) {  // a forward pass
    cpu::tiled_gemm_slot(DeviceType::cpu, args);
  } else if (args.transpose_b && !args.transpose_a && args.c.size(0) <= cpu::kGemvRows) {
    cpu::gemv_slot(DeviceType::cpu, args);
  } else if (args.a.dtype() == DType::bf16 && !cpu_supports_level(4)) {
    multiply_widened(args);
  } else if (k > max_depth(args)) {
    multiply_in_parts(args);
  } else {
    multiply(args);
  }
}

QUENCH_CPU_KERNEL(gemm_slot, gemm_kernel);

}  // namespace
}  // namespace quench
