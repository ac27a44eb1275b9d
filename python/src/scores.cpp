// quench.Model.score.

#include <algorithm>
#include <cmath>

#include "core/system/check.h"
#include "python/src/arrays.h"
#include "python/src/model_handle.h"

namespace quench::python {
namespace {

using Pair = std::pair<std::vector<std::int32_t>, std::vector<std::int32_t>>;
using Score = std::pair<double, bool>;

// Most input tokens of a forward pass, if it has more than one pair.
constexpr std::int64_t kTokensPerPass = 4096;

std::int64_t input_tokens(const Pair& pair) {
  return static_cast<std::int64_t>(pair.first.size() + pair.second.size()) - 1;
}

// `logits` f32 [N,V] on the CPU, of the rows that predict `continuation`.
Score score_rows(const Tensor& logits, std::span<const std::int32_t> continuation) {
  const std::int64_t vocabulary = logits.size(1);
  Score score{0, true};
  for (std::size_t i = 0; i < continuation.size(); ++i) {
    const std::span row(logits.data<float>() + static_cast<std::int64_t>(i) * vocabulary,
                        static_cast<std::size_t>(vocabulary));
    const auto largest = std::ranges::max_element(row);
    double sum = 0;
    for (const float logit : row) sum += std::exp(static_cast<double>(logit) - static_cast<double>(*largest));
    score.first += static_cast<double>(row[continuation[i]]) - static_cast<double>(*largest) - std::log(sum);
    score.second &= largest - row.begin() == continuation[i];
  }
  QUENCH_CHECK_AS(ErrorCode::nonfinite, std::isfinite(score.first), "the model's logits are not finite");
  return score;
}

void score_pass(const nn::CausalLm& model, std::span<const Pair> pairs, std::vector<Score>& scores) {
  const autograd::NoGrad no_grad;
  std::vector<std::int32_t> inputs;
  std::vector<SequenceRange> sequences;
  for (const auto& [context, continuation] : pairs) {
    const auto begin = static_cast<std::int64_t>(inputs.size());
    inputs.insert(inputs.end(), context.begin(), context.end());
    inputs.insert(inputs.end(), continuation.begin(), continuation.end() - 1);
    const std::int64_t length = static_cast<std::int64_t>(inputs.size()) - begin;
    sequences.push_back({begin, length, begin, length});
  }
  const auto tokens = static_cast<std::int64_t>(inputs.size());
  const Tensor ids = Tensor::from_values<std::int32_t>({tokens}, inputs).to(model.options().device);
  const autograd::Variable hidden = model.hidden(ids, model.make_context(sequences, tokens));
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const auto count = static_cast<std::int64_t>(pairs[i].second.size());
    const std::int64_t end = sequences[i].q_begin + sequences[i].q_length;
    const autograd::Variable rows(hidden.value().narrow(0, end - count, count));
    scores.push_back(score_rows(model.logits(rows).to(Device{}), pairs[i].second));
  }
}

std::vector<Score> score(const ModelHandle& self, nb::handle pairs) {
  const std::int64_t vocabulary = self.model->config().vocab_size;
  std::vector<Pair> all;
  for (const nb::handle item : pairs) {
    QUENCH_CHECK(PySequence_Check(item.ptr()) != 0 && nb::len(item) == 2, "pairs[{}]: expected (context, continuation)",
                 all.size());
    all.emplace_back(token_list(item[0], vocabulary, fmt::format("pairs[{}], context", all.size())),
                     token_list(item[1], vocabulary, fmt::format("pairs[{}], continuation", all.size())));
  }
  return self.run([&] {
    std::vector<Score> scores;
    for (std::size_t begin = 0; begin < all.size();) {
      std::size_t end = begin;
      for (std::int64_t tokens = 0; end < all.size(); ++end) {
        tokens += input_tokens(all[end]);
        if (end > begin && tokens > kTokensPerPass) break;
      }
      check_python_signals();
      score_pass(*self.model, std::span(all).subspan(begin, end - begin), scores);
      begin = end;
    }
    return scores;
  });
}

}  // namespace

void bind_scores(nb::class_<ModelHandle>& type) {
  type.def("score", score, nb::arg("pairs"),
           "Log-likelihood in nats of each continuation after its context, and whether greedy generation gives it.\n\n"
           "Args:\n"
           "  pairs: list of (context, continuation), token ids, neither empty; pairs do not see each other.\n\n"
           "Returns: list of (float, bool).");
}

}  // namespace quench::python
