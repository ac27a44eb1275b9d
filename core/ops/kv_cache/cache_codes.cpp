#include "core/ops/kv_cache/cache_codes.h"

#include "core/ops/kv_cache/kv_format.h"
#include "core/tensor/op_checks.h"

namespace quench {

constinit KernelSlot<AppendCodesArgs> append_codes_slot("append_codes");
constinit KernelSlot<DecodeCodesArgs> decode_codes_slot("decode_codes");

void check_cache_codes(std::string_view op, const Tensor& cache, const Tensor& scales) {
  QUENCH_CHECK(cache.defined() && cache.rank() == 2 && find_kv_format(cache.dtype()) != nullptr,
               "{}: cache is {}, expected codes [capacity, heads * D] of dtype f8_e4m3 or i8", op, cache.describe());
  check_contiguous(op, "cache", cache);
  const bool shared = scales.defined() && scales.rank() == 1;
  check_tensor(op, "scales", scales, shared ? Shape{-1} : Shape{cache.size(0), -1}, DType::f32);
  check_contiguous(op, "scales", scales);
  const std::int64_t heads = scales.size(-1);
  QUENCH_CHECK(heads > 0 && heads % 2 == 0 && cache.size(1) % heads == 0,
               "{}: {} scales of keys and values do not divide the cache's {} columns", op, heads, cache.size(1));
}

void append_codes(const AppendCodesArgs& args) {
  constexpr std::string_view op = "append_codes";
  check_float_tensor(op, "values", args.values, 2);
  check_contiguous_rows(op, "values", args.values);
  check_cache_codes(op, args.cache, args.scales);
  check_tensor(op, "values", args.values, {-1, args.cache.size(1)}, args.values.dtype());
  check_tensor(op, "positions", args.positions, {args.values.size(0)}, DType::i32);
  check_same_device(op, {&args.values, &args.positions, &args.cache, &args.scales});
  if (args.values.numel() > 0) append_codes_slot(args.values.device().type, args);
}

void decode_codes(const DecodeCodesArgs& args) {
  constexpr std::string_view op = "decode_codes";
  check_cache_codes(op, args.cache, args.scales);
  check_float_tensor(op, "out", args.out, 2);
  const std::int64_t rows = args.rows.defined() ? args.rows.size(0) : args.cache.size(0);
  check_tensor(op, "out", args.out, {rows, args.cache.size(1)}, args.out.dtype());
  check_contiguous(op, "out", args.out);
  if (args.rows.defined()) {
    check_tensor(op, "rows", args.rows, {rows}, DType::i32);
    check_contiguous(op, "rows", args.rows);
  }
  check_same_device(op, {&args.cache, &args.scales, &args.out, &args.rows});
  if (args.out.numel() > 0) decode_codes_slot(args.out.device().type, args);
}

}  // namespace quench
