#pragma once
// Quantization errors of a run for page.html: heat maps of layers by steps, and the worst measurement.

#include "core/json/json.h"
#include "train/report/run_data.h"

namespace quench {

//   maps    [{operand, format, dense (dB), steps [first step of each column], rows [[layer, [cell]]]}], those with
//           measurements. A cell is [first column, last column, shade 0 to 7, first step, last step, lowest and highest
//           dB (null: nothing lost), saturated, underflow (largest shares)]; shades from 5 on are warnings of the
//           training, 7 is not finite.
//   worst   lowest SQNR below dense values, or non-finite: layer, operand, step, sqnr, finite, poor (training warns);
//           null without measurements
[[nodiscard]] Json health_json(const RunData& run);

}  // namespace quench
