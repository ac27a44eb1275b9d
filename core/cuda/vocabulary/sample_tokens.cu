// Maxima, then weights are summed by many CTAs per row, then one chooses the token. Top-k and top-p find the key and
// the number of ties of the last token that they keep: a histogram over distances from the maximum, then the digits of
// the keys of one of its bins. Sums are integers.

#include "core/ops/sampling/sample_tokens.h"

#include "core/cuda/common/launch.h"
#include "core/cuda/common/pdl.cuh"
#include "core/cuda/common/reduce.cuh"
#include "core/number/sampling_weight.h"

namespace quench::cuda {
namespace {

constexpr int kThreads = 1024, kWarps = kThreads / 32;
constexpr int kPartThreads = 256, kPartSize = 16 * kPartThreads;  // logits of a CTA
constexpr int kBins = 2048, kBinsPerUnit = 64;                    // bins of logits
constexpr int kDigits = 256;
constexpr unsigned kEvery = 0xFFFFFFFFu;

using Weight = unsigned long long;

// Figures of a CTA's part of a row.
struct Part {
  Weight best;         // key of the likeliest token, ~index
  Weight sum;          // weights at temperature 1, added
  unsigned nonfinite;  // first one, or kEvery
  float highest;       // without penalty
};

struct Params {
  const float* logits;
  const SamplingRow* rows;
  std::int32_t* tokens;
  std::int32_t* seen;           // optional
  const std::int32_t* allowed;  // optional
  SampledRow* sampled;
  Part* parts;  // [rows, part_count]
  int vocabulary, seen_words, allowed_words, part_count;
};

// Tokens with larger keys, and the first `ties` of those with this one.
struct Kept {
  std::uint32_t key = 0;
  unsigned ties = kEvery;
};

// A key's logit.
__device__ float logit_of(std::uint32_t key) {
  return __uint_as_float((key & 0x80000000u) != 0 ? key & 0x7FFFFFFFu : ~key);
}

struct Smaller {
  __device__ unsigned operator()(unsigned a, unsigned b) const { return min(a, b); }
};
struct LargerWeight {
  __device__ Weight operator()(Weight a, Weight b) const { return max(a, b); }
};

// A row with its penalties, of the allowed tokens.
struct Row {
  const float* logits;
  const std::int32_t* seen;     // null: no penalty
  const std::int32_t* allowed;  // null: all
  int count;
  float penalty;

  [[nodiscard]] __device__ float operator[](int i) const {
    const float logit = logits[i];
    if (allowed != nullptr && !has_bit(allowed, i)) return kForbiddenLogit;
    return seen != nullptr && has_bit(seen, i) ? penalized_logit(logit, penalty) : logit;
  }
};

struct Scratch {
  Weight bins[kBins];
  Weight words[33];
  unsigned found, before;
  Weight above;
};

// First bin at which the sum from bin 0 reaches `needed`, of `count` bins, and the sum before it: in scratch.found and
// scratch.above; `count` if none. CTA collective.
__device__ void find_bin(Scratch& scratch, int count, Weight needed) {
  __syncthreads();
  if (threadIdx.x < 32) {
    const int lane = static_cast<int>(threadIdx.x), per_lane = count / 32;
    Weight own = 0;
    for (int i = 0; i < per_lane; ++i) own += scratch.bins[lane * per_lane + i];
    Weight before = own;
#pragma unroll
    for (int offset = 1; offset < 32; offset *= 2) {
      const Weight other = __shfl_up_sync(kEvery, before, offset);
      if (lane >= offset) before += other;
    }
    const Weight through = before;
    before -= own;
    const unsigned reaches = __ballot_sync(kEvery, through >= needed);
    if (reaches == 0) {
      if (lane == 0) scratch.found = static_cast<unsigned>(count);
    } else if (lane == __ffs(static_cast<int>(reaches)) - 1) {
      int bin = lane * per_lane;
      while (before + scratch.bins[bin] < needed) before += scratch.bins[bin++];
      scratch.found = static_cast<unsigned>(bin);
      scratch.above = before;
    }
  }
  __syncthreads();
}

__device__ int distance_bin(float value, float maximum) {
  return min(kBins - 1, static_cast<int>(min(static_cast<float>(kBins), (maximum - value) * kBinsPerUnit)));
}

// The tokens of `within` up to the one at which the sum of `measure`, in order of likelihood, reaches `needed` (at
// least 1). measure(key, value): of a token.
template <class Measure>
__device__ Kept keep_until(Scratch& scratch, const Row& row, float maximum, const Kept& within, Weight needed,
                           const Measure& measure) {
  const int thread = static_cast<int>(threadIdx.x);
  // Ties at within.key are counted in bulk; all have one weight.
  const auto add = [&](int bin, std::uint32_t key, float value) {
    if (key > within.key || within.ties == kEvery) atomicAdd(&scratch.bins[bin], measure(value));
  };
  const auto add_ties = [&](int bin, float value) {
    if (thread == 0) scratch.bins[bin] += measure(value) * within.ties;
  };
  const bool has_ties = within.ties != kEvery;
  for (int i = thread; i < kBins; i += kThreads) scratch.bins[i] = 0;
  __syncthreads();
#pragma unroll 4
  for (int i = thread; i < row.count; i += kThreads) {
    const float value = row[i];
    const std::uint32_t key = logit_key(value);
    if (key >= within.key) add(distance_bin(value, maximum), key, value);
  }
  __syncthreads();
  if (has_ties) add_ties(distance_bin(logit_of(within.key), maximum), logit_of(within.key));
  find_bin(scratch, kBins, needed);
  const int bin = static_cast<int>(scratch.found);
  if (bin == kBins) return within;
  Weight above = scratch.above;
  std::uint32_t prefix = 0;
#pragma unroll 1
  for (int shift = 24; shift >= 0; shift -= 8) {
    __syncthreads();
    for (int i = thread; i < kDigits; i += kThreads) scratch.bins[i] = 0;
    __syncthreads();
    // Digits in descending order.
    const auto digit = [&](std::uint32_t key) { return kDigits - 1 - static_cast<int>(key >> shift & 255u); };
    const auto in_prefix = [&](std::uint32_t key) { return shift == 24 || key >> (shift + 8) == prefix; };
#pragma unroll 4
    for (int i = thread; i < row.count; i += kThreads) {
      const float value = row[i];
      const std::uint32_t key = logit_key(value);
      if (key >= within.key && in_prefix(key) && distance_bin(value, maximum) == bin) add(digit(key), key, value);
    }
    __syncthreads();
    if (has_ties && in_prefix(within.key) && distance_bin(logit_of(within.key), maximum) == bin)
      add_ties(digit(within.key), logit_of(within.key));
    find_bin(scratch, kDigits, needed - above);
    prefix = prefix << 8 | static_cast<std::uint32_t>(kDigits - 1 - static_cast<int>(scratch.found));
    above += scratch.above;
  }
  const Weight one = max(Weight{1}, static_cast<Weight>(measure(logit_of(prefix))));
  const Weight ties = (needed - above + one - 1) / one;
  return {prefix, static_cast<unsigned>(min(ties, Weight{kEvery - 1}))};
}

// Kept tokens in index order: a warp has a part of the row, 32 tokens at a time.
struct WarpPart {
  int begin, end;
  __device__ explicit WarpPart(int count) {
    const int steps = (count + 32 * kWarps - 1) / (32 * kWarps);
    begin = min(count, static_cast<int>(threadIdx.x) / 32 * steps * 32);
    end = min(count, begin + steps * 32);
  }
};

struct Draw {
  const Row& row;
  float maximum, scale;
  Kept kept;
  std::uint64_t least;

  // Weight of token i, 0 if dropped. `ties`: of the warp's tokens before, updated. Warp collective; all lanes.
  [[nodiscard]] __device__ Weight weight(int i, int end, unsigned& ties) const {
    const bool inside = i < end;
    const float value = inside ? row[i] : 0.0f;
    const std::uint32_t key = logit_key(value);
    const bool tie = inside && key == kept.key;
    const unsigned all = __ballot_sync(kEvery, tie);
    const unsigned rank = ties + static_cast<unsigned>(__popc(all & ((1u << threadIdx.x % 32) - 1)));
    ties += static_cast<unsigned>(__popc(all));
    if (!inside || key < kept.key || (tie && rank >= kept.ties)) return 0;
    const std::uint64_t own = sampling_weight(value, maximum, scale);
    return own >= least ? own : 0;
  }
};

__device__ Weight warp_sum(Weight value) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(kEvery, value, offset);
  return value;
}

// The token at the uniform point of the kept weights, in scratch.found.
__device__ void draw_token(Scratch& scratch, const Draw& draw, std::uint64_t uniform) {
  __shared__ unsigned ties_of[kWarps];
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const WarpPart part(draw.row.count);
  unsigned ties = 0;
  if (draw.kept.ties != kEvery)
    for (int first = part.begin; first < part.end; first += 32)
      ties += static_cast<unsigned>(
          __popc(__ballot_sync(kEvery, first + lane < part.end && logit_key(draw.row[first + lane]) == draw.kept.key)));
  if (lane == 0) ties_of[warp] = ties;
  __syncthreads();
  unsigned before = 0;
  for (int w = 0; w < warp; ++w) before += ties_of[w];
  Weight sum = 0;
  unsigned met = before;
  for (int first = part.begin; first < part.end; first += 32) sum += draw.weight(first + lane, part.end, met);
  sum = warp_sum(sum);
  if (lane == 0) scratch.words[warp] = sum;
  __syncthreads();
  Weight total = 0, start = 0;
  for (int w = 0; w < kWarps; ++w) {
    if (w == warp) start = total;
    total += scratch.words[w];
  }
  const Weight point = weight_point(uniform, total);
  if (point < start || point >= start + sum) return;
  met = before;
  Weight passed = start;
  for (int first = part.begin; first < part.end; first += 32) {
    const Weight own = draw.weight(first + lane, part.end, met);
    Weight through = own;
#pragma unroll
    for (int offset = 1; offset < 32; offset *= 2) {
      const Weight other = __shfl_up_sync(kEvery, through, offset);
      if (lane >= offset) through += other;
    }
    const unsigned beyond = __ballot_sync(kEvery, passed + through > point);
    if (beyond != 0) {
      if (lane == 0) scratch.found = static_cast<unsigned>(first + __ffs(static_cast<int>(beyond)) - 1);
      return;
    }
    passed += __shfl_sync(kEvery, through, 31);
  }
}

__device__ Row row_of(const Params& p, const SamplingRow& options) {
  const bool penalizes = p.seen != nullptr && options.penalty != 1.0f;
  return {p.logits + std::int64_t{blockIdx.x} * p.vocabulary,
          penalizes ? p.seen + std::int64_t{options.to} * p.seen_words : nullptr,
          p.allowed != nullptr ? p.allowed + std::int64_t{options.to} * p.allowed_words : nullptr, p.vocabulary,
          options.penalty};
}

// Grid: rows, parts.
__global__ __launch_bounds__(kPartThreads) void find_maxima_kernel(const __grid_constant__ Params p) {
  __shared__ Weight keys[33];
  __shared__ unsigned indices[33];
  __shared__ float maxima[33];
  pdl_sync();
  const Row row = row_of(p, p.rows[blockIdx.x]);
  unsigned nonfinite = kEvery;
  float highest = -INFINITY;
  Weight best = 0;
#pragma unroll
  for (int j = 0; j < kPartSize / kPartThreads; ++j) {
    const int i = static_cast<int>(blockIdx.y) * kPartSize + j * kPartThreads + static_cast<int>(threadIdx.x);
    if (i >= row.count) break;
    const float logit = row.logits[i];
    if (!isfinite(logit)) nonfinite = min(nonfinite, static_cast<unsigned>(i));
    highest = fmaxf(highest, logit);
    const bool changes = row.seen != nullptr || row.allowed != nullptr;
    best = max(best, Weight{logit_key(changes ? row[i] : logit)} << 32 | ~static_cast<unsigned>(i));
  }
  nonfinite = block_reduce<kPartThreads>(nonfinite, kEvery, indices, Smaller());
  highest = block_reduce<kPartThreads>(highest, -INFINITY, maxima, Max());
  best = block_reduce<kPartThreads>(best, Weight{0}, keys, LargerWeight());
  if (threadIdx.x == 0) p.parts[blockIdx.x * p.part_count + blockIdx.y] = {best, 0, nonfinite, highest};
}

// All parts of the CTA's row.
template <int kBlockThreads>
__device__ Part whole_row(const Params& p) {
  __shared__ Weight keys[33], sums[33];
  __shared__ unsigned indices[33];
  __shared__ float maxima[33];
  Part all{0, 0, kEvery, -INFINITY};
  for (int i = static_cast<int>(threadIdx.x); i < p.part_count; i += kBlockThreads) {
    const Part part = p.parts[blockIdx.x * p.part_count + i];
    all = {max(all.best, part.best), all.sum + part.sum, min(all.nonfinite, part.nonfinite),
           fmaxf(all.highest, part.highest)};
  }
  return {block_reduce<kBlockThreads>(all.best, Weight{0}, keys, LargerWeight()),
          block_reduce<kBlockThreads>(all.sum, Weight{0}, sums, Sum()),
          block_reduce<kBlockThreads>(all.nonfinite, kEvery, indices, Smaller()),
          block_reduce<kBlockThreads>(all.highest, -INFINITY, maxima, Max())};
}

// Grid: rows, parts.
__global__ __launch_bounds__(kPartThreads) void sum_weights_kernel(const __grid_constant__ Params p) {
  __shared__ Weight sums[33];
  __shared__ float maxima[33];
  pdl_sync();
  float highest = -INFINITY;
  for (int i = static_cast<int>(threadIdx.x); i < p.part_count; i += kPartThreads)
    highest = fmaxf(highest, p.parts[blockIdx.x * p.part_count + i].highest);
  highest = block_reduce<kPartThreads>(highest, -INFINITY, maxima, Max());
  const float* const logits = p.logits + std::int64_t{blockIdx.x} * p.vocabulary;
  Weight sum = 0;
#pragma unroll
  for (int j = 0; j < kPartSize / kPartThreads; ++j) {
    const int i = static_cast<int>(blockIdx.y) * kPartSize + j * kPartThreads + static_cast<int>(threadIdx.x);
    if (i >= p.vocabulary) break;
    sum += sampling_weight(logits[i], highest, 1.44269504088896340736f);
  }
  sum = block_reduce<kPartThreads>(sum, Weight{0}, sums, Sum());
  if (threadIdx.x == 0) p.parts[blockIdx.x * p.part_count + blockIdx.y].sum = sum;
}

// Grid: rows.
__global__ __launch_bounds__(kThreads) void choose_tokens_kernel(const __grid_constant__ Params p) {
  __shared__ Scratch scratch;
  pdl_sync();
  const SamplingRow options = p.rows[blockIdx.x];
  const Row row = row_of(p, options);
  const int thread = static_cast<int>(threadIdx.x);
  const auto [best, sum, nonfinite, highest] = whole_row<kThreads>(p);
  SampledRow result{0, -1, 0, -INFINITY, 0};
  if (nonfinite != kEvery) {
    if (thread != 0) return;
    result.first_nonfinite = static_cast<std::int32_t>(nonfinite);
    p.sampled[blockIdx.x] = result;
    p.tokens[options.to] = 0;
    return;
  }
  const auto most_likely = static_cast<int>(~static_cast<unsigned>(best & 0xFFFFFFFFu));
  int token = most_likely;
  if (options.scale != 0.0f) {
    const float maximum = row[most_likely];
    Kept kept;
    if (options.top_k > 0 && options.top_k < row.count)
      kept =
          keep_until(scratch, row, maximum, kept, static_cast<Weight>(options.top_k), [](float) { return Weight{1}; });
    if (options.top_p < 1.0f) {
      const auto weight = [&](float value) -> Weight { return sampling_weight(value, maximum, options.scale); };
      Weight total = 0;
      for (int i = thread; i < row.count; i += kThreads)
        if (logit_key(row[i]) > kept.key || kept.ties == kEvery) total += weight(row[i]);
      __syncthreads();
      total = block_reduce<kThreads>(total, Weight{0}, scratch.words, Sum());
      if (kept.ties != kEvery) total += weight(logit_of(kept.key)) * kept.ties;  // equal weights
      __syncthreads();
      kept = keep_until(scratch, row, maximum, kept, weight_share(options.top_p, total), weight);
    }
    __syncthreads();
    draw_token(scratch, {row, maximum, options.scale, kept, weight_share(options.min_p, kUnitWeight)}, options.uniform);
    __syncthreads();
    token = static_cast<int>(scratch.found);
  }
  if (thread != 0) return;
  result.token = token;
  result.logit = row.logits[token];
  result.maximum = highest + 0.0f;  // the positive one of two zeros
  result.sum = sum;
  p.sampled[blockIdx.x] = result;
  p.tokens[options.to] = token;
  if (row.seen != nullptr) {
    std::int32_t* const word = p.seen + std::int64_t{options.to} * p.seen_words + token / 32;
    *word = static_cast<std::int32_t>(static_cast<std::uint32_t>(*word) | 1u << token % 32);
  }
}

void sample_tokens_cuda(const SampleTokensArgs& args) {
  const OpLaunch launch("sample_tokens",
                        {&args.logits, &args.rows, &args.tokens, &args.seen, &args.sampled, &args.allowed});
  const std::int64_t rows = args.logits.size(0), vocabulary = args.logits.size(1);
  const std::int64_t part_count = (vocabulary + kPartSize - 1) / kPartSize;
  const MemoryScope scope(MemoryCategory::workspace);
  const Tensor parts =
      Tensor::empty({rows, part_count, static_cast<std::int64_t>(sizeof(Part))}, DType::u8, launch.device());
  const Params params{.logits = args.logits.data<float>(),
                      .rows = reinterpret_cast<const SamplingRow*>(args.rows.raw_data()),
                      .tokens = args.tokens.data<std::int32_t>(),
                      .seen = args.seen.defined() ? args.seen.data<std::int32_t>() : nullptr,
                      .allowed = args.allowed.defined() ? args.allowed.data<std::int32_t>() : nullptr,
                      .sampled = reinterpret_cast<SampledRow*>(args.sampled.raw_data()),
                      .parts = reinterpret_cast<Part*>(parts.raw_data()),
                      .vocabulary = static_cast<int>(vocabulary),
                      .seen_words = args.seen.defined() ? static_cast<int>(args.seen.size(1)) : 0,
                      .allowed_words = args.allowed.defined() ? static_cast<int>(args.allowed.size(1)) : 0,
                      .part_count = static_cast<int>(part_count)};
  const dim3 grid(static_cast<unsigned>(rows), static_cast<unsigned>(part_count));
  launch.early(rows, find_maxima_kernel, grid, kPartThreads, 0, params);
  launch.early(rows, sum_weights_kernel, grid, kPartThreads, 0, params);
  launch.early(rows, choose_tokens_kernel, static_cast<unsigned>(rows), kThreads, 0, params);
}

QUENCH_CUDA_KERNEL(sample_tokens_slot, sample_tokens_cuda);

}  // namespace
}  // namespace quench::cuda
