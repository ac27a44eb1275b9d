#include "core/ops/loss/vocabulary_parts.h"

#include "core/tensor/op_checks.h"

namespace quench {

constinit KernelSlot<LogitsStatisticsArgs> logits_statistics_slot("logits_statistics");
constinit KernelSlot<CrossEntropyPartArgs> cross_entropy_part_slot("cross_entropy_part");
constinit KernelSlot<OwnRowsArgs> own_rows_slot("own_rows");

namespace {

void check_logits_part(std::string_view op, const Tensor& logits, const Tensor& labels) {
  check_float_tensor(op, "logits", logits, 2);
  check_contiguous(op, "logits", logits);
  check_tensor(op, "labels", labels, {logits.size(0)}, DType::i32);
  check_contiguous(op, "labels", labels);
}

}  // namespace

void logits_statistics(const LogitsStatisticsArgs& args) {
  constexpr std::string_view op = "logits_statistics";
  check_logits_part(op, args.logits, args.labels);
  check_tensor(op, "statistics", args.statistics, {args.logits.size(0), kLogitsStatistics}, DType::f32);
  check_contiguous(op, "statistics", args.statistics);
  check_same_device(op, {&args.logits, &args.labels, &args.statistics});
  if (args.logits.size(0) > 0) logits_statistics_slot(args.logits.device().type, args);
}

void cross_entropy_part(const CrossEntropyPartArgs& args) {
  constexpr std::string_view op = "cross_entropy_part";
  check_logits_part(op, args.logits, args.labels);
  const std::int64_t n = args.logits.size(0), width = args.logits.size(1);
  check_tensor(op, "losses", args.losses, {n}, DType::f32);
  check_contiguous(op, "losses", args.losses);
  check_tensor(op, "statistics", args.statistics, {-1, kLogitsStatistics}, DType::f32);
  check_contiguous(op, "statistics", args.statistics);
  check_same_device(op, {&args.logits, &args.labels, &args.statistics, &args.losses, &args.dlogits});
  if (args.dlogits.defined()) {
    check_float_tensor(op, "dlogits", args.dlogits, 2);
    check_tensor(op, "dlogits", args.dlogits, {n, width}, args.dlogits.dtype());
    check_contiguous(op, "dlogits", args.dlogits);
    QUENCH_CHECK(args.dlogits.raw_data() != args.logits.raw_data() || args.dlogits.dtype() == args.logits.dtype(),
                 "cross_entropy_part: dlogits ({}) may alias logits ({}) only with the same dtype",
                 args.dlogits.describe(), args.logits.describe());
  }
  if (n == 0) return;
  QUENCH_CHECK(args.statistics.size(0) % n == 0, "cross_entropy_part: statistics {} of {} rows",
               args.statistics.describe(), n);
  if (args.logits.device().is_cpu()) {
    const std::int64_t vocab = args.statistics.size(0) / n * width;
    const auto* labels = args.labels.data<std::int32_t>();
    for (std::int64_t i = 0; i < n; ++i)
      QUENCH_CHECK(labels[i] == kIgnoreLabel || (labels[i] >= 0 && labels[i] < vocab),
                   "cross_entropy: label {} of row {} is neither {} nor in [0, {})", labels[i], i, kIgnoreLabel, vocab);
  }
  cross_entropy_part_slot(args.logits.device().type, args);
}

void own_rows(const OwnRowsArgs& args) {
  constexpr std::string_view op = "own_rows";
  check_tensor(op, "ids", args.ids, {-1}, DType::i32);
  check_contiguous(op, "ids", args.ids);
  check_tensor(op, "rows", args.rows, args.ids.shape(), DType::i32);
  check_contiguous(op, "rows", args.rows);
  check_tensor(op, "factors", args.factors, args.ids.shape(), DType::f32);
  check_contiguous(op, "factors", args.factors);
  check_same_device(op, {&args.ids, &args.rows, &args.factors});
  QUENCH_CHECK(args.count > 0, "own_rows: a part of {} tokens", args.count);
  if (args.ids.numel() > 0) own_rows_slot(args.ids.device().type, args);
}

}  // namespace quench
